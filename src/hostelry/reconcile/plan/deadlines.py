"""Deadlines of statuses that are not final: at its deadline a record fails or rolls back."""

from dataclasses import replace

from hostelry.domain.component import ComponentStatus, InferenceComponent
from hostelry.domain.deadline import delete_deadline, start_deadline
from hostelry.domain.endpoint import Endpoint, EndpointStatus
from hostelry.domain.status import is_final
from hostelry.reconcile.plan.endpoint_state import EndpointState


def with_deadlines(state: EndpointState, now: float) -> EndpointState:
    """The state in which exactly the statuses that are not final have a deadline."""
    if state.endpoint is not None:
        state = state.replace_endpoint(_endpoint(state.endpoint, now))
    changing = [it for it in state.dirty_components() if not _is_at_rest(it)]
    return state.replace_components(_component(it, now) for it in changing)


def is_overdue(record: Endpoint | InferenceComponent, now: float) -> bool:
    """Whether the deadline of a record's status has passed."""
    return record.deadline_at is not None and now >= record.deadline_at


def _endpoint(endpoint: Endpoint, now: float) -> Endpoint:
    if is_final(endpoint.status):
        return replace(endpoint, deadline_at=None)
    if endpoint.deadline_at is not None:
        return endpoint
    if endpoint.status is EndpointStatus.DELETING:
        return replace(endpoint, deadline_at=delete_deadline(now))
    variants = [it.variant for it in (endpoint.pending or endpoint.active).variants]
    download_s = max(it.download_timeout_s for it in variants)
    startup_s = max(it.startup_timeout_s for it in variants)
    provisioning_s = max(it.provisioning_s for it in variants)
    deadline_at = start_deadline(now, download_s, startup_s, provisioning_s)
    return replace(endpoint, deadline_at=deadline_at)


def _is_at_rest(component: InferenceComponent) -> bool:
    return component.status is ComponentStatus.IN_SERVICE and component.deadline_at is None


def _component(component: InferenceComponent, now: float) -> InferenceComponent:
    if is_final(component.status) == (component.deadline_at is None):
        return component
    if component.deadline_at is not None:
        return replace(component, deadline_at=None)
    if component.status is ComponentStatus.DELETING:
        return replace(component, deadline_at=delete_deadline(now))
    spec = component.spec
    timeouts = (0.0, 0.0) if spec is None else (spec.download_timeout_s, spec.startup_timeout_s)
    return replace(component, deadline_at=start_deadline(now, *timeouts))
