"""Scaling of an option: one form for the simulation and for `apply`. PURE."""

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

import msgspec

from hostelry.domain.scaling import Dimension
from hostelry.sim.policy_file import build_policy_set
from hostelry.sim.policy_requests import PolicySet
from hostelry.sim.published import BACKLOG, WITHOUT_CAPACITY

TARGET_SHARE = 0.7  # of the requests that a copy works on at a time
OUT_COOLDOWN_S, IN_COOLDOWN_S = 60, 300
POLICY_NAME, WAKE_NAME = "concurrency", "wake"
METRICS: Mapping[Dimension, str] = {
    Dimension.COPIES: "SageMakerInferenceComponentConcurrentRequestsPerCopyHighResolution",
    Dimension.INSTANCES: "SageMakerVariantConcurrentRequestsPerModelHighResolution",
}
RESOURCES: Mapping[Dimension, str] = {
    Dimension.COPIES: "inference-component/fit",
    Dimension.INSTANCES: "endpoint/fit/variant/AllTraffic",
}


class QuietHours(msgspec.Struct, frozen=True, kw_only=True):
    """The hours of each day in which a model may have no copy, by the clock of its time zone."""

    begin_hour: int
    end_hour: int
    time_zone: str

    @property
    def text(self) -> str:
        """The hours for people."""
        return f"{self.begin_hour:02}:00 to {self.end_hour:02}:00 {self.time_zone}"


class FitScaling(msgspec.Struct, frozen=True, kw_only=True):
    """A target-tracking policy with its bounds. With `on_backlog` it tracks a queue's size.

    In the `quiet` hours the minimum is 0.
    """

    dimension: Dimension
    minimum: int
    maximum: int
    target: float
    on_backlog: bool = False
    quiet: QuietHours | None = None


def get_target(at_once: int) -> float:
    """The requests in flight per copy to aim at, if it works on `at_once` at a time."""
    return max(1.0, round(TARGET_SHARE * at_once, 2))


def build_tracking(scaling: FitScaling, endpoint: str) -> dict[str, Any]:
    """TargetTrackingScalingPolicyConfiguration of a policy."""
    found: dict[str, Any] = {
        "TargetValue": scaling.target,
        "ScaleOutCooldown": OUT_COOLDOWN_S,
        "ScaleInCooldown": IN_COOLDOWN_S,
    }
    if scaling.on_backlog:
        found["CustomizedMetricSpecification"] = {
            "MetricName": BACKLOG,
            "Namespace": "AWS/SageMaker",
            "Dimensions": [{"Name": "EndpointName", "Value": endpoint}],
            "Statistic": "Average",
        }
    else:
        found["PredefinedMetricSpecification"] = {
            "PredefinedMetricType": METRICS[scaling.dimension]
        }
    return found


def build_wake() -> dict[str, Any]:
    """StepScalingPolicyConfiguration that starts the first instance for a queue."""
    return {
        "AdjustmentType": "ChangeInCapacity",
        "MetricAggregationType": "Maximum",
        "Cooldown": OUT_COOLDOWN_S,
        "StepAdjustments": [{"MetricIntervalLowerBound": 0.0, "ScalingAdjustment": 1}],
    }


def build_wake_alarm(endpoint: str) -> dict[str, Any]:
    """The alarm of that policy, without its action: a request waits, and no instance serves."""
    return {
        "Namespace": "AWS/SageMaker",
        "MetricName": WITHOUT_CAPACITY,
        "Dimensions": [{"Name": "EndpointName", "Value": endpoint}],
        "Statistic": "Maximum",
        "Period": 10,
        "EvaluationPeriods": 1,
        "Threshold": 0.0,
        "ComparisonOperator": "GreaterThanThreshold",
        "TreatMissingData": "notBreaching",
    }


def build_scaling_document(scaling: FitScaling, endpoint: str) -> dict[str, Any]:
    """The field Scaling of a document for `hostelry apply`."""
    policies = {POLICY_NAME: build_tracking(scaling, endpoint)}
    if scaling.on_backlog:
        policies[WAKE_NAME] = build_wake()
    found: dict[str, Any] = {
        "MinCapacity": scaling.minimum,
        "MaxCapacity": scaling.maximum,
        "Policies": policies,
    }
    if scaling.quiet is not None:
        found["ScheduledActions"] = {
            name: {"Schedule": schedule, "Timezone": scaling.quiet.time_zone, "MinCapacity": least}
            for name, schedule, least in _list_changes(scaling, scaling.quiet)
        }
    return found


def _list_changes(scaling: FitScaling, quiet: QuietHours) -> Iterator[tuple[str, str, int]]:
    """Yield name, schedule and MinCapacity of the scheduled actions."""
    yield "quiet", f"cron(0 {quiet.begin_hour} * * ? *)", 0
    yield "busy", f"cron(0 {quiet.end_hour} * * ? *)", scaling.minimum


@cache
def build_policies(scaling: FitScaling) -> PolicySet:
    """The same policies for the simulation."""
    of = {"ResourceId": RESOURCES[scaling.dimension], "ScalableDimension": scaling.dimension.value}
    requests: list[dict[str, Any]] = [
        {
            **of,
            "PolicyName": POLICY_NAME,
            "MinCapacity": scaling.minimum,
            "MaxCapacity": scaling.maximum,
            "TargetTrackingScalingPolicyConfiguration": build_tracking(scaling, "replay"),
        }
    ]
    if scaling.on_backlog:
        wake = {"PolicyName": WAKE_NAME, "StepScalingPolicyConfiguration": build_wake()}
        alarm = {"AlarmName": WAKE_NAME, "AlarmActions": [WAKE_NAME]}
        requests += [{**of, **wake}, {**build_wake_alarm("replay"), **alarm}]
    if scaling.quiet is not None:
        zone = {"ServiceNamespace": "sagemaker", "Timezone": scaling.quiet.time_zone}
        for name, schedule, least in _list_changes(scaling, scaling.quiet):
            bounds = {"ScalableTargetAction": {"MinCapacity": least}}
            requests.append(
                {**of, **zone, "ScheduledActionName": name, "Schedule": schedule, **bounds}
            )
    return build_policy_set(requests, POLICY_NAME)
