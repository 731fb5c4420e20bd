"""One invocation on its way to a copy: of one container, of a model of many, or of a pipeline."""

from dataclasses import dataclass
from functools import partial

from hostelry.dataplane.balancing.load_balancer import Chosen, InFlightRequest, uncounted
from hostelry.dataplane.balancing.model_balancer import Balancers, ModelRequest
from hostelry.dataplane.balancing.pipeline import PipelineLimits, PipelineStep, through_pipeline
from hostelry.dataplane.http.upstream import Timeouts
from hostelry.dataplane.invocation_head import invocation_head, step_head
from hostelry.dataplane.metering.meter import Measurement
from hostelry.dataplane.route_table import Destination
from hostelry.gateway.handlers.tapped import TappedInvocation


@dataclass(frozen=True, slots=True, kw_only=True)
class InvocationCall:
    """Sends an invocation to copies.

    The time in `timeouts` is that of all its containers together; `max_answer_bytes` is the limit
    of each of their whole answers.
    """

    balancers: Balancers
    tapped: TappedInvocation
    timeouts: Timeouts
    max_answer_bytes: int

    async def send(
        self, fleet: Destination, chosen: Chosen, measured: Measurement
    ) -> InFlightRequest:
        """It on a copy of `fleet`, on a pipeline's last container, or on the one that refuses it.

        Raises as the balancers and `through_pipeline` do.
        """
        if not fleet.copies or fleet.copies[0].container is None:
            return await self._send_first(fleet, chosen, measured)
        measured.at_container(fleet.copies[0].container)
        first = await self._send_first(fleet, chosen, measured)
        if not fleet.is_pipeline:
            return first

        async def send_on(step: PipelineStep) -> InFlightRequest:
            return await self._send_on(fleet, first, step, measured)

        limits = PipelineLimits(total_s=self.timeouts.total_s, max_body_bytes=self.max_answer_bytes)
        return await through_pipeline(first, send_on, limits, measured)

    async def _send_first(
        self, fleet: Destination, chosen: Chosen, measured: Measurement
    ) -> InFlightRequest:
        """It on a copy, the first one of a pipeline."""
        invocation, request = self.tapped.invocation, self.tapped.request
        streams = invocation.stream and not fleet.is_pipeline
        whole_below_bytes = None if streams else self.max_answer_bytes
        copies, request_id = self.balancers.copies, self.tapped.request_id
        if invocation.target_model is not None and fleet.begins_with_models:
            return await self.balancers.models.send(
                fleet.copies,
                ModelRequest(
                    key=fleet.key,
                    target=invocation.target_model,
                    head=partial(invocation_head, invocation, fleet, request, request_id),
                    body=request.body,
                    timeouts=self.timeouts,
                    whole_below_bytes=whole_below_bytes,
                    chosen=chosen,
                    leased=lambda it: measured.leased(
                        hit=it.hit, waited_s=it.waited_s, times=it.times
                    ),
                ),
            )
        parts = (self.tapped.head(fleet), request.body)
        if fleet.serverless is not None:
            return await copies.send_to_free(
                fleet.copies, parts, self.timeouts, whole_below_bytes, chosen
            )
        return await copies.send(
            fleet.copies,
            fleet.routing,
            parts,
            self.timeouts,
            whole_below_bytes,
            fleet.adapter_id,
            chosen,
        )

    async def _send_on(
        self, fleet: Destination, first: InFlightRequest, step: PipelineStep, measured: Measurement
    ) -> InFlightRequest:
        """It on a further container of the pipeline, which may be the one of many models."""
        invocation, request = self.tapped.invocation, self.tapped.request
        streams = invocation.stream and step.is_last
        whole_below_bytes = None if streams else self.max_answer_bytes
        head = partial(step_head, invocation, step, request, self.tapped.request_id)
        if invocation.target_model is not None and step.copy.models_address is not None:
            return await self.balancers.models.send(
                (step.copy,),
                ModelRequest(
                    key=fleet.key,
                    target=invocation.target_model,
                    head=head,
                    body=step.body,
                    timeouts=step.timeouts,
                    whole_below_bytes=whole_below_bytes,
                    chosen=_chosen_before,
                    leased=lambda it: measured.leased(
                        hit=it.hit, waited_s=it.waited_s, times=it.times
                    ),
                ),
            )
        reply = await self.balancers.copies.send_on(
            first.copy, step.copy, (head(), step.body), step.timeouts, whole_below_bytes
        )
        return InFlightRequest(step.copy, reply, uncounted)


def _chosen_before(copy_id: str, num_on_copies: int, config: str | None, route: object) -> None:
    """The copy was chosen with the first container."""
