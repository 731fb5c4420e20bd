"""Calls of the jobs process to control."""

import logging
from typing import Protocol
from urllib.parse import urlencode

import msgspec

from hostelry.base.errors import RetryableError
from hostelry.base.json import decode
from hostelry.dataplane.http.reply import UpstreamError
from hostelry.dataplane.http.upstream import Timeouts, Upstream
from hostelry.domain.async_request import AsyncMetricsReport
from hostelry.domain.log_source import DataLogReport
from hostelry.domain.messaging import PublicationRequest
from hostelry.domain.scope import Scope

LOG = logging.getLogger(__name__)
TIMEOUTS = Timeouts(total_s=10.0, connect_s=1.0)
MAX_ANSWER_BYTES = 64 * 1024


class ControlDownError(RetryableError):
    """Control does not answer now."""


class ControlRefusedError(RetryableError):
    """Control refuses this call. Sending it again does not help."""


class ControlLine(Protocol):
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


class EndpointKnown(msgspec.Struct):
    """Control's answer about an endpoint."""

    exists: bool


class HttpControlLine:
    """Control at an address.

    Args:
        pool: connections.
        address: ``http://host:port``.
        internal_key: the key of calls between the platform's processes.
    """

    def __init__(self, pool: Upstream, address: str, internal_key: str) -> None:
        self._pool = pool
        self._address = address
        self._head = f"Host: {address.removeprefix('http://')}\r\nX-Hostelry-Key: {internal_key}"

    async def publish(self, publication: PublicationRequest) -> None:
        """POST /internal/publish."""
        await self._call("POST", "/internal/publish", msgspec.json.encode(publication))

    async def report(self, report: AsyncMetricsReport) -> None:
        """POST /internal/async-metrics."""
        await self._call("POST", "/internal/async-metrics", msgspec.json.encode(report))

    async def keep_lines(self, report: DataLogReport) -> None:
        """POST /internal/data-log. A report that control refuses is lost."""
        try:
            await self._call("POST", "/internal/data-log", msgspec.json.encode(report))
        except ControlRefusedError as error:
            LOG.warning("%d lines of data logs are lost: %s", len(report.lines), error)

    async def has_endpoint(self, scope: Scope, name: str) -> bool:
        """GET /internal/async-endpoint."""
        asked = urlencode({"account": scope.account, "region": scope.region, "endpoint": name})
        answer = await self._call("GET", f"/internal/async-endpoint?{asked}", b"")
        try:
            return decode(answer, EndpointKnown).exists
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise ControlDownError(f"control's answer cannot be read: {error}") from error

    async def _call(self, method: str, target: str, body: bytes) -> bytes:
        head = f"{method} {target} HTTP/1.1\r\n{self._head}\r\nContent-Length: {len(body)}\r\n\r\n"
        try:
            reply = await self._pool.send(
                self._address, (head.encode("latin-1"), body), TIMEOUTS, MAX_ANSWER_BYTES
            )
            try:
                answer = await reply.body(MAX_ANSWER_BYTES)
            finally:
                reply.close()
        except UpstreamError as error:
            raise ControlDownError(f"control does not answer: {error}") from error
        if 200 <= reply.status < 300:
            return answer
        text = f"{target} was answered with {reply.status}: {answer[:300]!r}"
        if 400 <= reply.status < 500:
            raise ControlRefusedError(text)
        raise ControlDownError(text)
