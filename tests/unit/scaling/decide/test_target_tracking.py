"""Target tracking on a virtual clock.

Sources: UG = "Target tracking scaling policies" in the Application Auto Scaling user guide, API =
PutScalingPolicy in its API reference, 7.3 = the section of our own reference on target tracking.
"""

import math

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.cases import case, cases

from hostelry.domain.scaling import TargetTracking
from hostelry.scaling.decide.decision import Capacity, Direction, LastAct, LastActs, Situation
from hostelry.scaling.decide.target_tracking import LOW_SHARE, MAX_CAPACITY, decide, proportional

OUT, IN = Direction.OUT, Direction.IN
POLICY = TargetTracking(
    target_value=5.0, scale_out_cooldown_s=180.0, scale_in_cooldown_s=300.0, predefined="p"
)
NOW = 1_700_000_000.0


def capacity(desired: int, serving: int | None = None, low: int = 1, high: int = 10) -> Capacity:
    serving = desired if serving is None else serving
    return Capacity(desired=desired, serving=serving, minimum=low, maximum=high)


def situation(
    of: Capacity, out: LastAct | None = None, scale_in: LastAct | None = None, pace: float = 1.0
) -> Situation:
    acts = LastActs(scale_out=out, scale_in=scale_in)
    return Situation(capacity=of, acts=acts, now=NOW, pace=pace)


def act(seconds_ago: float, since: int, to: int) -> LastAct:
    return LastAct(at=NOW - seconds_ago, since_capacity=since, capacity=to)


@cases(
    "direction, values, of, wanted, code",
    case("out in proportion (UG)", OUT, [20.0], capacity(1), 4, None),
    case("out is rounded up (7.3)", OUT, [20.1], capacity(1), 5, None),
    case("out by the newest value", OUT, [9.0, 20.0, 12.0], capacity(2), 5, None),
    case("out stops at the maximum (UG: never above it)", OUT, [90.0], capacity(4), 10, None),
    case("out at the maximum (API)", OUT, [6.0], capacity(10), 10, "AlreadyAtMaxCapacity"),
    case("at the target nothing is added (UG)", OUT, [5.0], capacity(3), 3, None),
    case("what is starting already counts (UG: counted as part of the desired capacity)", OUT,
        [20.0], capacity(4, serving=1), 4, "AlreadyAtDesiredCapacity"),
    case("the load of lost copies on the rest is no new load", OUT, [9.0], capacity(4, serving=2),
        4, "AlreadyAtDesiredCapacity"),
    case("zero is never left (7.3: proportional to nothing)", OUT, [50.0], capacity(0, low=0), 0,
        "AlreadyAtDesiredCapacity"),
    case("in in proportion (7.3)", IN, [1.0], capacity(10), 2, None),
    case("in is rounded up: careful (7.3)", IN, [1.1], capacity(10), 3, None),
    case("in by the greatest value, so that none would exceed the target (7.3)", IN,
        [0.0, 3.0, 1.0], capacity(10), 6, None),
    case("not below 90 % of the target (7.3)", IN, [4.5], capacity(10), 10, None),
    case("no load leads to zero (7.3)", IN, [0.0], capacity(4, low=0), 0, None),
    case("in stops at the minimum (UG)", IN, [0.0], capacity(4), 1, None),
    case("in at the minimum", IN, [0.0], capacity(1), 1, "AlreadyAtMinCapacity"),
    case("in would push the metric above the target (API: NotScaledReasons)", IN, [4.4],
        capacity(3), 3, "AutoScalingAnticipatedFlapping"),
    case("in counts over what is wanted where less serves", IN, [2.0], capacity(4, serving=2), 2,
        None),
    case("no data, no scale-out (UG)", OUT, [], capacity(3), 3, None),
    case("no data, no scale-in (UG)", IN, [], capacity(3), 3, None),
    case("not a number, no decision", OUT, [math.nan], capacity(3), 3, None),
    case("infinite values are no data", IN, [0.0, math.inf], capacity(3), 1, None),
    case("a value beyond all bounds", OUT, [1e308], capacity(3), 10, None),
    case("a negative metric asks for the minimum", IN, [-7.0], capacity(3), 1, None),
)  # fmt: skip
def test_what_is_wanted(
    direction: Direction, values: list[float], of: Capacity, wanted: int, code: str | None
) -> None:
    decision = decide(POLICY, direction, values, situation(of))
    assert decision.desired == wanted
    assert [it.code for it in decision.not_scaled] == ([code] if code else [])
    assert decision.reason.endswith(".")


@cases(
    "direction, metric, of, out, scale_in, wanted",
    case("out: an equal one during the cooldown adds nothing (UG)", OUT, 20.0, 4, act(60, 1, 4),
        None, 4),
    case("out: a larger one counts the earlier addition as done (UG)", OUT, 30.0, 4, act(60, 1, 4),
        None, 6),
    case("out: the cooldown's last second", OUT, 10.0, 4, act(179, 1, 4), None, 4),
    case("out: the cooldown is over (UG)", OUT, 10.0, 4, act(180, 1, 4), None, 8),
    case("out: after a wake from zero, in proportion to what serves", OUT, 20.0, 1, act(10, 0, 1),
        None, 4),
    case("out: the cooldown of a scale-in does not hold it back (UG)", OUT, 10.0, 2, None,
        act(10, 4, 2), 4),
    case("out: what was taken away since is no longer counted as done", OUT, 10.0, 2, act(60, 1, 4),
        act(10, 4, 2), 4),
    case("in: blocked in the cooldown (UG)", IN, 1.0, 4, None, act(299, 8, 4), 4),
    case("in: the cooldown is over (UG)", IN, 1.0, 4, None, act(300, 8, 4), 1),
    case("in: a scale-out has ended the cooldown for good (UG)", IN, 1.0, 4, act(10, 2, 4),
        act(60, 8, 2), 1),
    case("in: the cooldown of a scale-out does not hold it back (UG)", IN, 1.0, 4, act(10, 1, 4),
        None, 1),
    case("in: an act an hour ahead is of a clock that was set back", IN, 1.0, 4, None,
        act(-3600, 8, 4), 1),
    case("in: an act two seconds ahead still counts", IN, 1.0, 4, None, act(-2, 8, 4), 4),
    case("out: an act an hour ahead holds nothing back", OUT, 30.0, 4, act(-3600, 1, 4), None, 10),
)  # fmt: skip
def test_cooldowns(
    direction: Direction,
    metric: float,
    of: int,
    out: LastAct | None,
    scale_in: LastAct | None,
    wanted: int,
) -> None:
    decision = decide(POLICY, direction, [metric], situation(capacity(of), out, scale_in))
    assert decision.desired == wanted


def test_pace_divides_cooldowns() -> None:
    at = situation(capacity(4), out=act(6, 1, 4), pace=30.0)
    assert decide(POLICY, OUT, [10.0], at).desired == 8
    assert decide(POLICY, OUT, [10.0], replace(at, pace=10.0)).desired == 4


def test_disable_scale_in_leaves_scale_out() -> None:
    policy = replace(POLICY, disable_scale_in=True)
    assert decide(policy, IN, [0.0], situation(capacity(4))).desired == 4
    assert decide(policy, OUT, [10.0], situation(capacity(4))).desired == 8


def test_the_decision_has_what_it_rests_on() -> None:
    decision = decide(POLICY, OUT, [20.0], situation(capacity(2)))
    assert decision.signal == {"metric": 20.0, "target": 5.0, "serving": 2.0, "desired": 2.0}
    assert decision.reason == "The metric is 20, the target 5: 2 serving, 8 needed."


def test_the_formula_can_be_exchanged() -> None:
    def one_more(capacity: int, metric: float, target: float) -> int:
        return capacity + 1

    assert decide(POLICY, OUT, [40.0], situation(capacity(2)), one_more).desired == 3


@cases(
    "serving, metric, target, wanted",
    case("bits beyond the last digit do not add a copy", 3, 0.1, 0.3, 1),
    case("a hundredth does", 3, 0.101, 0.3, 2),
    case("at the target nothing changes", 7, 5.0, 5.0, 7),
    case("more than a number can hold", 1, 1e300, 1e-300, MAX_CAPACITY),
    case("less than a number can hold", 2, -1e308, 1.0, 0),
)
def test_proportional(serving: int, metric: float, target: float, wanted: int) -> None:
    assert proportional(serving, metric, target) == wanted


CAPACITIES = st.builds(
    lambda low, more, wanted, serving: Capacity(
        desired=low + wanted % (more + 1), serving=serving, minimum=low, maximum=low + more
    ),
    st.integers(0, 20), st.integers(0, 50), st.integers(0, 50), st.integers(0, 60),
)  # fmt: skip
METRICS = st.floats(0.0, 1e6)
ACTS = st.none() | st.builds(act, st.floats(-4000, 4000), st.integers(0, 60), st.integers(0, 60))


@given(
    st.sampled_from(Direction),
    st.lists(st.floats(), max_size=4),
    CAPACITIES, ACTS, ACTS,
    st.floats(0.01, 1e5),
)  # fmt: skip
def test_never_outside_of_the_bounds_and_never_the_other_way(
    direction: Direction,
    values: list[float],
    of: Capacity,
    out: LastAct | None,
    scale_in: LastAct | None,
    target: float,
) -> None:
    policy = replace(POLICY, target_value=target)
    wanted = decide(policy, direction, values, situation(of, out, scale_in)).desired
    assert of.minimum <= wanted <= of.maximum
    assert wanted >= of.desired if direction is OUT else wanted <= of.desired


@given(st.sampled_from(Direction), METRICS, METRICS, CAPACITIES, ACTS, ACTS)
def test_more_load_never_leads_to_less_capacity(
    direction: Direction,
    one: float,
    other: float,
    of: Capacity,
    out: LastAct | None,
    scale_in: LastAct | None,
) -> None:
    at = situation(of, out, scale_in)
    less, more = sorted((one, other))
    assert (
        decide(POLICY, direction, [less], at).desired
        <= decide(POLICY, direction, [more], at).desired
    )


@given(st.lists(METRICS, min_size=1, max_size=5), CAPACITIES)
def test_scaling_in_never_pushes_the_metric_above_the_target(
    values: list[float], of: Capacity
) -> None:
    wanted = decide(POLICY, IN, values, situation(of)).desired
    if wanted == of.desired:
        return
    for value in values:
        assert value < LOW_SHARE * POLICY.target_value
        load = value * of.serving
        afterwards = load / wanted if wanted else load
        assert afterwards <= POLICY.target_value * (1 + 1e-6)
