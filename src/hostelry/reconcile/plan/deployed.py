"""Readiness of a deployment, its missing parts, and why it cannot come up."""

from collections.abc import Sequence

from hostelry.domain.component import ComponentStatus, InferenceComponent
from hostelry.domain.copy import (
    Copy,
    CopyPhase,
    Instance,
    InstanceState,
    complete_sets,
    num_containers,
)
from hostelry.domain.endpoint import Deployment, EndpointVariant
from hostelry.reconcile.plan.adapters import build_adapter_id, get_routed_adapter
from hostelry.reconcile.plan.endpoint_state import (
    LIVE_COMPONENT,
    SERVING_COMPONENT,
    EndpointState,
    PlanContext,
    is_routable,
)
from hostelry.reconcile.plan.model_copies import count_needed_environments, list_ready_environments
from hostelry.reconcile.plan.placement_request import find_never_fits, find_shortage
from hostelry.reconcile.plan.status import describe_copy_failure, describe_missing


def is_up(state: EndpointState, deployment: Deployment) -> bool:
    """Whether a deployment can take the endpoint's traffic: all instances and copies are ready."""
    has_instances = all(_is_variant_up(state, deployment, it) for it in deployment.variants)
    moving = _to_move(state, deployment) if has_instances else ()
    return has_instances and all(_has_moved(state, it, deployment) for it in moving)


def _is_variant_up(state: EndpointState, deployment: Deployment, variant: EndpointVariant) -> bool:
    if variant.serverless is not None:
        ready = list_ready_environments(state, deployment, variant)
        return len(ready) >= count_needed_environments(variant)
    return len(list_up_instances(state, deployment, variant)) >= variant.desired_instance_count


def list_up_instances(
    state: EndpointState, deployment: Deployment, variant: EndpointVariant
) -> list[Instance]:
    """The variant's running instances. Of a model: those on which all of it serves."""
    hosts = state.hosts(deployment.generation, variant.variant.name)
    running = [it for it in hosts if it.state is InstanceState.RUNNING]
    if variant.model is None:
        return running
    ready = [it for it in state.list_copies_on(hosts, None) if is_routable(it)]
    serving = complete_sets(variant, running, ready)
    return [it for it in running if it.id in serving]


def _to_move(state: EndpointState, deployment: Deployment) -> list[InferenceComponent]:
    """Base components that must have copies on a pending deployment before it takes over."""
    endpoint = state.endpoint
    if endpoint is None or deployment is not endpoint.pending:
        return []
    return _live_bases(state)


def _live_bases(state: EndpointState) -> list[InferenceComponent]:
    living = [it for it in state.components.values() if it.status in LIVE_COMPONENT]
    return [it for it in living if it.spec is not None]


def can_serve_again(state: EndpointState, before: Deployment) -> bool:
    """True if requests can go back to `before`, the deployment kept during a trial.

    `before` must serve each component and adapter that serves now, with the same number of copies.
    Each model needs one instance.
    """
    endpoint = state.endpoint
    assert endpoint is not None, "only an endpoint has a deployment to go back to"
    if not endpoint.takes_components:
        return all(
            len(list_up_instances(state, before, variant)) >= min(1, variant.desired_instance_count)
            for variant in before.production
        )
    return all(_can_return(state, it, endpoint.active, before) for it in state.components.values())


def _can_return(
    state: EndpointState, component: InferenceComponent, active: Deployment, before: Deployment
) -> bool:
    base, adapter_name = component, None
    adapter = get_routed_adapter(component)
    if adapter is not None:
        base = state.components.get(adapter.base_name, component)
        adapter_name = build_adapter_id(component.name, adapter)
    if component.status not in LIVE_COMPONENT:
        return True
    now, then = (_serving(state, base, it, adapter_name) for it in (active, before))
    return then >= min(base.desired_copies, now)


def find_ceased(state: EndpointState, deployment: Deployment, since: float) -> str | None:
    """Why a deployment that was up at `since` is not any more. None while all its copies serve.

    A copy that has ended since then counts, even if it serves again by now. A copy that never
    served does not count. A shadow counts only until the deployment serves.
    """
    for variant in deployment.production:
        copies = state.list_variant_copies(deployment.generation, variant.variant.name, None)
        ended = next((it for it in copies if _has_ended(it, since)), None)
        if ended is not None and ended.status.last_end is not None:
            why = f"copy {ended.spec.id} on {ended.instance_id}: {ended.status.last_end.cause}"
        elif not _is_variant_up(state, deployment, variant) or any(map(_describe_stopped, copies)):
            why = describe_missing(_num_copies(variant), copies)
        else:
            continue
        return (
            f"Variant {variant.variant.name} no longer serves on all new instances: {why};"
            " the update was rolled back."
        )
    return None


def _has_ended(copy: Copy, since: float) -> bool:
    end = copy.status.last_end
    return copy.has_served and end is not None and end.at >= since


def _describe_stopped(copy: Copy) -> bool:
    """Whether the copy served, and does not any more."""
    return copy.unready_since is not None


def stopped_serving(state: EndpointState, before: Deployment) -> str | None:
    """Why a component that still serves on `before` does not on trial. None if all do."""
    endpoint = state.endpoint
    assert endpoint is not None, "only an endpoint has a deployment on trial"
    for base in _live_bases(state):
        if base.status is not ComponentStatus.IN_SERVICE or not base.desired_copies:
            continue
        now, then = (_serving(state, base, place) for place in (endpoint.active, before))
        if then and not now:
            generation = endpoint.active.generation
            copies = state.list_variant_copies(generation, base.variant_name, base.name)
            missing = describe_missing(base.desired_copies, copies)
            return (
                f"Inference component {base.name} does not serve on the new instances any more:"
                f" {missing}; the update was rolled back."
            )
    return None


def find_stranded(state: EndpointState, pending: Deployment, context: PlanContext) -> str | None:
    """Why a component can never move to a pending deployment. None if all can."""
    for component in _to_move(state, pending):
        for variant in pending.variants:
            why = find_never_fits(component, variant.variant, context)
            is_serving = component.status in SERVING_COMPONENT and component.desired_copies > 0
            if why is not None and is_serving:
                return f"CapacityError: inference component {component.name}: {why}"
    return None


def _has_moved(state: EndpointState, component: InferenceComponent, pending: Deployment) -> bool:
    """Whether as many copies serve on the pending deployment as on the active one.

    At least one if the component is in service. A component that is Creating delays no update.
    """
    endpoint = state.endpoint
    assert endpoint is not None, "only an endpoint has a pending deployment"
    now_serving = _serving(state, component, endpoint.active)
    least = 1 if component.status in SERVING_COMPONENT else 0
    needed = min(component.desired_copies, max(least, now_serving))
    return _serving(state, component, pending) >= needed


def _serving(
    state: EndpointState,
    base: InferenceComponent,
    deployment: Deployment,
    adapter_name: str | None = None,
) -> int:
    """Count the copies of a base that serve on a deployment and have the adapter, if named."""
    copies = state.list_variant_copies(deployment.generation, base.variant_name, base.name)
    serving = [it for it in copies if is_routable(it)]
    return sum(1 for it in serving if adapter_name is None or adapter_name in it.proven_adapters)


def find_deployment_failure(state: EndpointState, deployment: Deployment) -> str | None:
    """Describe the first failed copy or instance of a deployment. None if none failed."""
    for variant in deployment.variants:
        hosts = state.hosts(deployment.generation, variant.variant.name)
        # Of the copies only the model's: a component's failure is that component's own.
        copies = state.list_copies_on(hosts, None)
        failed = (describe_copy_failure(it) for it in copies if it.status.phase is CopyPhase.FAILED)
        failure = _launch_failure(state, hosts) or next(failed, None)
        if failure is not None:
            return failure
    return None


def _launch_failure(state: EndpointState, hosts: Sequence[Instance]) -> str | None:
    for host in hosts:
        facts = state.get_facts(host.id)
        if facts.terminal and host.state is InstanceState.LAUNCHING:
            return f"Instance {host.id} ({host.instance_type}) could not start: {facts.problem}"
    return None


def describe_missing_parts(state: EndpointState, deployment: Deployment) -> str:
    """Describe the missing parts of a late deployment, variants short of instances first."""
    lacks = [_variant_missing(state, deployment, it) for it in deployment.variants]
    return " ".join(sorted(lacks, key=lambda it: not it.startswith("CapacityError")))


def _variant_missing(state: EndpointState, deployment: Deployment, variant: EndpointVariant) -> str:
    hosts = state.hosts(deployment.generation, variant.variant.name)
    launching = [it for it in hosts if it.state is InstanceState.LAUNCHING]
    problems = [_launch_problem(state, it) for it in launching]
    name, count = variant.variant.name, variant.desired_instance_count
    if launching:
        running = len(hosts) - len(launching)
        start = f"CapacityError: timed out with {running} of {count} instances of variant {name}"
        return "; ".join([start, *problems]) + "."
    waiting = [it for it in _to_move(state, deployment) if not _has_moved(state, it, deployment)]
    if waiting:
        return _move_missing(state, waiting[0], hosts)
    if variant.model is None:
        return f"Timed out; variant {name}: {len(hosts)} of {count} instances run."
    missing = describe_missing(_num_copies(variant), state.list_copies_on(hosts, None))
    return f"Timed out; variant {name}: {missing}."


def _num_copies(variant: EndpointVariant) -> int:
    """The copies that must be ready: of each container on each instance, or environments."""
    if variant.serverless is not None:
        return count_needed_environments(variant)
    return variant.desired_instance_count * num_containers(variant)


def _move_missing(
    state: EndpointState, component: InferenceComponent, hosts: Sequence[Instance]
) -> str:
    copies = state.list_copies_on(hosts, component.name)
    missing = describe_missing(component.desired_copies, copies)
    short = (
        find_shortage(state, component, hosts) if len(copies) < component.desired_copies else None
    )
    if short is None:
        return f"Timed out; inference component {component.name}: {missing}."
    return f"CapacityError: timed out; inference component {component.name}: {missing}; {short}."


def _launch_problem(state: EndpointState, instance: Instance) -> str:
    problem = state.get_facts(instance.id).problem or "its agent has not answered yet"
    return f"{instance.id}: {problem}"
