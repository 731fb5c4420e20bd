"""Counts and times of requests, reported to control. Kept while control is away."""

from collections import Counter, deque
from collections.abc import Iterable

from hostelry.base.clock import Clock
from hostelry.domain.async_request import AsyncMetricsReport, ScopedMetric
from hostelry.domain.metric import Sample
from hostelry.domain.scope import Scope
from hostelry.jobs.control_client import ControlDownError, ControlRefusedError, JobsControl
from hostelry.jobs.queue.work_claims import SharedWork
from hostelry.jobs.rules.async_metrics import build_variant_sample, round_value

MAX_VALUES = 5_000  # distinct values of all metrics between two reports
COUNT, MILLISECONDS, MICROSECONDS = "Count", "Milliseconds", "Microseconds"

PROCESSED = "InvocationsProcesssed"  # AWS spells it so
FAILURES = "InvocationFailures"
EXPIRED = "ExpiredRequests"
DOWNLOAD_FAILURES = "RequestDownloadFailures"
UPLOAD_FAILURES = "ResponseUploadFailures"
NOTIFICATION_FAILURES = "NotificationFailures"
DOWNLOAD_LATENCY = "RequestDownloadLatency"
UPLOAD_LATENCY = "ResponseUploadLatency"
TIME_IN_BACKLOG = "TimeInBacklog"
TOTAL_TIME = "TotalProcessingTime"

Place = tuple[Scope, str, str]  # scope, endpoint and variant


class AsyncMeasurements:
    """Counts and measurements, in memory like the gateway's counts."""

    def __init__(self) -> None:
        self._values: Counter[tuple[Place, str, str, float]] = Counter()
        self._queues: tuple[ScopedMetric, ...] = ()

    def count(self, place: Place, name: str) -> None:
        """Count one event."""
        self._add(place, name, COUNT, 1.0)

    def add_ms(self, place: Place, name: str, taken_s: float) -> None:
        """Note a time that is published in milliseconds."""
        self._add(place, name, MILLISECONDS, round_value(taken_s * 1e3))

    def add_us(self, place: Place, name: str, taken_s: float) -> None:
        """Note a time that is published in microseconds."""
        self._add(place, name, MICROSECONDS, round_value(taken_s * 1e6))

    def set_queues(self, queues: Iterable[ScopedMetric]) -> None:
        """Note the current state of the queues, in place of the previous state."""
        self._queues = tuple(queues)

    @property
    def has_queues(self) -> bool:
        """True if queues were seen since the last `take`."""
        return bool(self._queues)

    def take(self, now: float, *, with_queues: bool) -> tuple[ScopedMetric, ...]:
        """Take the samples since the last call, dated `now`, and the queues' samples if asked."""
        found: dict[tuple[Place, str, str], dict[float, int]] = {}
        for (place, name, unit, value), count in self._values.items():
            found.setdefault((place, name, unit), {})[value] = count
        self._values.clear()
        counted = [_sample(*key, values, now) for key, values in found.items()]
        queues, self._queues = self._queues, ()
        return (*counted, *queues) if with_queues else tuple(counted)

    def _add(self, place: Place, name: str, unit: str, value: float) -> None:
        key = (place, name, unit, value)
        if key in self._values or len(self._values) < MAX_VALUES:
            self._values[key] += 1


def _sample(
    place: Place, name: str, unit: str, values: dict[float, int], now: float
) -> ScopedMetric:
    scope, endpoint_name, variant_name = place
    sample: Sample = build_variant_sample(name, (endpoint_name, variant_name), values, unit, now)
    return ScopedMetric(scope=scope, sample=sample)


REPORT_S = 5.0
MAX_KEPT = 200
QUEUES = "metrics of queues"
TURN_S = 12.0  # how long a turn lasts: the next two reports may be late


class MetricReports:
    """The reports of one process, numbered, so that control publishes each once.

    Args:
        measurements: the source of reports.
        control: takes reports.
        clock: the time.
        shared: chooses the process that reports the queues, which several processes see.
        host: this host, if there are several.
    """

    def __init__(
        self,
        measurements: AsyncMeasurements,
        control: JobsControl,
        clock: Clock,
        shared: SharedWork,
        host: str = "",
    ) -> None:
        self._measurements = measurements
        self._control = control
        self._clock = clock
        self._shared = shared
        self._host = host
        self._started_at = clock.now()
        self._sequence = 0
        self._kept: deque[AsyncMetricsReport] = deque(maxlen=MAX_KEPT)

    async def send(self) -> None:
        """Report the measurements since the last call, and the reports that control lacks."""
        # One process reports the queues for all hosts, so that sums and counts are right.
        is_ours = self._measurements.has_queues and await self._shared.has_turn(QUEUES, TURN_S)
        samples = self._measurements.take(self._clock.now(), with_queues=is_ours)
        if samples:
            self._sequence += 1
            self._kept.append(
                AsyncMetricsReport(
                    started_at=self._started_at,
                    sequence=self._sequence,
                    samples=samples,
                    host=self._host,
                )
            )
        while self._kept:
            try:
                await self._control.report(self._kept[0])
            except ControlDownError:
                return
            except ControlRefusedError:
                self._kept.popleft()
                raise
            self._kept.popleft()

    async def finish(self) -> None:
        """Send the rest, and let another host report the queues."""
        await self.send()
        await self._shared.end_turn(QUEUES)
