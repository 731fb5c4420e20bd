"""ASGI: forwards every request to the leader among several controls, by `leader_view`.

Without a leader it waits for one, then answers 503 with the cause. An answer within which the
leader fails is cut off. A request that another forwarder has sent here is not forwarded: its sender
looks again.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Mapping
from typing import Protocol

from starlette.types import Receive, Scope, Send

from hostelry.cluster.leader_view import (
    AFTER_CHANGE_S,
    NOT_LEADER,
    ClientGoneError,
    LeaderAwayError,
    LeaderCalls,
    LeaderSource,
)
from hostelry.dataplane.control_calls import CallOutcome, is_read
from hostelry.gateway.handlers.control import AWAY_HEADER
from hostelry.http1.reply import Reply, UpstreamError
from hostelry.http1.streamed_body import StreamedBody
from hostelry.http1.upstream import Timeouts, Upstream

LOG = logging.getLogger(__name__)
LEADER_WAIT_S = 1.0
TIMEOUTS = Timeouts(total_s=70.0, connect_s=1.0)  # more than any caller waits
RETRY_AFTER = (b"retry-after", b"1")
FORWARDED = b"x-hostelry-forwarded"
HOP_HEADERS = frozenset(
    (b"connection", b"content-length", b"host", b"keep-alive", b"transfer-encoding", b"expect")
)
WHOLE_BYTES = 256 * 1024  # a body up to this size is read before it is sent


class StreamingUpstream(Upstream, Protocol):
    """Client that also sends bodies in pieces. Raises as `UpstreamPool.stream` does."""

    async def stream(
        self, address: str, head: bytes, body: StreamedBody, timeouts: Timeouts
    ) -> Reply:
        """One request's reply with its head received. The caller closes it."""
        ...


class ForwardedRequest:
    """A request to forward. A large body is read as it is sent.

    `gone` is done once the caller has closed its connection. Raises ValueError for an invalid
    length. A body without a length must be small.
    """

    def __init__(
        self, scope: Scope, receive: Receive, pool: StreamingUpstream, max_body_bytes: int
    ) -> None:
        self.gone: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._pool = pool
        self._scope = scope
        self._receive = receive
        given = [value for name, value in scope["headers"] if name == b"content-length"]
        self._length = int(given[0]) if given else None
        self._most = min(max_body_bytes, WHOLE_BYTES) if self._length is None else max_body_bytes
        self._whole: bytes | None = None
        self._watching: asyncio.Task[None] | None = None
        self._num_read = 0

    @property
    def only_reads(self) -> bool:
        """Whether executing it twice changes nothing."""
        return is_read(build_head(self._scope, 0), self._whole or b"")

    @property
    def is_whole(self) -> bool:
        """Whether all of its body is there to be sent."""
        return self._whole is not None or not self._num_read

    async def read(self) -> bool:
        """Read a small body whole. False if the body is too large. Raises ClientGoneError."""
        if self._length is not None and self._length > self._most:
            return False
        if self._length is None or self._length <= WHOLE_BYTES:
            parts = [part async for part in self._chunks()]
            if self._num_read > self._most:
                return False
            self._whole = b"".join(parts)
        return True

    async def send(self, address: str) -> Reply:
        """The head of the reply of `address`. Raises UpstreamError."""
        if self._whole is not None:
            head = build_head(self._scope, len(self._whole))
            return await self._pool.send(address, (head, self._whole), TIMEOUTS)
        assert self._length is not None, "it is small, and was read whole"
        body = StreamedBody(self._chunks(), self._length)
        head = build_head(self._scope, self._length)
        return await self._pool.stream(address, head, body, TIMEOUTS)

    def close(self) -> None:
        """Take nothing more from the caller."""
        if self._watching is not None:
            self._watching.cancel()

    async def _chunks(self) -> AsyncGenerator[bytes, None]:
        has_more = True
        while has_more and self._num_read <= self._most:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                self._note_gone()
                raise ClientGoneError
            has_more = message.get("more_body", False)
            part = message.get("body", b"")
            self._num_read += len(part)
            yield part
        self._watching = asyncio.get_running_loop().create_task(self._watch())

    async def _watch(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            continue
        self._note_gone()

    def _note_gone(self) -> None:
        if not self.gone.done():
            self.gone.set_result(None)


class LeaderProxy:
    """ASGI: forwards every request to the leader.

    Args:
        source: the leader.
        pool: connections to controls.
        max_body_bytes: of a request.
        target: the server's address on the host of the leader at an address. None: the leader.
    """

    def __init__(
        self,
        source: LeaderSource,
        pool: StreamingUpstream,
        max_body_bytes: int,
        target: Callable[[str], str] | None = None,
    ) -> None:
        self._calls = LeaderCalls(source, LEADER_WAIT_S, target)
        self._pool = pool
        self._max_body_bytes = max_body_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Forward one request, and its answer."""
        if scope["type"] != "http":
            return
        if any(name == FORWARDED for name, _ in scope["headers"]):
            await refuse(send, 503, "this control does not lead", {NOT_LEADER: "1"})
            return
        request = ForwardedRequest(scope, receive, self._pool, self._max_body_bytes)
        try:
            if await request.read():
                await self._forward(request, send)
            else:
                await refuse(send, 413, f"a body has {self._max_body_bytes} bytes at most", {})
        except ClientGoneError:
            return
        finally:
            request.close()

    async def _forward(self, request: ForwardedRequest, send: Send) -> None:
        try:
            leader, reply = await self._calls.send_to_leader(request)
        except LeaderAwayError as error:
            cause = " ".join(str(error).split())
            is_safe = error.outcome is not CallOutcome.UNANSWERED or request.only_reads
            again = {NOT_LEADER: "1"} if is_safe else {}
            await refuse(send, 503, cause, {AWAY_HEADER: cause, **again})
            return
        try:
            await self._pass_on(leader, reply, request.gone, send)
        except UpstreamError as error:  # the server cuts an answer that does not end
            LOG.warning("an answer of %s is cut off: %s", leader, error)
        finally:
            reply.close()

    async def _pass_on(
        self, leader: str, reply: Reply, gone: "asyncio.Future[None]", send: Send
    ) -> None:
        """Pass the answer on as it comes. Raises UpstreamError if it breaks off."""
        headers = [
            (name.encode("latin-1"), value.encode("latin-1"))
            for name, value in reply.headers.items()
            if name == "content-length" or name.encode("latin-1") not in HOP_HEADERS
        ]
        await send({"type": "http.response.start", "status": reply.status, "headers": headers})
        while True:
            next_chunk = asyncio.ensure_future(reply.next_chunk())
            try:
                chunk = await self._calls.until(next_chunk, leader, gone, AFTER_CHANGE_S)
            finally:
                next_chunk.cancel()
            if chunk is None:
                await send({"type": "http.response.body", "body": b""})
                return
            await send({"type": "http.response.body", "body": chunk, "more_body": True})


def build_head(scope: Scope, num_bytes: int) -> bytes:
    """The head of the request as the leader gets it."""
    query = scope["query_string"]
    target = scope["raw_path"] + (b"?" + query if query else b"")
    lines = [scope["method"].encode() + b" " + target + b" HTTP/1.1", b"Host: localhost"]
    lines += [name + b": " + value for name, value in scope["headers"] if name not in HOP_HEADERS]
    lines += [FORWARDED + b": 1", b"Content-Length: %d" % num_bytes]
    return b"\r\n".join(lines) + b"\r\n\r\n"


async def refuse(send: Send, status: int, text: str, headers: Mapping[str, str]) -> None:
    """Answer with that text. Callers may try again after a second if it is a 503."""
    body = f"{text}\n".encode()
    line = [(name.encode(), value.encode("latin-1", "replace")) for name, value in headers.items()]
    line += [(b"content-type", b"text/plain; charset=utf-8")]
    line += [(b"content-length", str(len(body)).encode())]
    line += [RETRY_AFTER] if status == 503 else []
    await send({"type": "http.response.start", "status": status, "headers": line})
    await send({"type": "http.response.body", "body": body})
