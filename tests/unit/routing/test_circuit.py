from functools import reduce

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.cases import case, cases

from hostelry.routing.circuit import (
    FORGOTTEN_AFTER_S,
    LONGEST_OPEN_S,
    Circuit,
    count_failure,
    note_chosen,
    open_after_refusal,
    usable,
)

STEPS = {"refused": open_after_refusal, "unanswered": count_failure, "chosen": note_chosen}


def after(*steps: tuple[str, float]) -> Circuit:
    """A copy after events at those seconds."""
    return reduce(lambda circuit, step: STEPS[step[0]](circuit, step[1]), steps, Circuit())


@cases(
    "circuit, open_from_s, open_until_s",
    case("refused once: out for a second", after(("refused", 10.0)), 10.0, 11.0),
    case("refused again meanwhile: no longer", after(("refused", 10.0), ("refused", 10.5)), 10.5,
        11.0),
    case("refused when it is over: for two", after(("refused", 10.0), ("refused", 11.0)), 11.0,
        13.0),
    case("the probe is refused: for two from then",
        after(("refused", 10.0), ("chosen", 11.0), ("refused", 11.1)), 11.1, 13.1),
    case("the probe is under way: nobody else tries", after(("refused", 10.0), ("chosen", 11.0)),
        11.0, 12.0),
    case("chosen because all are out: no longer out for that",
        after(("refused", 10.0), ("chosen", 10.5)), 10.5, 11.0),
    case("three in a row without an answer: out", after(*[("unanswered", 10.0)] * 3), 10.0, 11.0),
    case("nine at once: as three", after(*[("unanswered", 10.0)] * 9), 10.0, 11.0),
    case("and one more after it: out at once, for two",
        after(*[("unanswered", 10.0)] * 3, ("unanswered", 12.0)), 12.0, 14.0),
)  # fmt: skip
def test_how_long_a_copy_is_open(circuit: Circuit, open_from_s: float, open_until_s: float) -> None:
    assert circuit.is_open(open_from_s)
    assert circuit.is_open(open_until_s - 0.001)
    assert not circuit.is_open(open_until_s)


@pytest.mark.parametrize("count", [1, 2])
def test_fewer_than_three_without_an_answer_are_a_callers_bad_luck(count: int) -> None:
    circuit = after(*[("unanswered", 10.0)] * count)
    assert not circuit.is_open(10.0)


def test_out_times_double_up_to_a_limit() -> None:
    circuit, now_s, outs = Circuit(), 0.0, []
    for _ in range(6):
        circuit = open_after_refusal(circuit, now_s)
        outs.append(circuit.open_s)
        now_s = circuit.open_until_s
    assert outs == [1.0, 2.0, 4.0, LONGEST_OPEN_S, LONGEST_OPEN_S, LONGEST_OPEN_S]


def test_what_failed_long_ago_is_forgotten() -> None:
    circuit = after(("refused", 10.0))
    assert not circuit.is_forgotten(11.0)
    assert circuit.is_forgotten(11.0 + FORGOTTEN_AFTER_S)


events = st.tuples(st.sampled_from(sorted(STEPS)), st.floats(0, 5))


@given(st.lists(st.lists(events, max_size=12), min_size=1, max_size=6), st.floats(0, 60))
def test_a_copy_that_is_out_is_never_used_while_another_is_in(
    histories: list[list[tuple[str, float]]], now_s: float
) -> None:
    circuits: list[Circuit | None] = []
    for history in histories:
        circuit, at_s = Circuit(), 0.0
        for name, later_s in history:
            at_s += later_s
            circuit = STEPS[name](circuit, at_s)
        circuits.append(circuit if history else None)
    indexes = usable(circuits, now_s)
    out = {index for index, it in enumerate(circuits) if it is not None and it.is_open(now_s)}
    if len(out) < len(circuits):
        assert not out & set(indexes)
    else:
        assert indexes == list(range(len(circuits)))


@given(st.lists(events, max_size=30))
def test_no_copy_is_out_for_ever(history: list[tuple[str, float]]) -> None:
    circuit, at_s = Circuit(), 0.0
    for name, later_s in history:
        at_s += later_s
        circuit = STEPS[name](circuit, at_s)
        assert circuit.open_until_s <= at_s + LONGEST_OPEN_S
