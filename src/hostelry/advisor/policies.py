"""Scaling of an option: one form for the simulation and for `apply`. PURE."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

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


@dataclass(frozen=True, slots=True, kw_only=True)
class FitScaling:
    """A target-tracking policy with its bounds. With `on_backlog` it tracks a queue's size."""

    dimension: Dimension
    minimum: int
    maximum: int
    target: float
    on_backlog: bool = False


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
    return {
        "MinCapacity": scaling.minimum,
        "MaxCapacity": scaling.maximum,
        "Policies": policies,
    }


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
    return build_policy_set(requests, POLICY_NAME)
