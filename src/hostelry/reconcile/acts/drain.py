"""Drain of an instance, and its cancellation.

A draining instance gets no new copies. Another instance comes up in its place, as the endpoint
desires as many as before. Its copies are replaced on that instance, or on others that have room.
The drained instance ends once no copy serves from it and the last requests are done.
"""

from msgspec.structs import replace

from hostelry.domain.copy import Copy, Instance, InstanceState
from hostelry.domain.endpoint import Endpoint, EndpointVariant
from hostelry.placement.pack import place
from hostelry.placement.values import Host, Placed
from hostelry.reconcile.acts.act import (
    ActStep,
    PlannedAct,
    Way,
    get_serving_endpoint,
    refuse_act,
    report_unknown,
)
from hostelry.reconcile.plan.desired_copies import get_next_spec
from hostelry.reconcile.plan.endpoint_state import EndpointState, PlanContext
from hostelry.reconcile.plan.growth import get_next_type
from hostelry.reconcile.plan.placement_request import (
    build_copy_request,
    get_held,
    get_instance_types,
    to_hosts,
)

NEW_HOST = "the new instance"


def plan_drain(state: EndpointState, instance_id: str, context: PlanContext) -> PlannedAct:
    """Plan the drain of an instance. Raises ServiceError, 404 or 409, if it cannot be drained."""
    endpoint = get_serving_endpoint(state)
    instance = _running(state, instance_id)
    variant = next(
        (it for it in endpoint.active.variants if it.variant.name == instance.variant_name), None
    )
    if variant is None or instance.generation != endpoint.active.generation:
        raise refuse_act(f"Instance {instance_id} is being replaced by an update already.")
    steps = _steps(state, endpoint, variant, instance, context)
    new = get_next_type(variant, context)
    again = "It is draining already. " if instance.drain_since is not None else ""
    summary = (
        f"{again}No new copy is placed on {instance_id}; another {new} instance comes up in its "
        "place, and it ends once its copies are replaced and their requests are done."
    )
    return PlannedAct(
        act="drain",
        target=f"instance {instance_id}",
        endpoint=endpoint.name,
        summary=summary,
        steps=steps,
        record=None if again else replace(instance, drain_since=context.now),
    )


def plan_undrain(state: EndpointState, instance_id: str) -> PlannedAct:
    """Plan the cancellation of a drain. Raises ServiceError if the instance is not draining."""
    endpoint = get_serving_endpoint(state)
    instance = _running(state, instance_id)
    if instance.drain_since is None:
        raise refuse_act(f"Instance {instance_id} is not draining.")
    return PlannedAct(
        act="undrain",
        target=f"instance {instance_id}",
        endpoint=endpoint.name,
        summary=f"Copies may be placed on {instance_id} again; an instance too many ends: the one "
        "of which the fewest copies serve.",
        record=replace(instance, drain_since=None),
    )


def _running(state: EndpointState, instance_id: str) -> Instance:
    instance = state.instances.get(instance_id)
    if instance is None:
        raise report_unknown(f"Instance {instance_id} does not exist any more.")
    if instance.state is InstanceState.TERMINATING:
        raise refuse_act(f"Instance {instance_id} is ending already.")
    return instance


def _steps(
    state: EndpointState,
    endpoint: Endpoint,
    variant: EndpointVariant,
    instance: Instance,
    context: PlanContext,
) -> tuple[ActStep, ...]:
    copies = [it for it in state.list_copies_at(instance.id) if not it.draining]
    if not endpoint.takes_components:
        text = f"a new copy comes up on {NEW_HOST}, then this one ends with its last request"
        return tuple(_step(it, Way.NEW_INSTANCE, text) for it in copies)
    new = get_next_type(variant, context)
    hosts = state.hosts(instance.generation, instance.variant_name)
    able = [it for it in state.able(hosts, context.now) if it.id != instance.id]
    fresh = Host(instance_id=NEW_HOST, instance_type=new, shape=context.get_shape(new))
    live = [it for it in copies if it.component_name in state.components]
    bases = [state.components[it.component_name or ""] for it in live]
    types = get_instance_types(variant.variant, hosts)
    requests = [build_copy_request(it, get_next_spec(it), types) for it in bases]
    packing = place(requests, [*to_hosts(able), fresh], get_held(state, able))
    return tuple(
        _step(
            copy,
            Way.NEW_INSTANCE if outcome.instance_id == NEW_HOST else Way.BESIDE,
            f"a new copy comes up on {outcome.instance_id}, "
            "then this one ends with its last request",
        )
        if isinstance(outcome, Placed)
        else _step(
            copy,
            Way.STAYS,
            f"it fits nowhere else now ({outcome.text}): it serves on, "
            f"and {instance.id} does not end, until it does",
        )
        for copy, outcome in zip(live, packing.outcomes, strict=True)
    )


def _step(copy: Copy, way: Way, text: str) -> ActStep:
    return ActStep(
        copy=copy.spec.id, owner=copy.spec.owner, instance=copy.instance_id, way=way, text=text
    )
