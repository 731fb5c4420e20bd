"""The responsive policy second by second: queue age, limits, re-arming, faults of its input."""

import math
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.cases import case, cases
from tests.unit.scaling.decide.responsive.responsive_load import KEY, START, Run, even, load

from hostelry.domain.load import LoadKey, SecondLoad
from hostelry.scaling.decide.decision import Capacity
from hostelry.scaling.decide.responsive.estimates import build_expected_sample
from hostelry.scaling.decide.responsive.options import ResponsiveOptions
from hostelry.scaling.decide.responsive.policy import (
    ResponsiveState,
    get_expected,
    learn,
    propose_kept_capacity,
    step,
)

OPTIONS = ResponsiveOptions(target=5.0)
WARM_S = 120


def warm(copies: int = 4, per_s: int = 4) -> Run:
    """Has seen two minutes of `per_s` calls a second, of four seconds each."""
    return Run(options=OPTIONS, copies=copies).see(even(WARM_S, per_s))


def waiting(second: int, held: int = 3, oldest_s: float = 1.5, **values: float) -> SecondLoad:
    return load(second, held=held, oldest_held_s=oldest_s, **values)


@cases(
    "seconds, capacity, desired",
    case("a call that waited over a second adds a copy", [waiting(0)], (1, 1), 2),
    case("a younger one does not", [waiting(0, oldest_s=0.5)], (1, 1), None),
    case("nor does one that waits no more", [waiting(0, held=0)], (1, 1), None),
    case("enough copies are on their way", [waiting(0, in_flight_mean=9.0)], (2, 1), None),
    case("more are on their way, too few", [waiting(0, in_flight_mean=14.0)], (2, 1), 3),
    case("an act at most doubles", [waiting(0, in_flight_mean=40.0)], (2, 2), 4),
    case(
        "unless a call has waited for over five seconds",
        [waiting(0, oldest_s=6.0, in_flight_mean=40.0)],
        (2, 2),
        8,
    ),
    case("there is no copy at all", [waiting(0)], (0, 0), 1),
    case("never more than the maximum", [waiting(0, held=60, oldest_s=6.0)], (0, 0), 10),
)
def test_queue_age_acts_from_the_first_second(
    seconds: list[SecondLoad], capacity: tuple[int, int], desired: int | None
) -> None:
    run = Run(options=OPTIONS, copies=capacity[0], serving=capacity[1], minimum=0, maximum=10)
    run.see(seconds)
    assert [it.desired for _, it in run.acts] == ([] if desired is None else [desired])


def test_a_decision_has_its_reason_and_every_value_that_led_to_it() -> None:
    run = warm().see(even(3, 20, first=WARM_S))
    _, decision = run.acts[0]
    assert "arrivals rose from" in decision.reason
    assert "calls at once are expected" in decision.reason
    assert decision.signal.keys() >= {
        *("arrivals_per_s", "base_per_s", "dispersion", "evidence", "threshold", "window_s"),
        *("service_s", "expected_concurrency", "needed_concurrency", "in_flight", "held"),
        *("oldest_held_s", "target_per_copy", "capacity", "serving", "rose_s_ago"),
    }
    assert decision.signal["service_s"] == pytest.approx(4.0)
    assert 1.0 <= decision.signal["rose_s_ago"] <= 3.0
    assert all(math.isfinite(it) for it in decision.signal.values())


def test_an_act_at_most_doubles_and_the_next_ones_go_on_to_what_is_needed() -> None:
    run = warm().see(even(40, 20, first=WARM_S))
    steps = [4, *(it.desired for _, it in run.acts)]
    assert all(after <= 2 * before for before, after in pairwise(steps))
    assert run.copies == 16
    assert "copies would be needed, 8 are allowed" in run.acts[0][1].reason


@pytest.mark.parametrize("per_minute", [1, 2, 4])
def test_there_are_at_most_so_many_acts_in_any_minute(per_minute: int) -> None:
    run = Run(options=replace(OPTIONS, acts_per_minute=per_minute), copies=1)
    run.see([waiting(it, in_flight_mean=500.0) for it in range(180)])
    at = [it for it, _ in run.acts]
    assert len(at) >= 2
    assert all(sum(0 <= it - one < 60 for it in at) <= per_minute for one in at)


def test_at_the_maximum_nothing_is_done_and_that_is_reported_once_a_minute() -> None:
    run = warm(maximum_copies := 4)
    run.maximum = maximum_copies
    run.see(even(55, 40, first=WARM_S))
    assert [it.not_scaled[0].code for _, it in run.acts] == ["AlreadyAtMaxCapacity"]
    _, decision = run.acts[0]
    assert (decision.desired, decision.not_scaled[0].max_capacity) == (4, 4)


def test_after_an_act_the_new_level_is_the_base() -> None:
    run = warm().see(even(60, 12, first=WARM_S))
    num_acts = len(run.acts)
    assert run.state is not None
    assert run.state.rates.per_s == pytest.approx(12.0, rel=0.1)
    run.see(even(120, 12, first=WARM_S + 60))
    assert len(run.acts) == num_acts


def test_a_base_that_jumped_too_far_comes_back_within_a_minute() -> None:
    run = warm(copies=2).see(even(4, 30, first=WARM_S))
    assert run.acts
    run.see(even(60, 4, first=WARM_S + 4))
    assert run.state is not None
    assert run.state.rates.per_s < 8.0


def test_no_act_while_it_learns_what_is_usual() -> None:
    run = Run(options=OPTIONS, copies=1).see(even(20, 1)).see(even(39, 30, first=20))
    assert not run.acts


@cases(
    "broken",
    case("no number", {"in_flight_mean": math.nan}),
    case("an endless time", {"service_s": math.inf}),
    case("a negative count", {"arrivals": -5}),
    case("an age that is none", {"oldest_held_s": math.nan, "held": 3}),
)
def test_a_second_with_impossible_numbers_was_not_seen(broken: dict[str, float]) -> None:
    run = warm()
    before = run.state
    run.see([load(WARM_S, **{"arrivals": 4, **broken})])
    assert (run.state, run.acts) == (before, [])


@pytest.mark.parametrize("twice", [1, 5, 9])
def test_a_second_that_came_before_changes_nothing(twice: int) -> None:
    run = warm()
    before = run.state
    run.see(even(1, 400, first=WARM_S - twice))
    assert (run.state, run.acts) == (before, [])


@cases(
    "jump_s",
    case("the clock is set an hour forward", 3600),
    case("the clock is set an hour back", -3600),
    case("the gateway is silent for half a minute", 30),
)
def test_a_jump_of_time_is_no_reason_to_act_and_steps_are_seen_after_it(jump_s: int) -> None:
    run = warm().see(even(30, 4, first=WARM_S + jump_s))
    assert not run.acts
    run.see(even(3, 20, first=WARM_S + jump_s + 30))
    assert run.acts


def test_acts_before_the_clock_was_set_back_do_not_hold_up_new_ones() -> None:
    run = Run(options=OPTIONS, copies=1)
    run.see([waiting(it, in_flight_mean=500.0) for it in range(20)])
    assert len(run.acts) == OPTIONS.acts_per_minute
    run.see([waiting(it - 3600, in_flight_mean=900.0) for it in range(10)])
    assert len(run.acts) > OPTIONS.acts_per_minute


def test_one_absurd_second_does_not_deafen_it() -> None:
    run = warm().see([load(WARM_S, arrivals=1_000_000, in_flight_mean=16.0)])
    run.see(even(300, 4, first=WARM_S + 1))
    assert run.copies <= 16
    run.copies = 4
    assert run.state is not None
    assert run.state.rates.per_s < 5.0
    run.acts.clear()
    run.see(even(6, 24, first=WARM_S + 301))
    assert run.acts


def test_what_an_act_was_for_is_kept_up_while_it_is_needed() -> None:
    run = warm().see(even(40, 20, first=WARM_S))
    assert run.state is not None
    last = START + WARM_S + 40.0
    capacity = Capacity(desired=16, serving=4, minimum=1, maximum=100)
    kept = propose_kept_capacity(run.state, capacity, last)
    assert kept is not None
    assert 14 <= kept.desired <= 16
    assert propose_kept_capacity(run.state, replace(capacity, minimum=16), last) is None
    assert propose_kept_capacity(run.state, capacity, last + 3600.0) is None
    assert (
        propose_kept_capacity(warm().state or ResponsiveState(options=OPTIONS), capacity, last)
        is None
    )


@cases(
    "after_s, quiet_s, numbers",
    case("scale-in is left to AWS's policies", None, 600, []),
    case("not before its time", 120.0, 100, []),
    case("a copy at a time", 120.0, 300, [3, 2]),
    case("down to the minimum", 30.0, 3600, [3, 2, 1]),
)
def test_its_own_scale_in_is_slow_and_only_where_it_was_chosen(
    after_s: float | None, quiet_s: int, numbers: list[int]
) -> None:
    run = Run(options=replace(OPTIONS, scale_in_after_s=after_s), copies=4)
    run.see(even(WARM_S, 4)).see([load(WARM_S + it) for it in range(quiet_s)])
    assert [it.desired for _, it in run.acts] == numbers
    assert all(later - at >= (after_s or 0.0) for (at, _), (later, _) in pairwise(run.acts))


def test_expected_concurrency_leads_what_is_under_way() -> None:
    state = ResponsiveState(options=OPTIONS)
    for one in even(WARM_S, 2):
        state = learn(state, one)
    assert get_expected(state) == pytest.approx(8.0, rel=0.01)
    component = replace(KEY, component_name="base")
    sample = build_expected_sample(component, get_expected(state), 4, 7)
    assert sample is not None
    assert (sample.metric.name, sample.resolution_s) == ("ExpectedConcurrencyPerCopy", 1)
    assert sample.values[0] == pytest.approx(2.0, rel=0.01)
    of_variant = build_expected_sample(KEY, 1.0, 1, 7)
    assert of_variant is not None
    assert of_variant.metric.dimensions == (("EndpointName", "chat"), ("VariantName", "main"))
    assert build_expected_sample(component, 1.0, 0, 7) is None


SECONDS = st.builds(
    SecondLoad,
    key=st.just(KEY),
    second=st.integers(START - 4000, START + 4000),
    arrivals=st.integers(0, 10**6),
    finished=st.integers(0, 10**6),
    in_flight_mean=st.floats(0, 1e6) | st.just(math.nan),
    held=st.integers(0, 10**4),
    oldest_held_s=st.floats(0, 1e4),
    service_s=st.floats(0, 1e9),
)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(SECONDS, min_size=1, max_size=150),
    st.integers(0, 10),
    st.integers(0, 20),
)
def test_whatever_comes_it_stays_within_bounds_and_limits(
    seconds: list[SecondLoad], minimum: int, more: int
) -> None:
    options = ResponsiveOptions(target=1.0, warm_up_s=10.0)
    state, copies = ResponsiveState(options=options), minimum
    for number, one in enumerate(seconds):
        capacity = Capacity(desired=copies, serving=copies, minimum=minimum, maximum=minimum + more)
        state, decision = step(state, one, capacity, START + number)
        if decision is None:
            continue
        assert minimum <= decision.desired <= minimum + more
        assert decision.desired >= copies
        if one.oldest_held_s <= options.queue_slo_s:
            assert decision.desired <= 2 * max(copies, 1)
        assert all(math.isfinite(it) for it in decision.signal.values())
        copies = decision.desired
    assert len(state.acts) <= options.acts_per_minute


def test_two_runs_over_the_same_seconds_decide_the_same() -> None:
    first, second = (warm().see(even(60, 20, first=WARM_S)) for _ in range(2))
    assert (first.state, first.acts) == (second.state, second.acts)


def test_a_variant_of_another_name_is_another_metric() -> None:
    other = LoadKey(scope=KEY.scope, endpoint_name="chat", variant_name="other")
    assert build_expected_sample(KEY, 1.0, 1, 7) != build_expected_sample(other, 1.0, 1, 7)
