"""Policy files: parsed values, and refusals that name the file, the field and its limit."""

import json
from pathlib import Path
from typing import Any

import pytest
from tests.cases import case, cases

from hostelry.base.errors import TerminalError
from hostelry.domain.scaling import Dimension
from hostelry.scaling.decide.responsive.options import ResponsiveOptions
from hostelry.sim.peers import KnativeRule, RayServeRule
from hostelry.sim.policy_file import read_policy

EXAMPLES = sorted((Path(__file__).resolve().parents[3] / "examples" / "policies").glob("*.json"))
PREDEFINED = "SageMakerInferenceComponentConcurrentRequestsPerCopyHighResolution"
CONFIGURATION = {
    "PredefinedMetricSpecification": {"PredefinedMetricType": PREDEFINED},
    "TargetValue": 5,
}
TRACKING = {"PolicyName": "t", "TargetTrackingScalingPolicyConfiguration": CONFIGURATION}
STEPS = {
    "PolicyName": "s",
    "StepScalingPolicyConfiguration": {
        "AdjustmentType": "ChangeInCapacity",
        "StepAdjustments": [{"MetricIntervalLowerBound": 0, "ScalingAdjustment": 2}],
    },
}
ALARM = {
    "AlarmName": "a",
    "AlarmActions": ["s"],
    "MetricName": "Invocations",
    "Namespace": "AWS/SageMaker",
    "Statistic": "Sum",
    "Period": 60,
    "EvaluationPeriods": 1,
    "Threshold": 10,
    "ComparisonOperator": "GreaterThanThreshold",
}


def written(folder: Path, tree: Any) -> Path:
    path = folder / "policy.json"
    path.write_text(tree if isinstance(tree, str) else json.dumps(tree))
    return path


def with_metric(**members: Any) -> dict[str, Any]:
    customized = {
        "MetricName": "Invocations", "Namespace": "AWS/SageMaker", "Statistic": "Sum", **members
    }  # fmt: skip
    configuration = {"CustomizedMetricSpecification": customized, "TargetValue": 5}
    return {"PolicyName": "t", "TargetTrackingScalingPolicyConfiguration": configuration}


def test_there_are_examples() -> None:
    assert len(EXAMPLES) >= 8


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda it: it.stem)
def test_every_example_is_read(path: Path) -> None:
    found = read_policy(path)
    assert found.name == path.stem
    assert 0 <= found.minimum <= found.maximum


def test_a_request_of_put_scaling_policy_is_read_as_aws_takes_it(tmp_path: Path) -> None:
    request = {
        **TRACKING,
        "ServiceNamespace": "sagemaker",
        "ResourceId": "endpoint/chat/variant/AllTraffic",
        "ScalableDimension": "sagemaker:variant:DesiredInstanceCount",
        "PolicyType": "TargetTrackingScaling",
        "TargetTrackingScalingPolicyConfiguration": {
            "TargetValue": 5,
            "ScaleInCooldown": 180,
            "PredefinedMetricSpecification": {
                "PredefinedMetricType": "SageMakerVariantConcurrentRequestsPerModelHighResolution"
            },
        },
    }
    found = read_policy(written(tmp_path, request))
    assert found.dimension is Dimension.INSTANCES
    (policy,) = found.policies
    assert policy.tracking is not None
    assert policy.tracking.scale_in_cooldown_s == 180
    assert policy.tracking.scale_out_cooldown_s == 300
    assert (found.minimum, found.maximum) == (1, 10)
    assert found.concurrency == 5


@cases(
    "item, wanted",
    case("Knative", {"Knative": {"target": 3}}, KnativeRule(target=3.0)),
    case(
        "Ray Serve, with an option",
        {"RayServe": {"target": 3, "upscale_delay_s": 5}},
        RayServeRule(target=3.0, upscale_delay_s=5.0),
    ),
    case(
        "the responsive policy, in AWS's manner of names",
        {"Responsive": {"Target": 3, "MaxGrowth": 4}},
        ResponsiveOptions(target=3.0, max_growth=4.0),
    ),
)
def test_other_rules_are_read(tmp_path: Path, item: dict[str, Any], wanted: object) -> None:
    found = read_policy(written(tmp_path, {"MinCapacity": 2, "MaxCapacity": 3, **item}))
    assert (found.rule or found.responsive) == wanted
    assert (found.minimum, found.maximum) == (2, 3)


def test_a_step_policy_and_its_alarm_belong_together(tmp_path: Path) -> None:
    arn = "arn:aws:autoscaling:us-west-2:1:scalingPolicy:u:resource/x:policyName/s"
    found = read_policy(written(tmp_path, [STEPS, {**ALARM, "AlarmActions": [arn]}]))
    assert [it.policy_name for it in found.alarms] == ["s"]
    assert found.policies[0].stepping is not None


def test_metric_math_is_read(tmp_path: Path) -> None:
    metric = {"Namespace": "AWS/SageMaker", "MetricName": "Invocations"}
    metrics = [
        {"Id": "m1", "MetricStat": {"Metric": metric, "Stat": "Sum"}, "ReturnData": False},
        {"Id": "e1", "Expression": "m1 / 60", "ReturnData": True},
    ]
    configuration = {"CustomizedMetricSpecification": {"Metrics": metrics}, "TargetValue": 5}
    item = {"PolicyName": "t", "TargetTrackingScalingPolicyConfiguration": configuration}
    found = read_policy(written(tmp_path, item))
    assert found.policies[0].tracking is not None
    assert len(found.policies[0].tracking.queries) == 2


def changed(**members: Any) -> dict[str, Any]:
    return {**TRACKING, "TargetTrackingScalingPolicyConfiguration": {**CONFIGURATION, **members}}


@cases(
    "tree, message",
    case("half an object", "{", "is not JSON"),
    case("nested without end", "[" * 100_000, "is not JSON"),
    case("nothing", "[]", "must hold an object"),
    case("a number", "[3]", "must hold an object"),
    case("an object of no kind", {"Target": 5}, "Target is none of: Register"),
    case("below 0", {"MinCapacity": -1}, "MinCapacity is -1; it must be from 0 to 100,000"),
    case("text for a number", {"MaxCapacity": "9"}, "MaxCapacity is '9'"),
    case("truth for a number", {"MaxCapacity": True}, "MaxCapacity is True"),
    case("crossed", {"MinCapacity": 5, "MaxCapacity": 4}, "MinCapacity is 5 and"),
    case("a target of nothing", changed(TargetValue=0), "TargetValue is 0"),
    case("a misspelt member", changed(Target=3), "no member Target.*TargetValue"),
    case("a target that is text", changed(TargetValue="x"), "TargetValue"),
    case("a negative cooldown", changed(ScaleInCooldown=-5), "ScaleInCooldown"),
    case(
        "another service's metric",
        changed(
            PredefinedMetricSpecification={
                "PredefinedMetricType": "ECSServiceAverageCPUUtilization"
            }
        ),
        "PredefinedMetricType ECSService.* cannot be used",
    ),
    case("two kinds of metric", changed(CustomizedMetricSpecification={}), "Exactly one of"),
    case(
        "a metric that no replay has",
        with_metric(MetricName="CPUUtilization"),
        "CPUUtilization is not replayed.*ConcurrentRequestsPerCopy",
    ),
    case("steps that nothing triggers", STEPS, "step policy s has no alarm"),
    case("whom", [STEPS, {**ALARM, "AlarmActions": ["x"]}], "policy 'x'.*has s"),
    case("an odd period", [STEPS, {**ALARM, "Period": 7}], "Period is 7; valid are 10"),
    case("no such option", {"Knative": {"goal": 3}}, "no option goal.*target"),
    case("no target", {"Knative": {}}, "Knative: .*target"),
    case("Knative's at nothing", {"Knative": {"target": 0}}, "Knative.target is 0"),
    case("a clock at rest", {"Knative": {"target": 3, "tick_s": 0}}, "tick_s is 0"),
    case("beyond all numbers", {"RayServe": {"target": 1e999}}, "is not JSON"),
    case(
        "a list for an object",
        {"PolicyName": "t", "TargetTrackingScalingPolicyConfiguration": [3]},
        "targetTracking|TargetTracking",
    ),
    case("a number for options", {"Knative": 3}, "must be an object"),
    case("shrinking", {"Responsive": {"target": 5, "max_growth": 0.5}}, "max_growth is 0.5"),
    case("a mixture", {"Knative": {"target": 3}, "PolicyName": "x"}, "PolicyName stands"),
    case("two masters", [TRACKING, {"Knative": {"target": 3}}], "its own file"),
    case("no schedule", {"ScheduledActionName": "n", "Schedule": "cron(x)"}, "Schedule is"),
    case(
        "no time zone",
        {
            "ScheduledActionName": "n",
            "Schedule": "at(2026-01-05T00:00:00)",
            "Timezone": "Mars/Base",
        },
        "Mars/Base",
    ),
)
def test_what_cannot_be_is_refused_by_name(tmp_path: Path, tree: Any, message: str) -> None:
    with pytest.raises(TerminalError, match=rf"(?s)policy\.json.*{message}"):
        read_policy(written(tmp_path, tree))


def test_a_file_that_is_not_there_or_huge_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TerminalError, match=r"none\.json cannot be read"):
        read_policy(tmp_path / "none.json")
    with pytest.raises(TerminalError, match="more than 1,048,576 bytes"):
        read_policy(written(tmp_path, " " * 1_100_000))
