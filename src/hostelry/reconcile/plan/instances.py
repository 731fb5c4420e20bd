"""How many instances each deployment has: launch what is missing, retire what is not wanted."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from hostelry.domain.copy import Instance, InstanceState
from hostelry.domain.endpoint import Deployment, EndpointStatus, EndpointVariant, PassedOver
from hostelry.reconcile.plan.endpoint_state import (
    EndpointState,
    InstanceFacts,
    PlanContext,
    drained,
    is_lost,
    is_routable,
    stopped,
)
from hostelry.reconcile.plan.growth import (
    deployment_in,
    new_instance,
    next_type,
    with_variant,
)

MAX_TERMINAL_ATTEMPTS = 3
MAX_ATTEMPTS = 10
PASS_OVER_S = 300.0


def plan_instances(state: EndpointState, context: PlanContext) -> EndpointState:
    """The state with as many instances as its deployments want; `Launch` is what a new one means.

    A launching instance has a record before anything is started, so that nothing started is lost.
    """
    state = _without_broken(state, context)
    state = _without_unwanted(state, context)
    for deployment in state.deployments():
        for variant in deployment.variants:
            state = _without_capacity(state, deployment, variant, context)
    for deployment in state.deployments():
        for variant in deployment.variants:
            state = _counted(state, deployment, variant, context)
    return state


def retired(
    state: EndpointState, instances: Sequence[Instance], context: PlanContext
) -> EndpointState:
    """The state with `instances` on their way out, and the copies on them leaving first."""
    ids = {it.id for it in instances if it.state is not InstanceState.TERMINATING}
    leaving = [replace(state.instances[it], state=InstanceState.TERMINATING) for it in sorted(ids)]
    copies = [drained(it, context) for name in sorted(ids) for it in state.copies_at(name)]
    return state.with_instances(leaving).with_copies(copies)


def _without_broken(state: EndpointState, context: PlanContext) -> EndpointState:
    """Retires instances that cannot be started again, so that others take their place."""
    if state.endpoint is None or state.endpoint.status is EndpointStatus.CREATING:
        return state
    known = [(it, state.facts_of(it.id)) for it in state.instances.values()]
    broken = [it for it, facts in known if is_beyond_repair(facts, context.now)]
    return retired(state, broken, context)


def is_beyond_repair(facts: InstanceFacts, now: float) -> bool:
    """Whether an instance is given up: its agent cannot be started, or its machine is gone."""
    if facts.no_capacity and is_lost(facts, now):
        return True
    return facts.attempts >= (MAX_TERMINAL_ATTEMPTS if facts.terminal else MAX_ATTEMPTS)


def _without_unwanted(state: EndpointState, context: PlanContext) -> EndpointState:
    wanted = {(it.generation, v.variant.name) for it in state.deployments() for v in it.variants}
    unwanted = [
        it for it in state.instances.values() if (it.generation, it.variant_name) not in wanted
    ]
    state = retired(state, unwanted, context)
    if state.deployments():
        return state
    return state.with_copies([stopped(it, context.now) for it in state.copies.values()])


def _counted(
    state: EndpointState, deployment: Deployment, variant: EndpointVariant, context: PlanContext
) -> EndpointState:
    hosts = state.hosts(deployment.generation, variant.variant.name)
    missing = variant.desired_instance_count - len(hosts)
    for _ in range(missing):
        new = new_instance(state, deployment, variant, next_type(variant, context), context)
        state = state.with_instances([new])
    least_used_first = sorted(hosts, key=lambda it: (not it.leaving, *_usefulness(state, it)))
    surplus = least_used_first[: max(0, -missing)]
    if variant.model is not None:
        return retired(state, surplus, context)
    state = _marked(state, hosts, {it.id for it in surplus})
    bare = [it for it in surplus if all(copy.draining for copy in state.copies_at(it.id))]
    return retired(state, bare, context)


def _marked(state: EndpointState, hosts: Sequence[Instance], leaving: set[str]) -> EndpointState:
    """The state in which those of `hosts` are leaving, so that their copies come up elsewhere."""
    changed = [it for it in hosts if it.leaving is not (it.id in leaving)]
    return state.with_instances(replace(it, leaving=it.id in leaving) for it in changed)


def _usefulness(state: EndpointState, instance: Instance) -> tuple[bool, int, float, str]:
    serving = [it for it in state.copies_at(instance.id) if is_routable(it)]
    running = instance.state is InstanceState.RUNNING
    return (running, len(serving), -instance.created_at, instance.id)


def _without_capacity(
    state: EndpointState, deployment: Deployment, variant: EndpointVariant, context: PlanContext
) -> EndpointState:
    """Gives up launches that another type may do better, and passes their type over a while."""
    assert state.endpoint is not None, "only an endpoint has deployments"
    now = context.now
    for instance in state.hosts(deployment.generation, variant.variant.name):
        passed = tuple(
            it
            for it in variant.passed_over
            if now < it.until and it.instance_type != instance.instance_type
        )
        problem = _launch_trouble(state, instance, variant, context)
        others = set(variant.variant.instance_types) - {instance.instance_type}
        if problem is None or others <= {it.instance_type for it in passed}:
            continue  # where no other type is left, this one is tried on
        here = PassedOver(
            instance_type=instance.instance_type,
            until=context.end_of(now, PASS_OVER_S),
            problem=problem,
        )
        variant = replace(variant, passed_over=(*passed, here))
        endpoint = with_variant(state.endpoint, deployment, variant)
        deployment = deployment_in(endpoint, deployment.generation)
        state = retired(replace(state, endpoint=endpoint), [instance], context)
        assert state.endpoint is not None, "it was only changed"
    return state


def _launch_trouble(
    state: EndpointState, instance: Instance, variant: EndpointVariant, context: PlanContext
) -> str | None:
    """Why an instance that is being launched should be of another type; None where it may go on."""
    if instance.state is not InstanceState.LAUNCHING:
        return None
    facts = state.facts_of(instance.id)
    if facts.no_capacity or facts.terminal:
        return facts.problem
    limit_s = variant.variant.provision_timeout_s
    if context.now >= context.came_up_by(instance.created_at, limit_s):
        return facts.problem or f"it was not up {limit_s:g} s after it was asked for"
    return None


def launch_instants(state: EndpointState, context: PlanContext) -> Iterator[float]:
    """When time alone may give a launch up, or a type another chance."""
    for deployment in state.deployments():
        for variant in deployment.variants:
            yield from (it.until for it in variant.passed_over)
            for host in state.hosts(deployment.generation, variant.variant.name):
                if host.state is InstanceState.LAUNCHING:
                    yield context.came_up_by(host.created_at, variant.variant.provision_timeout_s)
