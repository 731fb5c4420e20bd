"""A base component's status: Creating and Updating end with its copies ready, failed or late."""

from dataclasses import replace

from hostelry.domain.component import ComponentStatus, InferenceComponent, Rollout
from hostelry.domain.copy import Copy, CopyPhase, Instance
from hostelry.domain.endpoint import EndpointStatus, EndpointVariant
from hostelry.domain.status import Event, next_status
from hostelry.reconcile.plan.deadlines import is_overdue
from hostelry.reconcile.plan.endpoint_state import EndpointState, PlanContext, is_routable
from hostelry.reconcile.plan.placement_request import cannot_ever_fit, shortage
from hostelry.reconcile.plan.reasons import copy_failure, failure_reason, what_is_missing
from hostelry.reconcile.plan.rollout import going_back


def plan_component(
    state: EndpointState, component: InferenceComponent, context: PlanContext
) -> InferenceComponent | None:
    """The base component with the status that its copies make; None once it is deleted."""
    if component.status is ComponentStatus.DELETING:
        return _deleted(state, component, context)
    if component.status not in (ComponentStatus.CREATING, ComponentStatus.UPDATING):
        return component
    if component.rollout is not None:
        return _rolled(state, component, component.rollout, context)
    failure = _failure(state, component, context)
    if failure is None and _is_up(state, component):
        return in_service(component, None, context.now)
    if failure is None and is_overdue(component, context.now):
        failure = _still_missing(state, component)
    if failure is None:
        return component
    if component.status is ComponentStatus.CREATING:
        return failed(component, failure, context.now)
    spec = component.previous_spec or component.spec
    return in_service(replace(component, spec=spec), failure, context.now)


def _rolled(
    state: EndpointState, component: InferenceComponent, rollout: Rollout, context: PlanContext
) -> InferenceComponent:
    """A component that is updated batch by batch: in service again once it has gone all back."""
    gone = host_failure(state, component)
    late = is_overdue(component, context.now)
    spec = component.previous_spec or component.spec
    if gone is not None:
        return in_service(replace(component, spec=spec), gone, context.now)
    if rollout.failure is None:
        if not late:
            return component
        return going_back(component, rollout, _still_missing(state, component), context)
    before = replace(component, spec=spec)
    if late or (rollout.new_copies == 0 and _is_up(state, before)):
        return in_service(before, rollout.failure, context.now)
    return component


def in_service(
    component: InferenceComponent, failure: str | None, now: float
) -> InferenceComponent:
    """The component InService; `failure` tells why an update was rolled back."""
    event = Event.READY if failure is None else Event.ROLLED_BACK
    return replace(
        component,
        status=next_status(component.status, event),
        previous_spec=None,
        rollout=None,
        deadline_at=None,
        failure_reason=None if failure is None else failure_reason(failure),
        modified_at=now,
    )


def failed(component: InferenceComponent, failure: str, now: float) -> InferenceComponent:
    """The component Failed, for the reason given."""
    return replace(
        component,
        status=next_status(component.status, Event.FAIL),
        rollout=None,
        deadline_at=None,
        failure_reason=failure_reason(failure),
        modified_at=now,
    )


def host_failure(state: EndpointState, component: InferenceComponent) -> str | None:
    """Why the endpoint that a component is created on cannot take it; None when it can."""
    if state.endpoint is None:
        return f"Endpoint {component.endpoint_name} does not exist any more."
    if state.endpoint.status in (EndpointStatus.FAILED, EndpointStatus.DELETING):
        why = f": {state.endpoint.failure_reason}" if state.endpoint.failure_reason else "."
        return f"Endpoint {component.endpoint_name} is {state.endpoint.status.value}{why}"
    return None


def active_hosts(state: EndpointState, component: InferenceComponent) -> list[Instance]:
    """The instances that a component's traffic is served from."""
    if state.endpoint is None:
        return []
    return state.hosts(state.endpoint.active.generation, component.variant_name)


def _copies(state: EndpointState, component: InferenceComponent) -> list[Copy]:
    return state.copies_on(active_hosts(state, component), component.name)


def _is_up(state: EndpointState, component: InferenceComponent) -> bool:
    """All wanted copies are ready, and none of another generation is left."""
    assert component.spec is not None, "a base component has a spec"
    copies = _copies(state, component)
    new = [it for it in copies if it.generation == component.spec.generation]
    ready = sum(1 for it in new if is_routable(it))
    return ready >= component.desired_copies and len(new) == len(copies)


def _failure(
    state: EndpointState, component: InferenceComponent, context: PlanContext
) -> str | None:
    """Why the wanted copies can never be ready, as far as is known now."""
    assert component.spec is not None, "a base component has a spec"
    gone = host_failure(state, component)
    if gone is not None:
        return gone
    variant = _variant(state, component)
    if variant is None:
        return f"Endpoint {component.endpoint_name} has no variant {component.variant_name}."
    impossible = cannot_ever_fit(component, variant.variant, context)
    if impossible is not None and component.desired_copies > 0:
        return "CapacityError: " + impossible
    for copy in _copies(state, component):
        is_new = copy.generation == component.spec.generation
        if is_new and copy.status.phase is CopyPhase.FAILED:
            return copy_failure(copy)
    return None


def _variant(state: EndpointState, component: InferenceComponent) -> EndpointVariant | None:
    assert state.endpoint is not None, "the endpoint was looked at before"
    variants = state.endpoint.active.variants
    return next((it for it in variants if it.variant.name == component.variant_name), None)


def _still_missing(state: EndpointState, component: InferenceComponent) -> str:
    assert component.spec is not None, "a base component has a spec"
    copies = [it for it in _copies(state, component) if it.generation == component.spec.generation]
    missing = what_is_missing(component.desired_copies, copies)
    if len(copies) >= component.desired_copies or not all(is_routable(it) for it in copies):
        return f"Timed out: {missing}"
    short = shortage(state, component, active_hosts(state, component))
    return f"CapacityError: {short or 'an instance became free too late'}; {missing}"


def _deleted(
    state: EndpointState, component: InferenceComponent, context: PlanContext
) -> InferenceComponent | None:
    left = sorted(it.spec.id for it in state.copies_of(component.name))
    if not left:
        return None
    if not is_overdue(component, context.now):
        return component
    late = f"Copies could not be stopped in time: {', '.join(left)}. Delete again."
    return failed(component, late, context.now)
