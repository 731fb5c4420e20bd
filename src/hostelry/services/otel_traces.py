"""Export of calls as spans to an OpenTelemetry collector, in batches, after they have ended.

Needs the extra ``otel``. The exporter reads its own settings: OTEL_EXPORTER_OTLP_ENDPOINT,
OTEL_EXPORTER_OTLP_TRACES_ENDPOINT, ..._HEADERS, ..._TIMEOUT. Source: OpenTelemetry specification,
SDK environment variables (OTEL_TRACES_SAMPLER, OTEL_BSP_*), and OTLP Exporter Configuration.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any

from hostelry import __version__
from hostelry.base.clock import Clock
from hostelry.base.errors import TerminalError
from hostelry.dataplane.tracing.call_document import call_document
from hostelry.dataplane.tracing.call_spans import (
    CallSpan,
    TraceSampling,
    call_spans,
    trace_ids,
)
from hostelry.dataplane.tracing.call_trace import CallTrace, read

LOG = logging.getLogger(__name__)
ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
EXPORTER, SAMPLER, SHARE = "OTEL_TRACES_EXPORTER", "OTEL_TRACES_SAMPLER", "OTEL_TRACES_SAMPLER_ARG"
DELAY, QUEUE = "OTEL_BSP_SCHEDULE_DELAY", "OTEL_BSP_MAX_QUEUE_SIZE"
BATCH = "OTEL_BSP_MAX_EXPORT_BATCH_SIZE"
SAMPLERS = ("always_on", "always_off", "traceidratio")
PARENT = "parentbased_"
MAX_CALL_BYTES = 64 * 1024  # of a waiting call. A larger one is dropped
FINISH_S = 3.0
REPORT_EVERY_S = 60.0


class TraceExport:
    """The calls that wait for their export, at most `max_waiting`. The rest is dropped and counted.

    Raises TerminalError if the packages are missing or a setting is invalid.
    """

    def __init__(self, worker: str, clock: Clock, environment: Mapping[str, str]) -> None:
        self.sampling = parse_sampling(environment)
        self.dropped = 0
        self._worker = worker
        self._clock = clock
        self._delay_s = _number(environment, DELAY, 5_000.0) / 1000
        self._max_waiting = int(_number(environment, QUEUE, 2_048.0))
        self._max_batch = int(_number(environment, BATCH, 512.0))
        self._waiting: deque[bytes] = deque()
        self._reported, self._reported_at = 0, 0.0
        try:
            from opentelemetry import trace
            from opentelemetry.exporter.otlp.proto.http import trace_exporter
            from opentelemetry.sdk import resources
            from opentelemetry.sdk import trace as sdk_trace
            from opentelemetry.sdk.trace import export
            from opentelemetry.sdk.util import instrumentation
        except ImportError as error:
            name = next(it for it in ENDPOINTS if environment.get(it))
            raise TerminalError(
                f"{name} is set, but traces cannot be exported: the package "
                f"{error.name or 'opentelemetry'} is missing. Install it with "
                f"`pip install 'hostelry[otel]'`, or unset {name}."
            ) from error
        self._trace: Any = trace
        self._span_type: Any = sdk_trace.ReadableSpan
        self._success: Any = export.SpanExportResult.SUCCESS
        self._exporter = trace_exporter.OTLPSpanExporter()
        self._resource = resources.Resource.create(
            {
                "service.name": "hostelry",
                "service.version": __version__,
                "service.instance.id": worker,
            }
        )
        self._scope = instrumentation.InstrumentationScope("hostelry.gateway", __version__)

    def build_traceparent(self, call: CallTrace) -> str:
        """The `traceparent` for the copies of a call that begins."""
        ids = trace_ids(call.request_id, call.traceparent)
        return ids.build_traceparent(is_sampled=self.sampling.has(ids))

    def take(self, call: CallTrace, kept: bytes) -> None:
        """Take a call that is over, if it is sampled. Never waits."""
        if not self.sampling.has(trace_ids(call.request_id, call.traceparent)):
            return
        if len(self._waiting) >= self._max_waiting or len(kept) > MAX_CALL_BYTES:
            self.dropped += 1
        else:
            self._waiting.append(kept)

    async def run(self) -> None:
        """Export until cancelled: at each delay, at once while a whole batch waits."""
        while True:
            if len(self._waiting) < self._max_batch:
                await self._clock.sleep(self._delay_s)
            await asyncio.to_thread(self.export)

    async def finish(self) -> None:
        """Export what waits, for some seconds at most."""
        try:
            async with asyncio.timeout(FINISH_S):
                while self._waiting:
                    await asyncio.to_thread(self.export)
        except TimeoutError:
            LOG.warning("the spans of %d calls were not exported in time", len(self._waiting))

    def export(self) -> bool:
        """Send one batch. If the collector did not take it, drop its calls and return False."""
        batch = [self._waiting.popleft() for _ in range(min(len(self._waiting), self._max_batch))]
        if not batch:
            return True
        is_taken = self._exporter.export(list(self._spans(batch))) is self._success
        if not is_taken:
            self.dropped += len(batch)
        self._report()
        return is_taken

    def _spans(self, batch: Iterable[bytes]) -> Iterable[Any]:
        for kept in batch:
            call = read(kept)
            ids = trace_ids(call.request_id, call.traceparent)
            for span in call_spans(call_document(call, self._worker), ids):
                yield self._readable(span)

    def _readable(self, span: CallSpan) -> Any:
        trace = self._trace

        def context(span_id: str, *, is_remote: bool) -> Any:
            return trace.SpanContext(
                trace_id=int(span.trace_id, 16),
                span_id=int(span_id, 16),
                is_remote=is_remote,
                trace_flags=trace.TraceFlags(trace.TraceFlags.SAMPLED),
            )

        status = trace.Status(trace.StatusCode.UNSET)
        if span.error is not None:
            status = trace.Status(trace.StatusCode.ERROR, span.error)
        parent = span.parent_id
        return self._span_type(
            name=span.name,
            context=context(span.span_id, is_remote=False),
            parent=None if parent is None else context(parent, is_remote=span.is_call),
            resource=self._resource,
            attributes=dict(span.attributes),
            kind=trace.SpanKind.SERVER if span.is_call else trace.SpanKind.INTERNAL,
            status=status,
            start_time=span.start_ns,
            end_time=span.end_ns,
            instrumentation_scope=self._scope,
        )

    def _report(self) -> None:
        """Log the number of dropped calls, once a minute at most."""
        now = self._clock.now()
        if self.dropped > self._reported and now - self._reported_at >= REPORT_EVERY_S:
            LOG.warning(
                "the spans of %d calls are lost by now: the collector does not take them, or not "
                "fast enough",
                self.dropped,
            )
            self._reported, self._reported_at = self.dropped, now


def build_trace_export(
    worker: str, clock: Clock, environment: Mapping[str, str]
) -> TraceExport | None:
    """The export that the environment asks for. None without one, or if it is impossible."""
    wanted = any(environment.get(it) for it in ENDPOINTS)
    if not wanted or environment.get(EXPORTER, "otlp") == "none":
        return None
    try:
        return TraceExport(worker, clock, environment)
    except TerminalError as error:
        LOG.error("%s", error)  # noqa: TRY400 - the message says all
        return None


def parse_sampling(environment: Mapping[str, str]) -> TraceSampling:
    """The sampler of OTEL_TRACES_SAMPLER. Raises TerminalError if it is unknown."""
    given = environment.get(SAMPLER) or f"{PARENT}always_on"
    name = given.removeprefix(PARENT)
    if name not in SAMPLERS:
        known = ", ".join([*SAMPLERS, *(PARENT + it for it in SAMPLERS)])
        raise TerminalError(f"{SAMPLER} is {given!r}; it must be one of {known}")
    share = {"always_on": 1.0, "always_off": 0.0}.get(name)
    if share is None:
        share = _number(environment, SHARE, 1.0, least=0.0, most=1.0)
    return TraceSampling(share=share, follows_parent=given.startswith(PARENT))


def _number(
    environment: Mapping[str, str],
    name: str,
    otherwise: float,
    least: float = 1.0,
    most: float = 1e7,
) -> float:
    text = environment.get(name) or str(otherwise)
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not least <= value <= most:
        raise TerminalError(f"{name} is {text!r}; it must be a number from {least:g} to {most:g}")
    return value
