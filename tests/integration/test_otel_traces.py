"""Calls go to an OpenTelemetry collector as spans: a real receiver of OTLP over HTTP."""

import asyncio
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from tests.cases import case, cases
from tests.integration.otlp_receiver import OtlpReceiver

from hostelry.base.clock import ManualClock
from hostelry.base.errors import TerminalError
from hostelry.base.http import HttpRequest
from hostelry.dataplane.tracing.call_ring import CallRing
from hostelry.services.otel_traces import (
    BATCH,
    ENDPOINTS,
    EXPORTER,
    QUEUE,
    SAMPLER,
    SHARE,
    TraceExport,
    build_trace_export,
    parse_sampling,
)

pytestmark = pytest.mark.integration
PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


class TraceReceiver(OtlpReceiver):
    """Takes traces."""

    def __init__(self) -> None:
        super().__init__("/v1/traces", ExportTraceServiceRequest, ExportTraceServiceResponse)

    def spans(self) -> list[Any]:
        """All received spans."""
        return [
            span
            for request in self.received
            for resource in request.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]


@pytest.fixture
def receiver(monkeypatch: pytest.MonkeyPatch) -> Iterator[TraceReceiver]:
    found = TraceReceiver()
    monkeypatch.setenv(ENDPOINTS[1], found.address)
    yield found
    found.close()


def exporter(**settings: str) -> TraceExport:
    return TraceExport("gateway-1", ManualClock(1_700_000_000.0), settings)


def one_call(export: TraceExport, request_id: str, traceparent: str | None = None) -> str:
    """Make a whole call, and return the `traceparent` that a copy gets."""
    ring = CallRing(lambda: 1_700_000_000.0, lambda: 5_000_000, sink=export)
    headers = {} if traceparent is None else {"traceparent": traceparent}
    request = HttpRequest("POST", "/endpoints/chat/invocations", headers=headers)
    call = ring.begin(request_id, "111122223333", request)
    call.operation, call.endpoint = "InvokeEndpoint", "chat"
    ring.end(call, is_whole=True)
    return request.headers["traceparent"]


def test_a_collector_receives_a_call_below_its_client_s_span(receiver: TraceReceiver) -> None:
    export = exporter()
    passed = one_call(export, "r-1", PARENT)
    assert export.export()
    root, arrival = receiver.spans()
    assert root.trace_id.hex() == PARENT[3:35]
    assert root.parent_span_id.hex() == PARENT[36:52]
    assert passed == f"00-{root.trace_id.hex()}-{root.span_id.hex()}-01"
    assert (root.name, root.kind, arrival.name) == ("InvokeEndpoint chat", 2, "arrival")
    assert arrival.parent_span_id == root.span_id
    assert root.start_time_unix_nano == 1_700_000_000 * 10**9
    attributes = {it.key: it.value for it in root.attributes}
    assert attributes["hostelry.request_id"].string_value == "r-1"
    assert attributes["http.response.status_code"].int_value == 200
    (resource,) = receiver.received[0].resource_spans
    names = {it.key: it.value.string_value for it in resource.resource.attributes}
    assert (names["service.name"], names["service.instance.id"]) == ("hostelry", "gateway-1")


def test_what_is_not_sampled_is_passed_on_as_such_and_not_exported(
    receiver: TraceReceiver,
) -> None:
    export = exporter(**{SAMPLER: "always_off"})
    assert one_call(export, "r-1", PARENT).endswith("-00")
    assert export.export()
    assert receiver.received == []


def test_what_does_not_fit_or_is_not_taken_is_dropped_and_counted(
    receiver: TraceReceiver, caplog: pytest.LogCaptureFixture
) -> None:
    export = exporter(**{QUEUE: "3", BATCH: "2"})
    for number in range(5):
        one_call(export, f"r-{number}")
    assert export.dropped == 2
    receiver.status = 400
    assert not export.export()
    assert export.dropped == 4
    assert "the spans of 4 calls are lost" in caplog.text
    receiver.status = 200
    asyncio.run(export.finish())
    assert len(receiver.spans()) == 2, "the last call, with its arrival"


@cases(
    "environment, share, follows",
    case("all, unless the client decided", {}, 1.0, True),
    case("none", {SAMPLER: "always_off"}, 0.0, False),
    case("a share", {SAMPLER: "traceidratio", SHARE: "0.1"}, 0.1, False),
    case("a share by default all", {SAMPLER: "parentbased_traceidratio"}, 1.0, True),
)
def test_samplers(environment: dict[str, str], share: float, follows: bool) -> None:
    found = parse_sampling(environment)
    assert (found.share, found.follows_parent) == (share, follows)


@cases(
    "environment",
    case("an unknown sampler", {SAMPLER: "jaeger_remote"}),
    case("a share above one", {SAMPLER: "traceidratio", SHARE: "2"}),
    case("a queue that is no number", {QUEUE: "many"}),
)
def test_invalid_settings_are_named_and_export_nothing(
    environment: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(TerminalError, match=next(reversed(environment))):
        exporter(**environment)
    given = {ENDPOINTS[0]: "http://collector:4318", **environment}
    assert build_trace_export("gateway-1", ManualClock(), given) is None
    assert "must be" in caplog.text


def test_traces_are_exported_where_a_collector_is_named_and_wanted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    named = {ENDPOINTS[1]: "http://collector:4318"}
    assert build_trace_export("g", ManualClock(), {}) is None
    assert build_trace_export("g", ManualClock(), {**named, EXPORTER: "none"}) is None
    assert build_trace_export("g", ManualClock(), named) is not None
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http", None)
    with pytest.raises(TerminalError, match=r"pip install 'hostelry\[otel\]'"):
        TraceExport("g", ManualClock(), named)
