from enum import Enum

import pytest

from hostelry.domain.component import ComponentStatus
from hostelry.domain.endpoint import EndpointStatus
from hostelry.domain.status import (
    COMPONENT_TRANSITIONS,
    ENDPOINT_TRANSITIONS,
    Event,
    IllegalTransition,
    can,
    next_status,
)

FINAL = {
    EndpointStatus.IN_SERVICE,
    EndpointStatus.FAILED,
    EndpointStatus.OUT_OF_SERVICE,
    EndpointStatus.UPDATE_ROLLBACK_FAILED,
    # Nothing here leads to it: it is a status that AWS's own maintenance sets.
    EndpointStatus.SYSTEM_UPDATING,
    ComponentStatus.IN_SERVICE,
    ComponentStatus.FAILED,
}
EVERY: list[EndpointStatus | ComponentStatus] = [*EndpointStatus, *ComponentStatus]


@pytest.mark.parametrize(
    ("status", "event", "expected"),
    [
        pytest.param(
            EndpointStatus.CREATING,
            Event.READY,
            EndpointStatus.IN_SERVICE,
            id="a created endpoint is in service",
        ),
        pytest.param(
            EndpointStatus.CREATING,
            Event.FAIL,
            EndpointStatus.FAILED,
            id="a create that fails is failed",
        ),
        pytest.param(
            EndpointStatus.UPDATING,
            Event.ROLLED_BACK,
            EndpointStatus.IN_SERVICE,
            id="an update that fails goes back to service",
        ),
        pytest.param(
            EndpointStatus.UPDATE_ROLLBACK_FAILED,
            Event.UPDATE,
            EndpointStatus.UPDATING,
            id="another update repairs a failed rollback",
        ),
        pytest.param(
            ComponentStatus.IN_SERVICE,
            Event.UPDATE,
            ComponentStatus.UPDATING,
            id="a component in service can be updated",
        ),
        pytest.param(
            ComponentStatus.UPDATING,
            Event.ROLLED_BACK,
            ComponentStatus.IN_SERVICE,
            id="a component's update that fails goes back to service",
        ),
    ],
)
def test_an_event_leads_on(
    status: EndpointStatus | ComponentStatus,
    event: Event,
    expected: EndpointStatus | ComponentStatus,
) -> None:
    assert next_status(status, event) is expected


@pytest.mark.parametrize(
    "status",
    [
        *(
            it
            for it in EndpointStatus
            if it not in (EndpointStatus.IN_SERVICE, EndpointStatus.UPDATE_ROLLBACK_FAILED)
        ),
        *(it for it in ComponentStatus if it is not ComponentStatus.IN_SERVICE),
    ],
    ids=str,
)
def test_an_update_is_refused_elsewhere(status: EndpointStatus | ComponentStatus) -> None:
    assert not can(status, Event.UPDATE)
    with pytest.raises(IllegalTransition, match=f"{status.value} cannot take the event 'update'"):
        next_status(status, Event.UPDATE)


@pytest.mark.parametrize("status", EVERY, ids=str)
def test_delete_is_possible_from_everywhere(status: EndpointStatus | ComponentStatus) -> None:
    assert next_status(status, Event.DELETE).value == "Deleting"


@pytest.mark.parametrize(
    "status",
    [it for it in EVERY if it not in FINAL and it.value != "Deleting"],
    ids=str,
)
def test_no_status_that_is_not_final_is_a_dead_end(
    status: EndpointStatus | ComponentStatus,
) -> None:
    assert can(status, Event.FAIL)
    assert can(status, Event.READY) or can(status, Event.ROLLED_BACK)


@pytest.mark.parametrize("status", [EndpointStatus.DELETING, ComponentStatus.DELETING], ids=str)
def test_nothing_but_delete_is_possible_while_deleting(
    status: EndpointStatus | ComponentStatus,
) -> None:
    assert [event for event in Event if can(status, event)] == [Event.DELETE]


def test_every_row_stays_within_its_kind() -> None:
    tables: list[tuple[dict[tuple[Enum, Event], Enum], type[Enum]]] = [
        (dict(ENDPOINT_TRANSITIONS.items()), EndpointStatus),
        (dict(COMPONENT_TRANSITIONS.items()), ComponentStatus),
    ]
    for table, kind in tables:
        assert {type(status) for status, _ in table} == {kind}
        assert {type(status) for status in table.values()} == {kind}
