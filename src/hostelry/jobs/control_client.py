"""Calls of the jobs process to control."""

import logging
from typing import Protocol, TypeVar
from urllib.parse import urlencode

import msgspec

from hostelry.base.errors import RetryableError
from hostelry.base.guards import INTERNAL_KEY_HEADER
from hostelry.base.http import HttpRequest
from hostelry.base.json import decode
from hostelry.domain.ai_benchmark_job import AiBenchmarkEnd, AiBenchmarkSnapshot
from hostelry.domain.async_request import AsyncMetricsReport
from hostelry.domain.log_source import DataLogReport
from hostelry.domain.messaging import PublicationRequest
from hostelry.domain.recommendation_job import BenchmarkEnd, BenchmarkSnapshot
from hostelry.domain.scope import Scope
from hostelry.domain.transform_job import TransformEnd, TransformProgressReport, TransformSnapshot
from hostelry.http1.calls import call
from hostelry.http1.reply import UpstreamError
from hostelry.http1.upstream import Timeouts, Upstream

LOG = logging.getLogger(__name__)
TIMEOUTS = Timeouts(total_s=10.0, connect_s=1.0)
POLL_TIMEOUTS = Timeouts(total_s=30.0, connect_s=1.0)
MAX_ANSWER_BYTES = 64 * 1024
MAX_SNAPSHOT_BYTES = 64 * 1024 * 1024
TRANSFORM_JOBS = "/internal/transform-jobs"
BENCHMARKS = "/internal/benchmarks"
AI_BENCHMARKS = "/internal/ai-benchmarks"
AI_RECOMMENDATIONS = "/internal/ai-recommendations"
DELETED = 404  # control has deleted the job, which needs no report
Answer = TypeVar("Answer")


class ControlDownError(RetryableError):
    """Control does not answer now."""


class ControlRefusedError(RetryableError):
    """Control refuses this call. Sending it again does not help."""


class EndpointKnown(msgspec.Struct):
    """Control's answer about an endpoint."""

    exists: bool


class JobsControl(Protocol):
    """Calls to control. Each raises ControlDownError and ControlRefusedError."""

    async def publish(self, publication: PublicationRequest) -> None:
        """Publish a message, and return once it is durable in control."""
        ...

    async def report(self, report: AsyncMetricsReport) -> None:
        """Publish samples."""
        ...

    async def has_endpoint(self, scope: Scope, name: str) -> bool:
        """True if control has the endpoint, in any status except Deleting."""
        ...


class HttpJobsControl:
    """Control at an address.

    Args:
        pool: connections.
        address: ``http://host:port``.
        internal_key: the key of calls between the platform's processes.
    """

    def __init__(self, pool: Upstream, address: str, internal_key: str) -> None:
        self._pool = pool
        self._address = address
        self._headers = {INTERNAL_KEY_HEADER: internal_key}

    async def publish(self, publication: PublicationRequest) -> None:
        """POST /internal/publish."""
        await self._post("/internal/publish", publication)

    async def report(self, report: AsyncMetricsReport) -> None:
        """POST /internal/async-metrics."""
        await self._post("/internal/async-metrics", report)

    async def keep_lines(self, report: DataLogReport) -> None:
        """POST /internal/data-log. A report that control refuses is lost."""
        try:
            await self._post("/internal/data-log", report)
        except ControlRefusedError as error:
            LOG.warning("%d lines of data logs are lost: %s", len(report.lines), error)

    async def has_endpoint(self, scope: Scope, name: str) -> bool:
        """GET /internal/async-endpoint."""
        asked = urlencode({"account": scope.account, "region": scope.region, "endpoint": name})
        target = f"/internal/async-endpoint?{asked}"
        status, answer = await self._call("GET", target, b"", TIMEOUTS, MAX_ANSWER_BYTES)
        _check_status(target, status, answer)
        return _decode_answer(answer, EndpointKnown).exists

    async def get_transform_jobs(self, have: str | None) -> TransformSnapshot | None:
        """Return the jobs to run once they differ from version `have`. None while they do not."""
        return await self._poll(TRANSFORM_JOBS, have, TransformSnapshot)

    async def get_benchmarks(self, have: str | None) -> BenchmarkSnapshot | None:
        """Return the loads to send once they differ from version `have`. None while they do not."""
        return await self._poll(BENCHMARKS, have, BenchmarkSnapshot)

    async def report_benchmark_end(self, end: BenchmarkEnd) -> None:
        """Report how a load ended. Returns once that is durable in control."""
        await self._post(f"{BENCHMARKS}/finish", end, DELETED)

    async def get_ai_recommendations(self, have: str | None) -> BenchmarkSnapshot | None:
        """Return the searches to run once they differ from `have`. None while they do not."""
        return await self._poll(AI_RECOMMENDATIONS, have, BenchmarkSnapshot)

    async def report_ai_recommendation_end(self, end: BenchmarkEnd) -> None:
        """Report how a search ended. Returns once that is durable in control."""
        await self._post(f"{AI_RECOMMENDATIONS}/finish", end, DELETED)

    async def get_ai_benchmarks(self, have: str | None) -> AiBenchmarkSnapshot | None:
        """Return the jobs to run once they differ from version `have`. None while they do not."""
        return await self._poll(AI_BENCHMARKS, have, AiBenchmarkSnapshot)

    async def report_ai_benchmark_end(self, end: AiBenchmarkEnd) -> None:
        """Report how an AI benchmark ended. Returns once that is durable in control."""
        await self._post(f"{AI_BENCHMARKS}/finish", end, DELETED)

    async def report_transform_progress(self, report: TransformProgressReport) -> None:
        """Report the progress of a transform job."""
        await self._post(f"{TRANSFORM_JOBS}/progress", report, DELETED)

    async def report_transform_end(self, end: TransformEnd) -> None:
        """Report how a transform job ended. Returns once that is durable in control."""
        await self._post(f"{TRANSFORM_JOBS}/finish", end, DELETED)

    async def _poll(self, path: str, have: str | None, kind: type[Answer]) -> Answer | None:
        """A long poll for another snapshot than version `have`."""
        target = path if have is None else f"{path}?have={have}"
        status, answer = await self._call("GET", target, b"", POLL_TIMEOUTS, MAX_SNAPSHOT_BYTES)
        if status == 304:
            return None
        _check_status(target, status, answer)
        return _decode_answer(answer, kind)

    async def _post(self, target: str, content: object, accepted: int = 200) -> None:
        body = msgspec.json.encode(content)
        status, answer = await self._call("POST", target, body, TIMEOUTS, MAX_ANSWER_BYTES)
        if status != accepted:
            _check_status(target, status, answer)

    async def _call(
        self, method: str, target: str, body: bytes, timeouts: Timeouts, max_bytes: int
    ) -> tuple[int, bytes]:
        """Return the status and the body of an answer."""
        request = HttpRequest(method, target, "", self._headers, body)
        try:
            answer = await call(self._pool, self._address, request, timeouts, max_bytes)
        except UpstreamError as error:
            raise ControlDownError(f"control does not answer: {error}") from error
        return answer.status, answer.body


def _check_status(target: str, status: int, answer: bytes) -> None:
    """Raise ControlRefusedError after 4xx, and ControlDownError after any other failure."""
    if 200 <= status < 300:
        return
    text = f"{target} was answered with {status}: {answer[:300]!r}"
    if 400 <= status < 500:
        raise ControlRefusedError(text)
    raise ControlDownError(text)


def _decode_answer(answer: bytes, kind: type[Answer]) -> Answer:
    try:
        return decode(answer, kind)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise ControlDownError(f"control's answer cannot be read: {error}") from error
