"""Alarms through botocore in each of CloudWatch's three dialects, in process."""

from collections.abc import Callable
from typing import Any

import pytest
from tests.cases import case, cases

from hostelry.api.context import CallContext
from hostelry.api.operations import perform
from hostelry.aws.call import ApiCall, parse_call, serialize_error, serialize_result
from hostelry.aws.target import CBOR, JSON, QUERY
from hostelry.base.clock import ManualClock
from hostelry.base.errors import ServiceError
from hostelry.domain.scope import Scope
from hostelry.domain.shape import Shape
from hostelry.metrics.series.store import MemoryMetrics
from hostelry.store.memory import MemoryStore
from hostelry.store.records import open_state

Ask = Callable[..., dict[str, Any]]
ALARM: dict[str, Any] = {
    "AlarmName": "busy \u00e9",
    "Namespace": "Own",
    "Period": 10,
    "EvaluationPeriods": 3,
    "DatapointsToAlarm": 2,
    "Threshold": 5.5,
    "ComparisonOperator": "GreaterThanThreshold",
    "MetricName": "Load",
    "Dimensions": [{"Name": "a", "Value": "1"}, {"Name": "b", "Value": "2"}],
    "ExtendedStatistic": "p99.9",
    "TreatMissingData": "breaching",
    "EvaluateLowSampleCountPercentile": "ignore",
    "AlarmActions": ["http://127.0.0.1:1/hook?a=b&c=d"],
    "ActionsEnabled": False,
    "Tags": [{"Key": "team", "Value": "x"}],
}


@pytest.fixture(params=[JSON, QUERY, CBOR])
def ask(request: pytest.FixtureRequest, client: Any) -> Ask:
    """`ask(operation, **params)` returns the answer as botocore reads it in one protocol."""
    state = open_state(MemoryStore())

    def ask(operation: str, **params: Any) -> dict[str, Any]:
        asking = client(service="cloudwatch", operation=operation, protocol=request.param)
        arrived = asking.request(params)
        context = CallContext(
            scope=Scope("123456789012", "us-west-2"),
            state=state,
            now=1_700_000_000.0,
            get_shape=lambda _: Shape(cpus=1, memory_bytes=1),
            role_arn="",
            role_name="",
            metrics=MemoryMetrics(ManualClock()),
        )
        call: ApiCall | None = None
        try:
            call = parse_call(arrived, "id")
            result = perform(context, call.service, call.operation, call.params)
            response = serialize_result(call, result)
        except ServiceError as error:
            response = serialize_error(error, call, "id", arrived)
        found: dict[str, Any] = asking.read(response)
        return found

    return ask


def test_an_alarm_is_put_and_described(ask: Ask) -> None:
    ask("PutMetricAlarm", **ALARM)
    (shown,) = ask("DescribeAlarms", AlarmNames=[ALARM["AlarmName"]])["MetricAlarms"]
    assert {name: shown.get(name) for name in ALARM if name != "Tags"} == {
        name: value for name, value in ALARM.items() if name != "Tags"
    }
    assert shown["StateValue"] == "INSUFFICIENT_DATA"
    assert shown["StateUpdatedTimestamp"].timestamp() == 1_700_000_000.0
    tags = ask("ListTagsForResource", ResourceARN=shown["AlarmArn"])["Tags"]
    assert tags == ALARM["Tags"]
    found = ask(
        "DescribeAlarmsForMetric",
        MetricName="Load",
        Namespace="Own",
        Dimensions=ALARM["Dimensions"],
    )
    assert len(found["MetricAlarms"]) == 1


def test_an_alarm_on_an_expression_and_a_composite_are_put_and_described(ask: Ask) -> None:
    stat = {"Metric": {"Namespace": "Own", "MetricName": "Load"}, "Period": 60, "Stat": "Sum"}
    metrics = [
        {"Id": "m1", "MetricStat": stat, "ReturnData": False},
        {"Id": "e1", "Expression": "m1 * 2", "Label": "twice", "ReturnData": True},
    ]
    shared = ("EvaluationPeriods", "Threshold", "ComparisonOperator")
    ask("PutMetricAlarm", AlarmName="e", Metrics=metrics, **{it: ALARM[it] for it in shared})
    ask("PutCompositeAlarm", AlarmName="c", AlarmRule='ALARM("e") AND NOT OK(e)')
    found = ask("DescribeAlarms", AlarmTypes=["MetricAlarm", "CompositeAlarm"])
    assert [it["Id"] for it in found["MetricAlarms"][0]["Metrics"]] == ["m1", "e1"]
    assert found["MetricAlarms"][0]["Metrics"][0]["MetricStat"]["Stat"] == "Sum"
    assert found["CompositeAlarms"][0]["AlarmRule"] == 'ALARM("e") AND NOT OK(e)'


def test_a_state_that_is_set_is_in_the_history(ask: Ask) -> None:
    ask("PutMetricAlarm", **ALARM)
    name = ALARM["AlarmName"]
    ask("SetAlarmState", AlarmName=name, StateValue="ALARM", StateReason="a <test> & more")
    items = ask("DescribeAlarmHistory", AlarmName=name, MaxRecords=1)
    assert items["AlarmHistoryItems"][0]["HistorySummary"] == (
        "Alarm updated from INSUFFICIENT_DATA to ALARM"
    )
    more = ask("DescribeAlarmHistory", AlarmName=name, MaxRecords=1, NextToken=items["NextToken"])
    assert more["AlarmHistoryItems"][0]["HistoryItemType"] == "ConfigurationUpdate"
    ask("EnableAlarmActions", AlarmNames=[name])
    ask("DeleteAlarms", AlarmNames=[name])
    assert ask("DescribeAlarms")["MetricAlarms"] == []


@cases(
    "operation, params, code",
    case("a bad period", "PutMetricAlarm", {**ALARM, "Period": 15}, "ValidationError"),
    case(
        "an unknown alarm",
        "SetAlarmState",
        {"AlarmName": "gone", "StateValue": "OK", "StateReason": ""},
        "ResourceNotFound",
    ),
    case("a token of nobody's", "DescribeAlarms", {"NextToken": "odd"}, "InvalidNextToken"),
    case("no periods", "PutMetricAlarm", {**ALARM, "EvaluationPeriods": 0}, "ValidationError"),
)
def test_refusals_have_cloudwatchs_own_codes(
    ask: Ask, operation: str, params: dict[str, Any], code: str
) -> None:
    answer = ask(operation, **params)
    answered = answer["Error"].get("QueryErrorCode") or answer["Error"]["Code"]
    modelled = {"ValidationError": ("ValidationError", "ValidationException")}
    assert answered in modelled.get(code, (code,))
    assert answer["ResponseMetadata"]["HTTPStatusCode"] in (400, 404)
