"""Instances that are not needed go, where ManagedInstanceScaling allows.

IDLE_RELEASE: one without a copy is released after a while. CONSOLIDATION: so are those whose copies
fit on others. A copy moves by a new one that comes up beside it; the old one drains once that
serves. Pinned components stay, and nothing moves while anything else changes.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

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
from hostelry.reconcile.aims import aim_of, is_moving
from hostelry.reconcile.plan_component_copies import component_copy
from hostelry.reconcile.plan_growth import deployment_in, managed_scaling, rescaled
from hostelry.reconcile.plan_instances import retired
from hostelry.reconcile.room import held_on, hosts_of, instance_types, wanted_copy
from hostelry.reconcile.world import (
    LIVE_COMPONENT,
    Givens,
    World,
    is_routable,
)

IDLE_S = 300.0  # the shortest cooldown there is; AWS tells none for instances without copies


def plan_scale_in(world: World, givens: Givens) -> World:
    """The world in which what nothing needs is leaving."""
    if world.endpoint is None or not world.endpoint.takes_components:
        return world
    for deployment in world.deployments():
        for variant in deployment.variants:
            scaling = managed_scaling(variant.variant)
            if scaling is not None:
                world = _with_idle_times(world, deployment, variant, givens)
                world = _scaled_in(world, deployment.generation, variant, scaling, givens)
    return world


def scale_in_instants(world: World, givens: Givens) -> Iterator[float]:
    """When time alone may release an instance, or move a copy."""
    endpoint = world.endpoint
    if endpoint is None or not endpoint.takes_components:
        return
    for deployment in world.deployments():
        for variant in deployment.variants:
            if managed_scaling(variant.variant) is None:
                continue
            yield _cooled_at(world, variant, _policy(variant), givens)
            for host in world.hosts(deployment.generation, variant.variant.name):
                if host.idle_since is not None:
                    yield givens.end_of(host.idle_since, IDLE_S)


def _policy(variant: EndpointVariant) -> ScaleInPolicy:
    scaling = managed_scaling(variant.variant)
    return ScaleInPolicy() if scaling is None else scaling.scale_in


def _with_idle_times(
    world: World, deployment: Deployment, variant: EndpointVariant, givens: Givens
) -> World:
    hosts = world.hosts(deployment.generation, variant.variant.name)
    return world.with_instances(_with_idle_time(world, it, givens.now) for it in hosts)


def _with_idle_time(world: World, instance: Instance, now: float) -> Instance:
    idle_since = None if world.copies_at(instance.id) else (instance.idle_since or now)
    if idle_since == instance.idle_since:
        return instance
    return replace(instance, idle_since=idle_since)


def _scaled_in(
    world: World,
    generation: int,
    variant: EndpointVariant,
    scaling: ManagedInstanceScaling,
    givens: Givens,
) -> World:
    endpoint = world.endpoint
    assert endpoint is not None, "only an endpoint has deployments"
    if endpoint.status is not EndpointStatus.IN_SERVICE or endpoint.pending is not None:
        return world
    deployment = deployment_in(endpoint, generation)
    variant = next(it for it in deployment.variants if it.variant.name == variant.variant.name)
    hosts = world.hosts(generation, variant.variant.name)
    if any(it.leaving for it in hosts):
        return world
    may_go = max(0, len(hosts) - scaling.min_instances)
    needless = [it for it in hosts if _is_idle(it, givens) or _is_emptied(world, it)][:may_go]
    if needless:
        fewer = replace(
            variant,
            desired_instance_count=max(scaling.min_instances, len(hosts) - len(needless)),
            scaled_in_at=givens.now,
        )
        world = retired(world, needless, givens)
        return replace(world, endpoint=rescaled(endpoint, deployment, fewer, givens))
    if scaling.scale_in.strategy is ScaleInStrategy.CONSOLIDATION:
        return _consolidated(world, deployment, variant, scaling, givens)
    return world


def _is_idle(instance: Instance, givens: Givens) -> bool:
    return instance.idle_since is not None and givens.after(instance.idle_since, IDLE_S)


def _is_emptied(world: World, instance: Instance) -> bool:
    """Whether all that is left on an instance is draining, its copies having moved away."""
    left = world.copies_at(instance.id)
    if not left or not all(it.draining for it in left):
        return False
    moved = {it.replaces for name in _owners(left) for it in world.copies_of(name)}
    return any(it.spec.id in moved for it in left)


def _owners(copies: Sequence[Copy]) -> set[str | None]:
    return {it.component_name for it in copies}


def _consolidated(
    world: World,
    deployment: Deployment,
    variant: EndpointVariant,
    scaling: ManagedInstanceScaling,
    givens: Givens,
) -> World:
    """The world with the copies that come up elsewhere, so that instances can be released."""
    hosts = world.hosts(deployment.generation, variant.variant.name)
    if givens.now < _cooled_at(world, variant, scaling.scale_in, givens):
        return world
    components = _living(world, variant)
    if not _is_at_rest(world, deployment, components, hosts, givens):
        return world
    types = instance_types(variant.variant, hosts)
    found = consolidate(
        hosts_of(hosts),
        held_on(world, hosts),
        {it.name: wanted_copy(it, it.spec, types) for it in components if it.spec is not None},
        max_step=scaling.scale_in.max_step,
        min_instances=scaling.min_instances,
    )
    moves = () if found is None else found.moves
    return world.with_copies(_moved(world, deployment, it, givens) for it in moves)


def _living(world: World, variant: EndpointVariant) -> list[InferenceComponent]:
    return [
        it
        for it in world.components.values()
        if it.variant_name == variant.variant.name and it.status in LIVE_COMPONENT
    ]


def _cooled_at(
    world: World, variant: EndpointVariant, policy: ScaleInPolicy, givens: Givens
) -> float:
    """When the cooldown after the last operation on the endpoint is over."""
    assert world.endpoint is not None, "only an endpoint has variants"
    last = max(
        world.endpoint.modified_at,
        variant.scaled_in_at or 0.0,
        *(it.modified_at for it in _living(world, variant)),
        0.0,
    )
    return givens.end_of(last, policy.cooldown_s)


def _is_at_rest(
    world: World,
    deployment: Deployment,
    components: list[InferenceComponent],
    hosts: list[Instance],
    givens: Givens,
) -> bool:
    """Whether all is in service, in place and within reach, so that copies may move."""
    if len(world.able(hosts, givens.now)) < len(hosts):
        return False
    if any(it.status is not ComponentStatus.IN_SERVICE for it in components):
        return False
    copies = [it for host in hosts for it in world.copies_at(host.id)]
    if not all(is_routable(it) and not is_moving(world, it) for it in copies):
        return False
    aims = [aim_of(world, it, deployment, givens) for it in components if it.spec is not None]
    return all(it.missing == 0 and not it.others for it in aims)


def _moved(world: World, deployment: Deployment, move: Move, givens: Givens) -> Copy:
    """The copy that comes up where `move` says, for the one that is to leave."""
    old = world.copies[move.copy_id]
    assert old.component_name is not None, "only components' copies are moved"
    aim = aim_of(world, world.components[old.component_name], deployment, givens)
    instance = world.instances[move.to.instance_id]
    return replace(
        component_copy(world, aim, instance, move.to.device_ids, givens), replaces=old.spec.id
    )
