"""An endpoint's status: what is up decides; a failed or late update falls back to what served."""

from collections.abc import Sequence
from dataclasses import replace

from hostelry.domain.component import ComponentStatus, InferenceComponent
from hostelry.domain.copy import Copy, CopyPhase, Instance, InstanceState
from hostelry.domain.endpoint import (
    Bake,
    Deployment,
    Endpoint,
    EndpointStatus,
    EndpointVariant,
)
from hostelry.domain.status import Event, next_status
from hostelry.reconcile.deadlines import is_overdue
from hostelry.reconcile.guards import guard_failure
from hostelry.reconcile.plan_growth import managed_scaling
from hostelry.reconcile.reasons import copy_failure, failure_reason, what_is_missing
from hostelry.reconcile.room import cannot_ever_fit, shortage
from hostelry.reconcile.world import Givens, World, is_routable

BAKE_SLACK_S = 60.0  # for the pass that ends it
SERVING = frozenset({ComponentStatus.IN_SERVICE, ComponentStatus.UPDATING})


def plan_endpoint(world: World, givens: Givens) -> World:
    """The world with the endpoint's status as what is up makes it; gone once nothing is left."""
    endpoint = world.endpoint
    if endpoint is None:
        return world
    after: Endpoint | None = endpoint
    if endpoint.status is EndpointStatus.CREATING:
        after = _created(world, endpoint, givens)
    elif endpoint.status is EndpointStatus.UPDATING and endpoint.pending is not None:
        after = _switched(world, endpoint, endpoint.pending, givens)
    elif endpoint.status is EndpointStatus.UPDATING and endpoint.bake is not None:
        after = _baked(world, endpoint, endpoint.bake, givens)
    elif endpoint.status is EndpointStatus.UPDATING:
        after = _resized(world, endpoint, givens)
    elif endpoint.status is EndpointStatus.DELETING:
        after = _deleted(world, endpoint, givens)
    return replace(world, endpoint=after)


def reuse_instances(world: World) -> World:
    """The world after an update that can keep the instances it finds, and the copies on them.

    That is an update of a component endpoint to variants that may have each instance there is: none
    is of a type that is not wanted any more. It keeps the generation, and with that its instances,
    so that one write makes the change.
    """
    endpoint = world.endpoint
    if endpoint is None or endpoint.pending is None:
        return world
    active, pending = endpoint.active, endpoint.pending
    if not endpoint.takes_components or not _keeps_instances(world, active, pending):
        return world
    variants = tuple(_not_fewer(it, active) for it in pending.variants)
    after = replace(pending, generation=active.generation, variants=variants)
    return replace(world, endpoint=replace(endpoint, active=after, pending=None))


def _not_fewer(wanted: EndpointVariant, active: Deployment) -> EndpointVariant:
    """`wanted` with the instances that managed scaling has added so far, within its new bounds."""
    scaling = managed_scaling(wanted.variant)
    if scaling is None:
        return wanted
    now = next(it for it in active.variants if it.variant.name == wanted.variant.name)
    wanted = replace(wanted, scaled_in_at=now.scaled_in_at, passed_over=now.passed_over)
    count = max(wanted.desired_instance_count, now.desired_instance_count)
    return replace(wanted, desired_instance_count=min(count, scaling.max_instances))


def _keeps_instances(world: World, active: Deployment, pending: Deployment) -> bool:
    types = {it.variant.name: it.variant.instance_types for it in pending.variants}
    if not pending.config.takes_components or {it.variant.name for it in active.variants} != set(
        types
    ):
        return False
    return all(
        host.instance_type in types[name]
        for name in types
        for host in world.hosts(active.generation, name)
    )


def _created(world: World, endpoint: Endpoint, givens: Givens) -> Endpoint:
    failure = deployment_failure(world, endpoint.active)
    if failure is None and is_up(world, endpoint.active):
        return _in_service(endpoint, None, givens.now)
    if failure is None and is_overdue(endpoint, givens.now):
        failure = _still_missing(world, endpoint.active)
    if failure is None:
        return endpoint
    return _failed(endpoint, failure, givens.now)


def _switched(world: World, endpoint: Endpoint, pending: Deployment, givens: Givens) -> Endpoint:
    failure = guard_failure(pending, givens)
    failure = failure or deployment_failure(world, pending) or _stranded(world, pending, givens)
    if failure is None and is_up(world, pending):
        return _taken_over(endpoint, pending, givens)
    if failure is None and is_overdue(endpoint, givens.now):
        failure = _still_missing(world, pending)
    if failure is None:
        return endpoint
    return _in_service(replace(endpoint, pending=None), failure, givens.now)


def _taken_over(endpoint: Endpoint, pending: Deployment, givens: Givens) -> Endpoint:
    """The endpoint that serves from `pending`, for good or on trial beside what served before."""
    serving = replace(endpoint, active=pending, pending=None)
    guard = pending.guard
    if guard is None or not guard.bake_s or endpoint.takes_components:
        return _in_service(serving, None, givens.now)
    return replace(
        serving,
        bake=Bake(before=endpoint.active, since=givens.now),
        deadline_at=givens.end_of(givens.now, guard.bake_s) + BAKE_SLACK_S,
    )


def _baked(world: World, endpoint: Endpoint, bake: Bake, givens: Givens) -> Endpoint:
    """The endpoint once its trial is over, or has failed and what was before serves again."""
    guard = endpoint.active.guard
    failure = guard_failure(endpoint.active, givens)
    failure = failure or deployment_failure(world, endpoint.active)
    if failure is not None:
        back = replace(endpoint, active=bake.before, bake=None)
        return _in_service(back, failure, givens.now)
    if guard is not None and not givens.after(bake.since, guard.bake_s):
        return endpoint
    return _in_service(replace(endpoint, bake=None), None, givens.now)


def _resized(world: World, endpoint: Endpoint, givens: Givens) -> Endpoint:
    failure = deployment_failure(world, endpoint.active)
    late = is_overdue(endpoint, givens.now)
    is_going = _is_shrinking(world, endpoint) and not late
    if failure is None and is_up(world, endpoint.active):
        return endpoint if is_going else _in_service(endpoint, None, givens.now)
    if failure is None and late:
        failure = _still_missing(world, endpoint.active)
    if failure is None:
        return endpoint
    variants = tuple(_as_is(world, endpoint.active, it) for it in endpoint.active.variants)
    kept = replace(endpoint, active=replace(endpoint.active, variants=variants))
    return _in_service(kept, failure, givens.now)


def _is_shrinking(world: World, endpoint: Endpoint) -> bool:
    """Whether instances of the active deployment are leaving, or managed scaling ends some."""
    managed = {it.variant.name for it in endpoint.active.variants if managed_scaling(it.variant)}
    return any(
        it.leaving or (it.state is InstanceState.TERMINATING and it.variant_name in managed)
        for it in world.instances.values()
        if it.generation == endpoint.active.generation
    )


def _as_is(world: World, deployment: Deployment, wanted: EndpointVariant) -> EndpointVariant:
    """The variant with the instance count that is up; at least as many as it may have."""
    up = _up_instances(world, deployment, wanted)
    scaling = managed_scaling(wanted.variant)
    least = 1 if scaling is None else scaling.min_instances
    count = min(wanted.desired_instance_count, max(least, len(up)))
    return replace(wanted, desired_instance_count=count)


def _deleted(world: World, endpoint: Endpoint, givens: Givens) -> Endpoint | None:
    if not world.instances:
        return None
    if not is_overdue(endpoint, givens.now):
        return endpoint
    left = ", ".join(sorted(world.instances))
    late = f"Instances could not be terminated in time: {left}. Delete again."
    return _failed(endpoint, late, givens.now)


def _failed(endpoint: Endpoint, failure: str, now: float) -> Endpoint:
    return replace(
        endpoint,
        status=next_status(endpoint.status, Event.FAIL),
        deadline_at=None,
        failure_reason=failure_reason(failure),
        modified_at=now,
    )


def _in_service(endpoint: Endpoint, failure: str | None, now: float) -> Endpoint:
    """The endpoint InService; `failure` tells why an update was rolled back."""
    event = Event.READY if failure is None else Event.ROLLED_BACK
    return replace(
        endpoint,
        status=next_status(endpoint.status, event),
        deadline_at=None,
        failure_reason=None if failure is None else failure_reason(failure),
        modified_at=now,
    )


def is_up(world: World, deployment: Deployment) -> bool:
    """Whether a deployment can take the endpoint's traffic: every instance, and every copy."""
    return all(
        len(_up_instances(world, deployment, it)) >= it.desired_instance_count
        for it in deployment.variants
    ) and all(_has_moved(world, it, deployment) for it in _to_move(world, deployment))


def _up_instances(world: World, deployment: Deployment, wanted: EndpointVariant) -> list[Instance]:
    hosts = world.hosts(deployment.generation, wanted.variant.name)
    running = [it for it in hosts if it.state is InstanceState.RUNNING]
    if wanted.model is None:
        return running
    serving = {it.instance_id for it in world.copies_on(hosts, None) if is_routable(it)}
    return [it for it in running if it.id in serving]


def _to_move(world: World, deployment: Deployment) -> list[InferenceComponent]:
    """Base components that serve, and must on a pending deployment before it takes over."""
    endpoint = world.endpoint
    if endpoint is None or deployment is not endpoint.pending:
        return []
    return [it for it in world.components.values() if it.spec is not None and it.status in SERVING]


def _stranded(world: World, pending: Deployment, givens: Givens) -> str | None:
    """Why a component can never move to a pending deployment; None where all can."""
    for component in _to_move(world, pending):
        for wanted in pending.variants:
            why = cannot_ever_fit(component, wanted.variant, givens)
            if why is not None and component.desired_copies > 0:
                return f"CapacityError: inference component {component.name}: {why}"
    return None


def _has_moved(world: World, component: InferenceComponent, pending: Deployment) -> bool:
    """Whether as many copies are ready on the pending deployment as serve on the active one."""
    endpoint = world.endpoint
    assert endpoint is not None, "only an endpoint has a pending deployment"
    now_serving = _serving(world, component, endpoint.active)
    wanted = min(component.desired_copies, max(1, now_serving))
    return _serving(world, component, pending) >= wanted


def _serving(world: World, component: InferenceComponent, deployment: Deployment) -> int:
    hosts = world.hosts(deployment.generation, component.variant_name)
    return sum(1 for it in world.copies_on(hosts, component.name) if is_routable(it))


def deployment_failure(world: World, deployment: Deployment) -> str | None:
    """Why a deployment that is coming up will not: the first failed copy or instance."""
    for wanted in deployment.variants:
        for model in wanted.models:
            if len(model.containers) != 1:
                return (
                    f"Model {model.name} has {len(model.containers)} containers; "
                    f"a variant of this endpoint can run a model of one container."
                )
        hosts = world.hosts(deployment.generation, wanted.variant.name)
        failure = _launch_failure(world, hosts) or _failed_copy(_copies(world, hosts))
        if failure is not None:
            return failure
    return None


def _copies(world: World, hosts: Sequence[Instance]) -> list[Copy]:
    """Copies whose failure is the deployment's: the model's."""
    return world.copies_on(hosts, None)


def _launch_failure(world: World, hosts: Sequence[Instance]) -> str | None:
    for host in hosts:
        facts = world.facts_of(host.id)
        if facts.terminal and host.state is InstanceState.LAUNCHING:
            return f"Instance {host.id} ({host.instance_type}) could not start: {facts.problem}"
    return None


def _failed_copy(copies: Sequence[Copy]) -> str | None:
    for copy in copies:
        if copy.status.phase is CopyPhase.FAILED:
            return copy_failure(copy)
    return None


def _still_missing(world: World, deployment: Deployment) -> str:
    """What a deployment lacks at its deadline; the first variant without all instances leads."""
    lacks = [_variant_missing(world, deployment, it) for it in deployment.variants]
    return " ".join(sorted(lacks, key=lambda it: not it.startswith("CapacityError")))


def _variant_missing(world: World, deployment: Deployment, wanted: EndpointVariant) -> str:
    hosts = world.hosts(deployment.generation, wanted.variant.name)
    launching = [it for it in hosts if it.state is InstanceState.LAUNCHING]
    problems = [_launch_problem(world, it) for it in launching]
    name, count = wanted.variant.name, wanted.desired_instance_count
    if launching:
        running = len(hosts) - len(launching)
        start = f"CapacityError: timed out with {running} of {count} instances of variant {name}"
        return "; ".join([start, *problems]) + "."
    waiting = [it for it in _to_move(world, deployment) if not _has_moved(world, it, deployment)]
    if waiting:
        return _move_missing(world, waiting[0], hosts)
    if wanted.model is None:
        return f"Timed out; variant {name}: {len(hosts)} of {count} instances run."
    return f"Timed out; variant {name}: {what_is_missing(count, world.copies_on(hosts, None))}."


def _move_missing(world: World, component: InferenceComponent, hosts: list[Instance]) -> str:
    copies = world.copies_on(hosts, component.name)
    missing = what_is_missing(component.desired_copies, copies)
    short = shortage(world, component, hosts) if len(copies) < component.desired_copies else None
    if short is None:
        return f"Timed out; inference component {component.name}: {missing}."
    return f"CapacityError: timed out; inference component {component.name}: {missing}; {short}."


def _launch_problem(world: World, instance: Instance) -> str:
    problem = world.facts_of(instance.id).problem or "its agent has not answered yet"
    return f"{instance.id}: {problem}"
