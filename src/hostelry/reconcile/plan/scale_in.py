"""Stage: scale-in of instances, within the bounds of ManagedInstanceScaling.

    instance of an endpoint that is InService, above MinInstanceCount    result
    -----------------------------------------------------------------    ---------------------------
    had no copy for IDLE_S                                               released
    its last copies drain, their successors serve elsewhere              released
    CONSOLIDATION, at rest, cooldown over, its copies fit on others      the copies move (`moves`)
    any other                                                            stays

Copies of pinned components never move, and no copy moves while anything else changes: the placement
would be stale at once, and two reasons to move could undo each other.
"""

from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from hostelry.domain.component import ComponentStatus, InferenceComponent
from hostelry.domain.copy import Copy, Instance
from hostelry.domain.endpoint import Deployment, EndpointStatus, EndpointVariant
from hostelry.domain.endpoint_config import (
    ManagedInstanceScaling,
    ScaleInPolicy,
    ScaleInStrategy,
)
from hostelry.placement.consolidation import consolidate
from hostelry.placement.values import Move
from hostelry.reconcile.plan.component_copies import build_component_copy
from hostelry.reconcile.plan.desired_copies import count_desired_copies, is_moving
from hostelry.reconcile.plan.endpoint_state import (
    LIVE_COMPONENT,
    EndpointState,
    PlanContext,
    is_routable,
)
from hostelry.reconcile.plan.growth import get_deployment, get_managed_scaling, rescale_endpoint
from hostelry.reconcile.plan.instances import retire_instances
from hostelry.reconcile.plan.placement_request import (
    build_copy_request,
    get_held,
    get_instance_types,
    to_hosts,
)

IDLE_S = 300.0  # the shortest cooldown. AWS documents none for instances without copies


def plan_scale_in(state: EndpointState, context: PlanContext) -> EndpointState:
    """The state in which unneeded instances are leaving."""
    if state.endpoint is None or not state.endpoint.takes_components:
        return state
    for deployment, variant in state.variants():
        scaling = get_managed_scaling(variant.variant)
        if scaling is not None:
            hosts = state.hosts(deployment.generation, variant.variant.name)
            empty = {it.id for it in hosts if not state.list_copies_at(it.id)}
            changed = [it for it in hosts if (it.idle_since is None) == (it.id in empty)]
            state = state.add_instances(_set_idle_time(state, it, context.now) for it in changed)
            state = _scale_in_variant(state, deployment.generation, variant, scaling, context)
    return state


def list_scale_in_instants(state: EndpointState, context: PlanContext) -> Iterator[float]:
    """Instants at which time alone may release an instance, or move a copy."""
    endpoint = state.endpoint
    if endpoint is None or not endpoint.takes_components:
        return
    for deployment, variant in state.variants():
        scaling = get_managed_scaling(variant.variant)
        if scaling is None:
            continue
        if scaling.scale_in.strategy is ScaleInStrategy.CONSOLIDATION:
            yield _get_cooldown_end(state, variant, scaling.scale_in, context)
        for host in state.hosts(deployment.generation, variant.variant.name):
            if host.idle_since is not None:
                yield context.get_wait_end(host.idle_since, IDLE_S)


def _set_idle_time(state: EndpointState, instance: Instance, now: float) -> Instance:
    idle_since = None if state.list_copies_at(instance.id) else (instance.idle_since or now)
    return replace(instance, idle_since=idle_since)


def _scale_in_variant(
    state: EndpointState,
    generation: int,
    variant: EndpointVariant,
    scaling: ManagedInstanceScaling,
    context: PlanContext,
) -> EndpointState:
    endpoint = state.endpoint
    assert endpoint is not None, "only an endpoint has deployments"
    if endpoint.status is not EndpointStatus.IN_SERVICE or endpoint.pending is not None:
        return state
    deployment = get_deployment(endpoint, generation)
    variant = next(it for it in deployment.variants if it.variant.name == variant.variant.name)
    hosts = state.hosts(generation, variant.variant.name)
    if any(it.leaving for it in hosts) or len(state.staying(hosts)) < len(hosts):
        return state
    may_go = max(0, len(hosts) - scaling.min_instances)
    # Empty instances go before any copy moves: that needs no new copy and no wait.
    needless = [it for it in hosts if _is_idle(it, context) or _is_emptied(state, it)][:may_go]
    if needless:
        fewer = replace(
            variant,
            desired_instance_count=max(scaling.min_instances, len(hosts) - len(needless)),
            scaled_in_at=context.now,
        )
        state = retire_instances(state, needless, context)
        return state.replace_endpoint(rescale_endpoint(endpoint, deployment, fewer, context))
    if scaling.scale_in.strategy is ScaleInStrategy.CONSOLIDATION:
        return _consolidate(state, deployment, variant, scaling, context)
    return state


def _is_idle(instance: Instance, context: PlanContext) -> bool:
    return instance.idle_since is not None and context.after(instance.idle_since, IDLE_S)


def _is_emptied(state: EndpointState, instance: Instance) -> bool:
    """Whether copies moved off the instance, and all that are left on it drain."""
    left = state.list_copies_at(instance.id)
    if not left or not all(it.draining for it in left):
        return False
    names = {it.component_name for it in left}
    moved = {it.replaces for name in names for it in state.list_copies(name)}
    return any(it.spec.id in moved for it in left)


def _consolidate(
    state: EndpointState,
    deployment: Deployment,
    variant: EndpointVariant,
    scaling: ManagedInstanceScaling,
    context: PlanContext,
) -> EndpointState:
    """The state with copies coming up on fewer instances, so that others can be released."""
    hosts = state.hosts(deployment.generation, variant.variant.name)
    if context.now < _get_cooldown_end(state, variant, scaling.scale_in, context):
        return state
    components = _list_living(state, variant)
    if not _is_at_rest(state, deployment, components, hosts, context):
        return state
    types = get_instance_types(variant.variant, hosts)
    found = consolidate(
        to_hosts(hosts),
        get_held(state, hosts),
        {
            base.name: build_copy_request(base, base.spec, types)
            for base in components
            if base.spec is not None
        },
        max_step=scaling.scale_in.max_step,
        min_instances=scaling.min_instances,
    )
    moves = () if found is None else found.moves
    return state.add_copies(_build_moved_copy(state, deployment, it, context) for it in moves)


def _list_living(state: EndpointState, variant: EndpointVariant) -> list[InferenceComponent]:
    living = [it for it in state.components.values() if it.status in LIVE_COMPONENT]
    return [it for it in living if it.variant_name == variant.variant.name]


def _get_cooldown_end(
    state: EndpointState, variant: EndpointVariant, policy: ScaleInPolicy, context: PlanContext
) -> float:
    """The instant at which the cooldown after the last operation on the endpoint ends."""
    assert state.endpoint is not None, "only an endpoint has variants"
    last = max(
        state.endpoint.modified_at,
        variant.scaled_in_at or 0.0,
        *(it.modified_at for it in _list_living(state, variant)),
        0.0,
    )
    return context.get_wait_end(last, policy.cooldown_s)


def _is_at_rest(
    state: EndpointState,
    deployment: Deployment,
    components: list[InferenceComponent],
    hosts: Sequence[Instance],
    context: PlanContext,
) -> bool:
    """Whether everything is in service, placed and reachable, so that copies may move."""
    if len(state.able(hosts, context.now)) < len(hosts):
        return False
    if any(it.status is not ComponentStatus.IN_SERVICE for it in components):
        return False
    copies = [it for host in hosts for it in state.list_copies_at(host.id)]
    if not all(is_routable(it) and not is_moving(state, it) for it in copies):
        return False
    bases = [it for it in components if it.spec is not None]
    desired = [count_desired_copies(state, it, deployment, context) for it in bases]
    return all(it.missing == 0 and not it.others for it in desired)


def _build_moved_copy(
    state: EndpointState, deployment: Deployment, move: Move, context: PlanContext
) -> Copy:
    """The copy that comes up where `move` says, and replaces the one that leaves."""
    old = state.copies[move.copy_id]
    assert old.component_name is not None, "only components' copies are moved"
    desired = count_desired_copies(state, state.components[old.component_name], deployment, context)
    return replace(build_component_copy(state, desired, move.to, context), replaces=old.spec.id)
