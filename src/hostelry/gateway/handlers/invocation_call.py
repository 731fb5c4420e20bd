"""One invocation on its way to a copy, observed by data capture and shadow variants."""

from collections.abc import Callable, Mapping
from functools import partial

import msgspec
from msgspec import structs

from hostelry.aws.runtime import InvokeRequest
from hostelry.base.http import HttpRequest
from hostelry.dataplane.balancing.load_balancer import Chosen, InFlightRequest, skip_count
from hostelry.dataplane.balancing.model_balancer import Balancers, ModelRequest
from hostelry.dataplane.balancing.pipeline import PipelineLimits, PipelineStep, through_pipeline
from hostelry.dataplane.capture.capture import UNWRITTEN, CapturedRequest, RequestCapture
from hostelry.dataplane.invocation_head import invocation_head, step_head
from hostelry.dataplane.metering.meter import Measurement
from hostelry.dataplane.route_table import Destination, Shadow
from hostelry.dataplane.tracing.call_ring import CallRing
from hostelry.domain.load import LoadKey
from hostelry.gateway.mirror import AnswerTap
from hostelry.gateway.mirroring.messages import MirroredInvocation, to_shadow_address
from hostelry.gateway.mirroring.port import MirrorPort, TapDefects
from hostelry.gateway.queueing.turns import RequestTurn
from hostelry.http1.upstream import Timeouts


class RequestTaps(msgspec.Struct, frozen=True, kw_only=True):
    """Data capture and shadow variants, which get requests too and never delay them.

    `not_mirrored` counts a request that a shadow did not get. `calls` keeps the trace of each call.
    """

    capture: RequestCapture
    mirror: MirrorPort
    not_mirrored: Callable[[LoadKey], None]
    defects: TapDefects
    calls: CallRing


class _GuardedTaps:
    """Several taps as one. A defect of a tap reaches neither the client nor the other taps."""

    __slots__ = ("_count", "_defects", "_taps")

    def __init__(
        self, taps: list[AnswerTap], defects: TapDefects, count: Callable[[], None]
    ) -> None:
        self._taps = taps
        self._defects = defects
        self._count = count

    def add(self, chunk: bytes) -> None:
        """Add the next part of the answer."""
        for tap in self._taps:
            self._defects.guarded(self._count, tap.add, chunk)

    def finish(self, answered: Mapping[str, str]) -> None:
        """Mark the answer as whole."""
        for tap in self._taps:
            self._defects.guarded(self._count, tap.finish, answered)

    def close(self) -> None:
        """End the answer."""
        for tap in self._taps:
            self._defects.guarded(self._count, tap.close)


class _NoTaps:
    """The tap of an answer that nothing observes."""

    def add(self, chunk: bytes) -> None:
        """No-op."""

    def finish(self, answered: Mapping[str, str]) -> None:
        """No-op."""

    def close(self) -> None:
        """No-op."""


NO_TAPS = _NoTaps()


class TappedInvocation:
    """One invocation, which is mirrored and captured at most once, even if it is sent again.

    With a shadow, the first send decides whether both answers are captured.
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
        self._compared: AnswerTap | None = None  # production's answer, to compare the shadow's with
        self._head: bytes | None = None  # with a shadow, which gets the same head

    def head(self, destination: Destination) -> bytes:
        """Build the request's head for `destination`, without the lines that depend on the copy."""
        if self._head is not None:
            return self._head
        head = invocation_head(self.invocation, destination, self.request, self.request_id)
        if destination.shadow is not None:
            self._head = head  # all copies of a variant with a model get the same head
        return head

    def offer(self, destination: Destination) -> None:
        """Offer the request to the shadow of `destination`. It is sent once the caller waits.

        The session is left out, because the shadow's copies do not know production's sessions.
        """
        shadow = destination.shadow
        if shadow is None or self._is_offered:
            return
        self._is_offered = True
        taps = self._taps
        taps.defects.guarded(
            partial(taps.not_mirrored, shadow.key), self._offer, destination, shadow
        )

    def tap(self, destination: Destination) -> AnswerTap:
        """Return the tap that gets the client's answer. The caller closes it."""
        self.offer(destination)  # a fast answer may be here before the offer was made
        if destination.capture is None and self._compared is None:
            return NO_TAPS
        taps = self._taps
        count = partial(taps.capture.drop, destination.key, UNWRITTEN)
        captured = taps.defects.guarded(count, self._begin_capture, destination)
        found = [it for it in (captured, self._compared) if it is not None]
        return _GuardedTaps(found, taps.defects, count) if found else NO_TAPS

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
            shadow=to_shadow_address(shadow.key),
            head=head,
            request_id=self.request_id,
            is_stream=invocation.stream,
            captured=captured,
        )
        self._compared = taps.mirror.offer(shadow, mirrored, self.request.body)

    def _begin_capture(self, destination: Destination) -> AnswerTap | None:
        """Begin to capture the client's answer. None if it is not captured."""
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


class InvocationCall(msgspec.Struct, frozen=True, kw_only=True):
    """Sends an invocation to copies.

    `timeouts` limit all containers of a pipeline together. `max_answer_bytes` is the limit of each
    whole answer. With a `turn`, the invocation waits for its turn at a busy destination.
    """

    balancers: Balancers
    tapped: TappedInvocation
    timeouts: Timeouts
    max_answer_bytes: int
    turn: RequestTurn | None = None

    async def send(
        self, destination: Destination, chosen: Chosen, measured: Measurement
    ) -> InFlightRequest:
        """Send the invocation to a copy, and on through the containers of a pipeline.

        The result is in flight on the last container, or on the container that refused it. Raises
        as the balancers, `through_pipeline` and `RequestTurn.take` do.
        """
        if self.turn is not None:
            await self.turn.take(destination, measured, self.timeouts.total_s)
        if not destination.copies or destination.copies[0].container is None:
            return await self._send_first(destination, chosen, measured)
        measured.enter_container(destination.copies[0].container)
        in_flight = await self._send_first(destination, chosen, measured)
        if not destination.is_pipeline:
            return in_flight

        async def send_on(step: PipelineStep) -> InFlightRequest:
            return await self._send_on(destination, in_flight, step, measured)

        limits = PipelineLimits(total_s=self.timeouts.total_s, max_body_bytes=self.max_answer_bytes)
        return await through_pipeline(in_flight, send_on, limits, measured)

    async def _send_first(
        self, destination: Destination, chosen: Chosen, measured: Measurement
    ) -> InFlightRequest:
        """Send the invocation to a copy, or to the first container of a pipeline."""
        invocation, request = self.tapped.invocation, self.tapped.request
        streams = invocation.stream and not destination.is_pipeline
        whole_below_bytes = None if streams else self.max_answer_bytes
        copies, request_id = self.balancers.copies, self.tapped.request_id
        if invocation.target_model is not None and destination.begins_with_models:
            return await self.balancers.models.send(
                destination.copies,
                ModelRequest(
                    key=destination.key,
                    target=invocation.target_model,
                    head=partial(invocation_head, invocation, destination, request, request_id),
                    body=request.body,
                    timeouts=self.timeouts,
                    whole_below_bytes=whole_below_bytes,
                    chosen=chosen,
                    leased=lambda it: measured.record_lease(
                        hit=it.hit, waited_s=it.waited_s, times=it.times
                    ),
                ),
            )
        parts = (self.tapped.head(destination), request.body)
        if destination.serverless is not None:
            return await copies.send_to_free(
                destination.copies, parts, self.timeouts, whole_below_bytes, chosen
            )
        return await copies.send(
            destination.copies,
            destination.routing,
            parts,
            self.timeouts,
            whole_below_bytes,
            destination.adapter_id,
            chosen,
        )

    async def _send_on(
        self,
        destination: Destination,
        in_flight: InFlightRequest,
        step: PipelineStep,
        measured: Measurement,
    ) -> InFlightRequest:
        """Send the invocation to a further container of the pipeline. It may host many models."""
        invocation, request = self.tapped.invocation, self.tapped.request
        streams = invocation.stream and step.is_last
        whole_below_bytes = None if streams else self.max_answer_bytes
        head = partial(step_head, invocation, step, request, self.tapped.request_id)
        if invocation.target_model is not None and step.copy.models_address is not None:
            return await self.balancers.models.send(
                (step.copy,),
                ModelRequest(
                    key=destination.key,
                    target=invocation.target_model,
                    head=head,
                    body=step.body,
                    timeouts=step.timeouts,
                    whole_below_bytes=whole_below_bytes,
                    chosen=_chosen_before,
                    leased=lambda it: measured.record_lease(
                        hit=it.hit, waited_s=it.waited_s, times=it.times
                    ),
                ),
            )
        reply = await self.balancers.copies.send_on(
            in_flight.copy, step.copy, (head(), step.body), step.timeouts, whole_below_bytes
        )
        return InFlightRequest(step.copy, reply, skip_count)


def _chosen_before(copy_id: str, num_on_copies: int, config: str | None, route: object) -> None:
    """Do nothing: the copy was chosen with the first container."""
