"""Metrics Insights: the grammar, what it selects, and how it aggregates, groups and orders.

Source: CloudWatch user guide, "Query components and syntax in CloudWatch Metrics Insights" (QL).
"""

import contextlib
from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hostelry.base.clock import ManualClock
from hostelry.base.errors import ServiceError
from hostelry.domain.metric import Metric, MetricQuery, Sample
from hostelry.domain.scope import Scope
from hostelry.metrics.query import queries
from hostelry.metrics.query.insights import (
    FUNCTIONS,
    Condition,
    Insights,
    is_insights,
    parse_insights,
)
from hostelry.metrics.query.math_syntax import ExpressionError
from hostelry.metrics.query.queries import ResultSeries, check_queries, is_single, results
from hostelry.metrics.series.store import MemoryMetrics

SCOPE = Scope("123456789012", "us-west-2")
T0 = 1_700_000_040.0
CPU = "/aws/sagemaker/Endpoints"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param(
            'SELECT AVG(CPUUtilization) FROM "AWS/EC2"',
            Insights(function="AVG", name="CPUUtilization", namespace="AWS/EC2"),
            id="a namespace in double quotation marks",
        ),
        pytest.param(
            "select sum ( Load ) from Own",
            Insights(function="SUM", name="Load", namespace="Own"),
            id="keywords in any case, a plain namespace",
        ),
        pytest.param(
            'SELECT MAX("My.Metric") FROM SCHEMA("AWS/EC2")',
            Insights(function="MAX", name="My.Metric", namespace="AWS/EC2", labels=()),
            id="SCHEMA with a namespace alone: no dimensions",
        ),
        pytest.param(
            r'SELECT AVG("Bytes\"Input\"") FROM SCHEMA(Own, a, "b c")',
            Insights(function="AVG", name='Bytes"Input"', namespace="Own", labels=("a", "b c")),
            id="escaped quotation marks",
        ),
        pytest.param(
            'SELECT AVG("LIMIT") FROM Own LIMIT 500',
            Insights(function="AVG", name="LIMIT", namespace="Own", limit=500),
            id="a keyword as a name, in quotation marks",
        ),
        pytest.param(
            r"SELECT COUNT(x) FROM Own WHERE a = 'it\'s'"
            " AND b != '' AND AWS.AccountId = CURRENT_ACCOUNT_ID() AND AWS.AccountId = 1234",
            Insights(
                function="COUNT",
                name="x",
                namespace="Own",
                conditions=(
                    Condition("a", "it's"),
                    Condition("b", "", is_equal=False),
                    Condition("AWS.AccountId", None),
                    Condition("AWS.AccountId", "1234"),
                ),
            ),
            id="conditions joined by AND",
        ),
        pytest.param(
            "SELECT MIN(x)\nFROM Own\nGROUP BY a, b\nORDER BY MAX() DESC\nLIMIT 10\n",
            Insights(
                function="MIN",
                name="x",
                namespace="Own",
                group_by=("a", "b"),
                order_by="MAX",
                is_descending=True,
                limit=10,
            ),
            id="every clause, over several lines",
        ),
        pytest.param(
            "SELECT MIN(x) FROM Own ORDER BY AVG() ASC",
            Insights(function="MIN", name="x", namespace="Own", order_by="AVG"),
            id="ascending order by name",
        ),
    ],
)
def test_a_query_is_read(text: str, expected: Insights) -> None:
    assert is_insights(text)
    assert parse_insights(text) == expected


FROM = "SELECT AVG(x) FROM Own"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param("SELECT", "one of the functions AVG, COUNT, MAX, MIN, SUM, found the end of "
                     "the query at 7.", id="nothing selected"),
        pytest.param("SELECT P99(x) FROM Own", "found 'P99' at 8.", id="no such function"),
        pytest.param("SELECT AVG(*) FROM Own", "the name of a metric, found '*' at 12.", id="star"),
        pytest.param("SELECT AVG(x FROM Own", "Expected ')', found 'FROM' at 14.", id="not closed"),
        pytest.param("SELECT AVG(x)", "Expected FROM, found the end", id="no source"),
        pytest.param("SELECT AVG(x) FROM AWS/EC2", "Unexpected '/EC2' at 23.", id="bare slash"),
        pytest.param("SELECT AVG(a.b) FROM Own", "'a.b' at 12 must be in double", id="bare dot"),
        pytest.param("SELECT AVG(x) FROM 'Own'", "a namespace or SCHEMA(...), found 'Own' at 20",
                     id="a namespace in single quotation marks"),
        pytest.param('SELECT AVG(x) FROM ""', "a namespace", id="an empty namespace"),
        pytest.param("SELECT AVG(x) FROM SCHEMA()", "a namespace, found ')'", id="empty SCHEMA"),
        pytest.param("SELECT AVG(x) FROM SCHEMA(Own, a, a)", "SCHEMA names 'a' twice, at 35.",
                     id="a label twice"),
        pytest.param("SELECT AVG(LIMIT) FROM Own", "found 'LIMIT' at 12", id="a bare keyword"),
        pytest.param(f'{FROM} WHERE a = "b"', "a value in single quotation marks, found 'b' at 34.",
                     id="a value in double quotation marks"),
        pytest.param(f"{FROM} WHERE a = b", "a value in single quotation marks", id="a bare value"),
        pytest.param(f"{FROM} WHERE a > 'b'", "Unexpected '> 'b'' at 32.", id="no such operator"),
        pytest.param(f"{FROM} WHERE a = 'b' OR a = 'c'", "found 'OR' at 38. Metrics Insights has no"
                     " OR", id="OR"),
        pytest.param(f"{FROM} WHERE a IN ('b')", "Expected = or !=, found 'IN' at 32. Metrics "
                     "Insights has no IN", id="IN"),
        pytest.param(f"{FROM} WHERE tag.env = 'prod'", "no tags of resources here", id="a tag"),
        pytest.param(f"{FROM} WHERE a = 'b", "Unexpected ''b' at 34.", id="a value not closed"),
        pytest.param(f"{FROM} GROUP a", "Expected BY, found 'a' at 30.", id="GROUP without BY"),
        pytest.param(f"{FROM} GROUP BY", "the name of a dimension, found the end", id="no label"),
        pytest.param(f"{FROM} ORDER BY a", "one of the functions", id="order by a label"),
        pytest.param(f"{FROM} ORDER BY MAX(x)", "Expected ')', found 'x'", id="order of a metric"),
        pytest.param(f"{FROM} LIMIT 0", "LIMIT is 1 to 500; it is 0, at 30.", id="LIMIT 0"),
        pytest.param(f"{FROM} LIMIT 501", "LIMIT is 1 to 500; it is 501", id="LIMIT 501"),
        pytest.param(f"{FROM} LIMIT 1e9", "a whole number", id="a LIMIT in another form"),
        pytest.param(f"{FROM} LIMIT {'9' * 1000}", "a whole number", id="a huge LIMIT"),
        pytest.param(f"{FROM} LIMIT 5 WHERE a = 'b'", "the next clause in its order, found 'WHERE'",
                     id="clauses out of order"),
        pytest.param(f"{FROM}; DROP TABLE x", "Unexpected '; DROP TABLE x' at 23.", id="a second"),
        pytest.param(f"{FROM} GROUP BY {'a,' * 2000}", "a query has at most 2048", id="too long"),
        pytest.param("SELECT " + "(" * 2000, "found '(' at 8.", id="two thousand parentheses"),
        pytest.param("SELECT AVG(\u0430) FROM Own", "must be in double", id="a Cyrillic letter"),
    ],
)  # fmt: skip
def test_a_wrong_query_is_refused_with_the_place(text: str, message: str) -> None:
    with pytest.raises(ExpressionError) as caught:
        parse_insights(text)
    assert message in str(caught.value)


@settings(max_examples=300, deadline=None)
@given(st.lists(st.sampled_from(
    ["SELECT", "FROM", "SCHEMA", "WHERE", "AND", "GROUP", "BY", "ORDER", "LIMIT", "AVG", "a", "9",
     '"', "'", "\\", "(", ")", ",", "=", "!=", "!", "'x'", '"y"', "\x00", "\n", "tag.a", "\u00e9"]
), max_size=40))  # fmt: skip
def test_any_text_is_read_or_refused(parts: Sequence[str]) -> None:
    with contextlib.suppress(ExpressionError):
        parse_insights("SELECT " + " ".join(parts))


@pytest.mark.parametrize("text", ["SELECTED", "m1 + m2", "SEARCH('x', 'Sum')", "selection(m1)"])
def test_metric_math_is_no_query(text: str) -> None:
    assert not is_insights(text)


def metric(name: str = "CPUUtilization", **dimensions: str) -> Metric:
    return Metric.of(CPU, name, dimensions)


@pytest.fixture(scope="module")
def store() -> MemoryMetrics:
    """Three variants of two endpoints, in two periods of a minute each."""
    found = MemoryMetrics(ManualClock(T0 + 120))
    rows: Mapping[Metric, Sequence[Sequence[float]]] = {
        metric(EndpointName="x", VariantName="blue"): ([10, 10, 10], [40]),
        metric(EndpointName="x", VariantName="green"): ([70], [20]),
        metric(EndpointName="y", VariantName="blue"): ([50], []),
        metric(EndpointName="x", VariantName="blue", InstanceType="ml.g5"): ([99], []),
        metric(EndpointName="z"): ([5], []),
        metric("Other", EndpointName="x", VariantName="blue"): ([1000], []),
    }
    samples = [
        Sample(metric=it, at=T0 + 60 * minute, values=tuple(map(float, values)))
        for it, minutes in rows.items()
        for minute, values in enumerate(minutes)
        if values
    ]
    found.record(SCOPE, samples)
    return found


def run(store: MemoryMetrics, text: str, label: str | None = None) -> Sequence[ResultSeries]:
    query = MetricQuery(id="q1", expression=text, period_s=60, label=label)
    return results(store, SCOPE, [query], T0, T0 + 120).series["q1"]


def values(series: Sequence[ResultSeries]) -> dict[str, list[float]]:
    return {it.label: [point.value for point in it.points] for it in series}


V = f'FROM SCHEMA("{CPU}", EndpointName, VariantName)'


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param(f"SELECT AVG(CPUUtilization) {V}", {"q1": [30.0, 30.0]},
                     id="the average of all observations, not of averages"),
        pytest.param(f"SELECT COUNT(CPUUtilization) {V}", {"q1": [5.0, 2.0]}, id="their number"),
        pytest.param(f"SELECT SUM(CPUUtilization) {V}", {"q1": [150.0, 60.0]}, id="their sum"),
        pytest.param(f"SELECT MAX(CPUUtilization) {V}", {"q1": [70.0, 40.0]}, id="the largest"),
        pytest.param(f"SELECT MIN(CPUUtilization) {V}", {"q1": [10.0, 20.0]}, id="the smallest"),
        pytest.param(f'SELECT MAX(CPUUtilization) FROM "{CPU}"', {"q1": [99.0, 40.0]},
                     id="without SCHEMA all sets of dimensions"),
        pytest.param(f'SELECT MAX(CPUUtilization) FROM SCHEMA("{CPU}")', {"q1": []},
                     id="SCHEMA without labels: metrics without dimensions, none here"),
        pytest.param(f"SELECT AVG(CPUUtilization) {V} WHERE EndpointName = 'x'"
                     " GROUP BY VariantName", {"blue": [10.0, 40.0], "green": [70.0, 20.0]},
                     id="by variant"),
        pytest.param(f"SELECT SUM(CPUUtilization) {V} GROUP BY VariantName, EndpointName",
                     {"blue x": [30.0, 40.0], "blue y": [50.0], "green x": [70.0, 20.0]},
                     id="labels in the order of GROUP BY"),
        pytest.param(f"SELECT MAX(CPUUtilization) FROM \"{CPU}\" GROUP BY InstanceType",
                     {"Other": [70.0, 40.0], "ml.g5": [99.0]}, id="metrics without the label"),
        pytest.param(f"SELECT MAX(CPUUtilization) FROM \"{CPU}\" WHERE InstanceType != 'ml.g6'",
                     {"q1": [99.0]}, id="another value, of those that have the label"),
        pytest.param(f"SELECT AVG(CPUUtilization) {V} GROUP BY VariantName ORDER BY MAX() DESC"
                     " LIMIT 1", {"green": [70.0, 20.0]}, id="the top one"),
        pytest.param(f"SELECT MAX(CPUUtilization) {V} GROUP BY VariantName ORDER BY MIN()",
                     {"green": [70.0, 20.0], "blue": [50.0, 40.0]}, id="ascending unless said"),
        pytest.param(f"SELECT AVG(CPUUtilization) {V} WHERE AWS.AccountId = CURRENT_ACCOUNT_ID() "
                     "AND EndpointName = 'y' GROUP BY AWS.AccountId", {"123456789012": [50.0]},
                     id="the own account"),
        pytest.param(f"SELECT AVG(CPUUtilization) {V} WHERE AWS.AccountId = '444455556666'",
                     {"q1": []}, id="another account"),
        pytest.param(f"SELECT AVG(CPUUtilization) {V} WHERE EndpointName = 'X'", {"q1": []},
                     id="names in just this case"),
    ],
)  # fmt: skip
def test_a_query_gives(store: MemoryMetrics, text: str, expected: dict[str, list[float]]) -> None:
    found = values(run(store, text))
    assert found == expected
    assert list(found) == list(expected)


def test_labels_and_other_expressions_use_a_query_like_a_search(store: MemoryMetrics) -> None:
    by_variant = f"SELECT AVG(CPUUtilization) {V} GROUP BY VariantName"
    labelled = [it.label for it in run(store, by_variant, label="CPU of")]
    assert labelled == ["CPU of blue", "CPU of green"]
    asked = [
        MetricQuery(id="q1", expression=by_variant, period_s=60),
        MetricQuery(id="e1", expression="MAX(q1) / 2"),
    ]
    found = results(store, SCOPE, asked, T0, T0 + 120).series
    assert values(found["e1"]) == {"e1": [35.0, 20.0]}


def test_limits(store: MemoryMetrics, monkeypatch: pytest.MonkeyPatch) -> None:
    text = f"SELECT AVG(CPUUtilization) {V}"
    query = MetricQuery(id="q1", expression=text, period_s=60)
    with pytest.raises(ServiceError, match="at most two weeks"):
        results(store, SCOPE, [query], T0 - 15 * 86_400, T0)
    monkeypatch.setattr(queries, "MAX_MATCHED", 2)
    assert results(store, SCOPE, [query], T0, T0 + 120).cut == ("q1",)
    monkeypatch.setattr(queries, "READ_WORK", 3_000_000)
    with pytest.raises(ServiceError, match="compute more than"):
        results(store, SCOPE, [query], T0, T0 + 120)


@pytest.mark.parametrize("function", FUNCTIONS)
def test_an_alarm_can_watch_a_query_without_groups(function: str) -> None:
    text = f"SELECT {function}(CPUUtilization) {V}"
    query = MetricQuery(id="q1", expression=text, period_s=60)
    check_queries([query])
    assert is_single([query], "q1")
    grouped = MetricQuery(id="q1", expression=f"{text} GROUP BY VariantName", period_s=60)
    assert not is_single([grouped], "q1")
