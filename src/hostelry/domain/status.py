"""The status machines of endpoints and components, as one table each, and the only authority.

A record begins in Creating; every later status of it is an answer of `next_status`.
Deliberately friendlier than AWS in one point: DELETE is possible from every status, also while a
create or an update is under way; it cancels them. Source: DescribeEndpoint and
DescribeInferenceComponent (EndpointStatus, InferenceComponentStatus) in the SageMaker API
reference.
"""

from collections.abc import Mapping
from enum import Enum
from typing import Any, TypeVar

from hostelry.base.errors import HostelryError
from hostelry.domain.component import ComponentStatus
from hostelry.domain.endpoint import EndpointStatus

Status = TypeVar("Status", bound=EndpointStatus | ComponentStatus)


class Event(Enum):
    """What may happen to an endpoint or a component."""

    UPDATE = "update"  # a client asked for another configuration, specification or count
    READY = "ready"  # everything wanted is proven ready
    FAIL = "fail"  # what was wanted cannot be, and there is nothing to go back to
    ROLLED_BACK = "rolled back"  # the update failed; what was there before it serves on
    DELETE = "delete"  # a client asked


class IllegalTransition(HostelryError):  # noqa: N818 - the table's own word
    """The status has no row for the event."""


ENDPOINT_TRANSITIONS: Mapping[tuple[EndpointStatus, Event], EndpointStatus] = {
    (EndpointStatus.CREATING, Event.READY): EndpointStatus.IN_SERVICE,
    (EndpointStatus.CREATING, Event.FAIL): EndpointStatus.FAILED,
    (EndpointStatus.IN_SERVICE, Event.UPDATE): EndpointStatus.UPDATING,
    (EndpointStatus.UPDATING, Event.READY): EndpointStatus.IN_SERVICE,
    (EndpointStatus.UPDATING, Event.ROLLED_BACK): EndpointStatus.IN_SERVICE,
    (EndpointStatus.DELETING, Event.FAIL): EndpointStatus.FAILED,
    **{(status, Event.DELETE): EndpointStatus.DELETING for status in EndpointStatus},
}

COMPONENT_TRANSITIONS: Mapping[tuple[ComponentStatus, Event], ComponentStatus] = {
    (ComponentStatus.CREATING, Event.READY): ComponentStatus.IN_SERVICE,
    (ComponentStatus.CREATING, Event.FAIL): ComponentStatus.FAILED,
    (ComponentStatus.IN_SERVICE, Event.UPDATE): ComponentStatus.UPDATING,
    (ComponentStatus.UPDATING, Event.READY): ComponentStatus.IN_SERVICE,
    (ComponentStatus.UPDATING, Event.ROLLED_BACK): ComponentStatus.IN_SERVICE,
    (ComponentStatus.DELETING, Event.FAIL): ComponentStatus.FAILED,
    **{(status, Event.DELETE): ComponentStatus.DELETING for status in ComponentStatus},
}

# What happens only because a client asked for it.
ASKED = frozenset({Event.UPDATE, Event.DELETE})

# Statuses of different kinds are different keys, even where their words are the same.
TRANSITIONS: Mapping[Any, Any] = {**ENDPOINT_TRANSITIONS, **COMPONENT_TRANSITIONS}


def next_status(status: Status, event: Event) -> Status:
    """Status that `event` leads to; raises IllegalTransition where the table has no row."""
    if not can(status, event):
        raise IllegalTransition(f"{status.value} cannot take the event {event.value!r}")
    following: Status = TRANSITIONS[status, event]
    return following


def can(status: Enum, event: Event) -> bool:
    """Whether the table has a row for `event` in `status`."""
    return (status, event) in TRANSITIONS


def is_final(status: Enum) -> bool:
    """Whether only a client leads out of the status; every other one ends at a deadline."""
    return all(event in ASKED for event in Event if can(status, event))
