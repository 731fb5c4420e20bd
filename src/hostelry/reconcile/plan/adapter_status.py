"""An adapter component's status: it is in service once every ready copy of its base has it."""

from dataclasses import replace

from hostelry.domain.component import AdapterSpec, ComponentStatus, InferenceComponent
from hostelry.domain.copy import AdapterPhase, AdapterStatus, Copy, CopyPhase
from hostelry.domain.status import Event, next_status
from hostelry.reconcile.plan.adapters import adapter_id, adapter_leaves_at
from hostelry.reconcile.plan.component_status import active_hosts, failed, host_failure
from hostelry.reconcile.plan.deadlines import is_overdue
from hostelry.reconcile.plan.endpoint_state import LIVE_COMPONENT, EndpointState, PlanContext
from hostelry.reconcile.plan.reasons import failure_reason

FORGET_S = 10.0


def plan_adapter(
    state: EndpointState, component: InferenceComponent, context: PlanContext
) -> InferenceComponent | None:
    """The adapter component with the status that its base's copies make; None once deleted."""
    adapter = component.adapter
    assert adapter is not None, "an adapter component has an adapter"
    if component.status is ComponentStatus.DELETING:
        return _deleted(state, component, adapter, context)
    if component.status is ComponentStatus.IN_SERVICE:
        return _told_of_trouble(state, _without_predecessor(component, context))
    if component.status is ComponentStatus.FAILED:
        return component
    failure = _failure(state, component, adapter)
    if failure is None and _is_everywhere(state, component, adapter):
        return _in_service(component, None, context.now)
    if failure is None and is_overdue(component, context.now):
        failure = _still_missing(state, component, adapter)
    if failure is None:
        return component
    if component.status is ComponentStatus.CREATING:
        return failed(component, failure, context.now)
    before = component.previous_adapter or adapter
    back = replace(component, adapter=before, previous_adapter=None)
    return _in_service(back, failure, context.now)


def _in_service(
    component: InferenceComponent, failure: str | None, now: float
) -> InferenceComponent:
    event = Event.READY if failure is None else Event.ROLLED_BACK
    return replace(
        component,
        status=next_status(component.status, event),
        deadline_at=None,
        failure_reason=None if failure is None else failure_reason(failure),
        modified_at=now,
    )


def _without_predecessor(component: InferenceComponent, context: PlanContext) -> InferenceComponent:
    """The adapter that was replaced is let go once the routes to it have gone."""
    if component.previous_adapter is None or context.now < adapter_leaves_at(component):
        return component
    return replace(component, previous_adapter=None)


def _told_of_trouble(state: EndpointState, component: InferenceComponent) -> InferenceComponent:
    """An adapter in service that a later copy of the base refuses shows why, and serves on."""
    assert component.adapter is not None, "an adapter component has an adapter"
    refusal = _refusal(state, component, component.adapter)
    if refusal is None or component.failure_reason is not None:
        return component
    return replace(component, failure_reason=failure_reason(refusal))


def _ready_copies(
    state: EndpointState, component: InferenceComponent, base_name: str
) -> list[Copy]:
    copies = state.copies_on(active_hosts(state, component), base_name)
    return [it for it in copies if it.status.phase is CopyPhase.READY]


def _status_on(copy: Copy, wanted_id: str) -> AdapterStatus:
    pending = AdapterStatus(id=wanted_id, phase=AdapterPhase.PENDING)
    return next((it for it in copy.status.adapters if it.id == wanted_id), pending)


def _failure(
    state: EndpointState, component: InferenceComponent, adapter: AdapterSpec
) -> str | None:
    """Why the adapter can never be served, as far as is known now."""
    base = state.components.get(adapter.base_name)
    if base is None:
        return f"Base inference component {adapter.base_name} does not exist any more."
    if base.status not in LIVE_COMPONENT:
        return f"Base inference component {adapter.base_name} is {base.status.value}."
    gone = host_failure(state, component)
    if gone is not None:
        return gone
    return _refusal(state, component, adapter)


def _refusal(
    state: EndpointState, component: InferenceComponent, adapter: AdapterSpec
) -> str | None:
    """Why the first copy that refuses the adapter does; None when none does."""
    wanted_id = adapter_id(component.name, adapter)
    for copy in _ready_copies(state, component, adapter.base_name):
        status = _status_on(copy, wanted_id)
        if status.phase is AdapterPhase.FAILED:
            return status.reason or f"copy {copy.spec.id} refused the adapter without a reason"
    return None


def _is_everywhere(
    state: EndpointState, component: InferenceComponent, adapter: AdapterSpec
) -> bool:
    wanted_id = adapter_id(component.name, adapter)
    copies = _ready_copies(state, component, adapter.base_name)
    has_it = [_status_on(it, wanted_id).phase is AdapterPhase.READY for it in copies]
    base = state.components[adapter.base_name]
    nothing_to_wait_for = base.desired_copies == 0 and not copies
    return nothing_to_wait_for or (bool(has_it) and all(has_it))


def _still_missing(
    state: EndpointState, component: InferenceComponent, adapter: AdapterSpec
) -> str:
    wanted_id = adapter_id(component.name, adapter)
    copies = _ready_copies(state, component, adapter.base_name)
    waiting = [
        it.spec.id for it in copies if _status_on(it, wanted_id).phase is not AdapterPhase.READY
    ]
    if not copies:
        return f"Timed out: no copy of the base {adapter.base_name} is ready to take the adapter."
    return f"Timed out: the adapter is not registered on {', '.join(waiting)}."


def _deleted(
    state: EndpointState, component: InferenceComponent, adapter: AdapterSpec, context: PlanContext
) -> InferenceComponent | None:
    """Gone once no copy reports the adapter, or soon after it was taken out of what they desire."""
    leaves_at = adapter_leaves_at(component)
    if context.now < leaves_at:
        return component
    wanted_id = adapter_id(component.name, adapter)
    held = any(_is_known(it, wanted_id) for it in state.copies_of(adapter.base_name))
    return component if held and context.now < leaves_at + FORGET_S else None


def _is_known(copy: Copy, wanted_id: str) -> bool:
    return any(it.id == wanted_id for it in copy.status.adapters)
