"""Sessions: opened, used, closed, expired, refused."""

import pytest
from tests.cases import case, cases

from hostelry.containers.lmi.refusal import Cause, Refusal
from hostelry.containers.lmi.sessions import (
    MAX_SESSIONS,
    OpenSessions,
    SessionRequest,
    parse_session_request,
)

OPEN, CLOSE = SessionRequest.OPEN, SessionRequest.CLOSE


def test_a_session_is_opened_used_and_closed() -> None:
    table = OpenSessions(60)
    opened = table.carry_out(OPEN, "NEW_SESSION", "id", 0.0)
    assert opened.value == "id; Expires=1970-01-01T00:01:00Z"
    assert (opened.header, opened.text) == ("X-Amzn-SageMaker-Session-Id", "Session id created")
    table.check("id", 59.0)
    closed = table.carry_out(CLOSE, "id", "", 59.0)
    assert (closed.header, closed.value) == ("X-Amzn-SageMaker-Closed-Session-Id", "id")
    assert closed.text == "Session id closed"
    with pytest.raises(Refusal, match="session not found: id"):
        table.check("id", 59.0)


@pytest.mark.parametrize("given", [None, "", "NEW_SESSION"])
def test_a_request_without_a_session_is_served(given: str | None) -> None:
    OpenSessions(60).check(given, 0.0)


@cases(
    "table, request_type, given, message",
    case("close without an id", OpenSessions(60), CLOSE, None, "invalid session_id"),
    case("close another's", OpenSessions(60), CLOSE, "x", "session not found: x"),
    case("sessions are off", OpenSessions(None), OPEN, None, "not enabled"),
)
def test_requests_that_are_refused(
    table: OpenSessions, request_type: SessionRequest, given: str | None, message: str
) -> None:
    with pytest.raises(Refusal, match=message):
        table.carry_out(request_type, given, "fresh", 0.0)


def test_an_expired_session_is_not_found_and_forgotten() -> None:
    table = OpenSessions(60)
    table.carry_out(OPEN, None, "id", 0.0)
    with pytest.raises(Refusal, match="expired at 1970-01-01T00:01:00Z"):
        table.check("id", 60.0)
    assert len(table) == 0


def test_a_full_table_makes_room_by_what_expired() -> None:
    table = OpenSessions(60)
    for number in range(MAX_SESSIONS):
        table.carry_out(OPEN, None, str(number), float(number > 0))
    with pytest.raises(Refusal, match="10000 sessions are open") as refused:
        table.carry_out(OPEN, None, "more", 59.0)
    assert refused.value.cause is Cause.DEPENDENCY
    table.carry_out(OPEN, None, "more", 60.0)
    assert len(table) == MAX_SESSIONS


def test_an_id_is_refused_where_sessions_are_off() -> None:
    with pytest.raises(Refusal, match="not enabled"):
        OpenSessions(None).check("NEW_SESSION", 0.0)


@pytest.mark.parametrize("value", ["close", "", 1, None, {}])
def test_another_request_type_is_refused(value: object) -> None:
    with pytest.raises(Refusal, match="NEW_SESSION, CLOSE"):
        parse_session_request(value)
