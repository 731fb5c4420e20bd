"""CloudWatch: metrics, samples, datapoints, dashboards, and an endpoint's MetricsConfig."""

from collections.abc import Mapping
from typing import Any

import msgspec

from hostelry.domain.scope import Scope

MODEL_NAMESPACE = "AWS/SageMaker"
ENDPOINT_NAMESPACE = "/aws/sagemaker/Endpoints"
TRANSFORM_NAMESPACE = "/aws/sagemaker/TransformJobs"
RECOMMENDATION_NAMESPACE = "/aws/sagemaker/InferenceRecommendationsJobs"
AI_RECOMMENDATION_NAMESPACE = "/aws/sagemaker/AIRecommendationJobs"
COMPONENT_NAMESPACE = "/aws/sagemaker/InferenceComponents"
OWN_NAMESPACE = "Hostelry"


class Metric(msgspec.Struct, frozen=True, kw_only=True):
    """A metric's identity. Each set of dimensions is a separate metric, without rollups.

    `dimensions` are (name, value) in the order of their names.
    """

    namespace: str
    name: str
    dimensions: tuple[tuple[str, str], ...] = ()

    @classmethod
    def of(cls, namespace: str, name: str, dimensions: Mapping[str, str]) -> "Metric":
        """The metric with those dimensions, in any order."""
        return cls(namespace=namespace, name=name, dimensions=tuple(sorted(dimensions.items())))


class StatisticSet(msgspec.Struct, frozen=True, kw_only=True):
    """A summary of samples, without their distribution: it has no percentiles."""

    sample_count: float
    sum: float
    minimum: float
    maximum: float


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    """A measurement at `at` (seconds since the epoch). Each of `values` occurs `counts` times.

    If only a summary is known, `statistics` replaces the values. `resolution_s` is 1 (high
    resolution) or 60.
    """

    metric: Metric
    at: float
    values: tuple[float, ...] = ()
    counts: tuple[float, ...] = ()
    statistics: StatisticSet | None = None
    unit: str = "None"
    resolution_s: int = 60


class Datapoint(msgspec.Struct, frozen=True):
    """One statistic of one period. `at` is the period's start, in seconds since the epoch."""

    at: float
    value: float


class MetricStat(msgspec.Struct, frozen=True, kw_only=True):
    """One statistic of one metric by period. `statistic` is CloudWatch's name (Sum, p99 ...)."""

    metric: Metric
    period_s: int
    statistic: str
    unit: str | None = None


class MetricQuery(msgspec.Struct, frozen=True, kw_only=True):
    """A query of an alarm, a policy or GetMetricData: a `stat`, or an `expression`."""

    id: str
    stat: MetricStat | None = None
    expression: str | None = None
    label: str | None = None
    return_data: bool = True
    period_s: int | None = None


PERIODS_S = (10, 30, 60, 120, 180, 240, 300)
DEFAULT_PERIOD_S = 60


class MetricsConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Whether instances, containers and accelerators have separate metrics, and the period.

    Source: MetricsConfig in the SageMaker API reference.
    """

    is_enhanced: bool = False
    period_s: int = DEFAULT_PERIOD_S

    @property
    def request_period_s(self) -> int:
        """The period of request metrics: `period_s` if enhanced, but at most a minute."""
        return min(self.period_s, DEFAULT_PERIOD_S) if self.is_enhanced else DEFAULT_PERIOD_S


def get_metrics_config(given: Mapping[str, Any]) -> MetricsConfig:
    """The MetricsConfig of a request, with the defaults for missing fields."""
    asked = given.get("MetricsConfig") or {}
    period_s = asked.get("MetricPublishFrequencyInSeconds")
    return MetricsConfig(
        is_enhanced=bool(asked.get("EnableEnhancedMetrics")),
        period_s=DEFAULT_PERIOD_S if period_s is None else period_s,
    )


class Dashboard(msgspec.Struct, frozen=True, kw_only=True):
    """One dashboard. Its record is in its account's scope `everywhere`."""

    scope: Scope
    name: str
    body: str
    modified_at: float

    @property
    def arn(self) -> str:
        """Its ARN, which has no region."""
        return dashboard_arn(self.scope, self.name)


def everywhere(scope: Scope) -> Scope:
    """The scope of an account's dashboards. They are the same in every region."""
    return Scope(scope.account, "global")


def dashboard_arn(scope: Scope, name: str) -> str:
    """The ARN of an account's dashboard."""
    return f"arn:aws:cloudwatch::{scope.account}:dashboard/{name}"
