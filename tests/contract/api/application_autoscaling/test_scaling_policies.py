"""Scaling policies through the API. botocore's models check requests and answers.

PSP means PutScalingPolicy, and DSP DescribeScalingPolicies, in the Application Auto Scaling API
reference. UG means "Step scaling policies" in its user guide. 7.1 to 7.4 are sections of our own
reference.
"""

import re
from typing import Any

import pytest
from msgspec.structs import replace
from tests.cases import case, cases
from tests.contract.api.rig import Api

from hostelry.domain.alarm import AlarmState

COPIES = {
    "ResourceId": "inference-component/base",
    "ScalableDimension": "sagemaker:inference-component:DesiredCopyCount",
}
INSTANCES = {
    "ResourceId": "endpoint/v/variant/main",
    "ScalableDimension": "sagemaker:variant:DesiredInstanceCount",
}
CONCURRENCY = "SageMakerInferenceComponentConcurrentRequestsPerCopyHighResolution"
INVOCATIONS = "SageMakerInferenceComponentInvocationsPerCopy"
UUID = "[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}"
ARN = (
    f"arn:aws:autoscaling:us-west-2:123456789012:scalingPolicy:{UUID}"
    ":resource/sagemaker/inference-component/base:policyName/p"
)
METRIC = {"MetricName": "Depth", "Namespace": "Own", "Statistic": "Average"}
STAT = {"Metric": {"MetricName": "Depth", "Namespace": "Own"}, "Stat": "Sum"}


@pytest.fixture(autouse=True)
def registered(served: None, api: Api) -> None:
    for params in (COPIES, INSTANCES):
        api.scaling("RegisterScalableTarget", **params, MinCapacity=1, MaxCapacity=9)


def tracking(predefined: str | None = CONCURRENCY, **more: Any) -> dict[str, Any]:
    """PutScalingPolicy's type and configuration of target tracking."""
    kind = {"PredefinedMetricSpecification": {"PredefinedMetricType": predefined}}
    configuration = {"TargetValue": 5.0, **(kind if predefined else {}), **more}
    return {
        "PolicyType": "TargetTrackingScaling",
        "TargetTrackingScalingPolicyConfiguration": configuration,
    }


def customized(**specification: Any) -> dict[str, Any]:
    return tracking(None, CustomizedMetricSpecification=specification)


def math(*metrics: dict[str, Any]) -> dict[str, Any]:
    return customized(Metrics=list(metrics))


def stepping(*steps: dict[str, Any], **more: Any) -> dict[str, Any]:
    """PutScalingPolicy's type and configuration of step scaling."""
    configuration = {
        "AdjustmentType": "ChangeInCapacity",
        "StepAdjustments": list(steps) or [{"MetricIntervalLowerBound": 0, "ScalingAdjustment": 1}],
        **more,
    }
    return {"PolicyType": "StepScaling", "StepScalingPolicyConfiguration": configuration}


def step(lower: float | None, upper: float | None, adjustment: int = 1) -> dict[str, Any]:
    bounds = {"MetricIntervalLowerBound": lower, "MetricIntervalUpperBound": upper}
    given = {name: value for name, value in bounds.items() if value is not None}
    return {**given, "ScalingAdjustment": adjustment}


def put(api: Api, policy: dict[str, Any], name: str = "p", **of: Any) -> dict[str, Any]:
    return api.scaling("PutScalingPolicy", PolicyName=name, **(of or COPIES), **policy)


def described(api: Api, **params: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = api.scaling("DescribeScalingPolicies", **params)[
        "ScalingPolicies"
    ]
    return found


def alarms(api: Api) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = api.call_as(api.scope, "DescribeAlarms", "cloudwatch")[
        "MetricAlarms"
    ]
    return found


def test_target_tracking_makes_its_two_alarms(api: Api) -> None:
    made = put(api, tracking(ScaleInCooldown=180, ScaleOutCooldown=180))
    arn = made["PolicyARN"]
    assert re.fullmatch(ARN, arn)
    names = [it["AlarmName"] for it in made["Alarms"]]
    for name, side in zip(names, ("AlarmHigh", "AlarmLow"), strict=True):
        assert re.fullmatch(f"TargetTracking-inference-component/base-{side}-{UUID}", name)
    shown = alarms(api)
    assert [it["AlarmName"] for it in shown] == names
    assert [it["AlarmArn"] for it in shown] == [it["AlarmARN"] for it in made["Alarms"]]
    for alarm in shown:
        assert alarm["AlarmActions"] == [arn]
        assert (alarm["ActionsEnabled"], alarm["OKActions"]) == (True, [])
        assert alarm["StateValue"] == "INSUFFICIENT_DATA"
        assert alarm["MetricName"] == "ConcurrentRequestsPerCopy"
        assert (alarm["Statistic"], alarm["Period"]) == ("Maximum", 10)
        assert alarm["Dimensions"] == [{"Name": "InferenceComponentName", "Value": "base"}]
        assert alarm["AlarmDescription"] == (
            f"DO NOT EDIT OR DELETE. For TargetTrackingScaling policy {arn}."
        )
    high, low = shown
    assert (high["EvaluationPeriods"], high["Threshold"]) == (3, 5.0)
    assert (low["EvaluationPeriods"], low["Threshold"]) == (90, 4.5)
    assert high["ComparisonOperator"] == "GreaterThanThreshold"
    assert low["ComparisonOperator"] == "LessThanThreshold"
    assert described(api) == [
        {
            "PolicyARN": arn,
            "PolicyName": "p",
            "ServiceNamespace": "sagemaker",
            **COPIES,
            **tracking(ScaleInCooldown=180, ScaleOutCooldown=180),
            "Alarms": made["Alarms"],
            "CreationTime": api.clock.now(),
        }
    ]


def test_the_making_of_alarms_is_in_their_history(api: Api) -> None:
    put(api, tracking())
    api.scaling("DeleteScalingPolicy", PolicyName="p", **COPIES)
    history = api.call_as(api.scope, "DescribeAlarmHistory", "cloudwatch")["AlarmHistoryItems"]
    kinds = [re.sub('".*"', "", it["HistorySummary"]) for it in history]
    assert sorted(kinds) == ["Alarm  created"] * 2 + ["Alarm  deleted"] * 2


def test_replacing_keeps_the_arn_the_alarms_and_their_state(api: Api) -> None:
    before = put(api, tracking())
    name = before["Alarms"][0]["AlarmName"]
    stored = api.state.metric_alarms.get(api.scope, name)
    assert stored is not None
    status = replace(stored.value.status, state=AlarmState.ALARM)
    alarmed = replace(stored.value, status=status)
    api.state.metric_alarms.put(api.scope, name, alarmed, expect=stored.version)
    assert put(api, tracking(INVOCATIONS, TargetValue=70.0)) == before
    high, low = alarms(api)
    assert (high["StateValue"], high["MetricName"]) == ("ALARM", "InvocationsPerCopy")
    assert (high["Threshold"], low["Threshold"]) == (70.0, 63.0)
    assert (low["EvaluationPeriods"], low["Period"]) == (15, 60)


def test_replacing_makes_again_what_a_user_deleted(api: Api) -> None:
    before = put(api, tracking())
    names = [it["AlarmName"] for it in before["Alarms"]]
    api.call_as(api.scope, "DeleteAlarms", "cloudwatch", AlarmNames=names[:1])
    put(api, tracking())
    assert [it["AlarmName"] for it in alarms(api)] == names


def test_a_policy_that_never_scales_in_has_no_low_alarm(api: Api) -> None:
    both = put(api, tracking())["Alarms"]
    assert put(api, tracking(DisableScaleIn=True))["Alarms"] == both[:1]
    assert [it["AlarmName"] for it in alarms(api)] == [both[0]["AlarmName"]]
    again = put(api, tracking(DisableScaleIn=False))["Alarms"]
    assert again[0] == both[0]
    assert len(alarms(api)) == 2


def test_another_type_in_its_place_takes_the_alarms_away(api: Api) -> None:
    arn = put(api, tracking())["PolicyARN"]
    assert put(api, stepping()) == {"PolicyARN": arn, "Alarms": []}
    assert alarms(api) == []
    assert described(api)[0]["PolicyType"] == "StepScaling"


def test_a_policys_type_need_not_be_given_again(api: Api) -> None:
    configuration = tracking()["TargetTrackingScalingPolicyConfiguration"]
    params = {"PolicyName": "p", "TargetTrackingScalingPolicyConfiguration": configuration}
    _, text = api.scaling_refusal("PutScalingPolicy", **COPIES, **params)
    assert "PolicyType is required" in text
    put(api, tracking())
    api.scaling("PutScalingPolicy", **COPIES, **params)


def test_cooldowns_are_300_seconds_unless_given(api: Api) -> None:
    # 7.3: the default of SageMaker's targets.
    put(api, tracking())
    put(api, stepping(), "s")
    tracked, stepped = (it.value for it in api.state.scaling_policies.list(api.scope))
    assert tracked.tracking is not None
    assert stepped.stepping is not None
    assert tracked.tracking.scale_out_cooldown_s == tracked.tracking.scale_in_cooldown_s == 300.0
    assert stepped.stepping.cooldown_s == 300.0


def test_concurrency_and_invocations_go_together(api: Api) -> None:
    # The pairing that the announcement of the high-resolution metrics recommends.
    put(api, tracking(CONCURRENCY), "concurrency")
    put(api, tracking(INVOCATIONS), "invocations")
    assert [it["PolicyName"] for it in described(api)] == ["concurrency", "invocations"]


def test_one_metric_has_one_policy(api: Api) -> None:
    put(api, tracking())
    _, text = api.scaling_refusal(
        "PutScalingPolicy", PolicyName="q", **COPIES, **tracking(TargetValue=9.0)
    )
    assert text.startswith(
        "Only one TargetTrackingScaling policy for a given metric specification is allowed."
    )
    variant = "SageMakerVariantConcurrentRequestsPerModelHighResolution"
    put(api, tracking(variant), "q", **INSTANCES)


def test_customized_metrics(api: Api) -> None:
    dimensions = [{"Name": "queue", "Value": "a"}]
    put(api, customized(**METRIC, Dimensions=dimensions, Unit="Count"))
    high, low = alarms(api)
    for alarm in (high, low):
        assert (alarm["Namespace"], alarm["MetricName"]) == ("Own", "Depth")
        assert (alarm["Statistic"], alarm["Unit"], alarm["Period"]) == ("Average", "Count", 60)
        assert alarm["Dimensions"] == dimensions
    assert (high["EvaluationPeriods"], low["EvaluationPeriods"]) == (3, 15)


def test_metric_math(api: Api) -> None:
    metrics = [
        {"Id": "m1", "MetricStat": STAT, "ReturnData": False},
        {"Id": "m2", "MetricStat": {**STAT, "Stat": "SampleCount"}, "ReturnData": False},
        {"Id": "e1", "Expression": "m1 / m2", "Label": "each", "ReturnData": True},
    ]
    put(api, math(*metrics))
    (high, low), (policy,) = alarms(api), described(api)
    assert [it["Id"] for it in high["Metrics"]] == ["m1", "m2", "e1"]
    assert "MetricName" not in low
    shown = policy["TargetTrackingScalingPolicyConfiguration"]["CustomizedMetricSpecification"]
    assert shown == {"Metrics": metrics}


M1 = {"Id": "m1", "MetricStat": STAT}
OFF = {**M1, "ReturnData": False}


@cases(
    "policy, message",
    case("none", tracking(None), "Exactly one of PredefinedMetricSpecification"),
    case("both kinds of metric (7.2)", tracking(CustomizedMetricSpecification=METRIC),
        "Exactly one of"),
    case("a target of nothing", tracking(TargetValue=0.0), "TargetValue is 0"),
    case("a negative target", tracking(TargetValue=-5.0), "greater than 0"),
    case("NaN for a target", tracking(TargetValue=float("nan")), "finite number"),
    case("endless target", tracking(TargetValue=float("inf")), "finite number"),
    case("negative cooldown", tracking(ScaleInCooldown=-1), "ScaleInCooldown is -1"),
    case("a metric of another service", tracking("ECSServiceAverageCPUUtilization"),
        "cannot be used with"),
    case("a variant's metric for a component", tracking("SageMakerVariantInvocationsPerInstance"),
        f"use one of {INVOCATIONS}, {CONCURRENCY}"),
    case("a load balancer's label",
        tracking(None, PredefinedMetricSpecification={"PredefinedMetricType":
        CONCURRENCY, "ResourceLabel": "app/x"}), "ResourceLabel"),
    case("no metric name", customized(Namespace="Own"), "MetricName is required"),
    case("a metric and metric math", customized(**METRIC, Metrics=[M1]),
        "MetricName cannot be given together"),
    case("a dimension twice", customized(**METRIC, Dimensions=[{"Name": "a", "Value": "1"}] * 2),
        'the dimension "a" is given twice'),
    case("nothing returned (7.2)", math(OFF),
        "Exactly one element of Metrics must have ReturnData true"),
    case("two (7.2)", math(M1, {**M1, "Id": "m2"}), "here they are: m1, m2"),
    case("half an expression", math(OFF, {"Id": "e1", "Expression": "m1 +"}),
        "Metrics cannot be used"),
    case("an unknown id", math(OFF, {"Id": "e1", "Expression": "m9"}), "m9"),
    case("an id twice", math(OFF, {**OFF, "MetricStat": STAT}, {"Id": "e1", "Expression": "m1"}),
        "the same id"),
    case("several series (7.2)", math({"Id": "e1", "Expression": "SEARCH('{Own} x', 'Sum', 60)"}),
        "must give one time series"),
    case("a search, which alarms cannot do",
        math({"Id": "e1", "Expression": "SUM(SEARCH('{Own} x', 'Sum', 60))"}),
        "SEARCH is not supported"),
    case("a bad id", math({"Id": "X", "MetricStat": STAT}), "lower-case letter"),
    case("neither", math({"Id": "m1"}), "exactly one of MetricStat and Expression"),
    case("both", math({**M1, "Expression": "1"}), "exactly one of MetricStat"),
    case("no statistic", math({"Id": "m1", "MetricStat": {**STAT, "Stat": "Most"}}),
        "not a statistic"),
    case("a stat without name",
        math({"Id": "m1", "MetricStat": {"Metric": {"Namespace": "Own"}, "Stat": "Sum"}}),
        "MetricName is required"),
    case("no configuration", {"PolicyType": "TargetTrackingScaling"}, "is required for PolicyType"),
    case("both kinds", {**tracking(), "StepScalingPolicyConfiguration": stepping()[
        "StepScalingPolicyConfiguration"]}, "cannot be given with PolicyType"),
    case("predictive scaling (7.2)", {"PolicyType": "PredictiveScaling"},
        "PredictiveScaling is not supported"),
)  # fmt: skip
def test_what_is_no_target_tracking(api: Api, policy: dict[str, Any], message: str) -> None:
    code, text = api.scaling_refusal("PutScalingPolicy", PolicyName="p", **COPIES, **policy)
    assert code == "ValidationException"
    assert message in text
    assert described(api) == []


def test_steps_are_described_with_the_alarms_that_name_them(api: Api) -> None:
    policy = stepping(step(0, 10), step(10, None, 3), Cooldown=60, MetricAggregationType="Maximum")
    made = put(api, policy)
    assert made["Alarms"] == []
    alarm = {
        "AlarmName": "none-left",
        "Namespace": "AWS/SageMaker",
        "MetricName": "NoCapacityInvocationFailures",
        "Statistic": "Maximum",
        "Period": 30,
        "EvaluationPeriods": 1,
        "Threshold": 1.0,
        "ComparisonOperator": "GreaterThanOrEqualToThreshold",
        "AlarmActions": [made["PolicyARN"]],
    }
    api.call_as(api.scope, "PutMetricAlarm", "cloudwatch", **alarm)
    (shown,) = described(api)
    assert [it["AlarmName"] for it in shown["Alarms"]] == ["none-left"]
    assert shown["StepScalingPolicyConfiguration"] == policy["StepScalingPolicyConfiguration"]
    api.scaling("DeleteScalingPolicy", PolicyName="p", **COPIES)
    assert [it["AlarmName"] for it in alarms(api)] == ["none-left"]


@cases(
    "steps",
    case("out (UG)", [step(0, None)]),
    case("in (UG)", [step(None, 0)]),
    case("down (UG)", [step(None, -20, -30), step(-20, -10, -10), step(-10, 0, 0)]),
    case("in any order", [step(20, None), step(0, 10), step(10, 20)]),
    case("both ways", [step(None, 0), step(0, None)]),
    case("twenty (7.1)",
        [step(0, 5), *[step(5 * at, 5 * at + 5) for at in range(1, 19)], step(95, None)]),
    case("not from the threshold on", [step(5, None)]),
)  # fmt: skip
def test_steps_that_can_be(api: Api, steps: list[dict[str, Any]]) -> None:
    put(api, stepping(*steps))
    percent = {"AdjustmentType": "PercentChangeInCapacity", "MinAdjustmentMagnitude": 2}
    put(api, stepping(*steps, **percent))


@cases(
    "policy, code, message",
    case("no bounds", stepping(step(None, None)), "ValidationException", "or both"),
    case("empty", stepping(step(5, 5)), "ValidationException", "must be less than"),
    case("crossed", stepping(step(9, 5)), "ValidationException", "must be less"),
    case("a gap (UG)", stepping(step(0, 10), step(11, None)), "ValidationException", "leave gaps"),
    case("an overlap (UG)", stepping(step(0, 10), step(9, None)), "ValidationException", "overlap"),
    case("two without upper bound (UG)", stepping(step(0, None), step(5, None)),
        "ValidationException", "At most one"),
    case("two without lower bound (UG)", stepping(step(None, 0), step(None, 5)),
        "ValidationException", "At most one"),
    case("one goes on for ever, another follows", stepping(step(0, None), step(10, 20)),
        "ValidationException", "overlap"),
    case("ends short below (UG)", stepping(step(-10, 0)), "ValidationException",
        "without MetricIntervalLowerBound is required"),
    case("ends short above (UG)", stepping(step(0, 10)), "ValidationException",
        "without MetricIntervalUpperBound is required"),
    case("NaN", stepping(step(float("nan"), None)), "ValidationException", "finite"),
    case("twenty-one steps (7.1)", stepping(*[step(at, at + 1) for at in range(21)]),
        "LimitExceededException", "at most 20"),
    case("no steps", stepping(StepAdjustments=[]), "ValidationException", "at least one"),
    case("nothing", {"PolicyType": "StepScaling", "StepScalingPolicyConfiguration": {}},
        "ValidationException", "AdjustmentType is required"),
    case("magnitude (PSP)", stepping(MinAdjustmentMagnitude=2), "ValidationException",
        "only be given with AdjustmentType PercentChangeInCapacity"),
    case("a magnitude of nothing",
        stepping(AdjustmentType="PercentChangeInCapacity", MinAdjustmentMagnitude=0),
        "ValidationException", "at least 1"),
    case("an exact number below nothing (PSP)",
        stepping(step(0, None, -1), AdjustmentType="ExactCapacity"), "ValidationException",
        "must be 0 or more"),
    case("a negative cooldown", stepping(Cooldown=-1), "ValidationException", "0 seconds or more"),
)  # fmt: skip
def test_what_is_no_step_scaling(api: Api, policy: dict[str, Any], code: str, message: str) -> None:
    answer = api.scaling_refusal("PutScalingPolicy", PolicyName="p", **COPIES, **policy)
    assert answer[0] == code
    assert message in answer[1]
    assert described(api) == []


def test_fifty_policies_of_a_target(api: Api) -> None:
    # 7.1: quotas.
    for number in range(50):
        put(api, stepping(), f"p{number:02}")
    code, text = api.scaling_refusal("PutScalingPolicy", PolicyName="more", **COPIES, **stepping())
    assert (code, "at most 50" in text) == ("LimitExceededException", True)
    put(api, stepping(Cooldown=1), "p07")
    put(api, stepping(), "elsewhere", **INSTANCES)
    pages: list[int] = []
    token: dict[str, str] = {}
    while True:
        page = api.scaling("DescribeScalingPolicies", MaxResults=50, **token)
        pages.append(len(page["ScalingPolicies"]))
        if "NextToken" not in page:
            break
        token = {"NextToken": page["NextToken"]}
    assert pages == [10, 10, 10, 10, 10, 1], "DSP: ten at most"


def test_describing_by_name_and_resource(api: Api) -> None:
    arn = put(api, tracking(), "a")["PolicyARN"]
    put(api, stepping(), "b")
    put(api, stepping(), "a", **INSTANCES)
    assert len(described(api)) == 3
    assert len(described(api, PolicyNames=["a"])) == 2
    assert len(described(api, PolicyNames=[arn])) == 1
    assert len(described(api, ResourceId=COPIES["ResourceId"])) == 2
    assert len(described(api, **INSTANCES)) == 1
    assert described(api, ResourceId="inference-component/absent") == []
    assert described(api, ServiceNamespace="ecs") == []
    assert api.scaling_refusal(
        "DescribeScalingPolicies", ScalableDimension=COPIES["ScalableDimension"]
    )[0] == ("ValidationException")


@cases(
    "operation, params, text",
    case("a policy of no target (7.1)", "PutScalingPolicy", tracking(),
        "No scalable target registered for service"
        " namespace: sagemaker, resource ID: inference-component/es, scalable dimension:"
        " sagemaker:inference-component:DesiredCopyCount"),
    case("no such policy", "DeleteScalingPolicy", {},
        "No scaling policy found for service namespace:"
        " sagemaker, resource ID: inference-component/es, scalable dimension:"
        " sagemaker:inference-component:DesiredCopyCount, policy name: p"),
)  # fmt: skip
def test_what_is_not_there(api: Api, operation: str, params: dict[str, Any], text: str) -> None:
    of = {**COPIES, "ResourceId": "inference-component/es"}
    answer = api.scaling_refusal(operation, PolicyName="p", **of, **params)
    assert answer == ("ObjectNotFoundException", text)


def test_another_services_policy_is_not_there(api: Api) -> None:
    of = {"ResourceId": "service/c/s", "ScalableDimension": "ecs:service:DesiredCount"}
    other = {"ServiceNamespace": "ecs", **of}
    for operation, more in (
        ("PutScalingPolicy", {"PolicyName": "p", **stepping()}),
        ("DeleteScalingPolicy", {"PolicyName": "p"}),
        ("PutScheduledAction", {"ScheduledActionName": "n"}),
        ("DeleteScheduledAction", {"ScheduledActionName": "n"}),
        ("DeregisterScalableTarget", {}),
    ):
        code, text = api.scaling_refusal(operation, **other, **more)
        assert code == "ObjectNotFoundException"
        assert "service namespace: ecs, resource ID: service/c/s" in text


def test_names_with_anything_printable_in_them(api: Api) -> None:
    # DeleteScalingPolicy and PutScalingPolicy allow these names. Records must distinguish them.
    names = ["a|b", "a/b:c", " x ", "p" * 256, "DROP TABLE"]
    for name in names:
        put(api, stepping(), name)
    assert sorted(it["PolicyName"] for it in described(api)) == sorted(names)
    for name in names:
        api.scaling("DeleteScalingPolicy", PolicyName=name, **COPIES)
    assert described(api) == []
