"""Statuses that are not final: their deadlines, and their end as InService or Failed."""

from dataclasses import replace
from typing import TypeVar

from hostelry.domain.component import ComponentStatus, InferenceComponent
from hostelry.domain.endpoint import Endpoint, EndpointStatus
from hostelry.domain.status import Event, delete_deadline, is_final, next_status, start_deadline
from hostelry.reconcile.plan.endpoint_state import EndpointState
from hostelry.reconcile.plan.reasons import build_failure_reason


def set_deadlines(state: EndpointState, now: float) -> EndpointState:
    """The state in which exactly the statuses that are not final have a deadline."""
    if state.endpoint is not None:
        state = state.replace_endpoint(_set_endpoint_deadline(state.endpoint, now))
    changing = [it for it in state.dirty_components() if not _is_at_rest(it)]
    return state.replace_components(_set_component_deadline(it, now) for it in changing)


def is_overdue(record: Endpoint | InferenceComponent, now: float) -> bool:
    """Whether the deadline of a record's status has passed."""
    return record.deadline_at is not None and now >= record.deadline_at


def _set_endpoint_deadline(endpoint: Endpoint, now: float) -> Endpoint:
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


def _set_component_deadline(component: InferenceComponent, now: float) -> InferenceComponent:
    if is_final(component.status) == (component.deadline_at is None):
        return component
    if component.deadline_at is not None:
        return replace(component, deadline_at=None)
    if component.status is ComponentStatus.DELETING:
        return replace(component, deadline_at=delete_deadline(now))
    spec = component.spec
    timeouts = (0.0, 0.0) if spec is None else (spec.download_timeout_s, spec.startup_timeout_s)
    return replace(component, deadline_at=start_deadline(now, *timeouts))


R = TypeVar("R", Endpoint, InferenceComponent)


def end_in_service(record: R, failure: str | None, now: float) -> R:
    """The record InService. `failure` is why an update was rolled back, None if it was not."""
    return _end_status(record, Event.READY if failure is None else Event.ROLLED_BACK, failure, now)


def end_failed(record: R, failure: str, now: float) -> R:
    """The record Failed, with `failure` as its reason."""
    return _end_status(record, Event.FAIL, failure, now)


def _end_status(record: R, event: Event, failure: str | None, now: float) -> R:
    return replace(
        record,
        status=next_status(record.status, event),
        deadline_at=None,
        failure_reason=None if failure is None else build_failure_reason(failure),
        modified_at=now,
    )
