"""Alarms through the API, held to botocore's models on both sides."""

from typing import Any

import pytest
from tests.contract.api.cloudwatch.alarm_samples import (
    PLAIN,
    POLICY,
    STAT,
    TOPIC,
    Call,
    composite,
    described,
    make,
    refusal,
    without,
)

from hostelry.base.clock import ManualClock
from hostelry.store.records import State


def test_a_new_alarm_is_described_as_it_was_given(cloudwatch: Call, clock: ManualClock) -> None:
    cloudwatch(
        "PutMetricAlarm",
        **PLAIN,
        AlarmDescription="too busy",
        DatapointsToAlarm=2,
        TreatMissingData="notBreaching",
        AlarmActions=[POLICY, TOPIC, "http://127.0.0.1:9/hook"],
        OKActions=["https://example.com/ok"],
        Unit="Count",
    )
    shown = described(cloudwatch)
    assert {**PLAIN, "Dimensions": shown["Dimensions"]}.items() <= shown.items()
    assert shown["Dimensions"] == PLAIN["Dimensions"]
    assert shown["StateValue"] == "INSUFFICIENT_DATA"
    assert shown["StateReason"] == "Unchecked: Initial alarm creation"
    assert shown["AlarmArn"] == "arn:aws:cloudwatch:us-west-2:123456789012:alarm:high"
    assert shown["ActionsEnabled"] is True
    assert shown["AlarmActions"] == [POLICY, TOPIC, "http://127.0.0.1:9/hook"]
    assert shown["InsufficientDataActions"] == []
    assert (shown["DatapointsToAlarm"], shown["TreatMissingData"]) == (2, "notBreaching")
    assert (shown["Unit"], shown["AlarmDescription"]) == ("Count", "too busy")
    assert shown["StateUpdatedTimestamp"] == clock.now()


def test_an_alarm_on_an_expression_is_described_with_its_queries(cloudwatch: Call) -> None:
    metrics = [
        {"Id": "m1", "MetricStat": STAT, "ReturnData": False},
        {"Id": "m2", "MetricStat": STAT, "ReturnData": False, "Label": "second"},
        {"Id": "e1", "Expression": "m1/m2"},
    ]
    params = {
        name: PLAIN[name]
        for name in ("AlarmName", "EvaluationPeriods", "Threshold", "ComparisonOperator")
    }
    cloudwatch("PutMetricAlarm", **params, Metrics=metrics)
    shown = described(cloudwatch)
    assert [it["Id"] for it in shown["Metrics"]] == ["m1", "m2", "e1"]
    assert [it["ReturnData"] for it in shown["Metrics"]] == [False, False, True]
    assert "MetricName" not in shown
    assert cloudwatch("DescribeAlarmsForMetric", MetricName="Load", Namespace="Own") == {
        "MetricAlarms": []
    }


def test_replacing_an_alarm_keeps_its_state_and_overwrites_the_rest(
    cloudwatch: Call, clock: ManualClock
) -> None:
    cloudwatch("PutMetricAlarm", **PLAIN, AlarmActions=[TOPIC], AlarmDescription="first")
    cloudwatch("SetAlarmState", AlarmName="high", StateValue="ALARM", StateReason="a test")
    clock.advance(60)
    cloudwatch("PutMetricAlarm", **{**PLAIN, "Threshold": 7.0})
    shown = described(cloudwatch)
    assert (shown["StateValue"], shown["StateReason"]) == ("ALARM", "a test")
    assert shown["Threshold"] == 7.0
    assert shown["AlarmActions"] == []
    assert "AlarmDescription" not in shown
    assert shown["AlarmConfigurationUpdatedTimestamp"] == shown["StateUpdatedTimestamp"] + 60


def metrics_with(*queries: dict[str, Any]) -> dict[str, Any]:
    params = {
        name: PLAIN[name]
        for name in ("AlarmName", "EvaluationPeriods", "Threshold", "ComparisonOperator")
    }
    return {**params, "Metrics": list(queries)}


ONE = {"Id": "m1", "MetricStat": STAT}


@pytest.mark.parametrize(
    ("params", "text"),
    [
        pytest.param(without("Threshold"), "Threshold is required", id="no threshold"),
        pytest.param(without("ComparisonOperator"), "ComparisonOperator is", id="no comparison"),
        pytest.param(without("EvaluationPeriods"), "EvaluationPeriods is", id="no periods"),
        pytest.param(without("MetricName"), "MetricName is required", id="no metric"),
        pytest.param(without("Namespace"), "Namespace is required", id="no namespace"),
        pytest.param(without("Period"), "Period is required", id="no period"),
        pytest.param(without("Statistic"), "Exactly one of Statistic", id="no statistic"),
        pytest.param(
            {**PLAIN, "ExtendedStatistic": "p99"}, "Exactly one of Statistic", id="two statistics"
        ),
        pytest.param(
            {**without("Statistic"), "ExtendedStatistic": "p101"}, "p101", id="no such percentile"
        ),
        pytest.param({**PLAIN, "Period": 15}, "any multiple of 60", id="an odd period"),
        pytest.param(
            {**PLAIN, "Period": 60, "EvaluationPeriods": 1441},
            "across more than a day",
            id="more than a day",
        ),
        pytest.param(
            {**PLAIN, "Period": 3600, "EvaluationPeriods": 169},
            "across more than seven days",
            id="more than a week of hours",
        ),
        pytest.param(
            {**PLAIN, "DatapointsToAlarm": 4},
            "DatapointsToAlarm must be less than or equal to EvaluationPeriods",
            id="more to alarm than are evaluated",
        ),
        pytest.param({**PLAIN, "TreatMissingData": "fine"}, "'fine'", id="an unknown treatment"),
        pytest.param(
            {**PLAIN, "EvaluateLowSampleCountPercentile": "ignore"},
            "with a percentile",
            id="few samples of no percentile",
        ),
        pytest.param(
            {**PLAIN, "ComparisonOperator": "GreaterThanUpperThreshold"},
            "anomaly detection",
            id="a band",
        ),
        pytest.param({**PLAIN, "ThresholdMetricId": "ad1"}, "ThresholdMetricId", id="a band's id"),
        pytest.param(
            {**PLAIN, "Dimensions": [{"Name": "A", "Value": "1"}, {"Name": "A", "Value": "2"}]},
            "given twice",
            id="a dimension twice",
        ),
        pytest.param(
            {**PLAIN, "AlarmActions": ["arn:aws:lambda:us-west-2:123456789012:function:f"]},
            "is not supported",
            id="a function",
        ),
        pytest.param(
            {**PLAIN, "OKActions": ["arn:aws:automate:us-west-2:ec2:reboot"]},
            "is not supported",
            id="a machine",
        ),
        pytest.param({**PLAIN, "AlarmActions": ["ftp://a/b"]}, "is not supported", id="ftp"),
        pytest.param({**PLAIN, "AlarmActions": ["http://"]}, "is not supported", id="no host"),
        pytest.param({**PLAIN, "AlarmActions": ["http://a:x/"]}, "not supported", id="no port"),
        pytest.param({**PLAIN, "AlarmName": "a\nb"}, "control characters", id="an odd name"),
        pytest.param({**PLAIN, "Metrics": [ONE]}, "together with Metrics", id="both kinds"),
        pytest.param(metrics_with(ONE, ONE), "Exactly one element", id="two that return data"),
        pytest.param(
            metrics_with({**ONE, "ReturnData": False}), "Exactly one element", id="none returns"
        ),
        pytest.param(metrics_with({**ONE, "Id": "M1"}), "small letter", id="an id in capitals"),
        pytest.param(metrics_with({"Id": "m1"}), "exactly one of MetricStat", id="neither"),
        pytest.param(
            metrics_with(
                {**ONE, "ReturnData": False},
                {"Id": "m2", "MetricStat": {**STAT, "Period": 300}},
            ),
            "same Period",
            id="two periods",
        ),
        pytest.param(
            metrics_with({**ONE, "AccountId": "999999999999"}), "other accounts", id="an account"
        ),
        pytest.param(
            metrics_with(
                *({**ONE, "Id": f"m{it}", "ReturnData": it == 0} for it in range(11)),
            ),
            "at most 10",
            id="eleven metrics",
        ),
        pytest.param(
            metrics_with({"Id": "e1", "Expression": "SEARCH('{Own} Load', 'Sum')", "Period": 60}),
            "SEARCH is not supported",
            id="a search",
        ),
        pytest.param(
            metrics_with({**ONE, "ReturnData": False}, {"Id": "e1", "Expression": "m1 +"}),
            "Invalid metrics list",
            id="an expression that cannot be read",
        ),
        pytest.param(
            metrics_with({**ONE, "MetricStat": {**STAT, "Stat": "Mean"}}), "Mean", id="no statistic"
        ),
    ],
)
def test_what_no_alarm_can_be_is_refused(
    cloudwatch: Call, state: State, params: dict[str, Any], text: str
) -> None:
    refused = refusal(cloudwatch, "PutMetricAlarm", **params)
    assert refused.code == "ValidationException"
    assert text in refused.message
    assert state.metric_alarms.list() == []


def test_a_composite_alarm_is_described_with_its_rule_and_suppressor(cloudwatch: Call) -> None:
    make(cloudwatch, "a", "b", "quiet")
    composite(
        cloudwatch,
        "both",
        "ALARM(a) AND NOT OK(b)",
        ActionsSuppressor="quiet",
        ActionsSuppressorWaitPeriod=60,
        ActionsSuppressorExtensionPeriod=30,
        AlarmActions=[TOPIC],
    )
    assert cloudwatch("DescribeAlarms")["CompositeAlarms"] == []
    shown = cloudwatch("DescribeAlarms", AlarmTypes=["CompositeAlarm"])["CompositeAlarms"][0]
    assert shown["AlarmRule"] == "ALARM(a) AND NOT OK(b)"
    assert shown["ActionsSuppressor"] == "quiet"
    assert shown["StateValue"] == "INSUFFICIENT_DATA"
    cloudwatch("SetAlarmState", AlarmName="both", StateValue="ALARM", StateReason="a test")
    cloudwatch("SetAlarmState", AlarmName="quiet", StateValue="ALARM", StateReason="a test")
    shown = cloudwatch("DescribeAlarms", AlarmTypes=["CompositeAlarm"])["CompositeAlarms"][0]
    assert shown["ActionsSuppressedBy"] == "Alarm"
    assert "quiet" in shown["ActionsSuppressedReason"]


@pytest.mark.parametrize(
    ("params", "text"),
    [
        pytest.param({"AlarmRule": "ALARM(a"}, "cannot be used", id="a rule that cannot be read"),
        pytest.param({"AlarmRule": "ALARM(gone) OR OK(far)"}, "[gone, far]", id="unknown alarms"),
        pytest.param({"AlarmRule": "ALARM(new)"}, "new -> new", id="itself"),
        pytest.param({"AlarmRule": "TRUE", "AlarmActions": [POLICY]}, "composite", id="a policy"),
        pytest.param(
            {"AlarmRule": "TRUE", "ActionsSuppressor": "a"}, "given together", id="no periods"
        ),
        pytest.param(
            {
                "AlarmRule": "TRUE",
                "ActionsSuppressor": "gone",
                "ActionsSuppressorWaitPeriod": 1,
                "ActionsSuppressorExtensionPeriod": 1,
            },
            "no alarm",
            id="an unknown suppressor",
        ),
        pytest.param(
            {
                "AlarmRule": "TRUE",
                "ActionsSuppressor": "a",
                "ActionsSuppressorWaitPeriod": -1,
                "ActionsSuppressorExtensionPeriod": 1,
            },
            "0 to",
            id="a negative wait",
        ),
        pytest.param({"AlarmRule": "TRUE", "AlarmName": "a"}, "metric alarm", id="a taken name"),
    ],
)
def test_what_no_composite_alarm_can_be_is_refused(
    cloudwatch: Call, params: dict[str, Any], text: str
) -> None:
    make(cloudwatch, "a")
    refused = refusal(cloudwatch, "PutCompositeAlarm", **{"AlarmName": "new", **params})
    assert refused.code == "ValidationException"
    assert text in refused.message


def test_a_cycle_of_composite_alarms_is_refused(cloudwatch: Call) -> None:
    composite(cloudwatch, "one", "TRUE")
    composite(cloudwatch, "two", "ALARM(one)")
    composite(cloudwatch, "three", "ALARM(two)")
    refused = refusal(cloudwatch, "PutCompositeAlarm", AlarmName="one", AlarmRule="ALARM(three)")
    assert "one -> three -> two -> one" in refused.message


def test_a_metric_alarm_cannot_take_the_name_of_a_composite(cloudwatch: Call) -> None:
    composite(cloudwatch, "high", "TRUE")
    assert "composite alarm" in refusal(cloudwatch, "PutMetricAlarm", **PLAIN).message


@pytest.mark.parametrize(
    ("params", "names"),
    [
        pytest.param({}, ["a1", "a2", "b1"], id="all metric alarms"),
        pytest.param({"AlarmNamePrefix": "a"}, ["a1", "a2"], id="a prefix"),
        pytest.param({"AlarmNames": ["b1", "gone"]}, ["b1"], id="names, also of none"),
        pytest.param({"StateValue": "ALARM"}, ["a2"], id="a state"),
        pytest.param({"ActionPrefix": TOPIC[:20]}, ["b1"], id="an action"),
        pytest.param({"AlarmTypes": ["CompositeAlarm"]}, ["both"], id="composite alarms"),
        pytest.param(
            {"AlarmTypes": ["CompositeAlarm", "MetricAlarm"]},
            ["a1", "a2", "b1", "both"],
            id="all kinds",
        ),
        pytest.param({"ChildrenOfAlarmName": "both"}, ["a1", "b1"], id="children"),
        pytest.param({"ParentsOfAlarmName": "b1"}, ["both"], id="parents"),
        pytest.param({"ParentsOfAlarmName": "a2"}, [], id="no parents"),
    ],
)
def test_alarms_are_found(cloudwatch: Call, params: dict[str, Any], names: list[str]) -> None:
    make(cloudwatch, "a1", "a2")
    make(cloudwatch, "b1", OKActions=[TOPIC])
    composite(cloudwatch, "both", "ALARM(a1) OR ALARM(b1)")
    cloudwatch("SetAlarmState", AlarmName="a2", StateValue="ALARM", StateReason="a test")
    found = cloudwatch("DescribeAlarms", **params)
    shown = found["MetricAlarms"] + found["CompositeAlarms"]
    assert sorted(it["AlarmName"] for it in shown) == names


def test_filters_that_exclude_each_other_are_refused(cloudwatch: Call) -> None:
    for params in (
        {"AlarmNames": ["a"], "AlarmNamePrefix": "a"},
        {"ChildrenOfAlarmName": "a", "StateValue": "OK"},
        {"ParentsOfAlarmName": "a", "ChildrenOfAlarmName": "b"},
    ):
        assert "together" in refusal(cloudwatch, "DescribeAlarms", **params).message


def test_alarms_come_in_pages(cloudwatch: Call) -> None:
    make(cloudwatch, *(f"a{it}" for it in range(5)))
    composite(cloudwatch, "a2x", "TRUE")
    types = {"AlarmTypes": ["MetricAlarm", "CompositeAlarm"], "MaxRecords": 2}
    names: list[str] = []
    token: dict[str, str] = {}
    while True:
        page = cloudwatch("DescribeAlarms", **types, **token)
        names += [it["AlarmName"] for it in page["MetricAlarms"] + page["CompositeAlarms"]]
        if "NextToken" not in page:
            break
        token = {"NextToken": page["NextToken"]}
    assert names == ["a0", "a1", "a2", "a2x", "a3", "a4"]
    for params in ({**types, "NextToken": "x"}, {**token, "StateValue": "OK"}):
        assert refusal(cloudwatch, "DescribeAlarms", **params).code == "InvalidNextToken"


def test_alarms_of_a_metric_are_found(cloudwatch: Call) -> None:
    make(cloudwatch, "a")
    make(cloudwatch, "minute", Period=60)
    make(cloudwatch, "other", Dimensions=[])
    asked = {name: PLAIN[name] for name in ("MetricName", "Namespace", "Dimensions")}
    found = cloudwatch("DescribeAlarmsForMetric", **asked)["MetricAlarms"]
    assert [it["AlarmName"] for it in found] == ["a", "minute"]
    found = cloudwatch("DescribeAlarmsForMetric", **asked, Period=60, Statistic="Maximum")
    assert [it["AlarmName"] for it in found["MetricAlarms"]] == ["minute"]
