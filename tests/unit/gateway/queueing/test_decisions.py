"""Tables of the pending queue's decisions, without a queue or a clock."""

from msgspec.structs import replace
from tests.cases import case, cases
from tests.unit.dataplane.routes_sample import COPIES, HERE, component

from hostelry.base.errors import ServiceError
from hostelry.dataplane.balancing.destination import NoCopyError, UnknownNameError
from hostelry.dataplane.balancing.load_balancer import CopiesBusyError
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
from hostelry.http1.reply import ConnectError
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


@cases(
    "error, may_wait, has_asked, expected",
    case("coming", COMING, True, False, Wait(destination=COMING.destination)),
    case("after asking", COMING, True, True, Wait(destination=COMING.destination)),
    case("to be woken", TO_WAKE, True, False, Wait(destination=TO_WAKE.destination, wakes=True)),
    case("off", OFF, True, False, AskControl(key=OFF.destination.key, error=OFF)),
    case("off, and control says the same", OFF, True, True, Refuse(error=OFF)),
    case("unknown", UNKNOWN, True, False, AskControl(key=UNKNOWN.key, error=UNKNOWN)),
    case("unknown to control, too", UNKNOWN, True, True, Refuse(error=UNKNOWN)),
    case("compat", COMPAT, True, False, Refuse(error=COMPAT)),
    case("compat, coming", COMPAT_COMING, True, False, Refuse(error=COMPAT_COMING)),
    case("coming, but it may not wait", COMING, False, False, Refuse(error=COMING)),
    case("unknown, no wait", UNKNOWN, False, False, Refuse(error=UNKNOWN)),
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


@cases(
    "found, syncing, expected",
    case("copies with a free window", destination(replace(ASLEEP, copies=COPIES)), False,
        2 * WINDOW - 3),
    case("the routes have what control knows", destination(replace(ASLEEP, copies=COPIES)), True,
        2 * WINDOW - 3),
    case("coming", COMING, False, 0),
    case("coming: no more to sync, so it waits as others do", COMING, True, 1),
    case("to be woken", TO_WAKE, False, 0),
    case("off: it fails", OFF, False, 1),
    case("off, but control knows better", OFF, True, 0),
    case("deleted: it fails", UNKNOWN, False, 1),
    case("unknown, but control knows better", UNKNOWN, True, 0),
    case("any other error", ServiceError("ValidationError", "no"), True, 1),
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


@cases(
    "in_flight, expected",
    case("both environments free", {}, 2),
    case("one free", {"c-1": 1}, 1),
    case("none free", {"c-1": 1, "c-2": 1}, 0),
)
def test_as_many_are_released_as_environments_are_free(
    in_flight: dict[str, int], expected: int
) -> None:
    assert num_released(SERVERLESS, False, lambda it: in_flight.get(it, 0)) == expected


@cases(
    "found, expected",
    case("no copy, which a request may start", TO_WAKE, TO_WAKE.destination),
    case("no copy yet, and one is coming", COMING, None),
    case("environments, all in use", SERVERLESS, SERVERLESS),
    case("copies", destination(replace(ASLEEP, copies=COPIES)), None),
    case("unknown", UNKNOWN, None),
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
