"""The state tables, walked from their first states, and the flags that other code reads."""

from collections.abc import Mapping
from typing import Any, get_args

import pytest
from tests.cases import case, cases

from hostelry.dataplane.http.states import (
    READ_TABLE,
    SERVE_TABLE,
    ReadEvent,
    ReadState,
    ServeEvent,
    ServeState,
)

MACHINES = [
    pytest.param(READ_TABLE, ReadState, ReadEvent, ReadState.IDLE, {ReadState.REFUSED}, id="read"),
    pytest.param(
        SERVE_TABLE, ServeState, ServeEvent, ServeState.FRESH, {ServeState.LINGERING}, id="serve"
    ),
]
Table = Mapping[Any, Mapping[Any, Any]]


def after(table: Table, state: Any, events: str) -> Any:
    for event in events.split():
        state = table[state][event]
    return state


@pytest.mark.parametrize(("table", "states", "events", "first", "last"), MACHINES)
def test_every_state_is_in_the_table_reached_and_left(
    table: Table, states: Any, events: Any, first: Any, last: set[Any]
) -> None:
    assert set(table) == set(states)
    reached, pending = {first}, [first]
    while pending:
        for state in table[pending.pop()].values():
            if state not in reached:
                reached.add(state)
                pending.append(state)
    assert reached == set(states)
    assert {state for state, moves in table.items() if not moves} == last
    assert {event for moves in table.values() for event in moves} == set(get_args(events))
    assert all(state.next is moves for state, moves in table.items())


@cases(
    "events, expected",
    case("a small request", "begun small_head whole", ReadState.IDLE),
    case("one that comes in one piece", "begun head whole", ReadState.IDLE),
    case("a large one", "begun head unverified whole begun", ReadState.HEAD),
    case("a head that proves it", "begun head verified", ReadState.VERIFIED_BODY),
    case("a small one that waits behind another", "begun small_head unverified",
        ReadState.UNVERIFIED_BODY),
    case("a slow body", "begun head verified refused", ReadState.REFUSED),
)  # fmt: skip
def test_the_request_that_is_read(events: str, expected: ReadState) -> None:
    assert after(READ_TABLE, ReadState.IDLE, events) is expected


@cases(
    "events, expected",
    case("two requests", "serve answered serve answered", ServeState.WAITING),
    case("a refusal alone", "refused refusal_sent", ServeState.LINGERING),
    case("a refusal behind a request that is answered", "serve refused answered refusal_sent",
        ServeState.LINGERING),
    case("a refusal behind whole requests", "refused serve answered serve answered refusal_sent",
        ServeState.LINGERING),
)  # fmt: skip
def test_the_requests_that_are_answered(events: str, expected: ServeState) -> None:
    assert after(SERVE_TABLE, ServeState.FRESH, events) is expected


@pytest.mark.parametrize("event", ["begun", "head", "whole", "verified", "refused"])
def test_nothing_is_read_after_a_refusal(event: ReadEvent) -> None:
    with pytest.raises(KeyError):
        ReadState.REFUSED.next[event]


def test_the_flags_of_the_states() -> None:
    bodies = {state for state in ReadState if state.in_body}
    assert bodies == {state for state in ReadState if state.name.endswith("BODY")}
    assert {state for state in ReadState if state.is_held} == bodies - {
        ReadState.SMALL_BODY,
        ReadState.STREAMED_BODY,
    } | {ReadState.HEAD}
    assert {state for state in ServeState if state.is_busy} == {
        ServeState.BUSY,
        ServeState.REFUSED_BUSY,
    }
    assert {state for state in ServeState if state.is_refusing} == {
        ServeState.REFUSED,
        ServeState.REFUSED_BUSY,
        ServeState.LINGERING,
    }
