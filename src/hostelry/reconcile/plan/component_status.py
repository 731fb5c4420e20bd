"""Status of a base component, from its copies.

status                       observed                               result
---------------------------  -------------------------------------  ------------------------------
Creating                     endpoint gone, a copy FAILED, or no    Failed
                             type of instance can hold a copy
Updating                     the same                               InService, rolled back
Creating, Updating           all desired copies serve, no other     InService
                             generation is left
Creating, Updating           deadline passed                        as if a copy FAILED
Updating, batch by batch     endpoint gone                          InService, rolled back
Updating, batch by batch     deadline passed                        goes back batch by batch
going back                   all old copies serve, or it is late    InService, rolled back
Deleting                     no copy is left                        removed
Deleting                     deadline passed                        Failed
"""

from collections.abc import Sequence

from msgspec.structs import replace

from hostelry.domain.component import ComponentStatus, InferenceComponent, Rollout
from hostelry.domain.copy import Copy, CopyPhase, Instance
from hostelry.domain.endpoint import EndpointStatus, EndpointVariant
from hostelry.reconcile.plan.endpoint_state import EndpointState, PlanContext, is_routable
from hostelry.reconcile.plan.placement_request import find_never_fits, find_shortage
from hostelry.reconcile.plan.rollout import roll_back
from hostelry.reconcile.plan.status import (
    describe_copy_failure,
    describe_missing,
    end_failed,
    end_in_service,
    is_overdue,
)


def plan_component(
    state: EndpointState, component: InferenceComponent, context: PlanContext
) -> InferenceComponent | None:
    """The base component with its next status. None once it is deleted."""
    if component.status is ComponentStatus.DELETING:
        return _delete_component(state, component, context)
    if component.status not in (ComponentStatus.CREATING, ComponentStatus.UPDATING):
        return component
    if component.rollout is not None:
        return _plan_rollout(state, component, component.rollout, context)
    failure = _find_failure(state, component, context)
    if failure is None and _is_up(state, component):
        return _end_update(component, None, context.now)
    if failure is None and is_overdue(component, context.now):
        failure = _describe_missing(state, component)
    if failure is None:
        return component
    if component.status is ComponentStatus.CREATING:
        return end_failed(component, failure, context.now)
    spec = component.previous_spec or component.spec
    return _end_update(replace(component, spec=spec), failure, context.now)


def _plan_rollout(
    state: EndpointState, component: InferenceComponent, rollout: Rollout, context: PlanContext
) -> InferenceComponent:
    """The component under a rolling update, whose batches `rollout` decides."""
    gone = find_host_failure(state, component)
    late = is_overdue(component, context.now)
    spec = component.previous_spec or component.spec
    if gone is not None:
        return _end_update(replace(component, spec=spec), gone, context.now)
    if rollout.failure is None:
        if not late:
            return component
        return roll_back(component, rollout, _describe_missing(state, component), context)
    before = replace(component, spec=spec)
    if late or (rollout.new_copies == 0 and _is_up(state, before)):
        return _end_update(before, rollout.failure, context.now)
    return component


def _end_update(
    component: InferenceComponent, failure: str | None, now: float
) -> InferenceComponent:
    """The component InService, its update over: completed, or rolled back for `failure`."""
    component = replace(component, previous_spec=None, rollout=None)
    return end_in_service(component, failure, now)


def find_host_failure(state: EndpointState, component: InferenceComponent) -> str | None:
    """Why a component's endpoint cannot take it. None if it can."""
    if state.endpoint is None:
        return f"Endpoint {component.endpoint_name} does not exist any more."
    if state.endpoint.status in (EndpointStatus.FAILED, EndpointStatus.DELETING):
        why = f": {state.endpoint.failure_reason}" if state.endpoint.failure_reason else "."
        return f"Endpoint {component.endpoint_name} is {state.endpoint.status.value}{why}"
    return None


def list_active_hosts(state: EndpointState, component: InferenceComponent) -> Sequence[Instance]:
    """Instances of the active deployment, which serve the component's requests."""
    if state.endpoint is None:
        return ()
    return state.hosts(state.endpoint.active.generation, component.variant_name)


def _get_copies(state: EndpointState, component: InferenceComponent) -> list[Copy]:
    return state.list_copies_on(list_active_hosts(state, component), component.name)


def _is_up(state: EndpointState, component: InferenceComponent) -> bool:
    """Whether all desired copies serve, and none of another generation is left."""
    assert component.spec is not None, "a base component has a spec"
    copies = _get_copies(state, component)
    new = [it for it in copies if it.generation == component.spec.generation]
    ready = sum(1 for it in new if is_routable(it))
    return ready >= component.desired_copies and len(new) == len(copies)


def _find_failure(
    state: EndpointState, component: InferenceComponent, context: PlanContext
) -> str | None:
    """Why the desired copies can never be ready. None if no observation says so."""
    assert component.spec is not None, "a base component has a spec"
    gone = find_host_failure(state, component)
    if gone is not None:
        return gone
    variant = _find_variant(state, component)
    if variant is None:
        return f"Endpoint {component.endpoint_name} has no variant {component.variant_name}."
    impossible = find_never_fits(component, variant.variant, context)
    if impossible is not None and component.desired_copies > 0:
        return "CapacityError: " + impossible
    for copy in _get_copies(state, component):
        is_new = copy.generation == component.spec.generation
        if is_new and copy.status.phase is CopyPhase.FAILED:
            return describe_copy_failure(copy)
    return None


def _find_variant(state: EndpointState, component: InferenceComponent) -> EndpointVariant | None:
    assert state.endpoint is not None, "host_failure refuses a component without an endpoint"
    variants = state.endpoint.active.variants
    return next((it for it in variants if it.variant.name == component.variant_name), None)


def _describe_missing(state: EndpointState, component: InferenceComponent) -> str:
    assert component.spec is not None, "a base component has a spec"
    generation = component.spec.generation
    copies = [it for it in _get_copies(state, component) if it.generation == generation]
    missing = describe_missing(component.desired_copies, copies)
    if len(copies) >= component.desired_copies or not all(is_routable(it) for it in copies):
        return f"Timed out: {missing}"
    short = find_shortage(state, component, list_active_hosts(state, component))
    return f"CapacityError: {short or 'an instance became free too late'}; {missing}"


def _delete_component(
    state: EndpointState, component: InferenceComponent, context: PlanContext
) -> InferenceComponent | None:
    left = sorted(it.spec.id for it in state.list_copies(component.name))
    if not left:
        return None
    if not is_overdue(component, context.now):
        return component
    late = f"Copies could not be stopped in time: {', '.join(left)}. Delete again."
    return end_failed(replace(component, rollout=None), late, context.now)
