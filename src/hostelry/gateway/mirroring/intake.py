"""Intake of a mirror: a request, its taps, and its pair of answers."""

from hostelry.dataplane.capture.capture import CapturedRequest, RequestCapture
from hostelry.dataplane.route_table import Shadow
from hostelry.domain.load import LoadKey
from hostelry.gateway.answer_pairs import AnswerPair, AnswerPairs
from hostelry.gateway.mirror import AnswerTap, ShadowMirror
from hostelry.gateway.mirroring.messages import MirroredInvocation
from hostelry.gateway.mirroring.turns import ShadowTurns


class MirrorIntake:
    """Sends requests whose turn it is, and has the answers captured and compared."""

    def __init__(self, mirror: ShadowMirror, capture: RequestCapture, pairs: AnswerPairs) -> None:
        self._mirror = mirror
        self._capture = capture
        self._pairs = pairs

    def begin_pair(self, key: LoadKey) -> AnswerPair | None:
        """The pair of a request for the shadow `key`; None while enough wait to be compared."""
        return self._pairs.begin(key)

    def take(
        self,
        shadow: Shadow,
        request: MirroredInvocation,
        body: bytes,
        pair: AnswerPair | None,
    ) -> None:
        """Send a request, unless there is no room; its answer is the shadow's half of `pair`."""
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
        """Requests in flight on shadow copies, and those about to be."""
        return self._mirror.num_in_flight

    async def close(self) -> None:
        """Cut what is in flight; compare no more."""
        await self._mirror.close()
        await self._pairs.close()


class OwnMirror:
    """The mirror in the gateway worker itself (`MirrorPort`)."""

    def __init__(self, intake: MirrorIntake, turns: ShadowTurns) -> None:
        self._intake = intake
        self.is_turn = turns.is_turn

    def offer(self, shadow: Shadow, request: MirroredInvocation, body: bytes) -> AnswerTap | None:
        """Send it once the caller waits; the result takes production's answer."""
        pair = self._intake.begin_pair(shadow.key)
        self._intake.take(shadow, request, body, pair)
        return None if pair is None else pair.production

    @property
    def num_in_flight(self) -> int:
        """Requests in flight on shadow copies, and those about to be."""
        return self._intake.num_in_flight

    async def close(self) -> None:
        """Cut what is in flight; compare no more."""
        await self._intake.close()
