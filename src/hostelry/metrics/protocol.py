"""The seams of metrics: what was measured goes in, periods of statistics come out.

Who only asks takes a `MetricReader`, who only tells a `MetricWriter`; a `MetricStore` is both.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from hostelry.domain.metric import Datapoint, Metric, MetricStat, Sample
from hostelry.domain.scope import Scope


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricFilter:
    """Which metrics are asked for; None takes any. A dimension's value None takes any value.

    `exact` asks for just these dimensions, no more. `since` leaves out what has no data after it.
    """

    namespace: str | None = None
    name: str | None = None
    dimensions: Mapping[str, str | None] | None = None
    exact: bool = False
    since: float | None = None


class MetricReader(Protocol):
    """Series of every scope, to be asked. Thread-safe."""

    def datapoints(
        self, scope: Scope, stat: MetricStat, start: float, end: float
    ) -> Sequence[Datapoint]:
        """Periods that begin in [start, end), oldest first; a period without data is left out.

        Periods are aligned to multiples of their length.
        """
        ...

    def find(self, scope: Scope, wanted: MetricFilter) -> Sequence[Metric]:
        """Every metric that fits, in order."""
        ...

    def units(self, scope: Scope, metric: Metric) -> Sequence[str]:
        """The units that the metric's samples have, in order."""
        ...


class MetricWriter(Protocol):
    """Takes samples of every scope. Thread-safe; bounded."""

    def record(self, scope: Scope, samples: Sequence[Sample]) -> None:
        """Keep `samples`; on return they survive the death of the process.

        Raises RetryableError, with none of them kept, when that cannot be (the disk is full).
        """
        ...

    def emit(self, scope: Scope, samples: Sequence[Sample]) -> None:
        """Take what the platform itself measured: seen at once, whatever the disk does.

        On disk as `record` has it, or as soon as the disk takes writes again.
        """
        ...


class MetricStore(MetricReader, MetricWriter, Protocol):
    """Keeps what it takes, and tells of it."""
