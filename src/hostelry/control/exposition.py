"""Every measurement as Prometheus metrics; `otel` exports the same ones.

Source: Prometheus documentation, Exposition formats; Metric and label naming.
"""

from collections import Counter
from collections.abc import Callable, Iterator

from prometheus_client import CollectorRegistry
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.registry import Collector
from starlette.requests import Request
from starlette.responses import Response

from hostelry import __version__
from hostelry.base.clock import Clock
from hostelry.domain.load import LoadKey
from hostelry.metrics.persistence.durable import DurableMetrics
from hostelry.metrics.persistence.shared import SharedMetrics
from hostelry.metrics.sagemaker.census import Census
from hostelry.metrics.sagemaker.load_aggregator import LoadAggregator
from hostelry.metrics.sagemaker.totals import BOUNDS_S, Histogram, Total, Totals
from hostelry.store.records import State

LABELS = ("account", "region", "endpoint", "variant", "component")
COUNTERS = (
    ("hostelry_requests", "Requests that came.", "arrivals"),
    ("hostelry_requests_finished", "Requests that ended, however they did.", "finished"),
    ("hostelry_requests_delayed", "Requests that had to wait for a copy.", "delayed"),
    ("hostelry_mirrors_dropped", "Requests that a shadow variant got no copy of.", "dropped"),
    ("hostelry_service_seconds", "Time that requests took on copies.", "service_s"),
)
ERRORS = (
    ("4xx", "errors_4xx"),
    ("5xx", "errors_5xx"),
    ("model", "model_errors"),
    ("no_capacity", "no_capacity"),
    ("broken_stream", "broken_streams"),
)
STORE = "hostelry_metric_store"
GAUGES = (
    ("hostelry_in_flight", "Requests in flight, the mean of the last second.", "in_flight"),
    ("hostelry_held", "Requests that wait for a copy.", "held"),
)
HISTOGRAMS = (
    ("hostelry_model_latency_seconds", "From a copy's being chosen to its whole answer.", "model"),
    ("hostelry_first_chunk_seconds", "From a stream's request to its first chunk.", "first_chunk"),
)


class Exposition(Collector):
    """Collector of what control knows at each scrape.

    Args:
        totals: counts of requests.
        board: whether gateways report.
        census: everything in service now.
        state: the alarms.
        clock: seconds since the epoch.
        metrics: the store of metrics, for its own use of memory and disk.
    """

    def __init__(
        self,
        totals: Totals,
        board: LoadAggregator,
        census: Callable[[], Census],
        state: State,
        clock: Clock,
        metrics: DurableMetrics | SharedMetrics,
    ) -> None:
        self._totals = totals
        self._board = board
        self._census = census
        self._state = state
        self._clock = clock
        self._metrics = metrics
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self)

    def describe(self) -> Iterator[Metric]:
        """Nothing: names are not reserved."""
        return iter(())

    def collect(self) -> Iterator[Metric]:
        """Every metric family with its samples."""
        totals = self._totals.read()
        yield from _requests(totals)
        yield from _capacity(self._census())
        yield self._alarms()
        reporting = GaugeMetricFamily("hostelry_gateway_reporting", "1 while gateways report.")
        reporting.add_metric((), float(self._board.is_reporting(self._clock.now())))
        yield reporting
        yield from _store(self._metrics)
        build = GaugeMetricFamily("hostelry_build_info", "The version.", labels=("version",))
        build.add_metric((__version__,), 1.0)
        yield build

    def text(self) -> bytes:
        """Every metric family in Prometheus' text format."""
        return generate_latest(self._registry)

    def serve(self, request: Request) -> Response:
        """GET /internal/metrics; runs in a thread, as it reads records."""
        return Response(self.text(), headers={"Content-Type": CONTENT_TYPE_LATEST})

    def _alarms(self) -> Metric:
        """The number of alarms in each state."""
        found: Counter[tuple[str, str, str]] = Counter()
        for kind in (self._state.metric_alarms, self._state.composite_alarms):
            for record in kind.list():
                alarm = record.value
                scope = alarm.scope
                found[scope.account, scope.region, alarm.status.state.value] += 1
        family = GaugeMetricFamily(
            "hostelry_alarms", "Alarms by state.", labels=("account", "region", "state")
        )
        for labels, count in sorted(found.items()):
            family.add_metric(labels, count)
        return family


def _requests(totals: list[tuple[LoadKey, Total]]) -> Iterator[Metric]:
    for name, words, member in COUNTERS:
        family = CounterMetricFamily(name, words, labels=LABELS)
        for key, total in totals:
            family.add_metric(_labels(key), getattr(total, member))
        yield family
    errors = CounterMetricFamily(
        "hostelry_request_errors", "Requests that went wrong.", labels=(*LABELS, "kind")
    )
    for key, total in totals:
        for kind, member in ERRORS:
            errors.add_metric((*_labels(key), kind), getattr(total, member))
    yield errors
    for name, words, member in GAUGES:
        gauge = GaugeMetricFamily(name, words, labels=LABELS)
        for key, total in totals:
            gauge.add_metric(_labels(key), getattr(total, member))
        yield gauge
    for name, words, member in HISTOGRAMS:
        histogram = HistogramMetricFamily(name, words, labels=LABELS)
        for key, total in totals:
            seen: Histogram = getattr(total, f"{member}_latency")
            histogram.add_metric(_labels(key), _buckets(seen), seen.sum_s)
        yield histogram


def _buckets(histogram: Histogram) -> list[tuple[str, float]]:
    bounds = [*map(str, BOUNDS_S), "+Inf"]
    return list(zip(bounds, map(float, histogram.cumulative()), strict=True))


def _capacity(census: Census) -> Iterator[Metric]:
    copies = GaugeMetricFamily("hostelry_copies", "Copies that serve.", labels=LABELS)
    for key, component in census.components.items():
        copies.add_metric(_labels(key), component.num_copies)
    yield copies
    instances = GaugeMetricFamily("hostelry_instances", "Instances that serve.", labels=LABELS)
    for key, variant in census.variants.items():
        instances.add_metric(_labels(key), len(variant.instances))
    yield instances


def _store(metrics: DurableMetrics | SharedMetrics) -> Iterator[Metric]:
    """The metric store's memory, evictions and journal."""
    series = GaugeMetricFamily(f"{STORE}_series", "Series of metrics kept.", labels=("account",))
    sizes = GaugeMetricFamily(f"{STORE}_bytes", "Memory that metrics take.", labels=("account",))
    for account, share in metrics.shares().items():
        series.add_metric((account,), share.num_series)
        sizes.add_metric((account,), share.size_bytes)
    yield from (series, sizes)
    stats, journal = metrics.stats(), metrics.journal()
    for name, words, gauge in (
        ("budget_bytes", "Memory that metrics may take.", stats.max_bytes),
        ("pressure", "The degree of giving up early; 0 as on AWS.", stats.pressure),
        ("journal_up", "1 while the disk takes what is put.", journal.is_taking),
        ("unkept", "1 while something measured is in memory only.", journal.is_behind),
        ("journal_bytes", "Written since the last snapshot.", journal.size_bytes),
        ("snapshot_bytes", "Size of the last snapshot.", journal.snapshot_bytes),
    ):
        yield GaugeMetricFamily(f"{STORE}_{name}", words, value=float(gauge))
    for name, words, count in (
        ("samples", "Samples taken.", stats.num_samples),
        ("refused_samples", "Samples put that the disk did not take.", journal.num_refused),
        ("evicted_series", "Series given up for want of memory.", stats.num_dropped_series),
    ):
        yield CounterMetricFamily(f"{STORE}_{name}", words, value=float(count))


def _labels(key: LoadKey) -> tuple[str, ...]:
    scope = key.scope
    return (
        scope.account,
        scope.region,
        key.endpoint_name,
        key.variant_name,
        key.component_name or "",
    )
