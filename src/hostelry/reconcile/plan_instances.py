"""How many instances each deployment has: launch what is missing, retire what is not wanted."""

from collections.abc import Sequence
from dataclasses import replace

from hostelry.domain.copy import Copy, Instance, InstanceState
from hostelry.domain.endpoint import Deployment, Endpoint, EndpointStatus, EndpointVariant
from hostelry.reconcile.world import Givens, InstanceFacts, World, drained, is_routable, stopped

MAX_TERMINAL_ATTEMPTS = 3
MAX_ATTEMPTS = 10


def plan_instances(world: World, givens: Givens) -> World:
    """The world with as many instances as its deployments want; `Launch` is what a new one means.

    A launching instance has a record before anything is started, so that nothing started is lost.
    """
    world = _without_broken(world, givens)
    world = _without_unwanted(world, givens)
    for deployment in world.deployments():
        for variant in deployment.variants:
            world = _counted(world, deployment, variant, givens)
    return world


def retired(world: World, instances: Sequence[Instance], now: float) -> World:
    """The world with `instances` on their way out, and the copies on them leaving first."""
    ids = {it.id for it in instances if it.state is not InstanceState.TERMINATING}
    leaving = [replace(world.instances[it], state=InstanceState.TERMINATING) for it in sorted(ids)]
    copies = [drained(it, now) for it in world.copies.values() if it.instance_id in ids]
    return world.with_instances(leaving).with_copies(copies)


def _without_broken(world: World, givens: Givens) -> World:
    """Retires instances that cannot be started again, so that others take their place."""
    if world.endpoint is None or world.endpoint.status is EndpointStatus.CREATING:
        return world
    broken = [it for it in world.instances.values() if is_beyond_repair(world.facts_of(it.id))]
    return retired(world, broken, givens.now)


def is_beyond_repair(facts: InstanceFacts) -> bool:
    """Whether an instance's agent failed to start often enough to give the instance up."""
    return facts.attempts >= (MAX_TERMINAL_ATTEMPTS if facts.terminal else MAX_ATTEMPTS)


def _without_unwanted(world: World, givens: Givens) -> World:
    wanted = {(it.generation, v.variant.name) for it in world.deployments() for v in it.variants}
    unwanted = [
        it for it in world.instances.values() if (it.generation, it.variant_name) not in wanted
    ]
    world = retired(world, unwanted, givens.now)
    if world.deployments():
        return world
    return world.with_copies([stopped(it, givens.now) for it in world.copies.values()])


def _counted(
    world: World, deployment: Deployment, variant: EndpointVariant, givens: Givens
) -> World:
    hosts = world.hosts(deployment.generation, variant.variant.name)
    missing = variant.desired_instance_count - len(hosts)
    if missing >= 0:
        new = [_new_instance(world.endpoint, deployment, variant, givens) for _ in range(missing)]
        return world.with_instances(new)
    least_used_first = sorted(hosts, key=lambda it: _usefulness(world, it))
    return retired(world, least_used_first[:-missing], givens.now)


def _usefulness(world: World, instance: Instance) -> tuple[bool, int, float, str]:
    serving = [it for it in _copies_of(world, instance) if is_routable(it)]
    running = instance.state is InstanceState.RUNNING
    return (running, len(serving), -instance.created_at, instance.id)


def _copies_of(world: World, instance: Instance) -> list[Copy]:
    return [it for it in world.copies.values() if it.instance_id == instance.id]


def _new_instance(
    endpoint: Endpoint | None, deployment: Deployment, variant: EndpointVariant, givens: Givens
) -> Instance:
    assert endpoint is not None, "only an endpoint has deployments"
    return Instance(
        id=givens.new_instance_id(),
        scope=endpoint.scope,
        endpoint_name=endpoint.name,
        variant_name=variant.variant.name,
        generation=deployment.generation,
        instance_type=variant.variant.instance_type,
        shape=givens.shape_of(variant.variant.instance_type),
        state=InstanceState.LAUNCHING,
        created_at=givens.now,
    )
