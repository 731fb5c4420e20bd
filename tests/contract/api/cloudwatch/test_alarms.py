"""Alarms through the API, held to botocore's models on both sides."""

from typing import Any

from tests.cases import case, cases
from tests.contract.api.cloudwatch.alarm_samples import (
    PLAIN,
    POLICY,
    STAT,
    TOPIC,
    composite,
    described,
    make,
    refusal,
    without,
)
from tests.contract.api.rig import Api


def test_a_new_alarm_is_described_as_it_was_given(api: Api) -> None:
    api.cloudwatch(
        "PutMetricAlarm",
        **PLAIN,
        AlarmDescription="too busy",
        DatapointsToAlarm=2,
        TreatMissingData="notBreaching",
        AlarmActions=[POLICY, TOPIC, "http://127.0.0.1:9/hook"],
        OKActions=["https://example.com/ok"],
        Unit="Count",
    )
    shown = described(api)
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
    assert shown["StateUpdatedTimestamp"] == api.clock.now()


def test_an_alarm_on_an_expression_is_described_with_its_queries(api: Api) -> None:
    metrics = [
        {"Id": "m1", "MetricStat": STAT, "ReturnData": False},
        {"Id": "m2", "MetricStat": STAT, "ReturnData": False, "Label": "second"},
        {"Id": "e1", "Expression": "m1/m2"},
    ]
    params = {
        name: PLAIN[name]
        for name in ("AlarmName", "EvaluationPeriods", "Threshold", "ComparisonOperator")
    }
    api.cloudwatch("PutMetricAlarm", **params, Metrics=metrics)
    shown = described(api)
    assert [it["Id"] for it in shown["Metrics"]] == ["m1", "m2", "e1"]
    assert [it["ReturnData"] for it in shown["Metrics"]] == [False, False, True]
    assert "MetricName" not in shown
    assert api.cloudwatch("DescribeAlarmsForMetric", MetricName="Load", Namespace="Own") == {
        "MetricAlarms": []
    }


def test_replacing_an_alarm_keeps_its_state_and_overwrites_the_rest(api: Api) -> None:
    api.cloudwatch("PutMetricAlarm", **PLAIN, AlarmActions=[TOPIC], AlarmDescription="first")
    api.cloudwatch("SetAlarmState", AlarmName="high", StateValue="ALARM", StateReason="a test")
    api.clock.advance(60)
    api.cloudwatch("PutMetricAlarm", **{**PLAIN, "Threshold": 7.0})
    shown = described(api)
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


@cases(
    "params, text",
    case("no threshold", without("Threshold"), "Threshold is required"),
    case("no comparison", without("ComparisonOperator"), "ComparisonOperator is"),
    case("no periods", without("EvaluationPeriods"), "EvaluationPeriods is"),
    case("no metric", without("MetricName"), "MetricName is required"),
    case("no namespace", without("Namespace"), "Namespace is required"),
    case("no period", without("Period"), "Period is required"),
    case("no statistic", without("Statistic"), "Exactly one of Statistic"),
    case("two statistics", {**PLAIN, "ExtendedStatistic": "p99"}, "Exactly one of Statistic"),
    case("no such percentile", {**without("Statistic"), "ExtendedStatistic": "p101"}, "p101"),
    case("an odd period", {**PLAIN, "Period": 15}, "any multiple of 60"),
    case(
        "more than a day",
        {**PLAIN, "Period": 60, "EvaluationPeriods": 1441},
        "across more than a day",
    ),
    case(
        "more than a week of hours",
        {**PLAIN, "Period": 3600, "EvaluationPeriods": 169},
        "across more than seven days",
    ),
    case(
        "more to alarm than are evaluated",
        {**PLAIN, "DatapointsToAlarm": 4},
        "DatapointsToAlarm must be less than or equal to EvaluationPeriods",
    ),
    case("an unknown treatment", {**PLAIN, "TreatMissingData": "fine"}, "'fine'"),
    case(
        "few samples of no percentile",
        {**PLAIN, "EvaluateLowSampleCountPercentile": "ignore"},
        "with a percentile",
    ),
    case(
        "a band", {**PLAIN, "ComparisonOperator": "GreaterThanUpperThreshold"}, "anomaly detection"
    ),
    case("a band's id", {**PLAIN, "ThresholdMetricId": "ad1"}, "ThresholdMetricId"),
    case(
        "a dimension twice",
        {**PLAIN, "Dimensions": [{"Name": "A", "Value": "1"}, {"Name": "A", "Value": "2"}]},
        "given twice",
    ),
    case(
        "a function",
        {**PLAIN, "AlarmActions": ["arn:aws:lambda:us-west-2:123456789012:function:f"]},
        "is not supported",
    ),
    case(
        "a machine",
        {**PLAIN, "OKActions": ["arn:aws:automate:us-west-2:ec2:reboot"]},
        "is not supported",
    ),
    case("ftp", {**PLAIN, "AlarmActions": ["ftp://a/b"]}, "is not supported"),
    case("no host", {**PLAIN, "AlarmActions": ["http://"]}, "is not supported"),
    case("no port", {**PLAIN, "AlarmActions": ["http://a:x/"]}, "not supported"),
    case("an odd name", {**PLAIN, "AlarmName": "a\nb"}, "control characters"),
    case("both kinds", {**PLAIN, "Metrics": [ONE]}, "together with Metrics"),
    case("two that return data", metrics_with(ONE, ONE), "Exactly one element"),
    case("none returns", metrics_with({**ONE, "ReturnData": False}), "Exactly one element"),
    case("an id in capitals", metrics_with({**ONE, "Id": "M1"}), "small letter"),
    case("neither", metrics_with({"Id": "m1"}), "exactly one of MetricStat"),
    case(
        "two periods",
        metrics_with(
            {**ONE, "ReturnData": False}, {"Id": "m2", "MetricStat": {**STAT, "Period": 300}}
        ),
        "same Period",
    ),
    case("an account", metrics_with({**ONE, "AccountId": "999999999999"}), "other accounts"),
    case(
        "eleven metrics",
        metrics_with(*({**ONE, "Id": f"m{it}", "ReturnData": it == 0} for it in range(11))),
        "at most 10",
    ),
    case(
        "a search",
        metrics_with({"Id": "e1", "Expression": "SEARCH('{Own} Load', 'Sum')", "Period": 60}),
        "SEARCH is not supported",
    ),
    case(
        "an expression that cannot be read",
        metrics_with({**ONE, "ReturnData": False}, {"Id": "e1", "Expression": "m1 +"}),
        "Invalid metrics list",
    ),
    case("no statistic", metrics_with({**ONE, "MetricStat": {**STAT, "Stat": "Mean"}}), "Mean"),
)
def test_what_no_alarm_can_be_is_refused(api: Api, params: dict[str, Any], text: str) -> None:
    refused = refusal(api, "PutMetricAlarm", **params)
    assert refused.code == "ValidationException"
    assert text in refused.message
    assert api.state.metric_alarms.list() == []


def test_a_composite_alarm_is_described_with_its_rule_and_suppressor(api: Api) -> None:
    make(api, "a", "b", "quiet")
    composite(
        api,
        "both",
        "ALARM(a) AND NOT OK(b)",
        ActionsSuppressor="quiet",
        ActionsSuppressorWaitPeriod=60,
        ActionsSuppressorExtensionPeriod=30,
        AlarmActions=[TOPIC],
    )
    assert api.cloudwatch("DescribeAlarms")["CompositeAlarms"] == []
    shown = api.cloudwatch("DescribeAlarms", AlarmTypes=["CompositeAlarm"])["CompositeAlarms"][0]
    assert shown["AlarmRule"] == "ALARM(a) AND NOT OK(b)"
    assert shown["ActionsSuppressor"] == "quiet"
    assert shown["StateValue"] == "INSUFFICIENT_DATA"
    api.cloudwatch("SetAlarmState", AlarmName="both", StateValue="ALARM", StateReason="a test")
    api.cloudwatch("SetAlarmState", AlarmName="quiet", StateValue="ALARM", StateReason="a test")
    shown = api.cloudwatch("DescribeAlarms", AlarmTypes=["CompositeAlarm"])["CompositeAlarms"][0]
    assert shown["ActionsSuppressedBy"] == "Alarm"
    assert "quiet" in shown["ActionsSuppressedReason"]


@cases(
    "params, text",
    case("a rule that cannot be read", {"AlarmRule": "ALARM(a"}, "cannot be used"),
    case("unknown alarms", {"AlarmRule": "ALARM(gone) OR OK(far)"}, "[gone, far]"),
    case("itself", {"AlarmRule": "ALARM(new)"}, "new -> new"),
    case("a policy", {"AlarmRule": "TRUE", "AlarmActions": [POLICY]}, "composite"),
    case("no periods", {"AlarmRule": "TRUE", "ActionsSuppressor": "a"}, "given together"),
    case(
        "an unknown suppressor",
        {
            "AlarmRule": "TRUE",
            "ActionsSuppressor": "gone",
            "ActionsSuppressorWaitPeriod": 1,
            "ActionsSuppressorExtensionPeriod": 1,
        },
        "no alarm",
    ),
    case(
        "a negative wait",
        {
            "AlarmRule": "TRUE",
            "ActionsSuppressor": "a",
            "ActionsSuppressorWaitPeriod": -1,
            "ActionsSuppressorExtensionPeriod": 1,
        },
        "0 to",
    ),
    case("a taken name", {"AlarmRule": "TRUE", "AlarmName": "a"}, "metric alarm"),
)
def test_what_no_composite_alarm_can_be_is_refused(
    api: Api, params: dict[str, Any], text: str
) -> None:
    make(api, "a")
    refused = refusal(api, "PutCompositeAlarm", **{"AlarmName": "new", **params})
    assert refused.code == "ValidationException"
    assert text in refused.message


def test_a_cycle_of_composite_alarms_is_refused(api: Api) -> None:
    composite(api, "one", "TRUE")
    composite(api, "two", "ALARM(one)")
    composite(api, "three", "ALARM(two)")
    refused = refusal(api, "PutCompositeAlarm", AlarmName="one", AlarmRule="ALARM(three)")
    assert "one -> three -> two -> one" in refused.message


def test_a_metric_alarm_cannot_take_the_name_of_a_composite(api: Api) -> None:
    composite(api, "high", "TRUE")
    assert "composite alarm" in refusal(api, "PutMetricAlarm", **PLAIN).message


@cases(
    "params, names",
    case("all metric alarms", {}, ["a1", "a2", "b1"]),
    case("a prefix", {"AlarmNamePrefix": "a"}, ["a1", "a2"]),
    case("names, also of none", {"AlarmNames": ["b1", "gone"]}, ["b1"]),
    case("a state", {"StateValue": "ALARM"}, ["a2"]),
    case("an action", {"ActionPrefix": TOPIC[:20]}, ["b1"]),
    case("composite alarms", {"AlarmTypes": ["CompositeAlarm"]}, ["both"]),
    case(
        "all kinds", {"AlarmTypes": ["CompositeAlarm", "MetricAlarm"]}, ["a1", "a2", "b1", "both"]
    ),
    case("children", {"ChildrenOfAlarmName": "both"}, ["a1", "b1"]),
    case("parents", {"ParentsOfAlarmName": "b1"}, ["both"]),
    case("no parents", {"ParentsOfAlarmName": "a2"}, []),
)
def test_alarms_are_found(api: Api, params: dict[str, Any], names: list[str]) -> None:
    make(api, "a1", "a2")
    make(api, "b1", OKActions=[TOPIC])
    composite(api, "both", "ALARM(a1) OR ALARM(b1)")
    api.cloudwatch("SetAlarmState", AlarmName="a2", StateValue="ALARM", StateReason="a test")
    found = api.cloudwatch("DescribeAlarms", **params)
    shown = found["MetricAlarms"] + found["CompositeAlarms"]
    assert sorted(it["AlarmName"] for it in shown) == names


def test_filters_that_exclude_each_other_are_refused(api: Api) -> None:
    for params in (
        {"AlarmNames": ["a"], "AlarmNamePrefix": "a"},
        {"ChildrenOfAlarmName": "a", "StateValue": "OK"},
        {"ParentsOfAlarmName": "a", "ChildrenOfAlarmName": "b"},
    ):
        assert "together" in refusal(api, "DescribeAlarms", **params).message


def test_alarms_come_in_pages(api: Api) -> None:
    make(api, *(f"a{it}" for it in range(5)))
    composite(api, "a2x", "TRUE")
    types = {"AlarmTypes": ["MetricAlarm", "CompositeAlarm"], "MaxRecords": 2}
    names: list[str] = []
    token: dict[str, str] = {}
    while True:
        page = api.cloudwatch("DescribeAlarms", **types, **token)
        names += [it["AlarmName"] for it in page["MetricAlarms"] + page["CompositeAlarms"]]
        if "NextToken" not in page:
            break
        token = {"NextToken": page["NextToken"]}
    assert names == ["a0", "a1", "a2", "a2x", "a3", "a4"]
    for params in ({**types, "NextToken": "x"}, {**token, "StateValue": "OK"}):
        assert refusal(api, "DescribeAlarms", **params).code == "InvalidNextToken"


def test_alarms_of_a_metric_are_found(api: Api) -> None:
    make(api, "a")
    make(api, "minute", Period=60)
    make(api, "other", Dimensions=[])
    asked = {name: PLAIN[name] for name in ("MetricName", "Namespace", "Dimensions")}
    found = api.cloudwatch("DescribeAlarmsForMetric", **asked)["MetricAlarms"]
    assert [it["AlarmName"] for it in found] == ["a", "minute"]
    found = api.cloudwatch("DescribeAlarmsForMetric", **asked, Period=60, Statistic="Maximum")
    assert [it["AlarmName"] for it in found["MetricAlarms"]] == ["minute"]
