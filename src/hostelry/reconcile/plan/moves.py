"""Copies that move: a new one comes up on another instance, then the old one drains.

They move for the sake of packing (`plan_scale_in`), or, decided here, because a copy ends again and
again where it is.
"""

from collections.abc import Iterator
from dataclasses import replace

from hostelry.domain.component import ComponentStatus
from hostelry.domain.copy import Copy, CopyPhase
from hostelry.domain.endpoint import Deployment, EndpointVariant
from hostelry.placement.pack import place
from hostelry.reconcile.plan.component_copies import component_copy
from hostelry.reconcile.plan.desired_copies import aim_of, is_moving
from hostelry.reconcile.plan.endpoint_state import (
    EndpointState,
    PlanContext,
    drained,
    is_routable,
    stopped,
)
from hostelry.reconcile.plan.growth import deployment_in, with_variant
from hostelry.reconcile.plan.placement_request import held_on, hosts_of, instance_types, wanted_copy
from hostelry.reconcile.plan.reasons import LOOPING_RESTARTS

LOOPING_S = 60.0


def plan_moves(state: EndpointState, context: PlanContext) -> EndpointState:
    """The state with moves that are done ended, and with copies that cannot stay moving."""
    if state.endpoint is None or not state.endpoint.takes_components:
        return state
    for deployment in state.deployments():
        for variant in deployment.variants:
            state = _with_moves_done(state, deployment, variant, context)
            state = _with_looping_moved(state, deployment, variant, context)
    return state


def move_instants(copy: Copy) -> Iterator[float]:
    """When time alone may have the copy tried elsewhere."""
    if copy.unready_since is not None:
        yield copy.unready_since + LOOPING_S


def _with_moves_done(
    state: EndpointState, deployment: Deployment, variant: EndpointVariant, context: PlanContext
) -> EndpointState:
    """Old copies drain where their successors serve; a successor that failed is given up."""
    hosts = state.hosts(deployment.generation, variant.variant.name)
    copies = [it for host in hosts for it in state.copies_at(host.id)]
    settled = [it for it in copies if it.replaces is not None and it.replaces not in state.copies]
    state = state.with_copies(replace(it, replaces=None) for it in settled)
    moving = [it for it in copies if is_moving(state, it) and not it.draining]
    pairs = [(it, state.copies[it.replaces]) for it in moving if it.replaces is not None]
    state = state.with_copies(drained(old, context) for it, old in pairs if is_routable(it))
    # What followed a copy that does not serve is tried again like any copy that failed.
    failed = [it for it, old in pairs if it.status.phase is CopyPhase.FAILED and is_routable(old)]
    endpoint = state.endpoint
    if not failed or endpoint is None:
        return state
    state = state.with_copies(replace(stopped(it, context.now), replaces=None) for it in failed)
    # Another attempt to pack waits for the cooldown, as after a step that was made.
    tried = replace(variant, scaled_in_at=context.now)
    now = deployment_in(endpoint, deployment.generation)
    return replace(state, endpoint=with_variant(endpoint, now, tried))


def _with_looping_moved(
    state: EndpointState, deployment: Deployment, variant: EndpointVariant, context: PlanContext
) -> EndpointState:
    """The state with a copy coming up elsewhere for each that ends again and again."""
    hosts = state.hosts(deployment.generation, variant.variant.name)
    looping = [
        it
        for host in hosts
        for it in state.copies_at(host.id)
        if _is_looping(state, it, context.now)
    ]
    for copy in looping:
        assert copy.component_name is not None, "only components' copies loop here"
        component = state.components[copy.component_name]
        aim = aim_of(state, component, deployment, context)
        others = [it for it in state.able(hosts, context.now) if it.id != copy.instance_id]
        wanted = wanted_copy(component, aim.spec, instance_types(variant.variant, hosts))
        for placed in place([wanted], hosts_of(others), held_on(state, others)).placed:
            instance = state.instances[placed.instance_id]
            new = component_copy(state, aim, instance, placed.device_ids, context)
            state = state.with_copies([replace(new, replaces=copy.spec.id)])
    return state


def _is_looping(state: EndpointState, copy: Copy, now: float) -> bool:
    """Whether a copy that served has not for a while, ends again and again, and is not followed."""
    if copy.draining or copy.component_name is None or copy.unready_since is None:
        return False
    if copy.status.restarts < LOOPING_RESTARTS or now < copy.unready_since + LOOPING_S:
        return False
    component = state.components.get(copy.component_name)
    if component is None or component.status is not ComponentStatus.IN_SERVICE:
        return False
    return all(it.replaces != copy.spec.id for it in state.copies_of(copy.component_name))
