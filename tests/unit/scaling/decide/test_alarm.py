"""The state of a metric alarm. Each case names its source."""

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.cases import case, cases

from hostelry.domain.alarm import AlarmRule, AlarmState, AlarmStatus, Comparison, MissingData
from hostelry.domain.metric import Datapoint, Metric, MetricStat
from hostelry.scaling.decide.alarm import (
    LATE_S,
    MAX_HOLD_S,
    AlarmVerdict,
    evaluate,
    get_evaluation_interval_s,
    get_evaluation_range,
    get_fewest_samples,
    get_hold_s,
    get_next_evaluation_at,
)

NOW = 1_699_999_800.0  # a multiple of 300
ALARM, OK, NO_DATA = AlarmState.ALARM, AlarmState.OK, AlarmState.INSUFFICIENT_DATA
KEPT = None
MISSING, IGNORE, BREACHING, NOT_BREACHING = (
    MissingData.MISSING,
    MissingData.IGNORE,
    MissingData.BREACHING,
    MissingData.NOT_BREACHING,
)


def rule_of(
    num: int = 3,
    to_alarm: int | None = None,
    *,
    missing: MissingData = MissingData.MISSING,
    comparison: Comparison = Comparison.GREATER,
    period_s: int = 300,
    statistic: str = "Average",
    ignores_few_samples: bool = False,
) -> AlarmRule:
    return AlarmRule(
        evaluation_periods=num,
        datapoints_to_alarm=to_alarm or num,
        threshold=5.0,
        comparison=comparison,
        missing=missing,
        stat=MetricStat(
            metric=Metric(namespace="Own", name="Load"), period_s=period_s, statistic=statistic
        ),
        ignores_few_samples=ignores_few_samples,
    )


def status_of(state: AlarmState = OK) -> AlarmStatus:
    return AlarmStatus(state=state, updated_at=0.0, transitioned_at=0.0)


def points(drawn: str, rule: AlarmRule, now: float = NOW) -> list[Datapoint]:
    """Datapoints as the User Guide draws them: X breaches, 0 does not, - is missing."""
    _, end = get_evaluation_range(rule, now)
    signs = drawn.split()
    values = {"X": 9.0, "0": 1.0, "N": math.nan, "I": math.inf}
    return [
        Datapoint(end - (len(signs) - place) * rule.period_s, values[sign])
        for place, sign in enumerate(signs)
        if sign != "-"
    ]


def verdict(drawn: str, rule: AlarmRule, state: AlarmState = OK) -> AlarmVerdict:
    return evaluate(rule, points(drawn, rule), status_of(state), NOW)


# CloudWatch User Guide, "How alarm state is evaluated when data is missing": the first table is of
# an alarm of 3 out of 3, the second of 2 out of 3. The evaluation range is 5. Each case has the
# states under missing, ignore, breaching and notBreaching.
DOCUMENTED = [
    (3, "0 - X - X", (OK, OK, OK, OK)),
    (3, "0 - - - -", (OK, OK, OK, OK)),
    (3, "- - - - -", (NO_DATA, KEPT, ALARM, OK)),
    (3, "0 X X - X", (ALARM, ALARM, ALARM, ALARM)),
    (3, "- - X - -", (ALARM, KEPT, ALARM, OK)),
    (2, "0 - X - X", (ALARM, ALARM, ALARM, ALARM)),
    (2, "0 0 X 0 X", (ALARM, ALARM, ALARM, ALARM)),
    (2, "0 - X - -", (OK, OK, ALARM, OK)),
    (2, "- - - - 0", (OK, OK, ALARM, OK)),
    (2, "- - - X -", (ALARM, KEPT, ALARM, OK)),
    # The same page as of 2019, whose tables had these rows too.
    (3, "- - - - X", (NO_DATA, KEPT, ALARM, OK)),
    (3, "X - - - -", (ALARM, KEPT, ALARM, OK)),
    (2, "- - - - X", (NO_DATA, KEPT, ALARM, OK)),
]


@pytest.mark.parametrize(
    ("to_alarm", "drawn", "missing", "expected"),
    [
        pytest.param(
            to_alarm, drawn, missing, expected, id=f"{to_alarm} of 3: {drawn} {missing.value}"
        )
        for to_alarm, drawn, states in DOCUMENTED
        for missing, expected in zip(
            (MISSING, IGNORE, BREACHING, NOT_BREACHING), states, strict=True
        )
    ],
)
@pytest.mark.parametrize("before", [OK, ALARM, NO_DATA], ids=lambda it: f"from {it.value}")
def test_missing_data_is_treated_as_documented(
    to_alarm: int,
    drawn: str,
    missing: MissingData,
    expected: AlarmState | None,
    before: AlarmState,
) -> None:
    found = verdict(drawn, rule_of(3, to_alarm, missing=missing), before)
    assert found.state is (before if expected is None else expected)


@pytest.mark.parametrize(
    ("drawn", "expected"),
    [
        # User Guide, "Avoiding premature transitions to alarm state", with M = 3 of N = 3.
        pytest.param("- - - - X", NO_DATA, id="one fresh breaching point does not alarm"),
        pytest.param("- - - X -", NO_DATA, id="nor one that is two periods old"),
        pytest.param("- - X - -", ALARM, id="one as old as M does when nothing newer is good"),
        pytest.param("- - - X 0", OK, id="a good one after it settles the matter"),
        pytest.param("- - X - 0", OK, id="also after a gap"),
        pytest.param("- - X X -", ALARM, id="newer ones may breach or be missing"),
        pytest.param("- - - X X", NO_DATA, id="two fresh ones of three wait for the third"),
    ],
)
def test_an_alarm_is_not_premature(drawn: str, expected: AlarmState) -> None:
    assert verdict(drawn, rule_of(3), NO_DATA).state is expected


@pytest.mark.parametrize(
    ("comparison", "value", "breaches"),
    [
        (Comparison.GREATER, 5.0, False),
        (Comparison.GREATER, 5.1, True),
        (Comparison.GREATER_OR_EQUAL, 5.0, True),
        (Comparison.LESS, 5.0, False),
        (Comparison.LESS, 4.9, True),
        (Comparison.LESS_OR_EQUAL, 5.0, True),
    ],
)
def test_a_value_at_the_threshold(comparison: Comparison, value: float, breaches: bool) -> None:
    rule = rule_of(1, comparison=comparison)
    found = evaluate(rule, [Datapoint(NOW - 300, value)], status_of(), NOW)
    assert found.state is (ALARM if breaches else OK)


@pytest.mark.parametrize("odd", ["N", "I"], ids=["NaN", "infinite"])
def test_a_value_that_is_no_finite_number_counts_as_missing(odd: str) -> None:
    assert verdict(f"{odd} {odd} {odd} {odd} {odd}", rule_of(3)).state is NO_DATA
    assert verdict(f"0 {odd} X X X", rule_of(3)).state is ALARM


def test_the_period_that_is_not_over_is_not_looked_at() -> None:
    rule = rule_of(1)
    running = Datapoint(NOW, 9.0)
    assert evaluate(rule, [running], status_of(OK), NOW + 299).state is NO_DATA
    assert evaluate(rule, [running], status_of(OK), NOW + 300).state is ALARM


def test_datapoints_may_come_in_any_order_and_from_outside_of_the_range() -> None:
    rule = rule_of(3)
    inside = points("0 X X X X", rule)
    stray = [Datapoint(NOW - 86_400, 1.0), Datapoint(NOW + 300, 1.0)]
    found = evaluate(rule, [*reversed(inside), *stray], status_of(), NOW)
    assert found.state is ALARM
    assert [it.value for it in found.values] == [9.0, 9.0, 9.0]
    assert list(found.values) == sorted(found.values, key=lambda it: it.at)


# User Guide, "Percentile-based alarms and low data samples".
@pytest.mark.parametrize(
    ("statistic", "least"),
    [("p99", 1000), ("p50", 20), ("p90", 100), ("p10", 100), ("p100", 0), ("p0", 0), ("Sum", 0)],
)
def test_how_many_samples_a_percentile_needs(statistic: str, least: float) -> None:
    assert math.isclose(get_fewest_samples(statistic), least, abs_tol=1e-6)


@pytest.mark.parametrize("text", ["", "p", "pq", "tm90"])
def test_what_is_no_percentile_needs_no_number_of_samples(text: str) -> None:
    assert get_fewest_samples(text) == 0.0


@cases(
    "ignores, num_samples, expected",
    case("too few: the state stays", True, 999.0, OK),
    case("enough: it is evaluated", True, 1001.0, ALARM),
    case("by default it is always evaluated", False, 3.0, ALARM),
    case("an unknown number is no reason to wait", True, None, ALARM),
)
def test_percentiles_of_few_samples(
    ignores: bool, num_samples: float | None, expected: AlarmState
) -> None:
    rule = rule_of(3, statistic="p99", ignores_few_samples=ignores)
    found = evaluate(rule, points("X X X", rule), status_of(OK), NOW, num_samples)
    assert found.state is expected


# The wording of AWS's own alarms. The first is in the User Guide, "Acting on alarm changes".
@cases(
    "drawn, rule, expected",
    case(
        "three of three",
        "X X X",
        rule_of(3),
        "Threshold Crossed: 3 out of the last 3 datapoints [9.0 (14/11/23 22:05:00), 9.0"
        " (14/11/23 22:00:00), 9.0 (14/11/23 21:55:00)] were greater than the threshold (5.0)"
        " (minimum 3 datapoints for OK -> ALARM transition).",
    ),
    case(
        "only those that crossed are named",
        "0 X 0",
        rule_of(3, 2, comparison=Comparison.LESS_OR_EQUAL),
        "Threshold Crossed: 2 out of the last 3 datapoints [1.0 (14/11/23 22:05:00), 1.0"
        " (14/11/23 21:55:00)] were less than or equal to the threshold (5.0)"
        " (minimum 2 datapoints for OK -> ALARM transition).",
    ),
    case(
        "back to OK",
        "0",
        rule_of(1),
        "Threshold Crossed: 1 out of the last 1 datapoints [1.0 (14/11/23 22:05:00)] was not"
        " greater than the threshold (5.0) (minimum 1 datapoint for ALARM -> OK transition).",
    ),
    case("nothing known", "- - - - -", rule_of(3), "Insufficient Data: 3 datapoints were unknown."),
    case(
        "missing as breaching",
        "- - -",
        rule_of(1, missing=BREACHING),
        "Threshold Crossed: no datapoints were received for 1 period and 1 missing datapoint"
        " was treated as [Breaching].",
    ),
    case(
        "some real, some filled",
        "0 - - - -",
        rule_of(3, missing=BREACHING),
        "Threshold Crossed: 1 datapoint [1.0 (14/11/23 21:45:00)] was not greater than the"
        " threshold (5.0) and 2 missing datapoints were treated as [Breaching].",
    ),
    case(
        "only fills speak for the state",
        "- - - - X",
        rule_of(3, missing=NOT_BREACHING),
        "Threshold Crossed: 2 missing datapoints were treated as [NonBreaching].",
    ),
)
def test_reasons_are_worded_as_aws_words_them(drawn: str, rule: AlarmRule, expected: str) -> None:
    assert verdict(drawn, rule).reason == expected


def test_a_reason_names_the_newest_of_many_datapoints() -> None:
    found = verdict("X " * 15, rule_of(15))
    assert found.reason.startswith(
        "Threshold Crossed: 15 out of the last 15 datapoints were greater than the threshold (5.0)."
        " The most recent datapoints which crossed the threshold: [9.0 (14/11/23 22:05:00), "
    )
    assert found.reason.endswith("(minimum 15 datapoints for OK -> ALARM transition).")
    assert len(found.reason) < 1023


def test_reason_data_has_the_values_oldest_first() -> None:
    rule = rule_of(3)
    found = evaluate(
        rule,
        [Datapoint(NOW - 900, 1.0), Datapoint(NOW - 600, 2.0), Datapoint(NOW - 300, 3.0)],
        status_of(),
        NOW + 2.5,
    )
    listed = json.loads(found.reason_data)
    assert listed["recentDatapoints"] == [1.0, 2.0, 3.0]
    assert listed["threshold"] == 5.0
    assert listed["period"] == 300
    assert listed["statistic"] == "Average"
    assert listed["queryDate"] == "2023-11-14T22:10:02.500+0000"
    assert listed["startDate"] == "2023-11-14T21:55:00.000+0000"
    assert listed["evaluatedDatapoints"][0] == {
        "timestamp": "2023-11-14T22:05:00.000+0000",
        "value": 3.0,
    }


@given(
    st.lists(st.floats(allow_nan=True, allow_infinity=True), max_size=120),
    st.integers(1, 110),
    st.sampled_from(list(MissingData)),
    st.sampled_from(list(AlarmState)),
    st.data(),
)
def test_any_values_give_a_verdict_that_can_be_stored(
    values: list[float],
    num: int,
    missing: MissingData,
    before: AlarmState,
    data: st.DataObject,
) -> None:
    rule = rule_of(num, data.draw(st.integers(1, num)), missing=missing, period_s=60)
    given_points = [Datapoint(NOW - 60 * (place + 1), it) for place, it in enumerate(values)]
    found = evaluate(rule, given_points, status_of(before), NOW)
    assert len(found.reason) <= 1023
    assert len(found.reason_data) <= 4000
    assert json.loads(found.reason_data)["version"] == "1.0"
    assert len(found.values) <= num
    if missing is not IGNORE and found.values:
        repeated = evaluate(rule, given_points, status_of(found.state), NOW)
        assert repeated.state is found.state


@given(st.text("X0-", min_size=5, max_size=5), st.integers(1, 3))
def test_the_treatments_differ_only_where_real_datapoints_do_not_decide(
    drawn: str, to_alarm: int
) -> None:
    states = {
        missing: verdict(" ".join(drawn), rule_of(3, to_alarm, missing=missing)).state
        for missing in MissingData
    }
    if 5 - drawn.count("-") >= 3:
        assert len(set(states.values())) == 1
    if states[NOT_BREACHING] is ALARM:
        assert set(states.values()) == {ALARM}
    if states[BREACHING] is OK:
        assert ALARM not in states.values()


def test_a_metric_that_flows_but_lacks_its_newest_period_is_not_settled() -> None:
    rule = rule_of(3)
    assert not verdict("0 0 0 0 -", rule).is_settled
    assert verdict("0 0 0 - 0", rule).is_settled
    assert verdict("- - - - -", rule).is_settled


@pytest.mark.parametrize(
    ("period_s", "interval_s"), [(10, 10), (20, 10), (30, 10), (60, 60), (300, 60), (3600, 60)]
)
def test_high_resolution_is_evaluated_every_ten_seconds(period_s: int, interval_s: float) -> None:
    assert get_evaluation_interval_s(rule_of(1, period_s=period_s)) == interval_s


@given(st.floats(0, 4e9), st.sampled_from([10, 30, 60, 300]), st.text(max_size=20), st.booleans())
def test_the_next_look_is_within_an_interval_and_after_the_end_of_a_period(
    now: float, period_s: int, name: str, is_settled: bool
) -> None:
    rule = rule_of(1, period_s=period_s)
    interval_s = get_evaluation_interval_s(rule)
    at = get_next_evaluation_at(rule, name, now, is_settled=is_settled)
    assert now < at <= now + interval_s + 1e-6
    if is_settled:
        assert 2.0 - 1e-5 <= at % interval_s <= 10.0 + 1e-5


def test_data_that_is_late_is_looked_for_a_few_times_only() -> None:
    rule = rule_of(1, period_s=10)
    looks = [NOW + 2.0]
    while (at := get_next_evaluation_at(rule, "a", looks[-1], is_settled=False)) < NOW + 12.0:
        looks.append(at)
    assert len(looks) == 1 + int(LATE_S)
    assert get_next_evaluation_at(rule, "a", looks[-1], is_settled=False) == NOW + 12.0


@pytest.mark.parametrize(
    ("num", "period_s", "expected"), [(3, 10, 32.0), (5, 60, 302.0), (90, 60, MAX_HOLD_S)]
)
def test_a_state_is_kept_for_as_long_as_new_periods_take_after_the_clock_was_set(
    num: int, period_s: int, expected: float
) -> None:
    assert get_hold_s(rule_of(num, period_s=period_s)) == expected


def test_an_expression_has_no_statistic_of_its_own() -> None:
    plain = rule_of(2)
    assert plain.stat is not None
    rule = replace(plain, ignores_few_samples=True)
    found = evaluate(rule, points("X X", rule), status_of(), NOW, 0.0)
    assert found.state is ALARM
