"""Stage: the instances of each deployment, launched and retired.

an instance                                                   result
-----------------------------------------------------------   ------------------------------------
no capacity and out of reach for LOST_AFTER_S, or too many    retired, unless the endpoint is
failed launches                                               still Creating (that fails instead)
of no deployment of the endpoint                              retired
launching, but has no capacity, cannot start, or is late,     retired. Its type is in backoff for
and another type of the variant is left                       TYPE_BACKOFF_S
surplus, of a model's variant                                 retired, the least useful first
surplus, of a variant for components                          leaving: retired once its copies serve
                                                              elsewhere
missing                                                       launched, of the first type that is
                                                              not in backoff
cordoned: draining, or replaced for a copy's restart          not counted, so that another one comes
                                                              up. Retired once that one serves, or
                                                              once its own copies have drained

`batches` says how many instances of both deployments a rolling update has now.
"""

from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from hostelry.domain.copy import Instance, InstanceState, complete_sets
from hostelry.domain.endpoint import Deployment, EndpointStatus, EndpointVariant, PassedOver
from hostelry.reconcile.plan.batches import get_present_fleet
from hostelry.reconcile.plan.endpoint_state import (
    EndpointState,
    InstanceFacts,
    PlanContext,
    drain_copy,
    is_lost,
    is_routable,
    stop_copy,
)
from hostelry.reconcile.plan.growth import (
    build_instance,
    get_deployment,
    get_next_type,
    replace_variant,
)

MAX_TERMINAL_ATTEMPTS = 3
MAX_ATTEMPTS = 10
TYPE_BACKOFF_S = 300.0


def plan_instances(state: EndpointState, context: PlanContext) -> EndpointState:
    """The state with as many instances as its deployments desire.

    A new instance is recorded before it is launched, so that none can run without a record.
    """
    state = _retire_broken(state, context)
    state = _retire_undesired(state, context)
    for deployment, variant in state.variants():
        state = _retire_unlaunched(state, deployment, variant, context)
    for deployment in state.deployments():
        for variant in get_present_fleet(state, deployment).variants:
            state = _plan_count(state, deployment, variant, context)
    return state


def retire_instances(
    state: EndpointState, instances: Sequence[Instance], context: PlanContext
) -> EndpointState:
    """The state with `instances` terminating, and their copies draining first."""
    ids = {it.id for it in instances if it.state is not InstanceState.TERMINATING}
    leaving = [replace(state.instances[it], state=InstanceState.TERMINATING) for it in sorted(ids)]
    copies = [drain_copy(it, context) for name in sorted(ids) for it in state.list_copies_at(name)]
    return state.add_instances(leaving).add_copies(copies)


def _retire_broken(state: EndpointState, context: PlanContext) -> EndpointState:
    """The state with instances retired that cannot start again, so that others replace them."""
    if state.endpoint is None or state.endpoint.status is EndpointStatus.CREATING:
        return state
    known = [(it, state.get_facts(it.id)) for it in state.instances.values()]
    broken = [it for it, facts in known if is_beyond_repair(facts, context.now)]
    return retire_instances(state, broken, context)


def is_beyond_repair(facts: InstanceFacts, now: float) -> bool:
    """Whether an instance is given up: its agent cannot start, or its machine is gone."""
    if facts.no_capacity and is_lost(facts, now):
        return True
    return facts.attempts >= (MAX_TERMINAL_ATTEMPTS if facts.terminal else MAX_ATTEMPTS)


def _retire_undesired(state: EndpointState, context: PlanContext) -> EndpointState:
    desired = {(it.generation, v.variant.name) for it in state.deployments() for v in it.variants}
    others = [
        host
        for host in state.instances.values()
        if (host.generation, host.variant_name) not in desired
    ]
    state = retire_instances(state, others, context)
    if state.deployments():
        return state
    return state.add_copies([stop_copy(it, context.now) for it in state.copies.values()])


def _plan_count(
    state: EndpointState, deployment: Deployment, variant: EndpointVariant, context: PlanContext
) -> EndpointState:
    state = _retire_replaced(state, deployment, variant, context)
    hosts = state.staying(state.hosts(deployment.generation, variant.variant.name))
    missing = variant.desired_instance_count - len(hosts)
    for _ in range(missing):
        new = build_instance(state, deployment, variant, get_next_type(variant, context), context)
        state = state.add_instances([new])
    surplus: list[Instance] = []
    if missing < 0:
        least_used_first = sorted(
            hosts, key=lambda it: (not it.leaving, *_rank_usefulness(state, it))
        )
        surplus = least_used_first[:-missing]
    if variant.model is not None:
        return retire_instances(state, surplus, context)
    state = _mark_leaving(state, hosts, {it.id for it in surplus})
    bare = [it for it in surplus if all(copy.draining for copy in state.list_copies_at(it.id))]
    return retire_instances(state, bare, context)


def _retire_replaced(
    state: EndpointState, deployment: Deployment, variant: EndpointVariant, context: PlanContext
) -> EndpointState:
    """The state with those cordoned instances retired that nothing needs any more."""
    hosts = state.hosts(deployment.generation, variant.variant.name)
    staying = state.staying(hosts)
    ids = {it.id for it in staying}
    cordoned = [it for it in hosts if it.id not in ids]
    if not cordoned:
        return state
    if variant.model is None or variant.serverless is not None:
        copies = {it.id: state.list_copies_at(it.id) for it in cordoned}
        bare = [it for it in cordoned if all(copy.draining for copy in copies[it.id])]
        return retire_instances(state, bare, context)
    ready = [it for it in state.list_copies_on(staying, None) if is_routable(it)]
    needed = variant.desired_instance_count - len(complete_sets(variant, staying, ready))
    least_used_first = sorted(cordoned, key=lambda it: _rank_usefulness(state, it))
    return retire_instances(
        state, least_used_first[: max(0, len(cordoned) - max(0, needed))], context
    )


def _mark_leaving(
    state: EndpointState, hosts: Sequence[Instance], leaving: set[str]
) -> EndpointState:
    """The state in which exactly `leaving` of `hosts` leave, so their copies come up elsewhere."""
    changed = [it for it in hosts if it.leaving is not (it.id in leaving)]
    return state.add_instances(replace(it, leaving=it.id in leaving) for it in changed)


def _rank_usefulness(state: EndpointState, instance: Instance) -> tuple[bool, int, float, str]:
    serving = [it for it in state.list_copies_at(instance.id) if is_routable(it)]
    running = instance.state is InstanceState.RUNNING
    return (running, len(serving), -instance.created_at, instance.id)


def _retire_unlaunched(
    state: EndpointState, deployment: Deployment, variant: EndpointVariant, context: PlanContext
) -> EndpointState:
    """The state with launches given up if another type may succeed. See the table above."""
    assert state.endpoint is not None, "only an endpoint has deployments"
    now = context.now
    for instance in state.hosts(deployment.generation, variant.variant.name):
        problem = _find_launch_trouble(state, instance, variant, context)
        if problem is None:
            continue
        passed = tuple(
            other
            for other in variant.passed_over
            if now < other.until and other.instance_type != instance.instance_type
        )
        others = set(variant.variant.instance_types) - {instance.instance_type}
        if others <= {it.instance_type for it in passed}:
            continue
        here = PassedOver(
            instance_type=instance.instance_type,
            until=context.get_wait_end(now, TYPE_BACKOFF_S),
            problem=problem,
        )
        variant = replace(variant, passed_over=(*passed, here))
        endpoint = replace_variant(state.endpoint, deployment, variant)
        deployment = get_deployment(endpoint, deployment.generation)
        state = retire_instances(state.replace_endpoint(endpoint), [instance], context)
        assert state.endpoint is not None, "it was only changed"
    return state


def _find_launch_trouble(
    state: EndpointState, instance: Instance, variant: EndpointVariant, context: PlanContext
) -> str | None:
    """Why a launching instance should be of another type. None while it may still come up."""
    if instance.state is not InstanceState.LAUNCHING:
        return None
    facts = state.get_facts(instance.id)
    if facts.no_capacity or facts.terminal:
        return facts.problem
    limit_s = variant.variant.provision_timeout_s
    if context.now >= context.get_work_limit(instance.created_at, limit_s):
        return facts.problem or f"it was not up {limit_s:g} s after its launch began"
    return None


def list_launch_instants(state: EndpointState, context: PlanContext) -> Iterator[float]:
    """Instants at which time alone may give up a launch, or end the backoff of a type."""
    for deployment, variant in state.variants():
        yield from (it.until for it in variant.passed_over)
        for host in state.hosts(deployment.generation, variant.variant.name):
            if host.state is InstanceState.LAUNCHING:
                yield context.get_work_limit(host.created_at, variant.variant.provision_timeout_s)
