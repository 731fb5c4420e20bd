"""Stage: status of an endpoint, from the instances and copies that are up.

status                      observed                                  result
-------------------------   ---------------------------------------   ---------------------------
Creating                    a copy or an instance failed, or late     Failed
Creating                    everything is up                          InService
Updating, counts only       everything is up, no instance leaves      InService
Updating, counts only       failed or late                            InService with fewer
Updating, other deployment  see `update_step`
Deleting                    no instance is left                       removed
Deleting                    late                                      Failed

A shadow variant counts as any other until its deployment serves, and not afterwards: no fault of it
ends a change of the others' counts.
"""

from msgspec.structs import replace

from hostelry.domain.copy import InstanceState
from hostelry.domain.endpoint import Deployment, Endpoint, EndpointStatus, EndpointVariant
from hostelry.domain.resize import is_only_resized, set_environments
from hostelry.reconcile.plan.deployed import (
    describe_missing_parts,
    find_deployment_failure,
    is_up,
    list_up_instances,
)
from hostelry.reconcile.plan.endpoint_state import EndpointState, PlanContext
from hostelry.reconcile.plan.growth import get_managed_scaling
from hostelry.reconcile.plan.status import end_failed, end_in_service, is_overdue
from hostelry.reconcile.plan.update import plan_update


def plan_endpoint(state: EndpointState, context: PlanContext) -> EndpointState:
    """The state with the endpoint's next status. Without the endpoint once it is deleted."""
    endpoint = state.endpoint
    if endpoint is None:
        return state
    after: Endpoint | None = endpoint
    if endpoint.status is EndpointStatus.CREATING:
        after = _plan_created(state, endpoint, context)
    elif endpoint.status is EndpointStatus.UPDATING and is_only_resized(endpoint):
        after = _plan_resized(state, endpoint, context)
    elif endpoint.status is EndpointStatus.UPDATING:
        after = plan_update(state, endpoint, context)
    elif endpoint.status is EndpointStatus.DELETING:
        after = _plan_deleted(state, endpoint, context)
    return state if after is endpoint else state.replace_endpoint(after)


def reuse_instances(state: EndpointState) -> EndpointState:
    """The state after an update that can keep the instances there are, and the copies on them.

    It can where components are placed on the endpoint, every instance has a type that the new
    variants allow, and no guard needs the old instances to return to. The new deployment then gets
    the generation of the old one, and with it its instances, in one write.
    """
    endpoint = state.endpoint
    if endpoint is None or endpoint.pending is None:
        return state
    active, pending = endpoint.active, endpoint.pending
    if not endpoint.takes_components or (pending.guard is not None and pending.guard.may_go_back):
        return state
    if not _can_keep_instances(state, active, pending):
        return state
    variants = tuple(_keep_instance_count(it, active) for it in pending.variants)
    after = replace(pending, generation=active.generation, variants=variants)
    return state.replace_endpoint(replace(endpoint, active=after, pending=None))


def _keep_instance_count(variant: EndpointVariant, active: Deployment) -> EndpointVariant:
    """The variant with the instances that managed scaling added so far, within its new bounds."""
    scaling = get_managed_scaling(variant.variant)
    if scaling is None:
        return variant
    now = next(it for it in active.variants if it.variant.name == variant.variant.name)
    variant = replace(variant, scaled_in_at=now.scaled_in_at, passed_over=now.passed_over)
    count = max(variant.desired_instance_count, now.desired_instance_count)
    return replace(variant, desired_instance_count=min(count, scaling.max_instances))


def _can_keep_instances(state: EndpointState, active: Deployment, pending: Deployment) -> bool:
    types = {it.variant.name: it.variant.instance_types for it in pending.variants}
    names = {it.variant.name for it in active.variants}
    if not pending.config.takes_components or names != set(types):
        return False
    return all(
        host.instance_type in types[name]
        for name in types
        for host in state.hosts(active.generation, name)
    )


def _plan_created(state: EndpointState, endpoint: Endpoint, context: PlanContext) -> Endpoint:
    failure = find_deployment_failure(state, endpoint.active)
    if failure is None and is_up(state, endpoint.active):
        return end_in_service(endpoint, None, context.now)
    if failure is None and is_overdue(endpoint, context.now):
        failure = describe_missing_parts(state, endpoint.active)
    if failure is None:
        return endpoint
    return end_failed(endpoint, failure, context.now)


def _plan_resized(state: EndpointState, endpoint: Endpoint, context: PlanContext) -> Endpoint:
    answering = endpoint.active.without_shadow
    failure = find_deployment_failure(state, answering)
    late = is_overdue(endpoint, context.now)
    is_going = _is_shrinking(state, endpoint) and not late
    if failure is None and is_up(state, answering):
        return (
            endpoint
            if is_going
            else end_in_service(_accept_serverless(endpoint), None, context.now)
        )
    if failure is None and late:
        failure = describe_missing_parts(state, answering)
    if failure is None:
        return endpoint
    variants = tuple(_fit_to_present(state, endpoint.active, it) for it in endpoint.active.variants)
    kept = replace(endpoint, active=replace(endpoint.active, variants=variants))
    return end_in_service(kept, failure, context.now)


def _accept_serverless(endpoint: Endpoint) -> Endpoint:
    """The endpoint with its changed serverless configuration accepted."""
    active = endpoint.active
    variants = tuple(replace(it, serverless_before=None) for it in active.variants)
    return replace(endpoint, active=replace(active, variants=variants))


def _is_shrinking(state: EndpointState, endpoint: Endpoint) -> bool:
    """Whether instances of the active deployment leave, or managed scaling terminates some."""
    active = endpoint.active
    managed = {it.variant.name for it in active.variants if get_managed_scaling(it.variant)}
    mine = [it for it in state.instances.values() if it.generation == active.generation]
    ending = [it for it in mine if it.state is InstanceState.TERMINATING]
    return any(it.leaving for it in mine) or any(it.variant_name in managed for it in ending)


def _fit_to_present(
    state: EndpointState, deployment: Deployment, variant: EndpointVariant
) -> EndpointVariant:
    """The variant with as many instances as are up, but at least its minimum.

    A serverless one has its configuration from before the update.
    """
    before = variant.serverless_before
    if before is not None:
        variant = set_environments(replace(variant, serverless=before), variant.environments)
        return replace(variant, serverless_before=None)
    if variant.serverless is not None:
        return variant
    up = list_up_instances(state, deployment, variant)
    scaling = get_managed_scaling(variant.variant)
    least = deployment.config.least_instances if scaling is None else scaling.min_instances
    count = min(variant.desired_instance_count, max(least, len(up)))
    return replace(variant, desired_instance_count=count)


def _plan_deleted(
    state: EndpointState, endpoint: Endpoint, context: PlanContext
) -> Endpoint | None:
    if not state.instances:
        return None
    if not is_overdue(endpoint, context.now):
        return endpoint
    left = ", ".join(sorted(state.instances))
    late = f"Instances could not be terminated in time: {left}. Delete again."
    return end_failed(endpoint, late, context.now)
