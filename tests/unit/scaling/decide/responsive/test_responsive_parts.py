"""Parts of the responsive policy: dispersion, rates, evidence, doubt, limits, options."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.cases import case, cases

from hostelry.scaling.decide.decision import Capacity
from hostelry.scaling.decide.responsive.estimates import (
    LEAST_STEP,
    MOST,
    SCALES_S,
    Dispersion,
    Doubt,
    Rates,
    Second,
    average_second,
    begin_after_gap,
    begin_trial,
    find_likeliest_rise,
    jump_to_level,
    observe_second,
    update_doubt,
)
from hostelry.scaling.decide.responsive.options import (
    ResponsiveOptions,
    build_options_tag,
    limit_copies,
    may_act,
    parse_options_tag,
    select_recent_acts,
)
from hostelry.sim.arrivals import modulate_arrivals, steady

OPTIONS = ResponsiveOptions(target=5.0)


def counts(seed: int, per_s: float, cv: float, num_seconds: int) -> list[float]:
    at_s = steady(np.random.default_rng(seed), per_s, num_seconds, cv)
    found: list[float] = np.bincount(at_s.astype(int), minlength=num_seconds).tolist()
    return found


def dispersion_of(arrivals: list[float]) -> Dispersion:
    known = Dispersion()
    for count in arrivals:
        known = observe_second(known, count)
    return known


@cases(
    "per_s, cv, low, high",
    case("Poisson is 1", 5.0, 1.0, 1.0, 1.6),
    case("bursts of cv 3 are about 9", 8.0, 3.0, 4.0, 16.0),
    case("a metronome counts as Poisson", 8.0, 0.1, 1.0, 1.0),
)
def test_dispersion_is_learnt_at_every_scale(
    per_s: float, cv: float, low: float, high: float
) -> None:
    known = dispersion_of(counts(1, per_s, cv, 1800))
    assert all(low <= it <= high for it in known.index)


def test_a_level_that_steps_and_drifts_is_not_taken_for_bursts() -> None:
    """Around a mean of all of it, an index of some 60 at the longest scale."""
    edges, rates = np.array([0.0, 600.0, 1200.0, 1800.0]), np.array([2.0, 8.0, 4.0])
    at_s = modulate_arrivals(np.random.default_rng(3), edges, rates, 1.0)
    known = dispersion_of(np.bincount(at_s.astype(int), minlength=1800).tolist())
    assert max(known.index[:4]) < 1.7
    assert known.index[-1] < 12.0


def test_missing_seconds_are_no_difference_and_forget_nothing() -> None:
    known = dispersion_of(counts(2, 8.0, 3.0, 600))
    after = begin_after_gap(known)
    assert after.index == known.index
    first = observe_second(after, 1000.0)
    assert first.index[0] == pytest.approx(known.index[0], rel=0.01)


@given(st.lists(st.integers(0, 10**9), max_size=80))
def test_dispersion_is_finite_and_at_least_one(arrivals: list[int]) -> None:
    known = dispersion_of([float(it) for it in arrivals])
    assert all(1.0 <= it < math.inf for it in known.index)
    assert all(known.of(it) > index for it, index in zip(SCALES_S, known.index, strict=True))
    assert known.of(1000.0) == known.of(SCALES_S[-1])


def test_what_was_seen_for_a_short_time_may_well_be_burstier() -> None:
    short, long = (dispersion_of(counts(1, 5.0, 1.0, it)) for it in (60, 1800))
    assert short.of(8) > 1.3
    assert long.of(8) < 1.3


def rates_of(per_s: float, num_seconds: int = 600, service_s: float = 2.0) -> Rates:
    known = Rates()
    for _ in range(num_seconds):
        second = Second(
            arrivals=per_s,
            finished=per_s,
            service_s=per_s * service_s,
            in_flight=per_s * service_s,
        )
        known = average_second(known, second, 1.0)
    return known


def test_rates_are_those_of_the_load_and_errors_shrink_with_time() -> None:
    short, long = rates_of(4.0, 30), rates_of(4.0, 600)
    assert long.per_s == pytest.approx(4.0)
    assert long.mean_service_s == pytest.approx(2.0)
    assert long.in_flight == pytest.approx(8.0)
    assert short.error_per_s(1.0) > 2 * long.error_per_s(1.0)
    assert long.error_per_s(9.0) == pytest.approx(3 * long.error_per_s(1.0))
    assert Rates().error_per_s(1.0) == 0.0
    assert Rates().mean_service_s == 0.0


def test_what_calls_take_is_known_before_any_has_finished() -> None:
    known = Rates()
    for second in range(20):
        under_way = min(second, 10) * 3.0
        known = average_second(
            known, Second(arrivals=3.0, finished=0.0, service_s=0.0, in_flight=under_way), 1.0
        )
    assert 5.0 < known.mean_service_s < 10.0


def test_a_jump_moves_the_rate_and_not_what_a_call_takes() -> None:
    known = jump_to_level(rates_of(4.0), 12.0, 5.0)
    assert (known.per_s, known.weight) == (12.0, 5.0)
    assert known.mean_service_s == pytest.approx(2.0)
    assert jump_to_level(Rates(), 3.0, 5.0).per_s == 3.0


@cases(
    "seconds, carried, since_s",
    case("as usual: no evidence", [4.0] * 30, 6.0, None),
    case("a third more is no doubling", [4.0] * 20 + [5.5] * 4, 6.0, None),
    case("four seconds of four times", [4.0] * 20 + [16.0] * 4, 6.0, 4.0),
    case("a doubling far below what is carried", [4.0] * 20 + [9.0] * 4, 40.0, None),
    case("the first second after an act", [16.0], 6.0, 1.0),
    case("no second yet", [], 6.0, None),
)
def test_the_likeliest_rise(seconds: list[float], carried: float, since_s: float | None) -> None:
    rise = find_likeliest_rise(seconds, rates_of(4.0), Dispersion(), carried)
    assert (rise and rise.since_s) == since_s
    if rise is not None:
        assert rise.base_per_s == pytest.approx(4.0, rel=0.1)
        assert 4.0 < rise.per_s < 16.0


def test_evidence_is_divided_by_dispersion() -> None:
    burst = [4.0] * 20 + [16.0] * 4
    plain = find_likeliest_rise(burst, rates_of(4.0), Dispersion(), 6.0)
    bursty = find_likeliest_rise(burst, rates_of(4.0), Dispersion(index=(9.0,) * 6), 6.0)
    assert plain is not None
    assert bursty is not None
    assert bursty.evidence < plain.evidence / 7.0


def after_trial(arrivals: float, known: Doubt, excess: float = 1.0) -> Doubt:
    known = begin_trial(known, carried_per_s=5.0, excess=excess)
    for _ in range(120):
        known = update_doubt(known, arrivals, per_hour=1.0)
    return known


@cases(
    "arrivals, excess, num_false, steps",
    case("the load stayed: the act was right", 8.0, 1.0, 0, 0.0),
    case("it would have fitted: false, by a fifth", 3.0, 1.0, 1, 1.0),
    case("by what the evidence was above", 3.0, 1.5, 1, math.log(1.5) / LEAST_STEP),
    case("and twice at most", 3.0, 9.0, 1, math.log(2.0) / LEAST_STEP),
)
def test_an_act_is_judged_by_the_two_minutes_after_it(
    arrivals: float, excess: float, num_false: int, steps: float
) -> None:
    found = after_trial(arrivals, Doubt(level=0.0), excess)
    assert found.num_false == num_false
    decayed = 120.0 / 3600.0
    assert found.level / LEAST_STEP == pytest.approx(steps - decayed, abs=1e-9)


def test_the_first_false_alarm_is_free_and_an_hour_forgives_one() -> None:
    known = after_trial(3.0, Doubt())
    assert known.factor == 1.0
    known = after_trial(3.0, known)
    assert known.factor == pytest.approx(1.2, rel=0.02)
    for _ in range(2 * 3600):
        known = update_doubt(known, 3.0, per_hour=1.0)
    assert known == Doubt(num_false=2)


def test_doubt_has_a_limit_and_one_act_at_a_time_is_on_trial() -> None:
    known = Doubt()
    for _ in range(40):
        known = after_trial(0.0, known, excess=10.0)
    assert known.level <= MOST
    first = begin_trial(known, carried_per_s=5.0, excess=1.0)
    assert begin_trial(first, carried_per_s=50.0, excess=3.0) is first


@cases(
    "wanted, desired, oldest_held_s, allowed",
    case("at most twice", 9, 4, 0.0, 8),
    case("unless a call waits for over the limit", 9, 4, 5.1, 9),
    case("from one to two", 9, 1, 0.0, 2),
    case("from none to two", 9, 0, 0.0, 2),
    case("never over the maximum", 90, 4, 9.0, 20),
    case("never under the minimum", 1, 4, 0.0, 2),
)
def test_how_far_an_act_may_go(
    wanted: int, desired: int, oldest_held_s: float, allowed: int
) -> None:
    capacity = Capacity(desired=desired, serving=desired, minimum=2, maximum=20)
    if desired < 2:
        capacity = Capacity(desired=desired, serving=desired, minimum=0, maximum=20)
    assert limit_copies(wanted, capacity, OPTIONS, oldest_held_s) == allowed


@cases(
    "acts, may",
    case("none yet", (), True),
    case("a moment ago", (98.5,), False),
    case("five in the minute", (50.0, 60.0, 70.0, 80.0, 90.0), True),
    case("six in the minute", (45.0, 50.0, 60.0, 70.0, 80.0, 90.0), False),
    case("most of them before it", (10.0, 20.0, 30.0, 39.0, 40.0, 90.0), True),
    case("the clock was set back since", (3700.0,), True),
)
def test_how_often_it_may_act(acts: tuple[float, ...], may: bool) -> None:
    assert may_act(select_recent_acts(acts, 100.0), OPTIONS, 100.0) is may


def test_a_rarer_false_alarm_is_a_higher_threshold() -> None:
    rare = ResponsiveOptions(target=5.0, false_alarms_per_hour=0.01)
    assert rare.threshold == pytest.approx(OPTIONS.threshold + math.log(100.0))
    assert rare.deviations > OPTIONS.deviations


@given(
    st.floats(0.01, 1e6, allow_subnormal=False).map(lambda it: float(f"{it:g}")),
    st.sampled_from([0.001, 0.5, 1.0, 20.0]),
    st.sampled_from([None, 30.0, 900.0]),
    st.integers(1, 60),
)
def test_options_and_their_tag_say_the_same(
    target: float, false_alarms: float, scale_in_after_s: float | None, acts: int
) -> None:
    options = ResponsiveOptions(
        target=min(max(target, 0.01), 1e6),
        false_alarms_per_hour=false_alarms,
        scale_in_after_s=scale_in_after_s,
        acts_per_minute=acts,
    )
    assert parse_options_tag(build_options_tag(options)) == options
