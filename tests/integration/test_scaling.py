"""Auto scaling on a real platform: out and in by the load, and control killed while it decides."""

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import BotoCoreError, ClientError
from tests.integration.drill import (
    COMPONENT,
    ENDPOINT,
    OK,
    Traffic,
    create_component,
    create_endpoint,
    wait_ready,
    write_image_rule,
)
from tests.integration.platform import Platform, until

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(240)]

RESOURCE = f"inference-component/{COMPONENT}"
TARGET: dict[str, Any] = {
    "ServiceNamespace": "sagemaker",
    "ResourceId": RESOURCE,
    "ScalableDimension": "sagemaker:inference-component:DesiredCopyCount",
}
# AlarmLow then needs one datapoint, and the cooldowns of 180 s are 2 s.
PACE = "90"
CALLERS = 6


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Platform]:
    home = tmp_path_factory.mktemp("scaling") / "home"
    write_image_rule(home)
    with Platform(home, "--pace", PACE) as started:
        create_endpoint(started)
        create_component(started, COMPONENT, 1)
        wait_ready(started, COMPONENT, 1)
        yield started


class Callers:
    """Clients that each send the next request as soon as the last is answered."""

    def __init__(self, traffic: Traffic, count: int) -> None:
        self._stop = threading.Event()
        self.outcomes: list[str] = []
        self._threads = [
            threading.Thread(target=self._call, args=(traffic,), daemon=True) for _ in range(count)
        ]
        for thread in self._threads:
            thread.start()

    def _call(self, traffic: Traffic) -> None:
        while not self._stop.is_set():
            self.outcomes.append(traffic.once({"wait_s": 0.5}))

    def stop(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(30)


def activities(client: Any, **more: Any) -> list[dict[str, Any]]:
    """The component's activities, oldest first."""
    names = {"ServiceNamespace": "sagemaker", "ResourceId": RESOURCE}
    found = client.describe_scaling_activities(**names, **more)["ScalingActivities"]
    return sorted(found, key=lambda it: it["StartTime"])


def test_a_component_follows_its_load_out_and_in(platform: Platform, tmp_path: Path) -> None:
    scaling, cloudwatch = platform.boto3("application-autoscaling"), platform.boto3("cloudwatch")
    scaling.register_scalable_target(**TARGET, MinCapacity=1, MaxCapacity=3)
    put = scaling.put_scaling_policy(
        **TARGET,
        PolicyName="SageMakerInferenceComponentScalingPolicy",
        PolicyType="TargetTrackingScaling",
        TargetTrackingScalingPolicyConfiguration={
            "TargetValue": 3.0,
            "PredefinedMetricSpecification": {
                "PredefinedMetricType": (
                    "SageMakerInferenceComponentConcurrentRequestsPerCopyHighResolution"
                )
            },
            "ScaleInCooldown": 180,
            "ScaleOutCooldown": 180,
        },
    )
    names = [it["AlarmName"] for it in put["Alarms"]]
    assert [f"-{it}-" in name for it, name in zip(("AlarmHigh", "AlarmLow"), names, strict=True)]

    callers = Callers(Traffic(platform), CALLERS)
    wait_ready(platform, COMPONENT, 2, within_s=60)
    (high,) = cloudwatch.describe_alarms(AlarmNames=names[:1])["MetricAlarms"]
    assert high["StateReason"].startswith("Threshold Crossed: 3 ")
    until(lambda: answered(scaling), "the new copy's first answer is told")
    callers.stop()
    assert set(callers.outcomes) == {OK}

    wait_ready(platform, COMPONENT, 1, within_s=60)
    until(
        lambda: [it["StatusCode"] for it in activities(scaling)] == ["Successful"] * 2,
        "both acts have ended",
    )
    out, back = activities(scaling)
    assert out["Description"] == "Setting desired copy count to 2."
    assert out["Cause"] == (
        f"monitor alarm {names[0]} in state ALARM triggered policy"
        " SageMakerInferenceComponentScalingPolicy"
    )
    assert back["Description"] == "Setting desired copy count to 1."
    receipt = json.loads(out["Details"])
    assert receipt["t0"] < receipt["t1"] < receipt["t2"]
    assert receipt["requests_failed"] == 0
    assert cloudwatch.describe_alarm_history(AlarmName=names[0])["AlarmHistoryItems"]

    output = platform.scaling("timeline", ENDPOINT, "--png", str(tmp_path / "t.png"))
    assert "1 -> 2  Successful" in output
    assert (tmp_path / "t.png").read_bytes().startswith(b"\x89PNG")
    scaling.deregister_scalable_target(**TARGET)
    assert cloudwatch.describe_alarms(AlarmNames=names)["MetricAlarms"] == []


def answered(scaling: Any) -> bool:
    """Whether the newest act's receipt is whole."""
    receipt = json.loads(activities(scaling)[-1].get("Details") or "{}")
    return receipt.get("t2") is not None


def test_control_killed_while_it_decides_acts_once(platform: Platform) -> None:
    scaling = platform.boto3("application-autoscaling", retries={"total_max_attempts": 12})
    cloudwatch = platform.boto3("cloudwatch", retries={"total_max_attempts": 1})
    wait_ready(platform, COMPONENT, 1)
    scaling.register_scalable_target(**TARGET, MinCapacity=1, MaxCapacity=9)
    policy = scaling.put_scaling_policy(
        **TARGET,
        PolicyName="one-more",
        PolicyType="StepScaling",
        StepScalingPolicyConfiguration={
            "AdjustmentType": "ChangeInCapacity",
            "StepAdjustments": [{"MetricIntervalLowerBound": 0.0, "ScalingAdjustment": 1}],
            "Cooldown": 86_400,
        },
    )
    cloudwatch.put_metric_alarm(
        AlarmName="by-hand",
        Namespace="Test",
        MetricName="Load",
        Statistic="Maximum",
        Period=60,
        EvaluationPeriods=1,
        Threshold=1.0,
        ComparisonOperator="GreaterThanOrEqualToThreshold",
        TreatMissingData="ignore",
        AlarmActions=[policy["PolicyARN"]],
    )
    before = len(activities(scaling))
    for after_s in (0.0, 0.02, 0.2):
        asking = threading.Thread(target=alarm_until_posted, args=(cloudwatch,))
        asking.start()
        threading.Event().wait(after_s)
        platform.back("control", platform.kill("control"))
        asking.join(60)

    def has_ended() -> bool:
        acts = activities(scaling)[before:]
        return bool(acts) and all(it["StatusCode"] == "Successful" for it in acts)

    until(has_ended, "the act has ended", within_s=40)
    wait_ready(platform, COMPONENT, 2)
    (act,) = activities(scaling)[before:]
    assert act["Description"] == "Setting desired copy count to 2."
    assert act["Cause"] == "monitor alarm by-hand in state ALARM triggered policy one-more"


def alarm_until_posted(cloudwatch: Any) -> None:
    """SetAlarmState, again until control has acknowledged it."""

    def reported() -> bool:
        try:
            cloudwatch.set_alarm_state(
                AlarmName="by-hand", StateValue="ALARM", StateReason="a test"
            )
        except (ClientError, BotoCoreError):
            return False
        return True

    until(reported, "the alarm is in ALARM", within_s=40)


def test_awss_own_way_out_of_zero_is_an_alarm_on_refused_requests(platform: Platform) -> None:
    """The set-up of AWS's scale-to-zero sample, with periods of 10 s instead of 30."""
    scaling, cloudwatch = platform.boto3("application-autoscaling"), platform.boto3("cloudwatch")
    sagemaker = platform.boto3("sagemaker")
    shown = sagemaker.describe_inference_component(InferenceComponentName=COMPONENT)
    tag = {"Key": "hostelry:zero", "Value": "compat"}
    sagemaker.add_tags(ResourceArn=shown["InferenceComponentArn"], Tags=[tag])
    scaling.register_scalable_target(**TARGET, MinCapacity=0, MaxCapacity=2)
    policy = scaling.put_scaling_policy(
        **TARGET,
        PolicyName="from-zero",
        PolicyType="StepScaling",
        StepScalingPolicyConfiguration={
            "AdjustmentType": "ChangeInCapacity",
            "MetricAggregationType": "Maximum",
            "StepAdjustments": [{"MetricIntervalLowerBound": 0, "ScalingAdjustment": 1}],
            "Cooldown": 60,
        },
    )
    cloudwatch.put_metric_alarm(
        AlarmName="refused",
        Namespace="AWS/SageMaker",
        MetricName="NoCapacityInvocationFailures",
        Dimensions=[{"Name": "InferenceComponentName", "Value": COMPONENT}],
        Statistic="Maximum",
        Period=10,
        EvaluationPeriods=1,
        Threshold=1,
        ComparisonOperator="GreaterThanOrEqualToThreshold",
        TreatMissingData="missing",
        AlarmActions=[policy["PolicyARN"]],
    )
    sagemaker.update_inference_component_runtime_config(
        InferenceComponentName=COMPONENT, DesiredRuntimeConfig={"CopyCount": 0}
    )
    wait_ready(platform, COMPONENT, 0)
    before, traffic, outcomes = len(activities(scaling)), Traffic(platform), list[str]()

    def is_answered() -> bool:
        outcomes.append(traffic.once())
        return outcomes[-1] == OK

    until(is_answered, "a request is answered again", within_s=60)
    assert set(outcomes[:-1]) <= {"ValidationError", "ServiceUnavailable"}
    assert "ValidationError" in outcomes
    first = activities(scaling)[before]
    assert first["Description"] == "Setting desired copy count to 1."
    assert first["Cause"] == "monitor alarm refused in state ALARM triggered policy from-zero"
