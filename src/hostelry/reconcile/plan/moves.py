"""Stage: copies that move. A new copy comes up on another instance, then the old one drains.

Copies move to free instances (`scale_in`), or, decided here, when they crash-loop.

    copy                                              result
    -----------------------------------------------   ----------------------------------------------
    replaces one that is gone                         an ordinary copy from now on
    replaces one that serves, and serves itself       the old copy drains
    replaces one that serves, and FAILED              given up. Packing waits for the cooldown
    replaces one that does not serve, and FAILED      tried again like any copy that FAILED
    in a crash loop (see `_is_crash_looping`)          a copy comes up on another instance that fits
"""

from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from hostelry.domain.component import ComponentStatus, InferenceComponent
from hostelry.domain.copy import Copy, CopyPhase, Instance
from hostelry.domain.endpoint import Deployment, EndpointVariant
from hostelry.placement.pack import place
from hostelry.reconcile.plan.component_copies import build_component_copy
from hostelry.reconcile.plan.desired_copies import count_desired_copies, is_moving
from hostelry.reconcile.plan.endpoint_state import (
    EndpointState,
    PlanContext,
    drain_copy,
    is_routable,
    stop_copy,
)
from hostelry.reconcile.plan.growth import get_deployment, replace_variant
from hostelry.reconcile.plan.placement_request import (
    build_copy_request,
    get_held,
    get_instance_types,
    to_hosts,
)
from hostelry.reconcile.plan.status import CRASH_LOOP_RESTARTS

CRASH_LOOP_S = 60.0


def plan_moves(state: EndpointState, context: PlanContext) -> EndpointState:
    """The state with completed moves ended, and new moves for crash-looping copies."""
    if state.endpoint is None or not state.endpoint.takes_components:
        return state
    for deployment, variant in state.variants():
        state = _end_moves(state, deployment, variant, context)
        state = _move_crash_looping(state, deployment, variant, context)
    return state


def list_move_instants(copy: Copy) -> Iterator[float]:
    """Instants at which time alone may start a move of the copy."""
    if copy.unready_since is not None:
        yield copy.unready_since + CRASH_LOOP_S


def _end_moves(
    state: EndpointState, deployment: Deployment, variant: EndpointVariant, context: PlanContext
) -> EndpointState:
    """The state in which old copies drain once their successors serve. See the table above."""
    hosts = state.hosts(deployment.generation, variant.variant.name)
    copies = _list_dirty_copies(state, hosts)
    settled = [it for it in copies if it.replaces is not None and it.replaces not in state.copies]
    state = state.add_copies(replace(it, replaces=None) for it in settled)
    moving = [it for it in copies if is_moving(state, it) and not it.draining]
    pairs = [(it, state.copies[it.replaces]) for it in moving if it.replaces is not None]
    state = state.add_copies(drain_copy(old, context) for it, old in pairs if is_routable(it))
    failed = [it for it, old in pairs if it.status.phase is CopyPhase.FAILED and is_routable(old)]
    endpoint = state.endpoint
    if not failed or endpoint is None:
        return state
    state = state.add_copies(replace(stop_copy(it, context.now), replaces=None) for it in failed)
    # Or the next plan would try the same move again: wait for the cooldown, as after a success.
    tried = replace(variant, scaled_in_at=context.now)
    now = get_deployment(endpoint, deployment.generation)
    return state.replace_endpoint(replace_variant(endpoint, now, tried))


def _move_crash_looping(
    state: EndpointState, deployment: Deployment, variant: EndpointVariant, context: PlanContext
) -> EndpointState:
    """The state with a successor on another instance for each crash-looping copy."""
    hosts = state.hosts(deployment.generation, variant.variant.name)
    for copy in _list_dirty_copies(state, hosts):
        component = state.components.get(copy.component_name or "")
        if component is None or not _is_crash_looping(state, copy, component, context.now):
            continue
        desired = count_desired_copies(state, component, deployment, context)
        others = [it for it in state.able(hosts, context.now) if it.id != copy.instance_id]
        request = build_copy_request(
            component, desired.spec, get_instance_types(variant.variant, hosts)
        )
        for placed in place([request], to_hosts(others), get_held(state, others)).placed:
            new = build_component_copy(state, desired, placed, context)
            state = state.add_copies([replace(new, replaces=copy.spec.id)])
    return state


def _list_dirty_copies(state: EndpointState, hosts: Sequence[Instance]) -> list[Copy]:
    """The copies on `hosts` that a plan must look at, host by host, the oldest first."""
    by_instance: dict[str, list[Copy]] = {it.id: [] for it in hosts}
    for copy in sorted(state.dirty_copies(), key=lambda it: (it.created_at, it.spec.id)):
        if copy.instance_id in by_instance:
            by_instance[copy.instance_id].append(copy)
    return [copy for copies in by_instance.values() for copy in copies]


def _is_crash_looping(
    state: EndpointState, copy: Copy, component: InferenceComponent, now: float
) -> bool:
    """Whether a copy that served before keeps restarting, and has no successor yet."""
    if copy.draining or copy.unready_since is None or copy.spec.id in state.restarting:
        return False
    if copy.status.restarts < CRASH_LOOP_RESTARTS or now < copy.unready_since + CRASH_LOOP_S:
        return False
    if component.status is not ComponentStatus.IN_SERVICE:
        return False
    return all(it.replaces != copy.spec.id for it in state.list_copies(component.name))
