"""A component's metrics as AWS publishes them, by periods, from its loads of seconds.

A period in which nothing happened has zeros, as the platform emits them. What is divided by copies
has no value while none serves.
"""

from collections import deque
from collections.abc import Callable, Mapping, Sequence

from hostelry.domain.load import SecondLoad
from hostelry.domain.metric import Datapoint, Metric, MetricStat
from hostelry.domain.scope import Scope
from hostelry.metrics.protocol import MetricFilter

KEPT_S = 2 * 3600
CONCURRENT = frozenset({"ConcurrentRequestsPerCopy", "ConcurrentRequestsPerModel"})
PER_COPY = CONCURRENT | {"InvocationsPerCopy", "InvocationsPerInstance"}


class Row:
    """One second: what it adds to the metrics of its period."""

    __slots__ = ("load", "second", "serving")

    def __init__(self, load: SecondLoad, serving: int) -> None:
        self.second = load.second
        self.load = load
        self.serving = serving


Values = list[float]
Reading = Callable[[Row], Values]


def _shared(value: Callable[[SecondLoad], float]) -> Reading:
    return lambda row: [value(row.load) / row.serving] if row.serving else []


READINGS: Mapping[str, Reading] = {
    "ConcurrentRequestsPerCopy": lambda row: [row.load.in_flight_mean],
    "ConcurrentRequestsPerModel": lambda row: [row.load.in_flight_mean],
    "Invocations": lambda row: [float(row.load.arrivals)],
    "InvocationsPerCopy": _shared(lambda load: float(load.arrivals)),
    "InvocationsPerInstance": _shared(lambda load: float(load.arrivals)),
    "NoCapacityInvocationFailures": lambda row: [float(row.load.no_capacity)],
    "Invocation5XXErrors": lambda row: [float(row.load.errors_5xx)],
    "Invocation4XXErrors": lambda row: [float(row.load.errors_4xx)],
    "ModelLatency": lambda row: list(row.load.model_latency_us.values),
    "FirstChunkLatency": lambda row: list(row.load.first_chunk_latency_us.values),
}
# Nothing is published of these where nothing happened; the others have zeros.
WITHOUT_ZEROS = frozenset({"ModelLatency", "FirstChunkLatency", "NoCapacityInvocationFailures"})


class PublishedMetrics:
    """A `MetricReader` of one component's seconds, whatever dimensions are asked.

    Args:
        serving: how many copies serve now.
        begins_at: there is nothing of periods that began before.
    """

    def __init__(self, serving: Callable[[], int], begins_at: float) -> None:
        self._begins_at = begins_at
        self._rows: deque[Row] = deque(maxlen=KEPT_S)
        self._serving = serving
        self._known: dict[MetricStat, dict[float, float | None]] = {}

    def see(self, load: SecondLoad) -> None:
        """Take a second; seconds in which nothing happened may be left out."""
        self._rows.append(Row(load, self._serving()))

    def datapoints(
        self, scope: Scope, stat: MetricStat, start: float, end: float
    ) -> Sequence[Datapoint]:
        """Periods that begin in [start, end), oldest first; a period without data is left out.

        Raises KeyError for a metric that is not replayed.
        """
        known = self._known.setdefault(stat, {})
        period_s = stat.period_s
        found: list[Datapoint] = []
        at = -(-max(start, self._begins_at) // period_s) * period_s
        while at < end:
            if at not in known:
                known[at] = self._value(stat, at)
            value = known[at]
            if value is not None:
                found.append(Datapoint(at, value))
            at += period_s
        while len(known) > KEPT_S // period_s + 100:
            del known[next(iter(known))]
        return found

    def units(self, scope: Scope, metric: Metric) -> Sequence[str]:
        """No units are told."""
        return ()

    def find(self, scope: Scope, wanted: MetricFilter) -> Sequence[Metric]:
        """No SEARCH is replayed."""
        return ()

    def _value(self, stat: MetricStat, at: float) -> float | None:
        rows: list[Row] = []
        for row in reversed(self._rows):
            if row.second < at:
                break
            if row.second < at + stat.period_s:
                rows.append(row)
        name = stat.metric.name
        serving = rows[0].serving if rows else self._serving()  # of the period's end
        if name in PER_COPY and not serving:
            return None
        if name in CONCURRENT:
            return _concurrency(stat, rows) / serving
        reading = READINGS[name]
        values = [value for row in rows for value in reading(row)]
        if name not in WITHOUT_ZEROS and len(rows) < stat.period_s:
            values.append(0.0)
        return statistic_of(stat.statistic, values)


def _concurrency(stat: MetricStat, rows: Sequence[Row]) -> float:
    """In flight over a period, as one set of statistics: of its mean, its most and its least."""
    is_whole = len(rows) >= stat.period_s
    summed = sum(row.load.in_flight_mean for row in rows)
    by_name = {
        "SampleCount": float(stat.period_s),
        "Sum": summed,
        "Average": summed / stat.period_s,
        "Maximum": float(max((row.load.in_flight_max for row in rows), default=0)),
        "Minimum": float(min((row.load.in_flight_min for row in rows), default=0) * is_whole),
    }
    return by_name[stat.statistic]


def statistic_of(name: str, values: Values) -> float | None:
    """The statistic of what a period held; None where it held nothing.

    Raises KeyError for a statistic that is not replayed.
    """
    if name == "SampleCount":
        return float(len(values))
    if not values:
        return None
    if name.startswith("p") and name[1:].replace(".", "", 1).isdigit():
        place = float(name[1:]) / 100.0 * len(values)
        return sorted(values)[min(len(values) - 1, max(0, round(place + 0.5) - 1))]
    return STATISTICS[name](values)


STATISTICS: Mapping[str, Callable[[Values], float]] = {
    "Sum": sum,
    "Average": lambda values: sum(values) / len(values),
    "Maximum": max,
    "Minimum": min,
}
