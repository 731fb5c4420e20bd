"""Calls about transform jobs to control."""

from typing import Protocol

import msgspec

from hostelry.base.errors import HostelryError
from hostelry.base.json import decode
from hostelry.dataplane.http.reply import UpstreamError
from hostelry.dataplane.http.upstream import Timeouts, Upstream
from hostelry.domain.transform_job import TransformEnd, TransformProgressReport, TransformSnapshot

CALL_TIMEOUTS = Timeouts(total_s=10.0, connect_s=1.0)
POLL_TIMEOUTS = Timeouts(total_s=30.0, connect_s=1.0)
MAX_BYTES = 64 * 1024 * 1024
PATH = "/internal/transform-jobs"


class NoAnswerError(HostelryError):
    """Control does not answer, or not as it should."""


class TransformLine(Protocol):
    """What the runner asks of control; each raises NoAnswerError."""

    async def jobs(self, have: str | None) -> TransformSnapshot | None:
        """The jobs to be run, once they differ from version `have`; None while they do not."""
        ...

    async def progress(self, report: TransformProgressReport) -> None:
        """Say how far a job is."""
        ...

    async def finish(self, end: TransformEnd) -> None:
        """Say how a job ended; durable there once this returns."""
        ...


class HttpTransformLine:
    """Control at an address.

    Args:
        pool: connections.
        address: ``http://host:port``.
        internal_key: of calls between the platform's own processes.
    """

    def __init__(self, pool: Upstream, address: str, internal_key: str) -> None:
        self._pool = pool
        self._address = address
        self._head = f"Host: {address.removeprefix('http://')}\r\nX-Hostelry-Key: {internal_key}"

    async def jobs(self, have: str | None) -> TransformSnapshot | None:
        """GET /internal/transform-jobs."""
        asked = PATH if have is None else f"{PATH}?have={have}"
        status, answer = await self._call("GET", asked, b"", POLL_TIMEOUTS)
        if status == 304:
            return None
        try:
            return decode(answer, TransformSnapshot)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise NoAnswerError(f"control's transform jobs cannot be read: {error}") from error

    async def progress(self, report: TransformProgressReport) -> None:
        """POST /internal/transform-jobs/progress."""
        await self._call("POST", f"{PATH}/progress", msgspec.json.encode(report), CALL_TIMEOUTS)

    async def finish(self, end: TransformEnd) -> None:
        """POST /internal/transform-jobs/finish."""
        await self._call("POST", f"{PATH}/finish", msgspec.json.encode(end), CALL_TIMEOUTS)

    async def _call(
        self, method: str, target: str, body: bytes, timeouts: Timeouts
    ) -> tuple[int, bytes]:
        head = f"{method} {target} HTTP/1.1\r\n{self._head}\r\nContent-Length: {len(body)}\r\n\r\n"
        try:
            reply = await self._pool.send(self._address, (head.encode("latin-1"), body), timeouts)
            try:
                answer = await reply.body(MAX_BYTES)
            finally:
                reply.close()
        except UpstreamError as error:
            raise NoAnswerError(f"control does not answer: {error}") from error
        # 404: the job is gone there, and needs no end.
        if reply.status not in (200, 204, 304, 404):
            raise NoAnswerError(f"{target} was answered with {reply.status}: {answer[:300]!r}")
        return reply.status, answer
