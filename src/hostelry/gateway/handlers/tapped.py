"""One invocation as data capture and a shadow variant get it."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

from msgspec import structs

from hostelry.aws.runtime import InvokeRequest
from hostelry.base.http import HttpRequest
from hostelry.gateway.answer_pairs import AnswerPair, AnswerPairs
from hostelry.gateway.capture.capture import CapturedRequest, RequestCapture
from hostelry.gateway.handlers.invocation_head import invocation_head
from hostelry.gateway.mirror import AnswerTap, ShadowMirror
from hostelry.gateway.route_table import Destination
from hostelry.gateway.tracing.call_ring import CallRing


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestTaps:
    """What else gets requests, and never delays them: data capture, and shadow variants.

    `pairs` compares a shadow's answers with production's. `calls` keeps what was done for each.
    """

    capture: RequestCapture
    mirror: ShadowMirror
    pairs: AnswerPairs
    calls: CallRing


class _BothTaps:
    """Two taps as one."""

    __slots__ = ("_taps",)

    def __init__(self, *taps: AnswerTap) -> None:
        self._taps = taps

    def add(self, chunk: bytes) -> None:
        """Take the next part."""
        for tap in self._taps:
            tap.add(chunk)

    def finish(self, answered: Mapping[str, str]) -> None:
        """The answer is whole."""
        for tap in self._taps:
            tap.finish(answered)

    def close(self) -> None:
        """No more will come."""
        for tap in self._taps:
            tap.close()


class TappedInvocation:
    """One invocation, which is mirrored and captured at most once however often it is sent.

    Beside a shadow it is decided when it is first sent whether it is captured: for both answers.
    """

    __slots__ = (
        "_head",
        "_is_captured",
        "_is_offered",
        "_pair",
        "_taps",
        "invocation",
        "request",
        "request_id",
    )

    def __init__(
        self, taps: RequestTaps, invocation: InvokeRequest, request: HttpRequest, request_id: str
    ) -> None:
        self.invocation = invocation
        self.request = request
        self.request_id = request_id
        self._taps = taps
        self._is_offered = False
        self._is_captured: bool | None = None  # not decided yet
        self._pair: AnswerPair | None = None
        self._head: bytes | None = None  # beside a shadow, which gets the same one

    def head(self, destination: Destination) -> bytes:
        """The request's head for a copy of `destination`, without the end that is the copy's."""
        if self._head is not None:
            return self._head
        head = invocation_head(self.invocation, destination, self.request, self.request_id)
        if destination.shadow is not None:
            self._head = head  # a variant with a model has no adapters: one for all its copies
        return head

    def offer(self, destination: Destination) -> None:
        """Offer it to the shadow of `destination`, if any; it is sent once the caller waits.

        Without its session, as the shadow's copies do not know those of production's.
        """
        shadow = destination.shadow
        if shadow is None or self._is_offered:
            return
        self._is_offered = True
        invocation, request, capture = self.invocation, self.request, self._taps.capture
        self._is_captured = capture.is_turn(destination)
        captured = capture.begin(shadow, self._captured_request()) if self._is_captured else None
        head = partial(self.head, destination)
        if invocation.session_id is not None:
            alone = structs.replace(invocation, session_id=None)
            head = partial(invocation_head, alone, destination, request, self.request_id)
        self._pair = pair = self._taps.pairs.begin(shadow.key)
        found = (captured, None if pair is None else pair.shadow)
        taps = tuple(it for it in found if it is not None)
        self._taps.mirror.offer(shadow, head, request.body, taps, is_stream=invocation.stream)

    def tap(self, destination: Destination) -> AnswerTap | None:
        """What the client's answer is added to, to be closed by the caller; None without any."""
        is_captured, capture = self._is_captured, self._taps.capture
        if is_captured is None:
            is_captured = capture.is_turn(destination)
        captured = capture.begin(destination, self._captured_request()) if is_captured else None
        pair = self._pair
        if pair is None:
            return captured
        return pair.production if captured is None else _BothTaps(captured, pair.production)

    def _captured_request(self) -> CapturedRequest:
        invocation = self.invocation
        return CapturedRequest(
            self.request_id,
            self.request.body,
            invocation.content_type,
            invocation.inference_id,
            invocation.custom_attributes,
        )
