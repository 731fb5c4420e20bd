"""Internal routes for the jobs process: jobs, topics, metrics, data logs and data capture."""

import asyncio
import logging
import threading
from collections.abc import Iterable, Mapping
from typing import Any, Generic, Protocol, TypeVar

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from hostelry.base.clock import Clock
from hostelry.base.json import decode
from hostelry.base.json_response import JsonResponse, refuse_invalid
from hostelry.domain.ai_benchmark_job import AiBenchmarkEnd
from hostelry.domain.async_request import AsyncMetricsReport
from hostelry.domain.data_capture import CaptureCounts, CaptureReport
from hostelry.domain.endpoint import EndpointStatus
from hostelry.domain.load import LoadKey
from hostelry.domain.log_source import (
    JOB_GROUPS,
    DataLine,
    DataLogReport,
    LogSource,
    execution_stream,
    get_copy_source,
    get_stream,
)
from hostelry.domain.messaging import PublicationRequest
from hostelry.domain.metric import MODEL_NAMESPACE, Sample
from hostelry.domain.recommendation_job import BenchmarkEnd, RecommendationJob
from hostelry.domain.scope import Scope
from hostelry.domain.transform_job import TransformEnd, TransformProgressReport
from hostelry.logs.events import LogsUnavailable, NewEvent
from hostelry.logs.store import LogStore
from hostelry.messaging.topic_publisher import TopicMissingError, TopicPublisher
from hostelry.metrics.protocol import MetricWriter
from hostelry.metrics.sagemaker.load_metrics import capture_samples
from hostelry.reconcile.ai_benchmark_jobs import AiBenchmarkJobs
from hostelry.reconcile.job_loop import JobLoop
from hostelry.reconcile.recommendation_jobs import RecommendationJobs
from hostelry.reconcile.transform_jobs import TransformJobs
from hostelry.store.records import State

End = TypeVar("End", contravariant=True)
LOG = logging.getLogger(__name__)
WAIT_S = 20.0
MAX_MESSAGE_CHARACTERS = 256 * 1024
# Limits of kept reports: hosts, reporters with their newest report, copies, variants.
MAX_HOSTS = 1_000
MAX_SOURCES = 10_000
MAX_VARIANTS = 10_000
MAX_REPORTERS = 4096


class TransformRoutes:
    """Handlers of ``/internal/transform-jobs`` and of the paths below it."""

    def __init__(self, transforms: TransformJobs) -> None:
        self._transforms = transforms

    async def get_newer(self, request: Request) -> Response:
        """Return the jobs to run once they differ from the caller's, or 304 after 20 seconds."""
        snapshot = await self._transforms.loop.newer_than(request.query_params.get("have"), WAIT_S)
        return Response(status_code=304) if snapshot is None else JsonResponse(snapshot)

    async def note_progress(self, request: Request) -> Response:
        """Note the progress of a job and answer 204, or 400 if the report is invalid."""
        with refuse_invalid("report on a transform job"):
            self._transforms.note(decode(await request.body(), TransformProgressReport))
        return Response(status_code=204)

    async def finish(self, request: Request) -> Response:
        """Store the end of a job and answer 204, also if it was stored before.

        400 if the report is invalid, 404 if the job does not exist.
        """
        with refuse_invalid("report on a transform job"):
            end = decode(await request.body(), TransformEnd)
        if not await asyncio.to_thread(self._transforms.finish, end):
            return Response(f"there is no transform job {end.name}", 404)
        return Response(status_code=204)


class LoadedJobs(Protocol[End]):
    """Jobs of one kind, whose load the jobs process sends. It reports their ends."""

    @property
    def loop(self) -> JobLoop[Any, Any]:
        """The loop that drives them."""
        ...

    def finish(self, end: End, /) -> bool:
        """Store an end durably. False without such a job. A repeat changes nothing."""
        ...


class LoadedJobRoutes(Generic[End]):
    """Handlers of `path`, for one kind of jobs whose load the jobs process sends.

    `report` is the type of the body that reports an end, and `words` name the kind.
    """

    def __init__(self, path: str, jobs: LoadedJobs[End], report: type[End], words: str) -> None:
        self._path = path
        self._jobs = jobs
        self._report = report
        self._words = words

    def routes(self) -> tuple[Route, ...]:
        """The routes."""
        return (
            Route(self._path, self.get_newer, methods=["GET"]),
            Route(f"{self._path}/finish", self.finish, methods=["POST"]),
        )

    async def get_newer(self, request: Request) -> Response:
        """Return the loads to send once they differ from the caller's, or 304 after 20 seconds."""
        snapshot = await self._jobs.loop.newer_than(request.query_params.get("have"), WAIT_S)
        return Response(status_code=304) if snapshot is None else JsonResponse(snapshot)

    async def finish(self, request: Request) -> Response:
        """Store a reported end and answer 204, also if it was stored before.

        400 if the report is invalid, 404 if the job does not exist.
        """
        with refuse_invalid(f"report on an {self._words}"):
            end = decode(await request.body(), self._report)
        if not await asyncio.to_thread(self._jobs.finish, end):
            return Response(f"there is no such {self._words}", 404)
        return Response(status_code=204)


def loaded_job_routes(
    benchmarks: RecommendationJobs, searches: RecommendationJobs, ai_benchmarks: AiBenchmarkJobs
) -> tuple[Route, ...]:
    """The routes of each kind of jobs whose load the jobs process sends."""
    recommended = "inference recommendations job"
    return (
        *LoadedJobRoutes("/internal/benchmarks", benchmarks, BenchmarkEnd, recommended).routes(),
        *LoadedJobRoutes(
            "/internal/ai-recommendations", searches, BenchmarkEnd, "AI recommendation job"
        ).routes(),
        *LoadedJobRoutes(
            "/internal/ai-benchmarks", ai_benchmarks, AiBenchmarkEnd, "AI benchmark job"
        ).routes(),
    )


def note_job(logs: LogStore, clock: Clock, job: RecommendationJob, lines: Iterable[str]) -> None:
    """Write lines to the log stream of a job. They are lost while no log can be written."""
    now_ms = int(clock.now() * 1000)
    events = [NewEvent(at_ms=now_ms, message=it) for it in lines]
    if not events:
        return
    try:
        stream = execution_stream(job.name)
        logs.put(job.scope, JOB_GROUPS[job.hidden_kind], stream, events, now_ms)
    except LogsUnavailable as error:
        LOG.warning("%d lines about job %s are lost: %s", len(events), job.name, error)


class AsyncRoutes:
    """Handlers of /internal/publish, /internal/async-metrics and /internal/async-endpoint."""

    def __init__(self, state: State, topics: TopicPublisher, metrics: MetricWriter) -> None:
        self._state = state
        self._topics = topics
        self._metrics = metrics
        self._reported: dict[str, tuple[float, int]] = {}  # number of the newest report, by host
        self._reporting = threading.Lock()

    def routes(self) -> tuple[Route, ...]:
        """The routes."""
        return (
            Route("/internal/publish", self.publish, methods=["POST"]),
            Route("/internal/async-metrics", self.take, methods=["POST"]),
            Route("/internal/async-endpoint", self.has_endpoint, methods=["GET"]),
        )

    async def publish(self, request: Request) -> Response:
        """Answer 204 once the message is durable, 404 without such a topic, 400 if invalid."""
        body = await request.body()
        with refuse_invalid("message", ValueError):
            status = await asyncio.to_thread(self._publish, body)
        return Response(status_code=status)

    async def take(self, request: Request) -> Response:
        """Publish samples and answer 204, also if they were published before. 400 if invalid."""
        body = await request.body()
        with refuse_invalid("report", ValueError):
            await asyncio.to_thread(self._take, body)
        return Response(status_code=204)

    async def has_endpoint(self, request: Request) -> Response:
        """Whether the endpoint exists and is not being deleted."""
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

    def _take(self, body: bytes) -> None:
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
                    oldest = next(iter(self._reported))  # the host that has been silent longest
                    self._reported.pop(oldest)
                for scope, samples in by_scope.items():
                    self._metrics.emit(scope, samples)


def check_sample(sample: Sample) -> None:
    """Raise ValueError if a sample cannot be from an asynchronous endpoint."""
    if sample.metric.namespace != MODEL_NAMESPACE or len(sample.values) != len(sample.counts):
        raise ValueError(f"{sample.metric} has another namespace, or no count for each value")


class DataLogRoutes:
    """The handler of POST /internal/data-log. The copies in `state` name the streams."""

    def __init__(self, state: State, logs: LogStore, clock: Clock) -> None:
        self._state = state
        self._logs = logs
        self._clock = clock
        self._taken: tuple[float, int] = (0.0, 0)  # process start and number of the newest report
        self._taking = threading.Lock()
        self._sources: dict[str, LogSource] = {}  # by copy

    def routes(self) -> tuple[Route, ...]:
        """The route."""
        return (Route("/internal/data-log", self.take, methods=["POST"]),)

    async def take(self, request: Request) -> Response:
        """Store lines and answer 204, also if they were stored before.

        400 if the report is invalid, 503 if the disk is full.
        """
        with refuse_invalid("data log"):
            report = decode(await request.body(), DataLogReport)
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
                stream = (line.scope, *get_stream(line, self._find_source(line)))
                event = NewEvent(at_ms=int(line.at * 1000), message=line.text)
                events.setdefault(stream, []).append(event)
            now_ms = int(self._clock.now() * 1000)
            for (scope, group, stream_name), found in events.items():
                self._logs.put(scope, group, stream_name, found, now_ms)
            self._taken = number

    def _find_source(self, line: DataLine) -> LogSource | None:
        """The copy that wrote a line. A deleted copy is remembered from earlier lines."""
        if line.copy_id is None:
            return None
        known = self._sources.get(line.copy_id)
        if known is None:
            found = self._state.copies.get(line.scope, line.copy_id)
            if found is None:
                return None
            if len(self._sources) >= MAX_SOURCES:
                self._sources.clear()
            known = self._sources[line.copy_id] = get_copy_source(found.value)
        return known


class CaptureBoard:
    """Sums of data capture by variant since control started. Thread-safe."""

    def __init__(self, metrics: MetricWriter) -> None:
        self._metrics = metrics
        self._sums: dict[LoadKey, CaptureCounts] = {}
        self._reported: dict[str, tuple[float, int]] = {}
        self._lock = threading.Lock()

    def take(self, report: CaptureReport) -> None:
        """Count a report, unless it was counted before."""
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
                self._sums[variant.key] = sums  # at the end, as the first entries are dropped
            for key in list(self._sums)[:-MAX_VARIANTS]:
                del self._sums[key]
        for variant in report.variants:
            samples = list(capture_samples(variant.key, variant.counts, report.at))
            self._metrics.emit(variant.key.scope, samples)

    def list_variants(self, scope: Scope, name: str) -> list[Mapping[str, Any]]:
        """The sums of each variant of an endpoint as plain JSON values, sorted by name."""
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
        """Count a report and answer 204, also if it was counted before. 400 if it is invalid."""
        with refuse_invalid("report on data capture"):
            report = decode(await request.body(), CaptureReport)
        await asyncio.to_thread(self.take, report)
        return Response(status_code=204)
