"""Internal routes for the jobs process: jobs, topics, metrics, data logs and data capture."""

import asyncio
import logging
import threading
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from hostelry.base.clock import Clock
from hostelry.base.json import decode
from hostelry.base.json_response import JsonResponse
from hostelry.domain.async_request import AsyncMetricsReport
from hostelry.domain.data_capture import CaptureCounts, CaptureReport
from hostelry.domain.endpoint import EndpointStatus
from hostelry.domain.load import LoadKey
from hostelry.domain.log_source import DataLine, DataLogReport, LogSource, source_of_copy, stream_of
from hostelry.domain.metric import MODEL_NAMESPACE, Sample
from hostelry.domain.publication_request import PublicationRequest
from hostelry.domain.scope import Scope
from hostelry.domain.transform_job import TransformEnd, TransformProgressReport
from hostelry.logs.events import LogsUnavailable, NewEvent
from hostelry.logs.store import LogStore
from hostelry.messaging.topic_publisher import TopicMissingError, TopicPublisher
from hostelry.metrics.protocol import MetricWriter
from hostelry.metrics.sagemaker.capture_samples import capture_samples
from hostelry.reconcile.transform_jobs import TransformJobs
from hostelry.store.records import State

LOG = logging.getLogger(__name__)
WAIT_S = 20.0


class TransformRoutes:
    """Handlers of ``/internal/transform-jobs`` and what is below it."""

    def __init__(self, transforms: TransformJobs) -> None:
        self._transforms = transforms

    async def jobs(self, request: Request) -> Response:
        """The jobs to be run, once they differ from those that the caller has; 304 after 20 s."""
        snapshot = await self._transforms.newer_than(request.query_params.get("have"), WAIT_S)
        return Response(status_code=304) if snapshot is None else JsonResponse(snapshot)

    async def progress(self, request: Request) -> Response:
        """204 once the progress is known; 400 for none."""
        try:
            self._transforms.note(decode(await request.body(), TransformProgressReport))
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            return _no_report(error)
        return Response(status_code=204)

    async def finish(self, request: Request) -> Response:
        """204 once the end is durable, also where it was before; 400 for none, 404 for no job."""
        try:
            end = decode(await request.body(), TransformEnd)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            return _no_report(error)
        if not await asyncio.to_thread(self._transforms.finish, end):
            return Response(f"there is no transform job {end.name}", 404)
        return Response(status_code=204)


def _no_report(error: Exception) -> Response:
    LOG.warning("a report on a transform job was refused: %s", error)
    return Response(f"no report on a transform job: {error}", 400)


MAX_MESSAGE_CHARACTERS = 256 * 1024
MAX_HOSTS = 1_000  # of which the newest report is known


class AsyncRoutes:
    """Handlers of /internal/publish, /internal/async-metrics and /internal/async-endpoint.

    Args:
        state: has the endpoints.
        topics: publishes messages.
        metrics: takes samples.
    """

    def __init__(self, state: State, topics: TopicPublisher, metrics: MetricWriter) -> None:
        self._state = state
        self._topics = topics
        self._metrics = metrics
        self._reported: dict[str, tuple[float, int]] = {}  # by host: the newest report's number
        self._reporting = threading.Lock()

    def routes(self) -> tuple[Route, ...]:
        """The routes."""
        return (
            Route("/internal/publish", self.publish, methods=["POST"]),
            Route("/internal/async-metrics", self.take, methods=["POST"]),
            Route("/internal/async-endpoint", self.known, methods=["GET"]),
        )

    async def publish(self, request: Request) -> Response:
        """204 once the message is durable; 404 without such a topic, 400 for no message."""
        return await _done(self._publish, await request.body(), "message")

    async def take(self, request: Request) -> Response:
        """204 once the samples are published, also where they were before; 400 for no report."""
        return await _done(self._take, await request.body(), "report")

    async def known(self, request: Request) -> Response:
        """Whether there is such an endpoint that is not being deleted."""
        asked = request.query_params
        scope = Scope(asked.get("account", ""), asked.get("region", ""))
        found = await asyncio.to_thread(self._state.endpoints.get, scope, asked.get("endpoint", ""))
        exists = found is not None and found.value.status is not EndpointStatus.DELETING
        return JsonResponse({"exists": exists})

    def _publish(self, body: bytes) -> int:
        asked = decode(body, PublicationRequest)
        if len(asked.message) > MAX_MESSAGE_CHARACTERS:
            raise ValueError(f"its {len(asked.message)} characters exceed {MAX_MESSAGE_CHARACTERS}")
        try:
            self._topics.publish(
                asked.topic_arn, asked.subject, asked.message, message_id=asked.message_id
            )
        except TopicMissingError:
            LOG.warning("a notification was refused: there is no topic %.300s", asked.topic_arn)
            return 404
        return 204

    def _take(self, body: bytes) -> int:
        report = decode(body, AsyncMetricsReport)
        by_scope: dict[Scope, list[Sample]] = {}
        for scoped in report.samples:
            check_sample(scoped.sample)
            by_scope.setdefault(scoped.scope, []).append(scoped.sample)
        with self._reporting:
            number = (report.started_at, report.sequence)
            if number > self._reported.get(report.host, (0.0, 0)):
                self._reported.pop(report.host, None)
                self._reported[report.host] = number
                if len(self._reported) > MAX_HOSTS:
                    oldest = next(iter(self._reported))  # by its last report
                    self._reported.pop(oldest)
                for scope, samples in by_scope.items():
                    self._metrics.emit(scope, samples)
        return 204


def check_sample(sample: Sample) -> None:
    """Raise ValueError for what is no sample of an asynchronous endpoint."""
    if sample.metric.namespace != MODEL_NAMESPACE or len(sample.values) != len(sample.counts):
        raise ValueError(f"{sample.metric} has another namespace, or no count for each value")


async def _done(act: Callable[[bytes], int], body: bytes, what: str) -> Response:
    try:
        status = await asyncio.to_thread(act, body)
    except (msgspec.MsgspecError, UnicodeDecodeError, ValueError) as error:
        LOG.warning("a %s of the jobs process was refused: %s", what, error)
        return Response(f"no {what}: {error}", 400)
    return Response(status_code=status)


MAX_SOURCES = 10_000


class DataLogRoutes:
    """The handler of POST /internal/data-log.

    Args:
        state: has the copies, which name the streams.
        logs: takes the lines.
        clock: is when.
    """

    def __init__(self, state: State, logs: LogStore, clock: Clock) -> None:
        self._state = state
        self._logs = logs
        self._clock = clock
        self._taken: tuple[float, int] = (0.0, 0)  # the newest report's process and number
        self._taking = threading.Lock()
        self._sources: dict[str, LogSource] = {}  # by copy

    def routes(self) -> tuple[Route, ...]:
        """The route."""
        return (Route("/internal/data-log", self.take, methods=["POST"]),)

    async def take(self, request: Request) -> Response:
        """204 once the lines are stored, or were before; 400 for no report, 503 for a full disk."""
        try:
            report = decode(await request.body(), DataLogReport)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            LOG.warning("a data log of the jobs process was refused: %s", error)
            return Response(f"no data log: {error}", 400)
        try:
            await asyncio.to_thread(self._take, report)
        except LogsUnavailable as error:
            return Response(str(error), 503)
        return Response(status_code=204)

    def _take(self, report: DataLogReport) -> None:
        with self._taking:
            number = (report.started_at, report.sequence)
            if number <= self._taken:
                return
            events: dict[tuple[Scope, str, str], list[NewEvent]] = {}
            for line in report.lines:
                stream = (line.scope, *stream_of(line, self._source(line)))
                event = NewEvent(at_ms=int(line.at * 1000), message=line.text)
                events.setdefault(stream, []).append(event)
            now_ms = int(self._clock.now() * 1000)
            for (scope, group, stream_name), found in events.items():
                self._logs.put(scope, group, stream_name, found, now_ms)
            self._taken = number

    def _source(self, line: DataLine) -> LogSource | None:
        """The copy of a line; one whose record is gone is remembered from earlier lines."""
        if line.copy_id is None:
            return None
        known = self._sources.get(line.copy_id)
        if known is None:
            found = self._state.copies.get(line.scope, line.copy_id)
            if found is None:
                return None
            if len(self._sources) >= MAX_SOURCES:
                self._sources.clear()
            known = self._sources[line.copy_id] = source_of_copy(found.value)
        return known


MAX_VARIANTS = 10_000
MAX_REPORTERS = 4096


class CaptureBoard:
    """Sums of data capture by variant, since control started; for threads.

    Args:
        metrics: takes the samples of each report.
    """

    def __init__(self, metrics: MetricWriter) -> None:
        self._metrics = metrics
        self._sums: dict[LoadKey, CaptureCounts] = {}
        self._reported: dict[str, tuple[float, int]] = {}
        self._lock = threading.Lock()

    def take(self, report: CaptureReport) -> None:
        """Count a report, once."""
        with self._lock:
            number = (report.started_at, report.sequence)
            if number <= self._reported.get(report.reporter, (0.0, 0)):
                return
            if len(self._reported) >= MAX_REPORTERS:
                self._reported.clear()
            self._reported[report.reporter] = number
            for variant in report.variants:
                sums = self._sums.pop(variant.key, None) or CaptureCounts()
                sums.add(variant.counts)
                self._sums[variant.key] = sums  # the last one reported is the last one dropped
            for key in list(self._sums)[:-MAX_VARIANTS]:
                del self._sums[key]
        for variant in report.variants:
            samples = list(capture_samples(variant.key, variant.counts, report.at))
            self._metrics.emit(variant.key.scope, samples)

    def of_endpoint(self, scope: Scope, name: str) -> list[Mapping[str, Any]]:
        """The sums of each variant of an endpoint as plain JSON values, by name."""
        with self._lock:
            found = [
                {"variant": key.variant_name, **msgspec.to_builtins(sums)}
                for key, sums in self._sums.items()
                if key.scope == scope and key.endpoint_name == name
            ]
        return sorted(found, key=lambda it: str(it["variant"]))

    def routes(self) -> tuple[Route, ...]:
        """The route."""
        return (Route("/internal/capture", self._post, methods=["POST"]),)

    async def _post(self, request: Request) -> Response:
        """204 once the report is counted, also where it was before; 400 for none."""
        try:
            report = decode(await request.body(), CaptureReport)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            LOG.warning("a report on data capture was refused: %s", error)
            return Response(f"no report on data capture: {error}", 400)
        await asyncio.to_thread(self.take, report)
        return Response(status_code=204)
