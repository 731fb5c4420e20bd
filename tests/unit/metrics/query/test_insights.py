"""Metrics Insights: grammar, selection, aggregation, grouping and order.

Source: CloudWatch user guide, "Query components and syntax in CloudWatch Metrics Insights" (QL).
"""

import contextlib
from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.cases import case, cases

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


@cases(
    "text, expected",
    case(
        "a namespace in double quotation marks",
        'SELECT AVG(CPUUtilization) FROM "AWS/EC2"',
        Insights(function="AVG", name="CPUUtilization", namespace="AWS/EC2"),
    ),
    case(
        "keywords in any case, a plain namespace",
        "select sum ( Load ) from Own",
        Insights(function="SUM", name="Load", namespace="Own"),
    ),
    case(
        "SCHEMA with a namespace alone: no dimensions",
        'SELECT MAX("My.Metric") FROM SCHEMA("AWS/EC2")',
        Insights(function="MAX", name="My.Metric", namespace="AWS/EC2", labels=()),
    ),
    case(
        "escaped quotation marks",
        r'SELECT AVG("Bytes\"Input\"") FROM SCHEMA(Own, a, "b c")',
        Insights(function="AVG", name='Bytes"Input"', namespace="Own", labels=("a", "b c")),
    ),
    case(
        "a keyword as a name, in quotation marks",
        'SELECT AVG("LIMIT") FROM Own LIMIT 500',
        Insights(function="AVG", name="LIMIT", namespace="Own", limit=500),
    ),
    case(
        "conditions joined by AND",
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
    ),
    case(
        "every clause, over several lines",
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
    ),
    case(
        "ascending order by name",
        "SELECT MIN(x) FROM Own ORDER BY AVG() ASC",
        Insights(function="MIN", name="x", namespace="Own", order_by="AVG"),
    ),
)
def test_a_query_is_read(text: str, expected: Insights) -> None:
    assert is_insights(text)
    assert parse_insights(text) == expected


FROM = "SELECT AVG(x) FROM Own"


@cases(
    "text, message",
    case("nothing selected", "SELECT",
        "one of the functions AVG, COUNT, MAX, MIN, SUM, found the end of " "the query at 7."),
    case("no such function", "SELECT P99(x) FROM Own", "found 'P99' at 8."),
    case("star", "SELECT AVG(*) FROM Own", "the name of a metric, found '*' at 12."),
    case("not closed", "SELECT AVG(x FROM Own", "Expected ')', found 'FROM' at 14."),
    case("no source", "SELECT AVG(x)", "Expected FROM, found the end"),
    case("bare slash", "SELECT AVG(x) FROM AWS/EC2", "Unexpected '/EC2' at 23."),
    case("bare dot", "SELECT AVG(a.b) FROM Own", "'a.b' at 12 must be in double"),
    case("a namespace in single quotation marks", "SELECT AVG(x) FROM 'Own'",
        "a namespace or SCHEMA(...), found 'Own' at 20"),
    case("an empty namespace", 'SELECT AVG(x) FROM ""', "a namespace"),
    case("empty SCHEMA", "SELECT AVG(x) FROM SCHEMA()", "a namespace, found ')'"),
    case("a label twice", "SELECT AVG(x) FROM SCHEMA(Own, a, a)", "SCHEMA names 'a' twice, at 35."),
    case("a bare keyword", "SELECT AVG(LIMIT) FROM Own", "found 'LIMIT' at 12"),
    case("a value in double quotation marks", f'{FROM} WHERE a = "b"',
        "a value in single quotation marks, found 'b' at 34."),
    case("a bare value", f"{FROM} WHERE a = b", "a value in single quotation marks"),
    case("no such operator", f"{FROM} WHERE a > 'b'", "Unexpected '> 'b'' at 32."),
    case("OR", f"{FROM} WHERE a = 'b' OR a = 'c'",
        "found 'OR' at 38. Metrics Insights has no" " OR"),
    case("IN", f"{FROM} WHERE a IN ('b')",
        "Expected = or !=, found 'IN' at 32. Metrics " "Insights has no IN"),
    case("a tag", f"{FROM} WHERE tag.env = 'prod'", "no tags of resources here"),
    case("a value not closed", f"{FROM} WHERE a = 'b", "Unexpected ''b' at 34."),
    case("GROUP without BY", f"{FROM} GROUP a", "Expected BY, found 'a' at 30."),
    case("no label", f"{FROM} GROUP BY", "the name of a dimension, found the end"),
    case("order by a label", f"{FROM} ORDER BY a", "one of the functions"),
    case("order of a metric", f"{FROM} ORDER BY MAX(x)", "Expected ')', found 'x'"),
    case("LIMIT 0", f"{FROM} LIMIT 0", "LIMIT is 1 to 500; it is 0, at 30."),
    case("LIMIT 501", f"{FROM} LIMIT 501", "LIMIT is 1 to 500; it is 501"),
    case("a LIMIT in another form", f"{FROM} LIMIT 1e9", "a whole number"),
    case("a huge LIMIT", f"{FROM} LIMIT {'9' * 1000}", "a whole number"),
    case("clauses out of order", f"{FROM} LIMIT 5 WHERE a = 'b'",
        "the next clause in its order, found 'WHERE'"),
    case("a second", f"{FROM}; DROP TABLE x", "Unexpected '; DROP TABLE x' at 23."),
    case("too long", f"{FROM} GROUP BY {'a,' * 2000}", "a query has at most 2048"),
    case("two thousand parentheses", "SELECT " + "(" * 2000, "found '(' at 8."),
    case("a Cyrillic letter", "SELECT AVG(\u0430) FROM Own", "must be in double"),
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


@cases(
    "text, expected",
    case("the average of all observations, not of averages", f"SELECT AVG(CPUUtilization) {V}",
        {"q1": [30.0, 30.0]}),
    case("their number", f"SELECT COUNT(CPUUtilization) {V}", {"q1": [5.0, 2.0]}),
    case("their sum", f"SELECT SUM(CPUUtilization) {V}", {"q1": [150.0, 60.0]}),
    case("the largest", f"SELECT MAX(CPUUtilization) {V}", {"q1": [70.0, 40.0]}),
    case("the smallest", f"SELECT MIN(CPUUtilization) {V}", {"q1": [10.0, 20.0]}),
    case("without SCHEMA all sets of dimensions", f'SELECT MAX(CPUUtilization) FROM "{CPU}"',
        {"q1": [99.0, 40.0]}),
    case("SCHEMA without labels: metrics without dimensions, none here",
        f'SELECT MAX(CPUUtilization) FROM SCHEMA("{CPU}")', {"q1": []}),
    case("by variant",
        f"SELECT AVG(CPUUtilization) {V} WHERE EndpointName = 'x'" " GROUP BY VariantName",
        {"blue": [10.0, 40.0], "green": [70.0, 20.0]}),
    case("labels in the order of GROUP BY",
        f"SELECT SUM(CPUUtilization) {V} GROUP BY VariantName, EndpointName",
        {"blue x": [30.0, 40.0], "blue y": [50.0], "green x": [70.0, 20.0]}),
    case("metrics without the label",
        f"SELECT MAX(CPUUtilization) FROM \"{CPU}\" GROUP BY InstanceType",
        {"Other": [70.0, 40.0], "ml.g5": [99.0]}),
    case("another value, of those that have the label",
        f"SELECT MAX(CPUUtilization) FROM \"{CPU}\" WHERE InstanceType != 'ml.g6'", {"q1": [99.0]}),
    case("the top one",
        f"SELECT AVG(CPUUtilization) {V} GROUP BY VariantName ORDER BY MAX() DESC" " LIMIT 1",
        {"green": [70.0, 20.0]}),
    case("ascending unless said",
        f"SELECT MAX(CPUUtilization) {V} GROUP BY VariantName ORDER BY MIN()",
        {"green": [70.0, 20.0], "blue": [50.0, 40.0]}),
    case("the own account",
        f"SELECT AVG(CPUUtilization) {V} WHERE AWS.AccountId = CURRENT_ACCOUNT_ID() "
                 "AND EndpointName = 'y' GROUP BY AWS.AccountId", {"123456789012": [50.0]}),
    case("another account", f"SELECT AVG(CPUUtilization) {V} WHERE AWS.AccountId = '444455556666'",
        {"q1": []}),
    case("names in just this case", f"SELECT AVG(CPUUtilization) {V} WHERE EndpointName = 'X'",
        {"q1": []}),
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
