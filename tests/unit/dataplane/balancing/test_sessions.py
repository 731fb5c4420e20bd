"""A session stays on its copy until it is closed or expires, or the copy ends."""

from typing import Any

import pytest
from tests.cases import case, cases
from tests.unit.dataplane.routes_sample import COPIES, ELSEWHERE, HERE, OTHER_ACCOUNT, SNAPSHOT

from hostelry.aws.runtime import InvokeRequest
from hostelry.base.clock import ManualClock
from hostelry.base.errors import ServiceError
from hostelry.dataplane.balancing.destination import find_destination
from hostelry.dataplane.balancing.sessions import (
    OWNER_BYTES,
    SessionDict,
    Sessions,
    new_session_id,
    pinned_copy,
)
from hostelry.dataplane.route_table import RouteTable
from hostelry.domain.routes import CopyRoute
from hostelry.domain.scope import Scope
from hostelry.routing.session import DEFAULT_LIFETIME_S, MAX_LIFETIME_S, copy_mark

TABLE = RouteTable(SNAPSHOT)
FIRST, SECOND = COPIES
NEW_HEADER = "x-amzn-sagemaker-new-session-id"
OLD_HEADER = "x-amzn-sagemaker-session-id"
CLOSED_HEADER = "x-amzn-sagemaker-closed-session-id"


def asked(session_id: str | None, endpoint: str = "llms", **members: Any) -> InvokeRequest:
    given = {"inference_component_name": "base"} if endpoint == "llms" else {}
    return InvokeRequest(
        endpoint_name=endpoint, stream=False, session_id=session_id, **(given | members)
    )


class Recorded:
    """A table that notes the keys that are put."""

    def __init__(self, keys: list[bytes]) -> None:
        self._keys = keys

    def get(self, key: bytes) -> None: ...

    def put(self, key: bytes, value: int, expires_at: float) -> None:
        self._keys.append(key)

    def remove(self, key: bytes) -> None: ...


class Rig:
    """Sessions with a clock, and the outcomes of requests with a session."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.sessions = Sessions(SessionDict(self.clock.now), self.clock.now)

    def opened(self, header: str = "s-1", copy: CopyRoute = SECOND, scope: Scope = HERE) -> None:
        self.sessions.note(scope, asked("NEW_SESSION"), copy, {NEW_HEADER: header})

    def place(
        self, session_id: str = "s-1", scope: Scope = HERE, endpoint: str = "llms"
    ) -> CopyRoute:
        invocation = asked(session_id, endpoint)
        holder = self.sessions.holder(scope, invocation)
        destination = find_destination(TABLE, scope, invocation, 0.0, holder)
        return pinned_copy(destination, session_id, holder)


def test_later_requests_go_to_the_copy_that_opened_it() -> None:
    rig = Rig()
    rig.opened("s-1; Expires=2030-01-01T00:00:00Z", SECOND)
    rig.opened("s-2; Expires=2030-01-01T00:00:00Z", FIRST)
    assert [rig.place("s-1"), rig.place("s-2"), rig.place("s-1")] == [SECOND, FIRST, SECOND]


def test_on_a_model_endpoint_the_session_decides_the_variant() -> None:
    rig = Rig()
    rig.sessions.note(HERE, asked("NEW_SESSION", "models"), SECOND, {NEW_HEADER: "s-1"})
    assert rig.place("s-1", endpoint="models") == SECOND


UNKNOWN = "is not known on endpoint llms"
GONE = "the copy that held it does not serve base any more"


@cases(
    "given, later_s, scope, message",
    case("never opened", {}, 0.0, HERE, UNKNOWN),
    case("expired, of a container that tells no time", {NEW_HEADER: "s-1"}, DEFAULT_LIFETIME_S,
        HERE, UNKNOWN),
    case("expired at its time", {NEW_HEADER: "s-1; Expires=2023-11-14T22:14:00Z"}, 60.0, HERE,
        UNKNOWN),
    case("expired before it began", {NEW_HEADER: "s-1; Expires=2020-01-01T00:00:00Z"}, 0.0, HERE,
        UNKNOWN),
    case("opened in another region", {NEW_HEADER: "s-1"}, 0.0, ELSEWHERE, UNKNOWN),
)  # fmt: skip
def test_a_session_that_there_is_not_is_refused_and_named(
    given: dict[str, str], later_s: float, scope: Scope, message: str
) -> None:
    rig = Rig()
    rig.sessions.note(HERE, asked("NEW_SESSION"), FIRST, given)
    rig.clock.advance(later_s)
    with pytest.raises(ServiceError, match=message) as refusal:
        rig.place("s-1", scope)
    assert (refusal.value.code, refusal.value.http_status) == ("ValidationError", 400)
    assert "Session s-1 " in refusal.value.message
    assert "NEW_SESSION" in refusal.value.message


def test_a_session_whose_copy_is_gone_is_refused_and_never_moved() -> None:
    rig = Rig()
    rig.opened(copy=CopyRoute(id="c-9", address="http://127.0.0.1:9"))
    for _ in range(2):
        with pytest.raises(ServiceError, match=GONE) as refusal:
            rig.place()
        assert refusal.value.code == "ValidationError"


def test_another_account_does_not_find_it() -> None:
    rig = Rig()
    rig.opened()
    assert rig.sessions.holder(OTHER_ACCOUNT, asked("s-1")) is None
    assert rig.sessions.holder(HERE, asked("s-1", "other")) is None


@cases(
    "closed_by, header, is_open",
    case("its copy closes it", SECOND, "s-1", False),
    case("with more words", SECOND, "s-1; Expires=now", False),
    case("another copy cannot", FIRST, "s-1", True),
    case("nor does another session's end", SECOND, "s-2", True),
)
def test_closing(closed_by: CopyRoute, header: str, is_open: bool) -> None:
    rig = Rig()
    rig.opened()
    rig.sessions.note(HERE, asked("s-1"), closed_by, {CLOSED_HEADER: header})
    assert (rig.sessions.holder(HERE, asked("s-1")) is not None) is is_open


@cases(
    "session_id, headers, holder",
    case("asked to open one", "NEW_SESSION", {NEW_HEADER: "s-9"}, FIRST),
    case("under the older name", "NEW_SESSION", {OLD_HEADER: "s-9"}, FIRST),
    case("prolonged", "s-9", {NEW_HEADER: "s-9; Expires=2030-01-01T00:00:00Z"}, FIRST),
    case("a session nobody asked for", "s-1", {NEW_HEADER: "s-9"}, None),
    case("the request's own id, echoed", "s-9", {OLD_HEADER: "s-9"}, None),
    case("no id", "NEW_SESSION", {NEW_HEADER: "NEW_SESSION"}, None),
)
def test_what_a_container_can_open(
    session_id: str, headers: dict[str, str], holder: CopyRoute | None
) -> None:
    rig = Rig()
    rig.sessions.note(HERE, asked(session_id), FIRST, headers)
    expected = None if holder is None else copy_mark(holder.id)
    assert rig.sessions.holder(HERE, asked("s-9")) == expected


def test_the_older_session_header_counts_only_where_a_session_was_requested() -> None:
    assert new_session_id(asked("NEW_SESSION"), {OLD_HEADER: "s-1"}) == "s-1"
    assert new_session_id(asked("s-1"), {OLD_HEADER: "s-1"}) is None
    assert new_session_id(asked(None), {}) is None


def test_a_flood_of_sessions_drives_out_those_that_end_first() -> None:
    clock = ManualClock()
    table = SessionDict(clock.now, capacity=16)
    table.put(b"loud-long", 1, clock.now() + 1000)
    table.put(b"calm", 1, clock.now() + 1)
    for number in range(100):
        table.put(b"loud-%d" % number, number, clock.now() + 10 + number)
    assert table.get(b"loud-long") is not None
    assert table.get(b"loud-99") is not None
    assert table.get(b"loud-0") is None
    assert table.get(b"calm") is not None, "it is another endpoint's"


def test_one_endpoints_sessions_have_one_owner_in_the_table() -> None:
    rig = Rig()
    keys: list[bytes] = []
    rig.sessions = Sessions(Recorded(keys), rig.clock.now)
    for id in ("s-1", "s-2"):
        rig.opened(id)
    rig.sessions.note(HERE, asked("NEW_SESSION", "models"), FIRST, {NEW_HEADER: "s-1"})
    first, second, other = keys
    assert first[:OWNER_BYTES] == second[:OWNER_BYTES] != other[:OWNER_BYTES]
    assert len({first, second, other}) == 3


@pytest.mark.parametrize("expires", ["9999-12-31T23:59:59Z", "9999-12-31T23:59:59-23:00"])
def test_a_container_cannot_keep_a_session_for_ever(expires: str) -> None:
    rig = Rig()
    rig.opened(f"s-1; Expires={expires}")
    rig.clock.advance(MAX_LIFETIME_S)
    assert rig.sessions.holder(HERE, asked("s-1")) is None


def test_forgetting_what_is_not_there_is_no_error() -> None:
    clock = ManualClock()
    table = SessionDict(clock.now)
    table.remove(b"never")
    table.put(b"a", 1, clock.now() + 1)
    table.put(b"a", 2, clock.now() + 1)
    assert table.get(b"a") == (2, clock.now() + 1)
