"""Turns of callers: tables of calls that come and end."""

import pytest

from hostelry.control.call_threads import CallsFull, CallTurns, TurnLimits

LIMITS = TurnLimits(running=2, running_in_all=3, waiting=4, waiting_in_all=6)


def taken(turns: CallTurns[str]) -> list[str]:
    found = []
    while (due := turns.take()) is not None:
        found.append(due[1])
    return found


@pytest.mark.parametrize(
    ("calls", "ends", "at_once", "then"),
    [
        pytest.param("a1 a2", "", "a1 a2", "", id="few calls run at once"),
        pytest.param("a1 a2 a3", "", "a1 a2", "", id="one caller has its share and no more"),
        pytest.param("a1 a2 a3", "a", "a1 a2", "a3", id="the oldest call follows one that ended"),
        pytest.param("a1 a2 a3 b1", "", "a1 b1 a2", "", id="another caller runs meanwhile"),
        pytest.param(
            "a1 a2 a3 b1 b2", "a", "a1 b1 a2", "b2", id="a caller with fewer running is next"
        ),
        pytest.param("a1 b1 c1 a2 b2 c2", "a b c", "a1 b1 c1", "a2 b2 c2", id="callers take turns"),
        pytest.param(
            "a1 a2 b1 a3 c1", "b", "a1 b1 c1", "a2", id="no more run than threads there are"
        ),
    ],
)
def test_turns(calls: str, ends: str, at_once: str, then: str) -> None:
    turns: CallTurns[str] = CallTurns(LIMITS)
    for call in calls.split():
        turns.add(call[0], call)
    assert taken(turns) == at_once.split()
    for caller in ends.split():
        turns.end(caller)
    assert taken(turns) == then.split()


@pytest.mark.parametrize(
    ("waiting", "caller", "refusal"),
    [
        pytest.param("aaa", "a", None, id="there is room"),
        pytest.param(
            "aaaa", "a", "4 calls of this caller wait", id="the caller's places are taken"
        ),
        pytest.param("aaaa", "b", None, id="another caller has its own places"),
        pytest.param("aaaabb", "b", "6 calls of all callers wait", id="all places are taken"),
        pytest.param("aaaabb", "c", None, id="all places are taken, but a caller has none of them"),
    ],
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
