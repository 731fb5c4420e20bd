"""Tables of the pending queue's decisions, without a queue or a clock."""

from dataclasses import replace

import pytest
from tests.unit.dataplane.routes_sample import COPIES, HERE, component

from hostelry.base.errors import ServiceError
from hostelry.dataplane.balancing.destination import NoCopyError, UnknownNameError
from hostelry.dataplane.balancing.load_balancer import CopiesBusyError
from hostelry.dataplane.http.reply import ConnectError
from hostelry.dataplane.route_table import Destination, RouteTable
from hostelry.domain.at_zero import AtZero, Wakeable
from hostelry.domain.routes import ComponentRoute, EndpointRoute, RouteSnapshot
from hostelry.domain.serverless import ServerlessConfig
from hostelry.gateway.queueing.decisions import (
    REFUSED_S,
    AskControl,
    Refuse,
    Wait,
    decide_after_refusal,
    decide_without_copy,
    lacking_copies,
    late_error,
    num_released,
)
from hostelry.routing.no_copy import WINDOW

ASLEEP = replace(component("llm", ()), at_zero=AtZero.HOLD, wakeable=Wakeable.YES, desired_copies=0)


def destination(route: ComponentRoute) -> Destination:
    endpoint = EndpointRoute(scope=HERE, name="llms", takes_components=True, components=(route,))
    found = RouteTable(RouteSnapshot(version="v", endpoints=(endpoint,))).component(HERE, "llm")
    assert found is not None
    return found


TO_WAKE = NoCopyError(destination(ASLEEP))
COMING = NoCopyError(destination(replace(ASLEEP, desired_copies=2)))
OFF = NoCopyError(destination(replace(ASLEEP, wakeable=Wakeable.NO_TARGET)))
COMPAT = NoCopyError(destination(replace(ASLEEP, at_zero=AtZero.COMPAT)))
COMPAT_COMING = NoCopyError(destination(replace(ASLEEP, at_zero=AtZero.COMPAT, desired_copies=2)))
UNKNOWN = UnknownNameError(ServiceError("ValidationError", "not found"), TO_WAKE.destination.key)


@pytest.mark.parametrize(
    ("error", "may_wait", "has_asked", "expected"),
    [
        pytest.param(COMING, True, False, Wait(destination=COMING.destination), id="coming"),
        pytest.param(COMING, True, True, Wait(destination=COMING.destination), id="after asking"),
        pytest.param(TO_WAKE, True, False, Wait(destination=TO_WAKE.destination, wakes=True),
                     id="to be woken"),
        pytest.param(OFF, True, False, AskControl(key=OFF.destination.key, error=OFF), id="off"),
        pytest.param(OFF, True, True, Refuse(error=OFF), id="off, and control says the same"),
        pytest.param(UNKNOWN, True, False, AskControl(key=UNKNOWN.key, error=UNKNOWN),
                     id="unknown"),
        pytest.param(UNKNOWN, True, True, Refuse(error=UNKNOWN), id="unknown to control, too"),
        pytest.param(COMPAT, True, False, Refuse(error=COMPAT), id="compat"),
        pytest.param(COMPAT_COMING, True, False, Refuse(error=COMPAT_COMING), id="compat, coming"),
        pytest.param(COMING, False, False, Refuse(error=COMING), id="coming, but it may not wait"),
        pytest.param(UNKNOWN, False, False, Refuse(error=UNKNOWN), id="unknown, no wait"),
    ],
)  # fmt: skip
def test_decisions_without_a_copy(
    error: NoCopyError | UnknownNameError, may_wait: bool, has_asked: bool, expected: object
) -> None:
    assert decide_without_copy(error, may_wait=may_wait, has_asked=has_asked) == expected


def test_decisions_after_refused_connections() -> None:
    error = ConnectError("refused")
    hold, compat = TO_WAKE.destination, COMPAT.destination
    assert decide_after_refusal(hold, error, 10.0) == Wait(
        destination=hold, not_before_s=10.0 + REFUSED_S
    )
    assert decide_after_refusal(compat, error, 10.0) == Refuse(error=error)


@pytest.mark.parametrize(
    ("found", "syncing", "expected"),
    [
        pytest.param(destination(replace(ASLEEP, copies=COPIES)), False, 2 * WINDOW - 3,
                     id="copies with a free window"),
        pytest.param(destination(replace(ASLEEP, copies=COPIES)), True, 2 * WINDOW - 3,
                     id="the routes have what control knows"),
        pytest.param(COMING, False, 0, id="coming"),
        pytest.param(COMING, True, 1, id="coming: no more to sync, so it waits as others do"),
        pytest.param(TO_WAKE, False, 0, id="to be woken"),
        pytest.param(OFF, False, 1, id="off: it fails"),
        pytest.param(OFF, True, 0, id="off, but control knows better"),
        pytest.param(UNKNOWN, False, 1, id="deleted: it fails"),
        pytest.param(UNKNOWN, True, 0, id="unknown, but control knows better"),
        pytest.param(ServiceError("ValidationError", "no"), True, 1, id="any other error"),
    ],
)  # fmt: skip
def test_how_many_are_released(
    found: Destination | ServiceError, syncing: bool, expected: int
) -> None:
    in_flight = {COPIES[0].id: 3}
    assert num_released(found, syncing, lambda copy_id: in_flight.get(copy_id, 0)) == expected


SERVERLESS = replace(
    TO_WAKE.destination,
    copies=COPIES,
    serverless=ServerlessConfig(memory_mb=1024, max_concurrency=4),
)


def test_a_request_whose_environments_are_all_in_use_waits_and_asks_for_another() -> None:
    decision = decide_after_refusal(SERVERLESS, CopiesBusyError("busy"), 5.0)
    assert decision == Wait(destination=SERVERLESS, wakes=True, not_before_s=5.0)


@pytest.mark.parametrize(
    ("in_flight", "expected"),
    [
        pytest.param({}, 2, id="both environments free"),
        pytest.param({"c-1": 1}, 1, id="one free"),
        pytest.param({"c-1": 1, "c-2": 1}, 0, id="none free"),
    ],
)
def test_as_many_are_released_as_environments_are_free(
    in_flight: dict[str, int], expected: int
) -> None:
    assert num_released(SERVERLESS, False, lambda it: in_flight.get(it, 0)) == expected


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        pytest.param(TO_WAKE, TO_WAKE.destination, id="no copy, which a request may start"),
        pytest.param(COMING, None, id="no copy yet, and one is coming"),
        pytest.param(SERVERLESS, SERVERLESS, id="environments, all in use"),
        pytest.param(destination(replace(ASLEEP, copies=COPIES)), None, id="copies"),
        pytest.param(UNKNOWN, None, id="unknown"),
    ],
)
def test_control_is_notified_of_what_lacks_copies(
    found: Destination | ServiceError, expected: Destination | None
) -> None:
    assert lacking_copies(found) == expected


def test_a_request_that_no_environment_took_in_time_is_refused_as_not_ready() -> None:
    error = late_error(replace(SERVERLESS, waiting_for="no memory"), 60.0)
    assert (error.code, error.http_status) == ("ModelNotReadyException", 429)
    assert error.message == (
        "The request waited 60.0 s for a copy of inference component llm, of which 2 of at most 4"
        " serve, and none is free: no memory. Try again."
    )
