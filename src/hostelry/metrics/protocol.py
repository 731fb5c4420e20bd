"""Interfaces of metric stores, which take samples and return statistics by period.

A `MetricStore` is both a `MetricReader` and a `MetricWriter`. Callers depend on the half they use.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol

import msgspec

from hostelry.domain.metric import Datapoint, Metric, MetricStat, Sample
from hostelry.domain.scope import Scope


class MetricFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Selects metrics. None matches any. A dimension's value None matches any value.

    With `exact` a metric must have these dimensions and no others. With `since` it must have data
    after that time.
    """

    namespace: str | None = None
    name: str | None = None
    dimensions: Mapping[str, str | None] | None = None
    exact: bool = False
    since: float | None = None


class MetricReader(Protocol):
    """Reads the series of every scope. Thread-safe."""

    def datapoints(
        self, scope: Scope, stat: MetricStat, start: float, end: float
    ) -> Sequence[Datapoint]:
        """Datapoints of periods that begin in [start, end), oldest first, without empty periods.

        Periods are aligned to multiples of their length.
        """
        ...

    def find(self, scope: Scope, metric_filter: MetricFilter) -> Sequence[Metric]:
        """Every metric that matches, in order."""
        ...

    def units(self, scope: Scope, metric: Metric) -> Sequence[str]:
        """The units of the metric's samples, in order."""
        ...


class MetricWriter(Protocol):
    """Takes samples of every scope, within a limit of memory. Thread-safe."""

    def record(self, scope: Scope, samples: Sequence[Sample]) -> None:
        """Record `samples`. On return they survive the process.

        Raises RetryableError, and keeps none of them, if that is impossible (the disk is full).
        """
        ...

    def emit(self, scope: Scope, samples: Sequence[Sample]) -> None:
        """Take samples of the platform. They are visible at once, even while the disk fails.

        They are written as by `record`, or as soon as the disk takes writes again.
        """
        ...


class MetricStore(MetricReader, MetricWriter, Protocol):
    """A store that is read and written."""
