"""Metric math: values of expressions, and refusals, also of generated ones."""

from collections.abc import Callable, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.cases import case, cases

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
@cases(
    "expression, points",
    case("a sum, where both have a point", "m1 + m2", {0: 6, 1: 9, 3: 20}),
    case("a number less", "m1 - 1", {0: 3, 1: 8, 3: 15, 4: -2}),
    case("from a number", "10 - gap", {1: 9, 4: 6}),
    case("a division by zero leaves its point out", "m1 / m2", {0: 2, 3: 4}),
    case("a division by nothing but zero", "m1 / 0", {}),
    case("a power binds tighter", "2 * m2 ^ 2", {0: 8, 1: 0, 2: 50, 3: 32}),
    case("powers group to the right", "2 ^ 3 ^ 2 * gap", {1: 512, 4: 2048}),
    case("minus binds looser than a power", "-gap ^ 2", {1: -1, 4: -16}),
    case("minus twice", "- -gap", {1: 1, 4: 4}),
    case("parentheses", "(m2 + 1) * 2", {0: 6, 1: 2, 2: 12, 3: 10}),
    case("differences group to the left", "10 - 2 - gap", {1: 7, 4: 4}),
    case("the root of a negative is left out", "m1 ^ 0.5", {0: 2, 1: 3, 3: 4}),
    case("a comparison is 0 or 1", "m1 > 4", {0: 0, 1: 1, 3: 1, 4: 0}),
    case("AND of comparisons", "m1 >= 4 AND m2 < 3", {0: 1, 1: 1, 3: 0}),
    case("OR by its sign", "m2 == 0 || m2 == 5", {0: 0, 1: 1, 2: 1, 3: 0}),
    case("AND by its sign", "m2 != 2 && 1", {0: 0, 1: 1, 2: 1, 3: 1}),
    case("absolute values", "ABS(m1)", {0: 4, 1: 9, 3: 16, 4: 1}),
    case("rounded up", "CEIL(m2 / 4)", {0: 1, 1: 0, 2: 2, 3: 1}),
    case("rounded down", "FLOOR(m2 / 4)", {0: 0, 1: 0, 2: 1, 3: 1}),
    case("no logarithm of 0", "LOG10(m2 * 50)", {0: 2, 2: 2.39794, 3: 2.30103}),
    case("natural logarithm", "LOG(m2 / 2)", {0: 0, 2: 0.916291, 3: 0.693147}),
    case("filled by a number", "FILL(gap, 0)", {0: 0, 1: 1, 2: 0, 3: 0, 4: 4}),
    case("filled by the last", "FILL(gap, REPEAT)", {1: 1, 2: 1, 3: 1, 4: 4}),
    case("filled by lines", "FILL(gap, LINEAR)", {1: 1, 2: 2, 3: 3, 4: 4}),
    case("filled by a series", "FILL(gap, m2)", {0: 2, 1: 1, 2: 5, 3: 4, 4: 4}),
    case("filled from nothing", "FILL(none, 7)", dict.fromkeys(range(5), 7)),
    case("nothing repeated", "FILL(none, REPEAT)", {}),
    case("no line through nothing", "FILL(none, LINEAR)", {}),
    case("one or the other", "IF(m1 > 4, m1, 0)", {0: 0, 1: 9, 3: 16, 4: 0}),
    case("one or none", "IF(m1 > 4, m2)", {1: 0, 3: 4}),
    case("one number chooses", "IF(SUM(m2) > 10, gap, m1)", {1: 1, 4: 4}),
    case("differences of neighbours", "DIFF(m1)", {1: 5, 3: 7, 4: -17}),
    case("seconds between neighbours", "DIFF_TIME(m1)", {1: 60, 3: 120, 4: 60}),
    case("the rate per second, over a gap", "RATE(gap) * 60", {4: 1}),
    case("the running sum", "RUNNING_SUM(m2)", {0: 2, 1: 2, 2: 7, 3: 11}),
    case("of the sum of a series", "m2 / SUM(m2) * 11", {0: 2, 1: 0, 2: 5, 3: 4}),
    case("the mean of a series", "gap * AVG(m2)", {1: 2.75, 4: 11}),
    case("the ends of a series", "gap * MIN(m2) + MAX(m2)", {1: 5, 4: 5}),
    case("how many points", "gap * COUNT(m2)", {1: 4, 4: 16}),
    case("the deviation", "gap * STDDEV(gap)", {1: 1.5, 4: 6}),
    case("the period of a series", "gap * PERIOD(m1)", {1: 60, 4: 240}),
    case("the mean of nothing is no number", "gap * AVG(none)", {}),
    case("over an array", "SUM([m1, m2])", {0: 6, 1: 9, 2: 5, 3: 20, 4: -1}),
    case("the largest of each", "MAX([m1, m2])", {0: 4, 1: 9, 2: 5, 3: 16, 4: -1}),
    case("of all metrics", "COUNT(METRICS())", {0: 2, 1: 3, 2: 1, 3: 2, 4: 2}),
    case("of some", 'AVG(METRICS("m"))', {0: 3, 1: 4.5, 2: 5, 3: 10, 4: -1}),
    case("one out of an array", "SLICE(METRICS(), 2)", {1: 1, 4: 4}),
    case("the first in an order", "FIRST(SORT(METRICS(), MAX, ASC))", {1: 1, 4: 4}),
    case("a number as a series", "TIME_SERIES(3)", dict.fromkeys(range(5), 3)),
    case("the time of day", "HOUR(gap) + DAY(gap) + MINUTE(gap)", {1: 4, 4: 7}),
    case("the instant itself", "EPOCH(gap) - EPOCH(gap)", {1: 0, 4: 0}),
    case("of what a search found", "SUM(SEARCH('{Mine, Endpoint} m2', 'Sum', 60))",
        {0: 2, 1: 0, 2: 5, 3: 4}),
    case("blanks and exponents", " 1e1*gap\n", {1: 10, 4: 40}),
)  # fmt: skip
def test_an_expression_gives(
    compute: Callable[..., Recovered], expression: str, points: dict[int, float]
) -> None:
    (found,) = compute(expression)
    assert found == pytest.approx(points)


@cases(
    "expression, series",
    case("an array by a number", "METRICS('m') * 2",
        [{0: 8, 1: 18, 3: 32, 4: -2}, {0: 4, 1: 0, 2: 10, 3: 8}]),
    case("an array and a series", "METRICS('m') - gap", [{1: 8, 4: -5}, {1: -1}]),
    case("an array", "[gap, none]", [{1: 1, 4: 4}, {}]),
    case("without the empty ones", "REMOVE_EMPTY([gap, none])", [{1: 1, 4: 4}]),
    case("a part of an array", "SLICE([gap, m1, m2], 0, 1)", [{1: 1, 4: 4}]),
    case("the least of an array", "SORT([m2, gap], SUM, ASC, 1)", [{1: 1, 4: 4}]),
    case("a function of each", "RATE([gap])", [{4: pytest.approx(1 / 60)}]),
    case("a choice for each", "IF([gap] > 1, 5)", [{4: 5}]),
    case("nothing found", "SEARCH('{Mine, Endpoint} nobody', 'Sum', 60)", []),
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
@cases(
    "label, shown",
    case("its own label and its largest value", "${LABEL}: ${MAX}", "gap: 4"),
    case("statistics", "${AVG} ${MIN} ${SUM} ${FIRST} ${LAST}", "2.5 1 5 1 4"),
    case("properties", "${PROP('Dim.Endpoint')}/${PROP('MetricName')}", "e/gap"),
    case("of the query", '${PROP("Stat")} by ${PROP("Period")} s', "Sum by 60 s"),
    case("unknown: stays", "${PROP('Dim.No')} ${NO}", "${PROP('Dim.No')} ${NO}"),
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


@cases(
    "expression, text",
    case("nothing", "", "ends where"),
    case("half an operation", "m1 +", "ends where"),
    case("two values", "m1 m2", "Unexpected 'm2'"),
    case("a sign that is none", "m1 $ m2", r"Unexpected '\$ m2'"),
    case("an open parenthesis", "(m1", r"Expected '\)', found the end"),
    case("an open bracket", "[m1", "Expected ']'"),
    case("one parenthesis too many", "m1)", "Unexpected"),
    case("an open text", "'m1", "Unexpected"),
    case("an id that is nobody's", "nobody", "no query with the id 'nobody'"),
    case("a function in small letters", "sum(m1)", "no function sum"),
    case(
        "a function of AWS that is not here",
        "ANOMALY_DETECTION_BAND(m1)",
        "ANOMALY_DETECTION_BAND: there is no anomaly",
    ),
    case("an unknown function", "NOTHING(m1)", "no function NOTHING"),
    case("too few arguments", "ABS()", "ABS takes 1 arguments, not 0"),
    case("too many arguments", "RATE(m1, m2)", "RATE takes 1 arguments"),
    case("a number", "SUM(m1)", "gives a number, not a time series"),
    case("a text", "'text'", "gives a text"),
    case("a word", "REPEAT", "gives the word REPEAT"),
    case("a text as a number", "m1 + 'x'", r"Unsupported operands for '\+'"),
    case("two arrays", "METRICS() + METRICS()", "Unsupported operands"),
    case("an array of numbers", "[1, 2]", "takes time series, not a number"),
    case("the rate of a number", "RATE(1)", "takes time series, not a number"),
    case("a filler that is none", "FILL(m1, AVG)", "not the word AVG"),
    case("a choice of arrays", "IF(m1, METRICS(), 1)", "not arrays"),
    case("a choice of a text", "IF(m1, 'x')", "not a text"),
    case("an order", "SORT(METRICS(), SUM, UP)", "no query with the id 'UP'"),
    case("an order by a series", "SORT(METRICS(), m1, ASC)", "SORT orders by"),
    case("half an index", "SLICE(METRICS(), 0.5)", "whole numbers"),
    case("an index below 0", "SLICE(METRICS(), -1)", "whole numbers"),
    case("a search for a series", "SEARCH(m1, 'Sum', 60)", "search text"),
    case("a statistic", "SEARCH('x', 'Mean', 60)", "'Mean' is not a statistic"),
    case("no period", "SEARCH('x', 'Sum', 0)", "whole number of seconds"),
    case("a search that is none", "SEARCH('{Mine', 'Sum', 60)", "search"),
    case("itself", "e", "depends on itself"),
    case("too many operators", "m1" + " + m1" * 500, "characters|operators"),
    case("too deep", "(" * 100 + "m1" + ")" * 100, "nested deeper"),
    case("signs without end", "-" * 2000 + "m1 ^" * 10, "ends where"),
    case("a tower of powers", "2^" * 900 + "m1", "nested deeper|operators"),
    case("too long", "m1 " * 700, "at most 2048"),
    case("functions too deep", "ABS(" * 300 + "m1" + ")" * 300, "nested deeper"),
    case("arrays too deep", "[" * 1000 + "]" * 1000, "nested deeper"),
)
def test_a_refusal_has_a_reason(
    compute: Callable[..., Recovered], expression: str, text: str
) -> None:
    query = MetricQuery(id="e", expression=expression)
    for attempt in (lambda: compute(expression), lambda: check_queries((*QUERIES, query))):
        with pytest.raises(ServiceError, match=rf"^Error in expression 'e': .*({text})") as refused:
            attempt()
        assert refused.value.code == "ValidationError"


@cases(
    "queries, text",
    case("neither", [MetricQuery(id="a")], "either"),
    case("an odd id", [MetricQuery(id="9", expression="m1")], "lower-case"),
    case("an id twice", [QUERIES[0]] * 2, "same id"),
    case(
        "a circle",
        [MetricQuery(id="a", expression="b"), MetricQuery(id="b", expression="a")],
        "depends on itself",
    ),
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
