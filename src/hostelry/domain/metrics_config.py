"""MetricsConfig of an endpoint configuration: enhanced metrics, and the publishing period."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

PERIODS_S = (10, 30, 60, 120, 180, 240, 300)
DEFAULT_PERIOD_S = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricsConfig:
    """Whether instances, containers and accelerators have metrics of their own, and the period.

    Source: MetricsConfig in the SageMaker API reference.
    """

    is_enhanced: bool = False
    period_s: int = DEFAULT_PERIOD_S

    @property
    def request_period_s(self) -> int:
        """The period of request metrics: `period_s` if enhanced, at most a minute."""
        return min(self.period_s, DEFAULT_PERIOD_S) if self.is_enhanced else DEFAULT_PERIOD_S


def metrics_config_of(given: Mapping[str, Any]) -> MetricsConfig:
    """The MetricsConfig of a request, with the defaults for missing fields."""
    asked = given.get("MetricsConfig") or {}
    period_s = asked.get("MetricPublishFrequencyInSeconds")
    return MetricsConfig(
        is_enhanced=bool(asked.get("EnableEnhancedMetrics")),
        period_s=DEFAULT_PERIOD_S if period_s is None else period_s,
    )
