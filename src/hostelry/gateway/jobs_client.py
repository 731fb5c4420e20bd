"""Client of the jobs process: hands it requests to keep."""

from typing import Protocol

import msgspec

from hostelry.base.errors import ServiceError
from hostelry.dataplane.http.reply import UpstreamError
from hostelry.dataplane.http.upstream import Timeouts, Upstream
from hostelry.domain.async_request import AsyncRequest

SUBMIT_TIMEOUTS = Timeouts(total_s=15.0, connect_s=1.0)
MAX_ANSWER_BYTES = 64 * 1024
SUBMIT = "/internal/async-requests"


class JobsClient(Protocol):
    """The call to the jobs process."""

    async def submit(self, request: AsyncRequest) -> None:
        """Return once `request` is durable; raises ServiceError 503 with the cause."""
        ...


class HttpJobsClient:
    """The jobs process at an address.

    Args:
        pool: connections; `UpstreamPool` is one.
        address: ``http://host:port``.
        internal_key: of calls between the platform's own processes.
    """

    def __init__(self, pool: Upstream, address: str, internal_key: str) -> None:
        self._pool = pool
        self._address = address
        self._head = f"Host: {address.removeprefix('http://')}\r\nX-Hostelry-Key: {internal_key}"

    async def submit(self, request: AsyncRequest) -> None:
        """POST it; raises ServiceError 503 unless the process says that it is durable."""
        body = msgspec.msgpack.encode(request)
        head = f"POST {SUBMIT} HTTP/1.1\r\n{self._head}\r\nContent-Length: {len(body)}\r\n\r\n"
        try:
            reply = await self._pool.send(
                self._address, (head.encode("latin-1"), body), SUBMIT_TIMEOUTS, MAX_ANSWER_BYTES
            )
            try:
                status, answer = reply.status, await reply.body(MAX_ANSWER_BYTES)
            finally:
                reply.close()
        except UpstreamError as error:
            raise not_queued(f"the jobs process does not answer ({error})") from error
        if status != 204:
            raise not_queued(answer.decode(errors="replace").strip() or f"status {status}")


def not_queued(cause: str) -> ServiceError:
    """The answer where the request could not be kept, on which AWS clients retry."""
    return ServiceError(
        "ServiceUnavailable", f"The request could not be queued: {cause}. Try again.", 503
    )
