"""Periodic export of the Prometheus metrics to an OpenTelemetry collector.

Needs the extra ``otel``. The exporter reads its own settings: OTEL_EXPORTER_OTLP_ENDPOINT,
OTEL_EXPORTER_OTLP_METRICS_ENDPOINT, ..._HEADERS, ..._TIMEOUT; OTEL_METRIC_EXPORT_INTERVAL is in ms.
Source: OpenTelemetry specification, OTLP Exporter Configuration; Metrics Data Model.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from prometheus_client.core import Metric
from prometheus_client.samples import Sample

from hostelry import __version__
from hostelry.base.clock import Clock
from hostelry.base.errors import TerminalError

LOG = logging.getLogger(__name__)
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
    """Exporter of the metrics that `collect` gives, at each interval.

    Raises TerminalError where the packages are missing or the interval is no number.
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
        """Send the present values; False where the collector did not accept them."""
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
            min=None,  # Prometheus histograms do not have them
            max=None,
        )


def is_wanted(environment: Mapping[str, str]) -> bool:
    """Whether the environment names a collector."""
    return any(environment.get(it) for it in ENDPOINTS)


def interval_s(environment: Mapping[str, str]) -> float:
    """Seconds between two exports; raises TerminalError for an interval that is invalid."""
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
