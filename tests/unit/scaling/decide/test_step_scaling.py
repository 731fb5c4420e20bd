"""Step scaling on a virtual clock.

Sources: UG = "Step scaling policies" in the Application Auto Scaling user guide (its examples),
API = PutScalingPolicy (StepAdjustment) in its API reference.
"""

import math
import sys

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.cases import case, cases

from hostelry.domain.scaling import Adjustment, StepAdjustment, StepScaling
from hostelry.scaling.decide.decision import Capacity, LastAct, LastActs, Situation
from hostelry.scaling.decide.step import adjust_capacity, decide, find_step, get_percent_change

NOW = 1_700_000_000.0
UP = (
    StepAdjustment(lower=0.0, upper=10.0, adjustment=0),
    StepAdjustment(lower=10.0, upper=20.0, adjustment=10),
    StepAdjustment(lower=20.0, upper=None, adjustment=30),
)
DOWN = (
    StepAdjustment(lower=-10.0, upper=0.0, adjustment=0),
    StepAdjustment(lower=-20.0, upper=-10.0, adjustment=-10),
    StepAdjustment(lower=None, upper=-20.0, adjustment=-30),
)


def policy(
    *steps: StepAdjustment,
    kind: Adjustment = Adjustment.CHANGE,
    least: int | None = None,
    by: str = "Average",
) -> StepScaling:
    return StepScaling(
        adjustment=kind, steps=steps, cooldown_s=300.0, min_magnitude=least, aggregation=by
    )


def at(desired: int, low: int = 0, high: int = 100, acts: LastActs | None = None) -> Situation:
    capacity = Capacity(desired=desired, serving=desired, minimum=low, maximum=high)
    return Situation(capacity=capacity, acts=acts or LastActs(), now=NOW)


def act(seconds_ago: float, since: int, to: int) -> LastAct:
    return LastAct(at=NOW - seconds_ago, since_capacity=since, capacity=to)


@pytest.mark.parametrize(
    ("metric", "adjustment"),
    [
        # UG, for threshold 50: "above the threshold the lower bound is inclusive, the upper
        # exclusive", and below it the other way round.
        pytest.param(50.0, 0, id="at the threshold"),
        pytest.param(59.999, 0, id="just below a step above"),
        pytest.param(60.0, 10, id="at a step above: it is that step"),
        pytest.param(69.0, 10, id="within a step above"),
        pytest.param(70.0, 30, id="at the last step above"),
        pytest.param(1e9, 30, id="far above"),
        pytest.param(40.001, 0, id="just above a step below"),
        pytest.param(40.0, -10, id="at a step below: it is that step"),
        pytest.param(31.0, -10, id="within a step below"),
        pytest.param(30.0, -30, id="at the last step below"),
        pytest.param(-1e9, -30, id="far below"),
    ],
)
def test_bounds_are_exact(metric: float, adjustment: int) -> None:
    found = find_step(UP + DOWN, metric - 50.0)
    assert found is not None
    assert found.adjustment == adjustment


@pytest.mark.parametrize(
    ("steps", "difference", "adjustment"),
    [
        # API: "the upper bound is inclusive" below the threshold, so that it has the threshold.
        pytest.param(
            (StepAdjustment(lower=None, upper=0.0, adjustment=-1),), 0.0, -1, id="in at it"
        ),
        pytest.param(
            (StepAdjustment(lower=None, upper=0.0, adjustment=-1),), 0.1, None, id="in above it"
        ),
        pytest.param(
            (StepAdjustment(lower=0.0, upper=None, adjustment=1),), 0.0, 1, id="out at it"
        ),
        pytest.param(
            (StepAdjustment(lower=0.0, upper=None, adjustment=1),), -0.1, None, id="out below it"
        ),
        pytest.param(
            (StepAdjustment(lower=5.0, upper=9.0, adjustment=1),), 9.0, None, id="beyond the last"
        ),
        pytest.param(
            (StepAdjustment(lower=-9.0, upper=9.0, adjustment=2),), -9.0, None, id="span, lower end"
        ),
        pytest.param(
            (StepAdjustment(lower=-9.0, upper=9.0, adjustment=2),), -8.0, 2, id="span, below"
        ),
        pytest.param(
            (StepAdjustment(lower=-9.0, upper=9.0, adjustment=2),), 8.0, 2, id="span, above"
        ),
    ],
)
def test_what_no_step_covers(
    steps: tuple[StepAdjustment, ...], difference: float, adjustment: int | None
) -> None:
    found = find_step(steps, difference)
    assert (found and found.adjustment) == adjustment


@pytest.mark.parametrize(
    ("kind", "adjustment", "least", "capacity", "wanted"),
    [
        # UG, "Scaling adjustment types".
        pytest.param(Adjustment.CHANGE, 5, None, 10, 15, id="a change"),
        pytest.param(Adjustment.CHANGE, -1, None, 2, 1, id="a change down"),
        pytest.param(Adjustment.EXACT, 3, None, 9, 3, id="an exact number"),
        pytest.param(Adjustment.PERCENT, 10, None, 10, 11, id="ten per cent of ten"),
        pytest.param(Adjustment.PERCENT, 10, None, 67, 73, id="6.7 is 6: above 1 rounded down"),
        pytest.param(Adjustment.PERCENT, 10, None, 5, 6, id="0.5 is 1: between 0 and 1"),
        pytest.param(Adjustment.PERCENT, -10, None, 5, 4, id="-0.5 is -1: between 0 and -1"),
        pytest.param(Adjustment.PERCENT, -10, None, 67, 61, id="-6.7 is -6: towards zero"),
        pytest.param(Adjustment.PERCENT, 100, None, 3, 6, id="as many again"),
        pytest.param(Adjustment.PERCENT, 25, 2, 4, 6, id="MinAdjustmentMagnitude: 1 becomes 2"),
        pytest.param(Adjustment.PERCENT, -25, 2, 4, 2, id="MinAdjustmentMagnitude: -1 becomes -2"),
        pytest.param(Adjustment.PERCENT, 25, 2, 40, 50, id="MinAdjustmentMagnitude: 10 stays"),
        pytest.param(Adjustment.PERCENT, 0, 2, 4, 4, id="MinAdjustmentMagnitude: nothing stays"),
        pytest.param(Adjustment.PERCENT, 50, None, 0, 0, id="a share of nothing"),
        pytest.param(Adjustment.PERCENT, 50, 1, 0, 1, id="a share of nothing, but at least 1"),
    ],
)
def test_adjustments(
    kind: Adjustment, adjustment: int, least: int | None, capacity: int, wanted: int
) -> None:
    step = StepAdjustment(lower=0.0, upper=None, adjustment=adjustment)
    assert adjust_capacity(policy(step, kind=kind, least=least), step, capacity) == wanted


@cases(
    "by, wanted",
    case("the average of 20, 70 and 120 is 70", "Average", 11),
    case("the minimum is below every step", "Minimum", 10),
    case("the maximum", "Maximum", 13),
)
def test_the_metric_is_aggregated(by: str, wanted: int) -> None:
    steps = (
        StepAdjustment(lower=0.0, upper=50.0, adjustment=1),
        StepAdjustment(lower=50.0, upper=None, adjustment=3),
    )
    values = [20.0, math.nan, 70.0, 120.0]
    assert decide(policy(*steps, by=by), 50.0, values, at(10)).desired == wanted


ONE = StepAdjustment(lower=0.0, upper=10.0, adjustment=2)
MORE = StepAdjustment(lower=10.0, upper=None, adjustment=3)
LESS = StepAdjustment(lower=None, upper=0.0, adjustment=-1)


@cases(
    "values, situation, wanted, codes",
    case("out", [51.0], at(4), 6, []),
    case("an alarm set by hand counts as at its threshold", [], at(0), 2, []),
    case("out again in the cooldown adds nothing (UG)", [51.0],
        at(4, acts=LastActs(scale_out=act(60, 2, 4))), 4, ["AlreadyAtDesiredCapacity"]),
    case("a bigger step in the cooldown adds the difference: 3 instead of 2 (UG)", [65.0],
        at(4, acts=LastActs(scale_out=act(60, 2, 4))), 5, []),
    case("after the cooldown all of it is added (UG)", [51.0],
        at(4, acts=LastActs(scale_out=act(300, 2, 4))), 6, []),
    case("in", [40.0], at(4), 3, []),
    case("in again in the cooldown is blocked (UG)", [40.0],
        at(4, acts=LastActs(scale_in=act(60, 5, 4))), 4, []),
    case("out in the cooldown of a scale-in, at once (UG)", [51.0],
        at(4, acts=LastActs(scale_in=act(60, 5, 4))), 6, []),
    case("in after a scale-out ended the cooldown (UG)", [40.0],
        at(4, acts=LastActs(scale_in=act(60, 5, 3), scale_out=act(9, 3, 4))), 3, []),
    case("in at the minimum", [40.0], at(1, low=1), 1, ["AlreadyAtMinCapacity"]),
    case("never below zero", [40.0], at(0), 0, ["AlreadyAtMinCapacity"]),
    case("out at the maximum", [51.0], at(5, high=5), 5, ["AlreadyAtMaxCapacity"]),
    case("out as far as the maximum", [65.0], at(4, high=5), 5, []),
)  # fmt: skip
def test_what_is_wanted(
    values: list[float], situation: Situation, wanted: int, codes: list[str]
) -> None:
    decision = decide(policy(ONE, MORE, LESS), 50.0, values, situation)
    assert (decision.desired, [it.code for it in decision.not_scaled]) == (wanted, codes)


def test_a_difference_that_no_step_covers_changes_nothing() -> None:
    decision = decide(policy(ONE), 50.0, [90.0], at(4))
    assert decision.desired == 4
    assert "no step adjustment covers" in decision.reason


def test_the_reason_has_where_it_counts_from() -> None:
    decision = decide(
        policy(ONE, MORE), 50.0, [65.0], at(4, acts=LastActs(scale_out=act(60, 2, 4)))
    )
    assert "+3 from 2 makes 5, counted from before the last scale-out" in decision.reason
    percent = policy(replace(ONE, adjustment=50), kind=Adjustment.PERCENT)
    assert "+50 % from 4 makes 6" in decide(percent, 50.0, [51.0], at(4)).reason
    exact = policy(replace(ONE, adjustment=9), kind=Adjustment.EXACT)
    assert "exactly 9 from 4 makes 9" in decide(exact, 50.0, [51.0], at(4)).reason


POLICIES = st.builds(
    lambda kind, first, more, least: StepScaling(
        adjustment=kind,
        steps=(
            StepAdjustment(lower=0.0, upper=10.0, adjustment=first),
            StepAdjustment(lower=10.0, upper=None, adjustment=first + more),
        ),
        cooldown_s=300.0,
        min_magnitude=least if kind is Adjustment.PERCENT else None,
    ),
    st.sampled_from(Adjustment), st.integers(-200, 200), st.integers(0, 200),
    st.none() | st.integers(1, 9),
)  # fmt: skip
ACTS = st.none() | st.builds(act, st.floats(-4000, 4000), st.integers(0, 99), st.integers(0, 99))


@example(policy(*UP), [sys.float_info.max] * 3, 5, None, None)
@given(POLICIES, st.lists(st.floats(), max_size=3), st.integers(5, 50), ACTS, ACTS)
def test_never_outside_of_the_bounds(
    of: StepScaling,
    values: list[float],
    desired: int,
    out: LastAct | None,
    scale_in: LastAct | None,
) -> None:
    acts = LastActs(scale_out=out, scale_in=scale_in)
    assert 5 <= decide(of, 50.0, values, at(desired, low=5, high=50, acts=acts)).desired <= 50


@given(POLICIES, st.floats(50.0, 100.0), st.floats(50.0, 100.0), st.integers(0, 100))
def test_a_metric_further_above_never_leads_to_less(
    of: StepScaling, one: float, other: float, desired: int
) -> None:
    less, more = sorted((one, other))
    assert (
        decide(of, 50.0, [less], at(desired)).desired
        <= decide(of, 50.0, [more], at(desired)).desired
    )


@given(st.integers(-(10**6), 10**6))
def test_percent_is_never_rounded_by_a_whole_unit(hundredfold: int) -> None:
    change = get_percent_change(hundredfold)
    assert abs(change - hundredfold / 100) < 1
    assert change * hundredfold >= 0
    assert (change == 0) == (hundredfold == 0)
