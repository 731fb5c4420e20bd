"""Metric math: values of expressions, and refusals, also of generated ones."""

from collections.abc import Callable, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hostelry.base.clock import ManualClock
from hostelry.base.errors import ServiceError
from hostelry.domain.metric import Metric, MetricQuery, MetricStat, Sample
from hostelry.domain.scope import Scope
from hostelry.metrics.query.queries import check_queries, evaluate, is_single, uses_search
from hostelry.metrics.series.store import MemoryMetrics

HERE = Scope("123456789012", "us-west-2")
T = 1_700_006_400.0  # a whole hour: 2023-11-15T00:00Z, a Wednesday
VALUES = {
    "m1": {0: 4.0, 1: 9.0, 3: 16.0, 4: -1.0},
    "m2": {0: 2.0, 1: 0.0, 2: 5.0, 3: 4.0},
    "gap": {1: 1.0, 4: 4.0},
    "none": {},
}
Recovered = list[dict[int, float]]


def stat_of(name: str, period_s: int = 60) -> MetricStat:
    metric = Metric.of("Mine", name, {"Endpoint": "e"})
    return MetricStat(metric=metric, period_s=period_s, statistic="Sum")


QUERIES = tuple(MetricQuery(id=name, stat=stat_of(name)) for name in VALUES)


@pytest.fixture
def store() -> MemoryMetrics:
    store = MemoryMetrics(ManualClock(T + 300))
    for name, points in VALUES.items():
        for minute, value in points.items():
            sample = Sample(metric=stat_of(name).metric, at=T + 60 * minute, values=(value,))
            store.record(HERE, [sample])
    return store


@pytest.fixture
def compute(store: MemoryMetrics) -> Callable[..., Recovered]:
    """`compute(expression)`: the points of each series of it, by their minute."""

    def compute(expression: str, *others: MetricQuery) -> Recovered:
        queries = (*QUERIES, *others, MetricQuery(id="e", expression=expression))
        return [
            {round((point.at - T) / 60): point.value for point in series.points}
            for series in evaluate(store, HERE, queries, T, T + 300)["e"]
        ]

    return compute


# Source for all of these: user guide, "Using math expressions with CloudWatch metrics".
@pytest.mark.parametrize(
    ("expression", "points"),
    [
        pytest.param("m1 + m2", {0: 6, 1: 9, 3: 20}, id="a sum, where both have a point"),
        pytest.param("m1 - 1", {0: 3, 1: 8, 3: 15, 4: -2}, id="a number less"),
        pytest.param("10 - gap", {1: 9, 4: 6}, id="from a number"),
        pytest.param("m1 / m2", {0: 2, 3: 4}, id="a division by zero leaves its point out"),
        pytest.param("m1 / 0", {}, id="a division by nothing but zero"),
        pytest.param("2 * m2 ^ 2", {0: 8, 1: 0, 2: 50, 3: 32}, id="a power binds tighter"),
        pytest.param("2 ^ 3 ^ 2 * gap", {1: 512, 4: 2048}, id="powers group to the right"),
        pytest.param("-gap ^ 2", {1: -1, 4: -16}, id="minus binds looser than a power"),
        pytest.param("- -gap", {1: 1, 4: 4}, id="minus twice"),
        pytest.param("(m2 + 1) * 2", {0: 6, 1: 2, 2: 12, 3: 10}, id="parentheses"),
        pytest.param("10 - 2 - gap", {1: 7, 4: 4}, id="differences group to the left"),
        pytest.param("m1 ^ 0.5", {0: 2, 1: 3, 3: 4}, id="the root of a negative is left out"),
        pytest.param("m1 > 4", {0: 0, 1: 1, 3: 1, 4: 0}, id="a comparison is 0 or 1"),
        pytest.param("m1 >= 4 AND m2 < 3", {0: 1, 1: 1, 3: 0}, id="AND of comparisons"),
        pytest.param("m2 == 0 || m2 == 5", {0: 0, 1: 1, 2: 1, 3: 0}, id="OR by its sign"),
        pytest.param("m2 != 2 && 1", {0: 0, 1: 1, 2: 1, 3: 1}, id="AND by its sign"),
        pytest.param("ABS(m1)", {0: 4, 1: 9, 3: 16, 4: 1}, id="absolute values"),
        pytest.param("CEIL(m2 / 4)", {0: 1, 1: 0, 2: 2, 3: 1}, id="rounded up"),
        pytest.param("FLOOR(m2 / 4)", {0: 0, 1: 0, 2: 1, 3: 1}, id="rounded down"),
        pytest.param("LOG10(m2 * 50)", {0: 2, 2: 2.39794, 3: 2.30103}, id="no logarithm of 0"),
        pytest.param("LOG(m2 / 2)", {0: 0, 2: 0.916291, 3: 0.693147}, id="natural logarithm"),
        pytest.param("FILL(gap, 0)", {0: 0, 1: 1, 2: 0, 3: 0, 4: 4}, id="filled by a number"),
        pytest.param("FILL(gap, REPEAT)", {1: 1, 2: 1, 3: 1, 4: 4}, id="filled by the last"),
        pytest.param("FILL(gap, LINEAR)", {1: 1, 2: 2, 3: 3, 4: 4}, id="filled by lines"),
        pytest.param("FILL(gap, m2)", {0: 2, 1: 1, 2: 5, 3: 4, 4: 4}, id="filled by a series"),
        pytest.param("FILL(none, 7)", dict.fromkeys(range(5), 7), id="filled from nothing"),
        pytest.param("FILL(none, REPEAT)", {}, id="nothing repeated"),
        pytest.param("FILL(none, LINEAR)", {}, id="no line through nothing"),
        pytest.param("IF(m1 > 4, m1, 0)", {0: 0, 1: 9, 3: 16, 4: 0}, id="one or the other"),
        pytest.param("IF(m1 > 4, m2)", {1: 0, 3: 4}, id="one or none"),
        pytest.param("IF(SUM(m2) > 10, gap, m1)", {1: 1, 4: 4}, id="one number chooses"),
        pytest.param("DIFF(m1)", {1: 5, 3: 7, 4: -17}, id="differences of neighbours"),
        pytest.param("DIFF_TIME(m1)", {1: 60, 3: 120, 4: 60}, id="seconds between neighbours"),
        pytest.param("RATE(gap) * 60", {4: 1}, id="the rate per second, over a gap"),
        pytest.param("RUNNING_SUM(m2)", {0: 2, 1: 2, 2: 7, 3: 11}, id="the running sum"),
        pytest.param("m2 / SUM(m2) * 11", {0: 2, 1: 0, 2: 5, 3: 4}, id="of the sum of a series"),
        pytest.param("gap * AVG(m2)", {1: 2.75, 4: 11}, id="the mean of a series"),
        pytest.param("gap * MIN(m2) + MAX(m2)", {1: 5, 4: 5}, id="the ends of a series"),
        pytest.param("gap * COUNT(m2)", {1: 4, 4: 16}, id="how many points"),
        pytest.param("gap * STDDEV(gap)", {1: 1.5, 4: 6}, id="the deviation"),
        pytest.param("gap * PERIOD(m1)", {1: 60, 4: 240}, id="the period of a series"),
        pytest.param("gap * AVG(none)", {}, id="the mean of nothing is no number"),
        pytest.param("SUM([m1, m2])", {0: 6, 1: 9, 2: 5, 3: 20, 4: -1}, id="over an array"),
        pytest.param("MAX([m1, m2])", {0: 4, 1: 9, 2: 5, 3: 16, 4: -1}, id="the largest of each"),
        pytest.param("COUNT(METRICS())", {0: 2, 1: 3, 2: 1, 3: 2, 4: 2}, id="of all metrics"),
        pytest.param('AVG(METRICS("m"))', {0: 3, 1: 4.5, 2: 5, 3: 10, 4: -1}, id="of some"),
        pytest.param("SLICE(METRICS(), 2)", {1: 1, 4: 4}, id="one out of an array"),
        pytest.param("FIRST(SORT(METRICS(), MAX, ASC))", {1: 1, 4: 4}, id="the first in an order"),
        pytest.param("TIME_SERIES(3)", dict.fromkeys(range(5), 3), id="a number as a series"),
        pytest.param("HOUR(gap) + DAY(gap) + MINUTE(gap)", {1: 4, 4: 7}, id="the time of day"),
        pytest.param("EPOCH(gap) - EPOCH(gap)", {1: 0, 4: 0}, id="the instant itself"),
        pytest.param("SUM(SEARCH('{Mine, Endpoint} m2', 'Sum', 60))", {0: 2, 1: 0, 2: 5, 3: 4},
                     id="of what a search found"),
        pytest.param(" 1e1*gap\n", {1: 10, 4: 40}, id="blanks and exponents"),
    ],
)  # fmt: skip
def test_an_expression_gives(
    compute: Callable[..., Recovered], expression: str, points: dict[int, float]
) -> None:
    (found,) = compute(expression)
    assert found == pytest.approx(points)


@pytest.mark.parametrize(
    ("expression", "series"),
    [
        pytest.param("METRICS('m') * 2", [{0: 8, 1: 18, 3: 32, 4: -2}, {0: 4, 1: 0, 2: 10, 3: 8}],
                     id="an array by a number"),
        pytest.param("METRICS('m') - gap", [{1: 8, 4: -5}, {1: -1}], id="an array and a series"),
        pytest.param("[gap, none]", [{1: 1, 4: 4}, {}], id="an array"),
        pytest.param("REMOVE_EMPTY([gap, none])", [{1: 1, 4: 4}], id="without the empty ones"),
        pytest.param("SLICE([gap, m1, m2], 0, 1)", [{1: 1, 4: 4}], id="a part of an array"),
        pytest.param("SORT([m2, gap], SUM, ASC, 1)", [{1: 1, 4: 4}], id="the least of an array"),
        pytest.param("RATE([gap])", [{4: pytest.approx(1 / 60)}], id="a function of each"),
        pytest.param("IF([gap] > 1, 5)", [{4: 5}], id="a choice for each"),
        pytest.param("SEARCH('{Mine, Endpoint} nobody', 'Sum', 60)", [], id="nothing found"),
    ],
)  # fmt: skip
def test_an_array_gives_several_series(
    compute: Callable[..., Recovered], expression: str, series: Recovered
) -> None:
    assert compute(expression) == series


def test_expressions_build_on_each_other_in_any_order(store: MemoryMetrics) -> None:
    expressions = {"c": "b + 1", "b": "a * 2", "a": "gap"}
    queries = [MetricQuery(id=id, expression=text) for id, text in expressions.items()]
    found = evaluate(store, HERE, (*queries, *QUERIES), T, T + 300)
    assert [it.value for it in found["c"][0].points] == [3.0, 9.0]
    assert list(found) == ["c", "b", "a", "m1", "m2", "gap", "none"]


def test_series_are_labelled_by_what_was_asked(store: MemoryMetrics) -> None:
    search = "SEARCH('{Mine, Endpoint} gap', 'Sum', 60)"
    queries = (
        MetricQuery(id="a", stat=stat_of("m1")),
        MetricQuery(id="b", stat=stat_of("m1"), label="Load"),
        MetricQuery(id="c", expression="a + b"),
        MetricQuery(id="d", expression="a + b", label="Twice"),
        MetricQuery(id="e", expression=search),
        MetricQuery(id="f", expression=search, label="Found"),
    )
    found = evaluate(store, HERE, queries, T, T + 300)
    labels = [series.label for id in "abcdef" for series in found[id]]
    assert labels == ["m1", "Load", "c", "Twice", "e gap", "Found e gap"]


# Source: user guide, "Using dynamic labels".
@pytest.mark.parametrize(
    ("label", "shown"),
    [
        pytest.param("${LABEL}: ${MAX}", "gap: 4", id="its own label and its largest value"),
        pytest.param("${AVG} ${MIN} ${SUM} ${FIRST} ${LAST}", "2.5 1 5 1 4", id="statistics"),
        pytest.param("${PROP('Dim.Endpoint')}/${PROP('MetricName')}", "e/gap", id="properties"),
        pytest.param('${PROP("Stat")} by ${PROP("Period")} s', "Sum by 60 s", id="of the query"),
        pytest.param("${PROP('Dim.No')} ${NO}", "${PROP('Dim.No')} ${NO}", id="unknown: stays"),
    ],
)
def test_labels_are_filled_in(store: MemoryMetrics, label: str, shown: str) -> None:
    search = "SEARCH('{Mine, Endpoint} gap', 'Sum', 60)"
    queries = (
        MetricQuery(id="a", stat=stat_of("gap"), label=label),
        MetricQuery(id="b", expression=search, label=label),
    )
    found = evaluate(store, HERE, queries, T, T + 300)
    assert found["a"][0].label == shown
    assert found["b"][0].label == shown.replace("gap:", "e gap:")


def test_of_two_periods_the_longer_is_the_results(store: MemoryMetrics) -> None:
    queries = (
        MetricQuery(id="a", stat=stat_of("m2", 60)),
        MetricQuery(id="b", stat=stat_of("m2", 300)),
        MetricQuery(id="c", expression="b / a"),
    )
    (found,) = evaluate(store, HERE, queries, T, T + 300)["c"]
    assert (found.period_s, [(it.at - T, it.value) for it in found.points]) == (300, [(0, 5.5)])


def test_the_period_that_the_start_lies_in_is_there_when_asked_for(store: MemoryMetrics) -> None:
    queries = (
        MetricQuery(id="a", stat=stat_of("m2", 300)),
        MetricQuery(id="b", expression="FILL(a, 0)"),
    )
    exact = evaluate(store, HERE, queries, T + 30, T + 400)
    rounded = evaluate(store, HERE, queries, T + 30, T + 400, is_rounded=True)
    assert [it.at - T for it in exact["a"][0].points] == []
    assert [it.at - T for it in rounded["a"][0].points] == [0]
    assert [it.at - T for it in exact["b"][0].points] == [300]
    assert [it.at - T for it in rounded["b"][0].points] == [0, 300]


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        pytest.param("", "ends where", id="nothing"),
        pytest.param("m1 +", "ends where", id="half an operation"),
        pytest.param("m1 m2", "Unexpected 'm2'", id="two values"),
        pytest.param("m1 $ m2", r"Unexpected '\$ m2'", id="a sign that is none"),
        pytest.param("(m1", r"Expected '\)', found the end", id="an open parenthesis"),
        pytest.param("[m1", "Expected ']'", id="an open bracket"),
        pytest.param("m1)", "Unexpected", id="one parenthesis too many"),
        pytest.param("'m1", "Unexpected", id="an open text"),
        pytest.param("nobody", "no query with the id 'nobody'", id="an id that is nobody's"),
        pytest.param("sum(m1)", "no function sum", id="a function in small letters"),
        pytest.param(
            "ANOMALY_DETECTION_BAND(m1)",
            "ANOMALY_DETECTION_BAND: there is no anomaly",
            id="a function of AWS that is not here",
        ),
        pytest.param("NOTHING(m1)", "no function NOTHING", id="an unknown function"),
        pytest.param("ABS()", "ABS takes 1 arguments, not 0", id="too few arguments"),
        pytest.param("RATE(m1, m2)", "RATE takes 1 arguments", id="too many arguments"),
        pytest.param("SUM(m1)", "gives a number, not a time series", id="a number"),
        pytest.param("'text'", "gives a text", id="a text"),
        pytest.param("REPEAT", "gives the word REPEAT", id="a word"),
        pytest.param("m1 + 'x'", r"Unsupported operands for '\+'", id="a text as a number"),
        pytest.param("METRICS() + METRICS()", "Unsupported operands", id="two arrays"),
        pytest.param("[1, 2]", "takes time series, not a number", id="an array of numbers"),
        pytest.param("RATE(1)", "takes time series, not a number", id="the rate of a number"),
        pytest.param("FILL(m1, AVG)", "not the word AVG", id="a filler that is none"),
        pytest.param("IF(m1, METRICS(), 1)", "not arrays", id="a choice of arrays"),
        pytest.param("IF(m1, 'x')", "not a text", id="a choice of a text"),
        pytest.param("SORT(METRICS(), SUM, UP)", "no query with the id 'UP'", id="an order"),
        pytest.param("SORT(METRICS(), m1, ASC)", "SORT orders by", id="an order by a series"),
        pytest.param("SLICE(METRICS(), 0.5)", "whole numbers", id="half an index"),
        pytest.param("SLICE(METRICS(), -1)", "whole numbers", id="an index below 0"),
        pytest.param("SEARCH(m1, 'Sum', 60)", "search text", id="a search for a series"),
        pytest.param("SEARCH('x', 'Mean', 60)", "'Mean' is not a statistic", id="a statistic"),
        pytest.param("SEARCH('x', 'Sum', 0)", "whole number of seconds", id="no period"),
        pytest.param("SEARCH('{Mine', 'Sum', 60)", "search", id="a search that is none"),
        pytest.param("e", "depends on itself", id="itself"),
        pytest.param("m1" + " + m1" * 500, "characters|operators", id="too many operators"),
        pytest.param("(" * 100 + "m1" + ")" * 100, "nested deeper", id="too deep"),
        pytest.param("-" * 2000 + "m1 ^" * 10, "ends where", id="signs without end"),
        pytest.param("2^" * 900 + "m1", "nested deeper|operators", id="a tower of powers"),
        pytest.param("m1 " * 700, "at most 2048", id="too long"),
        pytest.param("ABS(" * 300 + "m1" + ")" * 300, "nested deeper", id="functions too deep"),
        pytest.param("[" * 1000 + "]" * 1000, "nested deeper", id="arrays too deep"),
    ],
)
def test_a_refusal_has_a_reason(
    compute: Callable[..., Recovered], expression: str, text: str
) -> None:
    query = MetricQuery(id="e", expression=expression)
    for attempt in (lambda: compute(expression), lambda: check_queries((*QUERIES, query))):
        with pytest.raises(ServiceError, match=rf"^Error in expression 'e': .*({text})") as refused:
            attempt()
        assert refused.value.code == "ValidationError"


@pytest.mark.parametrize(
    ("queries", "text"),
    [
        pytest.param([MetricQuery(id="a")], "either", id="neither"),
        pytest.param([MetricQuery(id="9", expression="m1")], "lower-case", id="an odd id"),
        pytest.param([QUERIES[0]] * 2, "same id", id="an id twice"),
        pytest.param(
            [MetricQuery(id="a", expression="b"), MetricQuery(id="b", expression="a")],
            "depends on itself",
            id="a circle",
        ),
    ],
)
def test_lists_that_mean_nothing_are_refused(queries: Sequence[MetricQuery], text: str) -> None:
    with pytest.raises(ServiceError, match=text):
        check_queries(queries)


def test_work_without_end_is_refused_before_it_is_done(store: MemoryMetrics) -> None:
    wide = "FILL(METRICS(), 0) " + "+ SUM(FILL(METRICS(), 0)) " * 20
    queries = [MetricQuery(id=f"m{it}", stat=stat_of("m1", 1)) for it in range(100)]
    queries += [MetricQuery(id=f"e{it}", expression=wide) for it in range(100)]
    with pytest.raises(ServiceError, match="more than 2000000 points"):
        evaluate(store, HERE, queries, T, T + 86_400)


def test_a_long_chain_of_queries_is_evaluated(store: MemoryMetrics) -> None:
    chain = [MetricQuery(id=f"e{it}", expression=f"e{it - 1} + 1") for it in range(499, 0, -1)]
    queries = (*chain, MetricQuery(id="e0", stat=stat_of("gap")))
    found = evaluate(store, HERE, queries, T, T + 300)
    assert [it.value for it in found["e499"][0].points] == [500.0, 503.0]


# Source: PutMetricAlarm: an alarm watches one series, and SEARCH is not supported on alarms.
def test_what_alarms_may_watch() -> None:
    single = MetricQuery(id="e", expression="SUM(METRICS())")
    several = MetricQuery(id="e", expression="METRICS() * 2")
    search = MetricQuery(id="e", expression="SUM(SEARCH('x', 'Sum', 60))")
    assert is_single((*QUERIES, single), "e")
    assert not is_single((*QUERIES, several), "e")
    assert [uses_search((*QUERIES, it)) for it in (single, several, search)] == [False, False, True]


PIECES = st.sampled_from(
    ["m1", "m2", "gap", "e", "1", "0", "2.5", "1e309", "+", "-", "*", "/", "^", "<", "==", "AND",
     "(", ")", "[", "]", ",", "SUM(", "FILL(", "REPEAT", "IF(", "METRICS()", "SORT(", "ASC", "'x'",
     "SEARCH(", "SLICE(", "RATE(", "LOG(", " ", "\\", '"']
)  # fmt: skip


@settings(max_examples=300, deadline=None)
@given(st.lists(PIECES, max_size=25).map("".join) | st.text(max_size=60))
def test_any_text_is_evaluated_or_refused(text: str) -> None:
    queries = (*QUERIES, MetricQuery(id="e", expression=text))
    try:
        found = evaluate(MemoryMetrics(ManualClock(T)), HERE, queries, T, T + 300)
    except ServiceError as error:
        assert error.message.startswith("Error in expression 'e': ")  # noqa: PT017
    else:
        assert all(it.period_s >= 0 for it in found["e"])
