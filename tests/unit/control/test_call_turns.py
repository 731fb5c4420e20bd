"""Turns of callers: tables of calls that begin and end."""

import pytest
from tests.cases import case, cases

from hostelry.control.call_threads import CallsFull, CallTurns, TurnLimits

LIMITS = TurnLimits(running=2, running_in_all=3, waiting=4, waiting_in_all=6)


def taken(turns: CallTurns[str]) -> list[str]:
    found = []
    while (due := turns.take()) is not None:
        found.append(due[1])
    return found


@cases(
    "calls, ends, at_once, then",
    case("few calls run at once", "a1 a2", "", "a1 a2", ""),
    case("one caller has its share and no more", "a1 a2 a3", "", "a1 a2", ""),
    case("the oldest call follows one that ended", "a1 a2 a3", "a", "a1 a2", "a3"),
    case("another caller runs meanwhile", "a1 a2 a3 b1", "", "a1 b1 a2", ""),
    case("a caller with fewer running is next", "a1 a2 a3 b1 b2", "a", "a1 b1 a2", "b2"),
    case("callers take turns", "a1 b1 c1 a2 b2 c2", "a b c", "a1 b1 c1", "a2 b2 c2"),
    case("no more run than threads there are", "a1 a2 b1 a3 c1", "b", "a1 b1 c1", "a2"),
)
def test_turns(calls: str, ends: str, at_once: str, then: str) -> None:
    turns: CallTurns[str] = CallTurns(LIMITS)
    for call in calls.split():
        turns.add(call[0], call)
    assert taken(turns) == at_once.split()
    for caller in ends.split():
        turns.end(caller)
    assert taken(turns) == then.split()


@cases(
    "waiting, caller, refusal",
    case("there is room", "aaa", "a", None),
    case("the caller's places are taken", "aaaa", "a", "4 calls of this caller wait"),
    case("another caller has its own places", "aaaa", "b", None),
    case("all places are taken", "aaaabb", "b", "6 calls of all callers wait"),
    case("all places are taken, but a caller has none of them", "aaaabb", "c", None),
)
def test_places_are_bounded(waiting: str, caller: str, refusal: str | None) -> None:
    turns: CallTurns[str] = CallTurns(LIMITS)
    for each in waiting:
        turns.add(each, "waits")
    if refusal is None:
        turns.add(caller, "more")
    else:
        with pytest.raises(CallsFull, match=refusal):
            turns.add(caller, "more")
        turns.add(caller, "promised", is_promised=True)


def test_nothing_is_kept_of_callers_whose_calls_have_ended() -> None:
    turns: CallTurns[str] = CallTurns(LIMITS)
    for number in range(1000):
        turns.add(f"caller-{number}", "call")
        assert turns.take() == (f"caller-{number}", "call")
        turns.end(f"caller-{number}")
    assert not turns._running
    assert not turns._waiting
