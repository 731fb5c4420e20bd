"""Metrics Insights as programs on boto3 use it: GetMetricData, and an alarm.

Source: CloudWatch user guide, "CloudWatch Metrics Insights" and "Alarms on Metrics Insights
queries", and MetricDataQuery in the API reference (Expression, Period).
"""

from collections.abc import Callable
from typing import Any

import pytest
from botocore.exceptions import ClientError
from tests.cases import case, cases

from hostelry.base.clock import ManualClock
from hostelry.domain.alarm import AlarmState
from hostelry.domain.scope import Scope
from hostelry.metrics.series.store import MemoryMetrics
from hostelry.scaling.loop.alarm_evaluation import evaluate_alarm
from hostelry.store.records import State

M0 = 1_700_000_040
QUERY = 'SELECT AVG(Load) FROM SCHEMA("My App", Host, Zone)'


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(M0 + 300.0)


@pytest.fixture
def cloudwatch(client: Callable[[str], Any]) -> Any:
    """boto3's, after five minutes of two hosts with a load of 1 and of 3."""
    found = client("cloudwatch")
    for host, load in (("a", 1.0), ("b", 3.0)):
        dimensions = [{"Name": "Host", "Value": host}, {"Name": "Zone", "Value": "z"}]
        data = [
            {"MetricName": "Load", "Dimensions": dimensions, "Timestamp": M0 + at, "Value": load}
            for at in range(0, 300, 60)
        ]
        found.put_metric_data(Namespace="My App", MetricData=data)
    return found


def refusal(of: Callable[..., Any], **params: Any) -> tuple[str, str]:
    with pytest.raises(ClientError) as caught:
        of(**params)
    error = caught.value.response["Error"]
    return error["Code"], error["Message"]


def test_get_metric_data_takes_a_query_as_an_expression(cloudwatch: Any) -> None:
    answer = cloudwatch.get_metric_data(
        MetricDataQueries=[
            {"Id": "all", "Expression": QUERY, "Period": 300},
            {
                "Id": "top",
                "Expression": f"{QUERY} WHERE Zone = 'z' GROUP BY Host ORDER BY MAX() DESC LIMIT 1",
                "Period": 60,
                "Label": "busiest",
            },
        ],
        StartTime=M0 - M0 % 300,
        EndTime=M0 + 300,
    )
    whole, top = answer["MetricDataResults"]
    assert (whole["Label"], set(whole["Values"])) == ("all", {2.0})
    assert (top["Label"], top["Values"]) == ("busiest b", [3.0] * 5)
    assert answer["Messages"] == []


def test_a_query_that_cannot_be_read_is_refused_with_its_id_and_place(cloudwatch: Any) -> None:
    wrong = [{"Id": "q1", "Expression": "SELECT AVG(Load) FROM My App", "Period": 60}]
    code, message = refusal(
        cloudwatch.get_metric_data, MetricDataQueries=wrong, StartTime=M0, EndTime=M0 + 60
    )
    assert code == "ValidationError"
    assert message == (
        "Error in expression 'q1': Expected the end, or the next clause in its order, found 'App'"
        " at 26."
    )


def alarm(expression: str, **more: Any) -> dict[str, Any]:
    return {
        "AlarmName": "busy",
        "EvaluationPeriods": 2,
        "Threshold": 1.5,
        "ComparisonOperator": "GreaterThanThreshold",
        "Metrics": [{"Id": "q1", "Expression": expression, **more}],
    }


def test_an_alarm_watches_a_query_of_one_series(
    cloudwatch: Any, state: State, metrics: MemoryMetrics, scope: Scope
) -> None:
    cloudwatch.put_metric_alarm(**alarm(QUERY, Period=60))
    found = state.metric_alarms.get(scope, "busy")
    assert found is not None
    verdict = evaluate_alarm(metrics, found.value, M0 + 302.0)
    assert verdict.state is AlarmState.ALARM
    (shown,) = cloudwatch.describe_alarms(AlarmNames=["busy"])["MetricAlarms"]
    (shown_query,) = shown["Metrics"]
    assert (shown_query["Expression"], shown_query["Period"]) == (QUERY, 60)


@cases(
    "params, message",
    case("one alarm for several series", alarm(f"{QUERY} GROUP BY Host", Period=60),
        "'q1' must give one time series"),
    case("no Period", alarm(QUERY), "the same Period; here there are: none"),
    case("half a query", alarm("SELECT AVG(Load)", Period=60), "Expected FROM, found the end"),
)  # fmt: skip
def test_an_alarm_is_refused_for(cloudwatch: Any, params: dict[str, Any], message: str) -> None:
    code, text = refusal(cloudwatch.put_metric_alarm, **params)
    assert code.startswith("Validation")
    assert message in text
