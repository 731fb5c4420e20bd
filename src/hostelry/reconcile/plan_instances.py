"""How many instances each deployment has: launch what is missing, retire what is not wanted."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from hostelry.domain.copy import Instance, InstanceState
from hostelry.domain.endpoint import Deployment, EndpointStatus, EndpointVariant, PassedOver
from hostelry.reconcile.plan_growth import (
    deployment_in,
    new_instance,
    next_type,
    with_variant,
)
from hostelry.reconcile.world import (
    Givens,
    InstanceFacts,
    World,
    drained,
    is_lost,
    is_routable,
    stopped,
)

MAX_TERMINAL_ATTEMPTS = 3
MAX_ATTEMPTS = 10
PASS_OVER_S = 300.0


def plan_instances(world: World, givens: Givens) -> World:
    """The world with as many instances as its deployments want; `Launch` is what a new one means.

    A launching instance has a record before anything is started, so that nothing started is lost.
    """
    world = _without_broken(world, givens)
    world = _without_unwanted(world, givens)
    for deployment in world.deployments():
        for variant in deployment.variants:
            world = _without_capacity(world, deployment, variant, givens)
    for deployment in world.deployments():
        for variant in deployment.variants:
            world = _counted(world, deployment, variant, givens)
    return world


def retired(world: World, instances: Sequence[Instance], givens: Givens) -> World:
    """The world with `instances` on their way out, and the copies on them leaving first."""
    ids = {it.id for it in instances if it.state is not InstanceState.TERMINATING}
    leaving = [replace(world.instances[it], state=InstanceState.TERMINATING) for it in sorted(ids)]
    copies = [drained(it, givens) for name in sorted(ids) for it in world.copies_at(name)]
    return world.with_instances(leaving).with_copies(copies)


def _without_broken(world: World, givens: Givens) -> World:
    """Retires instances that cannot be started again, so that others take their place."""
    if world.endpoint is None or world.endpoint.status is EndpointStatus.CREATING:
        return world
    known = [(it, world.facts_of(it.id)) for it in world.instances.values()]
    broken = [it for it, facts in known if is_beyond_repair(facts, givens.now)]
    return retired(world, broken, givens)


def is_beyond_repair(facts: InstanceFacts, now: float) -> bool:
    """Whether an instance is given up: its agent cannot be started, or its machine is gone."""
    if facts.no_capacity and is_lost(facts, now):
        return True
    return facts.attempts >= (MAX_TERMINAL_ATTEMPTS if facts.terminal else MAX_ATTEMPTS)


def _without_unwanted(world: World, givens: Givens) -> World:
    wanted = {(it.generation, v.variant.name) for it in world.deployments() for v in it.variants}
    unwanted = [
        it for it in world.instances.values() if (it.generation, it.variant_name) not in wanted
    ]
    world = retired(world, unwanted, givens)
    if world.deployments():
        return world
    return world.with_copies([stopped(it, givens.now) for it in world.copies.values()])


def _counted(
    world: World, deployment: Deployment, variant: EndpointVariant, givens: Givens
) -> World:
    hosts = world.hosts(deployment.generation, variant.variant.name)
    missing = variant.desired_instance_count - len(hosts)
    for _ in range(missing):
        new = new_instance(world, deployment, variant, next_type(variant, givens), givens)
        world = world.with_instances([new])
    least_used_first = sorted(hosts, key=lambda it: (not it.leaving, *_usefulness(world, it)))
    surplus = least_used_first[: max(0, -missing)]
    if variant.model is not None:
        return retired(world, surplus, givens)
    world = _marked(world, hosts, {it.id for it in surplus})
    bare = [it for it in surplus if all(copy.draining for copy in world.copies_at(it.id))]
    return retired(world, bare, givens)


def _marked(world: World, hosts: Sequence[Instance], leaving: set[str]) -> World:
    """The world in which those of `hosts` are leaving, so that their copies come up elsewhere."""
    changed = [it for it in hosts if it.leaving is not (it.id in leaving)]
    return world.with_instances(replace(it, leaving=it.id in leaving) for it in changed)


def _usefulness(world: World, instance: Instance) -> tuple[bool, int, float, str]:
    serving = [it for it in world.copies_at(instance.id) if is_routable(it)]
    running = instance.state is InstanceState.RUNNING
    return (running, len(serving), -instance.created_at, instance.id)


def _without_capacity(
    world: World, deployment: Deployment, variant: EndpointVariant, givens: Givens
) -> World:
    """Gives up launches that another type may do better, and passes their type over a while."""
    assert world.endpoint is not None, "only an endpoint has deployments"
    now = givens.now
    for instance in world.hosts(deployment.generation, variant.variant.name):
        passed = tuple(
            it
            for it in variant.passed_over
            if now < it.until and it.instance_type != instance.instance_type
        )
        problem = _launch_trouble(world, instance, variant, givens)
        others = set(variant.variant.instance_types) - {instance.instance_type}
        if problem is None or others <= {it.instance_type for it in passed}:
            continue  # where no other type is left, this one is tried on
        here = PassedOver(
            instance_type=instance.instance_type,
            until=givens.end_of(now, PASS_OVER_S),
            problem=problem,
        )
        variant = replace(variant, passed_over=(*passed, here))
        endpoint = with_variant(world.endpoint, deployment, variant)
        deployment = deployment_in(endpoint, deployment.generation)
        world = retired(replace(world, endpoint=endpoint), [instance], givens)
        assert world.endpoint is not None, "it was only changed"
    return world


def _launch_trouble(
    world: World, instance: Instance, variant: EndpointVariant, givens: Givens
) -> str | None:
    """Why an instance that is being launched should be of another type; None where it may go on."""
    if instance.state is not InstanceState.LAUNCHING:
        return None
    facts = world.facts_of(instance.id)
    if facts.no_capacity or facts.terminal:
        return facts.problem
    limit_s = variant.variant.provision_timeout_s
    if givens.now >= givens.came_up_by(instance.created_at, limit_s):
        return facts.problem or f"it was not up {limit_s:g} s after it was asked for"
    return None


def launch_instants(world: World, givens: Givens) -> Iterator[float]:
    """When time alone may give a launch up, or a type another chance."""
    for deployment in world.deployments():
        for variant in deployment.variants:
            yield from (it.until for it in variant.passed_over)
            for host in world.hosts(deployment.generation, variant.variant.name):
                if host.state is InstanceState.LAUNCHING:
                    yield givens.came_up_by(host.created_at, variant.variant.provision_timeout_s)
