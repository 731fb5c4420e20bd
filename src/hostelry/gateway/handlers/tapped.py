"""One invocation as data capture and a shadow variant get it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from msgspec import structs

from hostelry.aws.runtime import InvokeRequest
from hostelry.base.http import HttpRequest
from hostelry.dataplane.capture.capture import UNWRITTEN, CapturedRequest, RequestCapture
from hostelry.dataplane.invocation_head import invocation_head
from hostelry.dataplane.route_table import Destination, Shadow
from hostelry.dataplane.tracing.call_ring import CallRing
from hostelry.domain.load import LoadKey
from hostelry.gateway.mirror import AnswerTap
from hostelry.gateway.mirroring.messages import MirroredInvocation, address_of
from hostelry.gateway.mirroring.port import MirrorPort
from hostelry.gateway.mirroring.tap_defects import TapDefects


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestTaps:
    """What else gets requests, and never delays them: data capture, and shadow variants.

    `not_mirrored` counts a request that a shadow did not get. `calls` keeps what was done for each.
    """

    capture: RequestCapture
    mirror: MirrorPort
    not_mirrored: Callable[[LoadKey], None]
    defects: TapDefects
    calls: CallRing


class _GuardedTaps:
    """Taps as one; a defect of one costs neither the client nor the others anything."""

    __slots__ = ("_count", "_defects", "_taps")

    def __init__(
        self, taps: list[AnswerTap], defects: TapDefects, count: Callable[[], None]
    ) -> None:
        self._taps = taps
        self._defects = defects
        self._count = count

    def add(self, chunk: bytes) -> None:
        """Take the next part."""
        for tap in self._taps:
            self._defects.guarded(self._count, tap.add, chunk)

    def finish(self, answered: Mapping[str, str]) -> None:
        """The answer is whole."""
        for tap in self._taps:
            self._defects.guarded(self._count, tap.finish, answered)

    def close(self) -> None:
        """No more will come."""
        for tap in self._taps:
            self._defects.guarded(self._count, tap.close)


class TappedInvocation:
    """One invocation, which is mirrored and captured at most once however often it is sent.

    Beside a shadow it is decided when it is first sent whether it is captured: for both answers.
    """

    __slots__ = (
        "_compared",
        "_head",
        "_is_captured",
        "_is_offered",
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
        self._compared: AnswerTap | None = None  # takes production's answer, for the shadow's
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
        taps = self._taps
        taps.defects.guarded(
            partial(taps.not_mirrored, shadow.key), self._offer, destination, shadow
        )

    def tap(self, destination: Destination) -> AnswerTap | None:
        """What the client's answer is added to, to be closed by the caller; None without any."""
        self.offer(destination)  # where the answer is there before its turn came
        if destination.capture is None and self._compared is None:
            return None
        taps = self._taps
        count = partial(taps.capture.dropped, destination.key, UNWRITTEN)
        captured = taps.defects.guarded(count, self._captured, destination)
        found = [it for it in (captured, self._compared) if it is not None]
        return _GuardedTaps(found, taps.defects, count) if found else None

    def _offer(self, destination: Destination, shadow: Shadow) -> None:
        invocation, taps = self.invocation, self._taps
        self._is_captured = taps.capture.is_turn(destination)
        if not taps.mirror.is_turn(shadow):
            return
        head = self.head(destination)
        if invocation.session_id is not None:
            alone = structs.replace(invocation, session_id=None)
            head = invocation_head(alone, destination, self.request, self.request_id)
        captured = (
            (invocation.content_type, invocation.inference_id, invocation.custom_attributes)
            if self._is_captured
            else None
        )
        mirrored = MirroredInvocation(
            shadow=address_of(shadow.key),
            head=head,
            request_id=self.request_id,
            is_stream=invocation.stream,
            captured=captured,
        )
        self._compared = taps.mirror.offer(shadow, mirrored, self.request.body)

    def _captured(self, destination: Destination) -> AnswerTap | None:
        """The capture of the client's answer; None where it is not captured."""
        capture, is_captured = self._taps.capture, self._is_captured
        if is_captured is None:
            is_captured = capture.is_turn(destination)
        if not is_captured:
            return None
        invocation = self.invocation
        asked = CapturedRequest(
            self.request_id,
            self.request.body,
            invocation.content_type,
            invocation.inference_id,
            invocation.custom_attributes,
        )
        return capture.begin(destination, asked)
