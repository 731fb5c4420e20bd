"""The mirror process's end of a gateway worker's line."""

import asyncio
import logging
from collections.abc import Callable
from functools import partial

import msgspec

from hostelry.dataplane.capture.capture import CapturedRequest, RequestCapture
from hostelry.dataplane.route_table import Shadow
from hostelry.dataplane.routes import RouteSource
from hostelry.domain.load import LoadKey
from hostelry.domain.scope import Scope
from hostelry.gateway.answer_pairs import AnswerPair, AnswerPairs
from hostelry.gateway.mirror import AnswerTap, ShadowMirror
from hostelry.gateway.mirroring.messages import (
    FrameError,
    FrameReader,
    MirroredInvocation,
    ProductionAnswer,
    ShadowAddress,
)
from hostelry.gateway.mirroring.port import ShadowTurns, TapDefects

LOG = logging.getLogger(__name__)


class MirrorIntake:
    """Sends requests to shadows, and has the answers captured and compared."""

    def __init__(self, mirror: ShadowMirror, capture: RequestCapture, pairs: AnswerPairs) -> None:
        self._mirror = mirror
        self._capture = capture
        self._pairs = pairs

    def begin_pair(self, key: LoadKey) -> AnswerPair | None:
        """Begin the pair of a request to the shadow `key`. None if too many pairs wait."""
        return self._pairs.begin(key)

    def take(
        self,
        shadow: Shadow,
        request: MirroredInvocation,
        body: bytes,
        pair: AnswerPair | None,
    ) -> None:
        """Send a request if the mirror has room. Its answer is the shadow's half of `pair`."""
        taps: list[AnswerTap] = []
        if request.captured is not None:
            asked = CapturedRequest(request.request_id, body, *request.captured)
            captured = self._capture.begin(shadow, asked)
            if captured is not None:
                taps.append(captured)
        if pair is not None:
            taps.append(pair.shadow)
        self._mirror.offer(shadow, request.head, body, taps, is_stream=request.is_stream)

    @property
    def num_in_flight(self) -> int:
        """Number of requests in flight on shadow copies, or about to be sent."""
        return self._mirror.num_in_flight

    async def close(self) -> None:
        """Cut the requests in flight, and cancel the comparisons."""
        await self._mirror.close()
        await self._pairs.close()


class OwnMirror:
    """The mirror in the gateway worker itself (`MirrorPort`)."""

    def __init__(self, intake: MirrorIntake, turns: ShadowTurns) -> None:
        self._intake = intake
        self.is_turn = turns.is_turn

    def offer(self, shadow: Shadow, request: MirroredInvocation, body: bytes) -> AnswerTap | None:
        """Send a request soon. The result takes production's answer if it is compared."""
        pair = self._intake.begin_pair(shadow.key)
        self._intake.take(shadow, request, body, pair)
        return None if pair is None else pair.production

    @property
    def num_in_flight(self) -> int:
        """Number of requests in flight on shadow copies, or about to be sent."""
        return self._intake.num_in_flight

    async def close(self) -> None:
        """Cut the requests in flight, and cancel the comparisons."""
        await self._intake.close()


DELAY_S = 0.105  # longer than a worker waits to send its batch
LEAST_DELAY_S = 0.001
MAX_HELD_BYTES = 64 * 1024 * 1024  # requests beyond this limit are sent early
MAX_OPEN_PAIRS = 256  # pairs that wait for production's answer, each with at most 64 KiB


class MirrorEnd(msgspec.Struct, frozen=True, kw_only=True):
    """The part of a mirror process that all its lines share.

    `dropped` counts a request that a shadow does not get. Bodies have at most `max_body_bytes`. A
    request is sent `delay_s` after the worker offered it, by the clock `now_s`. `call_later` works
    as the event loop's.
    """

    routes: RouteSource
    intake: MirrorIntake
    dropped: Callable[[LoadKey], None]
    defects: TapDefects
    max_body_bytes: int
    now_s: Callable[[], float]
    call_later: Callable[[float, Callable[[], None]], object]
    delay_s: float = DELAY_S

    def send(self, request: MirroredInvocation, body: bytes, pair: AnswerPair | None) -> None:
        """Send a request whose time has come."""
        key = to_load_key(request.shadow)
        shadow = self.routes.table.shadow(request.shadow)
        if shadow is None:  # it was removed, or this process does not know it yet
            self.dropped(key)
            return
        count = partial(self.dropped, key)
        self.defects.guarded(count, self.intake.take, shadow, request, body, pair)


class MirrorLine(asyncio.Protocol):
    """One worker's connection. A malformed frame ends only this connection."""

    def __init__(self, end: MirrorEnd) -> None:
        self._end = end
        self._reader = FrameReader(end.max_body_bytes)
        self._transport: asyncio.BaseTransport
        self._pairs: dict[int, AnswerPair] = {}
        self._held_bytes = 0  # of requests that are not due yet

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport, to close it later."""
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Take the whole frames."""
        try:
            for message, body in self._reader.frames(data):
                if isinstance(message, ProductionAnswer):
                    self._pass_answer(message, body)
                else:
                    self._take(message, body)
        except FrameError as error:
            LOG.warning("a gateway worker's line is ended: %s", error)
            self._transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        """Give up the pairs whose production answer has not arrived."""
        for pair in self._pairs.values():
            pair.give_up()
        self._pairs.clear()

    def _take(self, request: MirroredInvocation, body: bytes) -> None:
        """Send a request when it is due: requests keep the intervals of production's requests."""
        end = self._end
        pair = end.intake.begin_pair(to_load_key(request.shadow)) if request.pair > 0 else None
        if pair is not None:
            self._pairs[request.pair] = pair
            if len(self._pairs) > MAX_OPEN_PAIRS:
                self._pairs.pop(next(iter(self._pairs))).give_up()
        early_s = request.offered_at_s + end.delay_s - end.now_s()
        if early_s < LEAST_DELAY_S or self._held_bytes > MAX_HELD_BYTES:
            end.send(request, body, pair)
            return
        self._held_bytes += len(body)
        end.call_later(min(early_s, end.delay_s), partial(self._due, request, body, pair))

    def _due(self, request: MirroredInvocation, body: bytes, pair: AnswerPair | None) -> None:
        self._held_bytes -= len(body)
        self._end.send(request, body, pair)

    def _pass_answer(self, answer: ProductionAnswer, body: bytes) -> None:
        pair = self._pairs.pop(answer.pair, None)
        if pair is None:
            return
        if answer.is_whole:
            pair.production.add(body)
            pair.production.finish({})
        pair.production.close()


def to_load_key(address: ShadowAddress) -> LoadKey:
    """Build the key that counts a shadow variant's requests."""
    account, region, endpoint_name, variant_name = address
    return LoadKey(
        scope=Scope(account, region), endpoint_name=endpoint_name, variant_name=variant_name
    )
