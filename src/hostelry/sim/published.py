"""A component's metrics by periods, from its seconds, by the platform's own rules of emission.

A replay computes a period when an alarm asks for it, from `metrics.sagemaker.load_metrics`, instead
of writing each second to a store: most of a trace no alarm ever reads.
"""

import math
from collections import deque
from collections.abc import Callable, Iterator, Sequence

import msgspec
from msgspec.structs import replace

from hostelry.domain.load import LoadKey, SecondLoad
from hostelry.domain.metric import Datapoint, Metric, MetricStat
from hostelry.domain.scope import Scope
from hostelry.jobs.rules.async_metrics import build_backlog_samples
from hostelry.metrics.protocol import MetricFilter
from hostelry.metrics.sagemaker.census import (
    Census,
    ComponentCensus,
    InstanceCapacity,
    Resources,
    ScopedSample,
    VariantCensus,
    get_host_key,
)
from hostelry.metrics.sagemaker.load_metrics import (
    GAUGE_PERIOD_S,
    Activity,
    InFlight,
    concurrency,
    invocations_per_copy,
    list_dimensions,
    requests,
    zeros,
)
from hostelry.metrics.series.bucket import build_bucket, merge_buckets
from hostelry.metrics.series.statistic import statistic

KEPT_S = 2 * 3600
CONCURRENT = ("ConcurrentRequestsPerCopy", "ConcurrentRequestsPerModel")
SHARES = ("InvocationsPerCopy", "InvocationsPerInstance")
OF_INSTANCES = frozenset({"ConcurrentRequestsPerModel", "InvocationsPerInstance"})
BACKLOG, WITHOUT_CAPACITY = "ApproximateBacklogSizePerInstance", "HasBacklogWithoutCapacity"
OF_QUEUES = (BACKLOG, WITHOUT_CAPACITY)
REPLAYED = (
    *CONCURRENT,
    *OF_QUEUES,
    "Invocations",
    *SHARES,
    "NoCapacityInvocationFailures",
    "Invocation5XXErrors",
    "Invocation4XXErrors",
    "ModelLatency",
    "FirstChunkLatency",
)
REPLAYED_STATISTICS = ("Sum", "Average", "Maximum", "Minimum", "SampleCount")


class PublishedSecond(msgspec.Struct, frozen=True):
    """One second's load, and how many copies served at its end."""

    load: SecondLoad
    serving: int


class PublishedMetrics:
    """A `MetricReader` of one component's seconds, whatever dimensions are asked.

    Args:
        key: the component.
        serving: how many copies serve now.
        begins_at: there is nothing of periods that began before.
    """

    def __init__(self, key: LoadKey, serving: Callable[[], int], begins_at: float) -> None:
        self._key = key
        self._begins_at = begins_at
        self._seconds: deque[PublishedSecond] = deque(maxlen=KEPT_S)
        self._serving = serving
        self._known: dict[MetricStat, dict[int, Datapoint | None]] = {}

    def see(self, load: SecondLoad) -> None:
        """Take a second. Seconds in which nothing happened may be left out."""
        self._seconds.append(PublishedSecond(load, self._serving()))

    def datapoints(
        self, scope: Scope, stat: MetricStat, start: float, end: float
    ) -> Sequence[Datapoint]:
        """Periods that begin in [start, end), oldest first, without periods that have no data."""
        known = self._known.setdefault(stat, {})
        period_s = stat.period_s
        first = int(-(-max(start, self._begins_at) // period_s) * period_s)
        instants = range(first, math.ceil(end), period_s)
        for at in [it for it in instants if it not in known]:
            value = self._value(stat, at)
            known[at] = None if value is None else Datapoint(float(at), value)
        while len(known) > KEPT_S // period_s + 100:
            del known[next(iter(known))]
        return [it for it in map(known.get, instants) if it is not None]

    def units(self, scope: Scope, metric: Metric) -> Sequence[str]:
        """No units are known."""
        return ()

    def find(self, scope: Scope, wanted: MetricFilter) -> Sequence[Metric]:
        """No SEARCH is replayed."""
        return ()

    def _value(self, stat: MetricStat, at: int) -> float | None:
        name = stat.metric.name
        key = get_host_key(self._key) if name in OF_INSTANCES else self._key
        emitted = self._gauges if name in CONCURRENT else self._counts
        names = _get_names(key)
        if name in OF_QUEUES:
            emitted, names = self._backlog, ((("EndpointName", key.endpoint_name),),)
        buckets = [
            build_bucket(sample)
            for _, sample in emitted(name, key, at, at + stat.period_s)
            if sample.metric.name == name and sample.metric.dimensions in names
        ]
        found = [it for it in buckets if it is not None]
        return statistic(stat.statistic)(merge_buckets(found)) if found else None

    def _gauges(self, name: str, key: LoadKey, at: int, end: int) -> Iterator[ScopedSample]:
        """In flight over each ten seconds, by the copies that served at their end."""
        for start in range(-(-at // GAUGE_PERIOD_S) * GAUGE_PERIOD_S, end, GAUGE_PERIOD_S):
            seconds = self._between(start, start + GAUGE_PERIOD_S)
            loads = [it.load for it in seconds]
            is_whole = len(loads) >= GAUGE_PERIOD_S
            seen = InFlight(
                mean=sum(it.in_flight_mean for it in loads) / GAUGE_PERIOD_S,
                least=min((it.in_flight_min for it in loads), default=0) if is_whole else 0,
                most=max((it.in_flight_max for it in loads), default=0),
            )
            serving = seconds[-1].serving if seconds else self._serving()
            yield from concurrency(start, seen, key, build_census(key, serving))

    def _backlog(self, name: str, key: LoadKey, at: int, end: int) -> Iterator[ScopedSample]:
        """The queue of an asynchronous endpoint every ten seconds. Requests are in flight in it."""
        for start in range(-(-at // GAUGE_PERIOD_S) * GAUGE_PERIOD_S, end, GAUGE_PERIOD_S):
            seconds = self._between(start, start + GAUGE_PERIOD_S)
            size = round(seconds[-1].load.in_flight_mean) if seconds else 0
            waiting = seconds[-1].load.held if seconds else 0
            serving = seconds[-1].serving if seconds else self._serving()
            running = max(0, size - waiting)
            for sample in build_backlog_samples(
                key.endpoint_name, waiting, running, None, serving, start
            ):
                yield key.scope, sample

    def _counts(self, name: str, key: LoadKey, at: int, end: int) -> Iterator[ScopedSample]:
        """The counts of requests in each second, and zeros if no second had any."""
        seconds = self._between(at, end)
        for second in seconds:
            load = second.load
            if name in SHARES:
                own = load if load.key == key else replace(load, key=key)
                yield from invocations_per_copy((own,), build_census(key, second.serving))
            else:
                yield from requests(load, build_census(key, second.serving))
        loads = [it.load for it in seconds]
        seen = Activity(
            arrived=any(it.arrivals for it in loads),
            arrived_on_copies=any(it.arrivals for it in loads),
            finished=any(it.finished for it in loads),
            refused=any(it.no_capacity for it in loads),
        )
        serving = seconds[-1].serving if seconds else self._serving()
        yield from zeros(at, key, seen, build_census(key, serving))

    def _between(self, at: int, end: int) -> list[PublishedSecond]:
        """The seconds in [at, end), oldest first."""
        found: list[PublishedSecond] = []
        for second in reversed(self._seconds):
            if second.load.second < at:
                break
            if second.load.second < end:
                found.append(second)
        return found[::-1]


def build_census(key: LoadKey, serving: int) -> Census:
    """The census of one component with `serving` copies, or of one variant with such instances."""
    if key.component_name is not None:
        return Census(components={key: ComponentCensus(key=key, num_copies=serving)})
    rooms = tuple(InstanceCapacity(id=str(it), shape=Resources()) for it in range(serving))
    variant = VariantCensus(key=key, config_name="", takes_components=False, instances=rooms)
    return Census(variants={key: variant})


def _get_names(key: LoadKey) -> tuple[tuple[tuple[str, str], ...], ...]:
    return list_dimensions(key, Census())
