"""Metrics go to an OpenTelemetry collector: a real receiver of OTLP over HTTP, in this process."""

import sys
from collections.abc import Iterator
from typing import Any

import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from tests.integration.otlp_receiver import OtlpReceiver

from hostelry.base.clock import ManualClock
from hostelry.base.errors import TerminalError
from hostelry.control.exposition import ENDPOINTS, INTERVAL, OtelExport, interval_s, is_wanted

pytestmark = pytest.mark.integration


class MetricsReceiver(OtlpReceiver):
    """Takes metrics."""

    def __init__(self) -> None:
        super().__init__("/v1/metrics", ExportMetricsServiceRequest, ExportMetricsServiceResponse)

    def metrics(self) -> dict[str, Any]:
        """The newest export's metrics by name."""
        (resource,) = self.received[-1].resource_metrics
        (scope,) = resource.scope_metrics
        return {it.name: it for it in scope.metrics}


@pytest.fixture
def receiver(monkeypatch: pytest.MonkeyPatch) -> Iterator[MetricsReceiver]:
    found = MetricsReceiver()
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", found.address)
    yield found
    found.close()


def families() -> list[Metric]:
    requests = CounterMetricFamily("hostelry_requests", "Requests.", labels=("component",))
    requests.add_metric(("chat",), 7.0)
    in_flight = GaugeMetricFamily("hostelry_in_flight", "In flight.", labels=("component",))
    in_flight.add_metric(("chat",), 1.5)
    latency = HistogramMetricFamily("hostelry_latency", "Latency.", labels=("component",))
    latency.add_metric(("chat",), [("0.5", 3.0), ("1.0", 3.0), ("+Inf", 5.0)], 9.0)
    return [requests, in_flight, latency, GaugeMetricFamily("empty", "Nothing.")]


def exporter() -> OtelExport:
    return OtelExport(families, ManualClock(1_700_000_000.0), {})


def test_a_collector_receives_counters_gauges_and_histograms(receiver: MetricsReceiver) -> None:
    assert exporter().export()
    found = receiver.metrics()
    assert set(found) == {"hostelry_requests", "hostelry_in_flight", "hostelry_latency"}
    (point,) = found["hostelry_requests"].sum.data_points
    assert found["hostelry_requests"].sum.is_monotonic
    assert (point.as_double, point.attributes[0].value.string_value) == (7.0, "chat")
    assert point.start_time_unix_nano == 1_700_000_000 * 10**9
    assert found["hostelry_in_flight"].gauge.data_points[0].as_double == 1.5
    (histogram,) = found["hostelry_latency"].histogram.data_points
    assert (histogram.count, histogram.sum) == (5, 9.0)
    assert list(histogram.bucket_counts) == [3, 0, 2]
    assert list(histogram.explicit_bounds) == [0.5, 1.0]


def test_a_collector_that_refuses_is_sent_to_again_at_the_next_interval(
    receiver: MetricsReceiver, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "hostelry.control.exposition")
    export = exporter()
    receiver.status = 400
    assert [export.export(), export.export()] == [False, False]
    receiver.status = 200
    assert export.export()
    reported = [it.message for it in caplog.records if it.name == "hostelry.control.exposition"]
    assert ["accepts no" in it for it in reported] == [True, False]


def test_without_the_extra_the_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http", None)
    environment = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4318"}
    with pytest.raises(TerminalError, match=r"pip install 'hostelry\[otel\]'"):
        OtelExport(families, ManualClock(), environment)


@pytest.mark.parametrize("given", ["soon", "nan", "inf", "-5", "1"])
def test_an_interval_that_is_none_is_refused(given: str) -> None:
    with pytest.raises(TerminalError, match=INTERVAL):
        interval_s({INTERVAL: given})


def test_export_is_off_until_a_collector_is_named() -> None:
    assert not is_wanted({INTERVAL: "1000", ENDPOINTS[0]: ""})
    assert all(is_wanted({it: "http://collector:4318"}) for it in ENDPOINTS)
    assert interval_s({}) == 60.0
