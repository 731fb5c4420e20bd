"""Every measurement as Prometheus metrics, and their export to an OpenTelemetry collector.

The export needs the extra ``otel``. The exporter reads its own settings:
OTEL_EXPORTER_OTLP_ENDPOINT, OTEL_EXPORTER_OTLP_METRICS_ENDPOINT, ..._HEADERS and ..._TIMEOUT.
OTEL_METRIC_EXPORT_INTERVAL is in milliseconds.

Sources: Prometheus documentation, Exposition formats and Metric and label naming. OpenTelemetry
specification, OTLP Exporter Configuration and Metrics Data Model.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from prometheus_client import CollectorRegistry
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample
from starlette.requests import Request
from starlette.responses import Response

from hostelry import __version__
from hostelry.base.clock import Clock
from hostelry.base.errors import TerminalError
from hostelry.domain.load import LoadKey
from hostelry.metrics.persistence.durable import DurableMetrics
from hostelry.metrics.persistence.shared import SharedMetrics
from hostelry.metrics.sagemaker.census import Census
from hostelry.metrics.sagemaker.load_aggregator import LoadAggregator
from hostelry.metrics.sagemaker.totals import BOUNDS_S, Histogram, Total, Totals
from hostelry.store.records import State

LOG = logging.getLogger(__name__)
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
    """Collector that reads control's present values at each scrape.

    `metrics` is the metric store. Its use of memory and disk is shown, too.
    """

    def __init__(
        self,
        totals: Totals,
        aggregator: LoadAggregator,
        census: Callable[[], Census],
        state: State,
        clock: Clock,
        metrics: DurableMetrics | SharedMetrics,
    ) -> None:
        self._totals = totals
        self._aggregator = aggregator
        self._census = census
        self._state = state
        self._clock = clock
        self._metrics = metrics
        self.collectors: list[Callable[[], Iterable[Metric]]] = []  # of further families
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self)

    def describe(self) -> Iterator[Metric]:
        """Return nothing, because no metric name is reserved."""
        return iter(())

    def collect(self) -> Iterator[Metric]:
        """Every metric family with its samples."""
        totals = self._totals.read()
        yield from _requests(totals)
        yield from _capacity(self._census())
        yield self._alarms()
        reporting = GaugeMetricFamily("hostelry_gateway_reporting", "1 while gateways report.")
        reporting.add_metric((), float(self._aggregator.is_reporting(self._clock.now())))
        yield reporting
        yield from _store(self._metrics)
        for collect in self.collectors:
            yield from collect()
        build = GaugeMetricFamily("hostelry_build_info", "The version.", labels=("version",))
        build.add_metric((__version__,), 1.0)
        yield build

    def text(self) -> bytes:
        """Every metric family in Prometheus' text format."""
        return generate_latest(self._registry)

    def serve(self, request: Request) -> Response:
        """GET /internal/metrics. Runs in a thread, because it reads records."""
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


ENDPOINTS = ("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
INTERVAL = "OTEL_METRIC_EXPORT_INTERVAL"
DEFAULT_INTERVAL_MS = 60_000.0
LEAST_INTERVAL_MS = 100.0
NS = 1e9
MISSING = (
    "{name} is set, but metrics cannot be exported: the package {package} is missing. Install it "
    "with `pip install 'hostelry[otel]'`, or unset {name}."
)


class OtelExport:
    """Exporter of the metrics of `collect` at each interval.

    Raises TerminalError if the packages are missing or the interval is invalid.
    """

    def __init__(
        self,
        collect: Callable[[], Iterable[Metric]],
        clock: Clock,
        environment: Mapping[str, str],
    ) -> None:
        self._collect = collect
        self._clock = clock
        self._started_ns = int(clock.now() * NS)
        self._interval_s = interval_s(environment)
        try:
            from opentelemetry.exporter.otlp.proto.http import metric_exporter
            from opentelemetry.sdk import resources
            from opentelemetry.sdk.metrics import export
            from opentelemetry.sdk.util import instrumentation
        except ImportError as error:
            name = next(it for it in ENDPOINTS if environment.get(it))
            package = error.name or "opentelemetry"
            raise TerminalError(MISSING.format(name=name, package=package)) from error
        self._export: Any = export
        self._exporter = metric_exporter.OTLPMetricExporter()
        self._resource = resources.Resource.create(
            {"service.name": "hostelry", "service.version": __version__}
        )
        self._scope = instrumentation.InstrumentationScope("hostelry", __version__)
        self._failed = False

    async def run(self) -> None:
        """Export until cancelled."""
        while True:
            await self._clock.sleep(self._interval_s)
            await asyncio.to_thread(self.export)

    def export(self) -> bool:
        """Send the present values. False if the collector did not accept them."""
        result = self._exporter.export(self._metrics_data(), timeout_millis=10_000)
        is_taken = result is self._export.MetricExportResult.SUCCESS
        if is_taken is self._failed:
            self._failed = not is_taken
            if is_taken:
                LOG.info("the OpenTelemetry collector accepts metrics again")
            else:
                LOG.warning("the OpenTelemetry collector accepts no metrics; will be tried again")
        return is_taken

    def _metrics_data(self) -> Any:
        export, now_ns = self._export, int(self._clock.now() * NS)
        metrics = [
            export.Metric(
                name=family.name,
                description=family.documentation,
                unit=family.unit,
                data=self._data(family, now_ns),
            )
            for family in self._collect()
            if family.samples
        ]
        scoped = export.ScopeMetrics(scope=self._scope, metrics=metrics, schema_url="")
        resource = export.ResourceMetrics(
            resource=self._resource, scope_metrics=[scoped], schema_url=""
        )
        return export.MetricsData(resource_metrics=[resource])

    def _data(self, family: Metric, now_ns: int) -> Any:
        export = self._export
        if family.type == "histogram":
            points = [self._histogram(it, now_ns) for it in _series(family.samples)]
            return export.Histogram(
                data_points=points,
                aggregation_temporality=export.AggregationTemporality.CUMULATIVE,
            )
        numbers = [
            export.NumberDataPoint(
                attributes=sample.labels,
                start_time_unix_nano=self._started_ns,
                time_unix_nano=now_ns,
                value=sample.value,
            )
            for sample in family.samples
        ]
        if family.type == "counter":
            return export.Sum(
                data_points=numbers,
                aggregation_temporality=export.AggregationTemporality.CUMULATIVE,
                is_monotonic=True,
            )
        return export.Gauge(data_points=numbers)

    def _histogram(self, series: list[Sample], now_ns: int) -> Any:
        """One histogram, from Prometheus' cumulative buckets in ascending order."""
        buckets = [it for it in series if it.name.endswith("_bucket")]
        cumulative = [int(it.value) for it in buckets]
        before = [0, *cumulative[:-1]]
        total = next(it.value for it in series if it.name.endswith("_sum"))
        return self._export.HistogramDataPoint(
            attributes={k: v for k, v in series[0].labels.items() if k != "le"},
            start_time_unix_nano=self._started_ns,
            time_unix_nano=now_ns,
            count=cumulative[-1],
            sum=total,
            bucket_counts=[now - was for now, was in zip(cumulative, before, strict=True)],
            explicit_bounds=[float(it.labels["le"]) for it in buckets[:-1]],
            min=None,  # a Prometheus histogram has no minimum and maximum
            max=None,
        )


def is_wanted(environment: Mapping[str, str]) -> bool:
    """Whether the environment names a collector."""
    return any(environment.get(it) for it in ENDPOINTS)


def interval_s(environment: Mapping[str, str]) -> float:
    """Seconds between two exports. Raises TerminalError if the interval is invalid."""
    text = environment.get(INTERVAL) or str(DEFAULT_INTERVAL_MS)
    try:
        interval_ms = float(text)
    except ValueError:
        interval_ms = 0.0
    if not LEAST_INTERVAL_MS <= interval_ms < float("inf"):
        raise TerminalError(
            f"{INTERVAL} is {text!r}; it must be a number of milliseconds, at least "
            f"{LEAST_INTERVAL_MS:g}"
        )
    return interval_ms / 1000


def _series(samples: Iterable[Sample]) -> list[list[Sample]]:
    """The samples grouped by their labels other than `le`."""
    found: dict[tuple[tuple[str, str], ...], list[Sample]] = {}
    for sample in samples:
        labels = tuple(sorted((k, v) for k, v in sample.labels.items() if k != "le"))
        found.setdefault(labels, []).append(sample)
    return list(found.values())
