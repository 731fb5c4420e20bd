"""Ends a status that is not final: InService or Failed, without a deadline, with the reason."""

from dataclasses import replace
from typing import TypeVar

from hostelry.domain.component import InferenceComponent
from hostelry.domain.endpoint import Endpoint
from hostelry.domain.status import Event, next_status
from hostelry.reconcile.plan.reasons import failure_reason

R = TypeVar("R", Endpoint, InferenceComponent)


def in_service(record: R, failure: str | None, now: float) -> R:
    """The record InService; `failure` is why an update was rolled back, None if it was not."""
    return _ended(record, Event.READY if failure is None else Event.ROLLED_BACK, failure, now)


def failed(record: R, failure: str, now: float) -> R:
    """The record Failed, with `failure` as its reason."""
    return _ended(record, Event.FAIL, failure, now)


def _ended(record: R, event: Event, failure: str | None, now: float) -> R:
    return replace(
        record,
        status=next_status(record.status, event),
        deadline_at=None,
        failure_reason=None if failure is None else failure_reason(failure),
        modified_at=now,
    )
