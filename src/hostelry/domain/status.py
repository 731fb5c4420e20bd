"""The status machines of endpoints and components, as one table each.

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
    ROLL_BACK = "roll back"  # a weight or capacity change failed and is being undone
    ROLLED_BACK = "rolled back"  # what was there before the update serves again
    DELETE = "delete"


class IllegalTransition(HostelryError):  # noqa: N818 - the table's own word
    """The status has no row for the event."""


ENDPOINT_TRANSITIONS: Mapping[tuple[EndpointStatus, Event], EndpointStatus] = {
    (EndpointStatus.CREATING, Event.READY): EndpointStatus.IN_SERVICE,
    (EndpointStatus.CREATING, Event.FAIL): EndpointStatus.FAILED,
    (EndpointStatus.IN_SERVICE, Event.UPDATE): EndpointStatus.UPDATING,
    (EndpointStatus.UPDATING, Event.READY): EndpointStatus.IN_SERVICE,
    (EndpointStatus.UPDATING, Event.ROLLED_BACK): EndpointStatus.IN_SERVICE,
    (EndpointStatus.UPDATING, Event.ROLL_BACK): EndpointStatus.ROLLING_BACK,
    (EndpointStatus.UPDATING, Event.FAIL): EndpointStatus.UPDATE_ROLLBACK_FAILED,
    (EndpointStatus.ROLLING_BACK, Event.ROLLED_BACK): EndpointStatus.IN_SERVICE,
    (EndpointStatus.ROLLING_BACK, Event.FAIL): EndpointStatus.UPDATE_ROLLBACK_FAILED,
    (EndpointStatus.UPDATE_ROLLBACK_FAILED, Event.UPDATE): EndpointStatus.UPDATING,
    **{(status, Event.DELETE): EndpointStatus.DELETING for status in EndpointStatus},
}

COMPONENT_TRANSITIONS: Mapping[tuple[ComponentStatus, Event], ComponentStatus] = {
    (ComponentStatus.CREATING, Event.READY): ComponentStatus.IN_SERVICE,
    (ComponentStatus.CREATING, Event.FAIL): ComponentStatus.FAILED,
    (ComponentStatus.IN_SERVICE, Event.UPDATE): ComponentStatus.UPDATING,
    (ComponentStatus.UPDATING, Event.READY): ComponentStatus.IN_SERVICE,
    (ComponentStatus.UPDATING, Event.ROLLED_BACK): ComponentStatus.IN_SERVICE,
    (ComponentStatus.UPDATING, Event.FAIL): ComponentStatus.FAILED,
    **{(status, Event.DELETE): ComponentStatus.DELETING for status in ComponentStatus},
}

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
