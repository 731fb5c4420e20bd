"""Messages of GetMetricData, and the situations in which they come.

Sources: Messages of GetMetricData ("Maximum number of allowed metrics exceeded"), Messages and
StatusCode of MetricDataResult, and the codes as Grafana's CloudWatch data source reads them.
"""

from collections.abc import Callable
from typing import Any

import pytest
from tests.cases import case, cases
from tests.contract.api.rig import Api

from hostelry.base.clock import ManualClock
from hostelry.domain.metric import Metric, Sample
from hostelry.domain.scope import Scope
from hostelry.metrics.series.store import MemoryMetrics

MINUTE = 1_700_000_040.0


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(MINUTE + 130)


@pytest.fixture
def ask(api: Api) -> Callable[..., dict[str, Any]]:
    """`ask(*expressions, **params)` over Load 4, 0, 2 and Calls 8, 8, 8 of three minutes.

    The expressions' ids are e0, e1 and so on.
    """
    for name, values in (("Load", (4.0, 0.0, 2.0)), ("Calls", (8.0, 8.0, 8.0))):
        metric = Metric.of("Mine", name, {})
        for number, value in enumerate(values):
            at = MINUTE + 60 * number
            api.metrics.record(api.scope, [Sample(metric=metric, at=at, values=(value,))])

    def ask(*expressions: str, **params: Any) -> dict[str, Any]:
        queries: list[dict[str, Any]] = [
            {
                "Id": name.lower(),
                "MetricStat": {
                    "Metric": {"Namespace": "Mine", "MetricName": name},
                    "Period": 60,
                    "Stat": "Sum",
                },
                "ReturnData": False,
            }
            for name in ("Load", "Calls", "Nothing")
        ]
        queries += [{"Id": f"e{at}", "Expression": it} for at, it in enumerate(expressions)]
        given = {"StartTime": MINUTE, "EndTime": MINUTE + 180, **params}
        return api.call("GetMetricData", "cloudwatch", MetricDataQueries=queries, **given)

    return ask


@cases(
    "expression, num_points, is_reported",
    case("a division by zero", "calls / load", 2, True),
    case("the logarithm of zero", "LOG(load)", 2, True),
    case("beyond all numbers", "calls ^ (calls ^ (calls * calls))", 0, True),
    case("by the average of no points", "calls / AVG(nothing)", 0, True),
    case("in a part of a sum", "SUM([calls / load, calls])", 3, True),
    case("before a rate", "RATE(calls / load)", 1, True),
    case("in a branch", "IF(load > 9, 1, calls / load)", 2, True),
    case("numbers only", "calls / (load + 1)", 3, False),
    case("a gap that is filled", "FILL(calls / load, 0)", 3, False),
    case("no point to divide by", "calls / nothing", 0, False),
    case("no value chosen", "IF(load, calls)", 2, False),
    case("nothing to fill with", "FILL(nothing, REPEAT)", 0, False),
    case("nothing found", "SEARCH('{Mine} Nowhere', 'Sum', 60)", 0, False),
)
def test_a_result_reports_values_that_are_no_numbers(
    ask: Callable[..., dict[str, Any]], expression: str, num_points: int, is_reported: bool
) -> None:
    answer = ask(expression)
    assert answer["Messages"] == []
    found = answer["MetricDataResults"]
    assert sum(len(it["Values"]) for it in found) == num_points
    reported = [message["Code"] for it in found for message in it.get("Messages", ())]
    assert reported == (["ArithmeticError"] if is_reported else [])
    assert {it["StatusCode"] for it in found} <= {"Complete"}


def test_what_an_expression_names_is_reported_with_it(ask: Callable[..., dict[str, Any]]) -> None:
    found = ask("calls / load", "e0 * 2", "calls * 2")["MetricDataResults"]
    assert [len(it.get("Messages", ())) for it in found] == [1, 1, 0]


def test_of_an_array_only_the_series_that_lack_points_report_it(
    ask: Callable[..., dict[str, Any]],
) -> None:
    found = ask("8 / [load, calls]")["MetricDataResults"]
    assert [(len(it["Values"]), len(it.get("Messages", ()))) for it in found] == [(2, 1), (3, 0)]


@cases(
    "num_metrics, is_reported",
    case("as many as a SEARCH may find", 500, False),
    case("one more", 501, True),
)
def test_a_search_that_is_cut_is_reported(
    ask: Callable[..., dict[str, Any]],
    metrics: MemoryMetrics,
    scope: Scope,
    num_metrics: int,
    is_reported: bool,
) -> None:
    for number in range(num_metrics):
        metric = Metric.of("Many", f"Name{number}", {})
        metrics.record(scope, [Sample(metric=metric, at=MINUTE, values=(1.0,))])
    search = "SEARCH('{Many}', 'Sum', 60)"
    answer = ask(f"SUM({search})", "calls", f"METRIC_COUNT({search}) * calls")
    summed, *_ = answer["MetricDataResults"]
    assert summed["Values"] == [500.0]
    reported = [(it["Code"], "e0, e2 finds" in it["Value"]) for it in answer["Messages"]]
    assert reported == ([("MaxMetricsExceeded", True)] if is_reported else [])
    assert all("Messages" not in it for it in answer["MetricDataResults"])


def test_only_what_a_page_cuts_is_partial(ask: Callable[..., dict[str, Any]]) -> None:
    first = ask("calls * 1", "load * 1", "nothing * 1", MaxDatapoints=4)
    status = [(it["Id"], it["StatusCode"]) for it in first["MetricDataResults"]]
    assert status == [("e0", "Complete"), ("e1", "PartialData")]
    rest = ask(
        "calls * 1", "load * 1", "nothing * 1", MaxDatapoints=4, NextToken=first["NextToken"]
    )
    status = [(it["Id"], it["StatusCode"]) for it in rest["MetricDataResults"]]
    assert status == [("e1", "Complete"), ("e2", "Complete")]
    assert "NextToken" not in rest
