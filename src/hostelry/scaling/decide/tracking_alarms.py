"""The two alarms that a target-tracking policy makes, and the metrics it may name.

Source: "Target tracking scaling policies" in the Application Auto Scaling user guide.
PutScalingPolicy (PredefinedMetricSpecification, CustomizedMetricSpecification) in its API
reference. "Monitor Amazon SageMaker AI with Amazon CloudWatch" for the metrics.
"""

import math
from collections.abc import Mapping
from enum import Enum

import msgspec

from hostelry.domain.alarm import AlarmRule, Comparison
from hostelry.domain.metric import MODEL_NAMESPACE, Metric, MetricStat
from hostelry.domain.scaling import Dimension, TargetTracking
from hostelry.scaling.decide.decision import Direction
from hostelry.scaling.decide.target_tracking import LOW_SHARE

HIGH_PERIODS = 3
LOW_PERIODS_OF: Mapping[int, int] = {10: 90, 60: 15}
CUSTOMIZED_PERIOD_S = 60


class Predefined(msgspec.Struct, frozen=True, kw_only=True):
    """The metric behind a PredefinedMetricType, and the dimension it scales."""

    metric_name: str
    statistic: str
    period_s: int
    dimension: Dimension


PREDEFINED: Mapping[str, Predefined] = {
    "SageMakerVariantInvocationsPerInstance": Predefined(
        metric_name="InvocationsPerInstance",
        statistic="Sum",
        period_s=60,
        dimension=Dimension.INSTANCES,
    ),
    "SageMakerVariantConcurrentRequestsPerModelHighResolution": Predefined(
        metric_name="ConcurrentRequestsPerModel",
        statistic="Maximum",
        period_s=10,
        dimension=Dimension.INSTANCES,
    ),
    "SageMakerVariantProvisionedConcurrencyUtilization": Predefined(
        metric_name="ServerlessProvisionedConcurrencyUtilization",
        statistic="Maximum",
        period_s=60,
        dimension=Dimension.PROVISIONED_CONCURRENCY,
    ),
    "SageMakerInferenceComponentInvocationsPerCopy": Predefined(
        metric_name="InvocationsPerCopy",
        statistic="Sum",
        period_s=60,
        dimension=Dimension.COPIES,
    ),
    "SageMakerInferenceComponentConcurrentRequestsPerCopyHighResolution": Predefined(
        metric_name="ConcurrentRequestsPerCopy",
        statistic="Maximum",
        period_s=10,
        dimension=Dimension.COPIES,
    ),
}


class AlarmSide(Enum):
    """Which of a policy's two alarms."""

    HIGH = "AlarmHigh"
    LOW = "AlarmLow"

    @property
    def direction(self) -> Direction:
        """Which way the policy is asked to scale by this alarm."""
        return Direction.OUT if self is AlarmSide.HIGH else Direction.IN


def build_alarm_name(resource_id: str, side: AlarmSide, uuid: str) -> str:
    """What AWS names the alarm."""
    return f"TargetTracking-{resource_id}-{side.value}-{uuid}"


def find_alarm_side(alarm_name: str) -> AlarmSide | None:
    """The side of a policy's alarm, by its name. None if no policy's alarm has such a name."""
    if not alarm_name.startswith("TargetTracking-"):
        return None
    # A resource's own name may hold such a word too: the alarm's comes last.
    places = {side: alarm_name.rfind(f"-{side.value}-") for side in AlarmSide}
    side, place = max(places.items(), key=lambda it: it[1])
    return side if place >= 0 else None


def build_alarm_rule(
    policy: TargetTracking, resource_id: str, side: AlarmSide, *, pace: float = 1.0
) -> AlarmRule:
    """When the alarm alarms: every one of its datapoints must breach.

    `pace` divides the number of datapoints that AlarmLow waits for, at least one remains. Raises
    ValueError for a predefined metric that is not known.
    """
    stat = (
        None if policy.predefined is None else get_predefined_stat(policy.predefined, resource_id)
    )
    period_s = CUSTOMIZED_PERIOD_S if stat is None else stat.period_s
    low_periods = max(1, math.ceil(LOW_PERIODS_OF[period_s] / pace))
    num_periods = HIGH_PERIODS if side is AlarmSide.HIGH else low_periods
    single = policy.queries[0].stat if len(policy.queries) == 1 else None
    return AlarmRule(
        evaluation_periods=num_periods,
        datapoints_to_alarm=num_periods,
        threshold=policy.target_value * (1.0 if side is AlarmSide.HIGH else LOW_SHARE),
        comparison=Comparison.GREATER if side is AlarmSide.HIGH else Comparison.LESS,
        stat=stat or single,
        queries=() if stat or single else policy.queries,
    )


def get_predefined_stat(predefined: str, resource_id: str) -> MetricStat:
    """The statistic that a predefined metric watches. Raises ValueError if it is unknown."""
    kind = PREDEFINED.get(predefined)
    if kind is None:
        raise ValueError(f"{predefined!r} is none of {', '.join(PREDEFINED)}")
    metric = Metric.of(MODEL_NAMESPACE, kind.metric_name, get_dimensions(resource_id))
    return MetricStat(metric=metric, period_s=kind.period_s, statistic=kind.statistic)


def get_dimensions(resource_id: str) -> Mapping[str, str]:
    """The dimensions of a resource's metrics. Raises ValueError if the id is invalid."""
    match resource_id.split("/"):
        case ["endpoint", endpoint, "variant", variant]:
            return {"EndpointName": endpoint, "VariantName": variant}
        case ["inference-component", component]:
            return {"InferenceComponentName": component}
    raise ValueError(
        f"{resource_id!r} is neither endpoint/NAME/variant/NAME nor inference-component/NAME"
    )


def has_same_metric(one: TargetTracking, other: TargetTracking, resource_id: str) -> bool:
    """Whether two policies of a resource track the same metric, by whatever name."""
    return get_watched_metric(one, resource_id) == get_watched_metric(other, resource_id)


def get_watched_metric(policy: TargetTracking, resource_id: str) -> object:
    """The identity of a policy's metric."""
    if policy.predefined is not None:
        stat: MetricStat | None = get_predefined_stat(policy.predefined, resource_id)
    else:
        stat = policy.queries[0].stat if len(policy.queries) == 1 else None
    if stat is not None:
        return stat.metric
    return tuple((it.id, it.expression, it.stat, it.return_data) for it in policy.queries)
