"""HTTP client of all processes: connections to copies, control and other servers, kept alive."""

import asyncio
import select
import socket
from collections import deque
from collections.abc import Mapping
from typing import Protocol, cast

import httptools
import msgspec

from hostelry.base import tls
from hostelry.base.address import Address
from hostelry.base.errors import TerminalError
from hostelry.http1.reply import (
    BrokenError,
    ConnectError,
    DeadlineError,
    Reply,
    ReplyPhase,
)
from hostelry.http1.silent_hosts import SilentHosts, acked_bytes, never_read
from hostelry.http1.streamed_body import BodyBrokenError, BodyFeed, StreamedBody

MAX_HEAD_BYTES = 64 * 1024
MAX_IDLE_CONNECTIONS = 256  # per copy
JOIN_BELOW_BYTES = 16 * 1024
# An agent that drains a copy counts open connections as requests, so idle ones must close soon.
MAX_IDLE_S = 1.0
UNIX = "unix:"  # begins the address of a Unix socket, which its path follows
REPEATABLE = (b"GET ", b"HEAD ")  # answering these twice changes nothing


class Timeouts(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of one call, in seconds from its start. `first_byte_s` None means `total_s`."""

    total_s: float
    connect_s: float = 2.0
    first_byte_s: float | None = None


class Upstream(Protocol):
    """Sends requests to addresses. Raises as `UpstreamPool.send` does."""

    async def send(
        self,
        address: str,
        parts: tuple[bytes, bytes],
        timeouts: Timeouts,
        whole_below_bytes: int | None = None,
    ) -> Reply:
        """Send a request, and return its reply once the head has arrived. The caller closes it."""
        ...


class KeptUpstream(Upstream, Protocol):
    """Also sends on kept connections, without waiting."""

    def send_now(
        self, address: str, parts: tuple[bytes, bytes], timeouts: Timeouts
    ) -> Reply | None:
        """Send on a kept connection, and return the reply. None without such a connection."""
        ...


def is_unframed(headers: Mapping[str, str]) -> bool:
    """True if the body of an answer with these headers ends with its connection."""
    return not {"content-length", "transfer-encoding"} & headers.keys()


class UpstreamConnection(asyncio.Protocol):
    """One connection to a copy, which carries one request at a time.

    With the future `connected`, the connection leads through a node proxy (`base.tls`). The future
    is set once the proxy has connected to the copy.
    """

    def __init__(
        self,
        pool: "UpstreamPool",
        address: str,
        connected: "asyncio.Future[None] | None" = None,
    ) -> None:
        self.address = address
        self._connected = connected
        self.usable = True
        self.may_repeat = False  # the last request was not processed, or is idempotent
        self.kept_at = 0.0  # when it became idle, in seconds of the event loop's clock
        self._pool = pool
        self._transport: asyncio.Transport
        self._parser = httptools.HttpResponseParser(self)
        self._reply: Reply | None = None
        self._headers: dict[str, str] = {}
        self._head_bytes = 0
        self._timer: asyncio.TimerHandle | None = None
        self._num_requests = 0
        self._sent_bytes = 0
        self._sent_before_bytes = 0  # bytes sent before the request in flight
        self._is_repeatable = False
        self._socket: socket.socket | None = None
        self._paused = False
        self._readiness = select.poll()
        self._held: bytes | None = None  # the last byte, which may be the node proxy's
        self._feed: BodyFeed | None = None  # with a streamed body, the connection's only request

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Set the transport."""
        self._transport = cast(asyncio.Transport, transport)
        found = transport.get_extra_info("socket")
        # The acknowledged bytes of a node proxy's kernel say nothing about the copy.
        self._socket = found if self._connected is None else None
        if found is not None:
            self._readiness.register(found.fileno(), select.POLLIN)

    @property
    def has_ended(self) -> bool:
        """True if the copy closed, or sent bytes, while no request was in flight.

        This asks the kernel, because the event loop may not have run yet.
        """
        return not self.usable or bool(self._readiness.poll(0))

    def send(self, parts: tuple[bytes, bytes], timeouts: Timeouts) -> Reply:
        """Send a request (head, body). The answer fills the returned reply."""
        head, body = parts
        reply = self._reply = Reply(self)
        self._num_requests += 1
        self._sent_before_bytes = self._sent_bytes
        self._sent_bytes += len(head) + len(body)
        self._is_repeatable = head.startswith(REPEATABLE)
        self._headers = {}
        self._head_bytes = 0
        if len(body) < JOIN_BELOW_BYTES:
            self._transport.write(head + body)
        else:
            self._transport.writelines((head, body))
        first_s = timeouts.total_s if timeouts.first_byte_s is None else timeouts.first_byte_s
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(first_s, self._expire, max(timeouts.total_s - first_s, 0.0))
        return reply

    def stream(self, head: bytes, body: StreamedBody, timeouts: Timeouts) -> Reply:
        """Send a request whose body comes in pieces. The answer may come before the body's end."""
        reply = self.send((head, b""), timeouts)
        self._feed = BodyFeed(body, self._transport.write, self._body_broke)
        return reply

    def pause_writing(self) -> None:
        """Pause the streamed body, because the transport's buffer is full."""
        if self._feed is not None:
            self._feed.pause()

    def resume_writing(self) -> None:
        """Resume the streamed body."""
        if self._feed is not None:
            self._feed.resume()

    def data_received(self, data: bytes) -> None:
        """Parse the answer. Bytes without a request end the connection."""
        reply = self._reply
        if reply is None:
            self._idle_bytes(data)
            return
        reply.bytes_seen += len(data)
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            if self._connected is not None and data == tls.UNREAD and reply.bytes_seen == 1:
                self.may_repeat = True
                self._break("The copy closed the connection before it read the request.")
                return
            self._break(f"The answer was not HTTP: {error}")
            return
        if reply.phase is ReplyPhase.AWAITED and reply.bytes_seen > MAX_HEAD_BYTES:
            self._break(f"The answer's head has more than {MAX_HEAD_BYTES} bytes.")

    def connection_lost(self, exc: Exception | None) -> None:
        """End the answer. It is whole if it has no length, and broken otherwise."""
        self.usable = False
        self._pool.forget(self)
        if self._feed is not None:
            self._feed.stop()
        if self._connected is not None and not self._connected.done():
            self._connected.set_exception(exc or ConnectionRefusedError("the node proxy refused"))
        reply = self._reply
        if reply is None:
            return
        if self._num_requests > 1 and reply.bytes_seen == 0:
            self.may_repeat = self._is_repeatable or never_read(
                exc, acked_bytes(self._socket), self._sent_before_bytes
            )
        ended = exc is None and self._held in (None, tls.UNREAD)
        if reply.phase is ReplyPhase.HEAD and is_unframed(reply.headers) and ended:
            self._finish(reusable=False)
        else:
            reply.fail(BrokenError("The connection was closed before the answer was whole."))

    def on_message_begin(self) -> None:
        """Refuse a second answer to one request."""
        if self._reply is not None and self._reply.phase is ReplyPhase.WHOLE:
            raise BrokenError("a second answer to one request")

    def on_header(self, name: bytes, value: bytes) -> None:
        """Add a header field of the answer."""
        self._head_bytes += len(name) + len(value)
        if self._head_bytes > MAX_HEAD_BYTES:
            raise BrokenError(f"its head is larger than {MAX_HEAD_BYTES} bytes")
        self._headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        """End the head of the answer. An interim answer (1xx) is skipped."""
        status = self._parser.get_status_code()
        if status >= 200 and self._reply is not None:
            self._reply.set_head(status, self._headers)
            if self._connected is not None and is_unframed(self._headers):
                self._held = b""  # at its end, the node proxy says that the copy has ended
            self._headers = {}  # fields after the body (trailers) are dropped

    def on_body(self, part: bytes) -> None:
        """Add a piece of the answer's body."""
        if self._held is not None:
            part, self._held = self._held + part, b""
            if part.endswith(tls.UNREAD):
                part, self._held = part[:-1], tls.UNREAD
        if self._reply is not None and part:
            self._reply.add_chunk(part)

    def on_message_complete(self) -> None:
        """End the answer."""
        if self._reply is None or self._reply.phase is ReplyPhase.AWAITED:
            self._headers = {}
            return
        self._finish(self._parser.should_keep_alive())

    def pause_reading(self) -> None:
        """Take no more bytes from the copy."""
        if self.usable and not self._paused:
            self._paused = True
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        """Take bytes again."""
        if self.usable and self._paused:
            self._paused = False
            self._transport.resume_reading()

    def release(self, reusable: bool) -> None:
        """Keep the connection for another request, or cut it."""
        self._disarm()
        self._reply = self._held = None
        if reusable and self.usable:
            self.resume_reading()
            if self._pool.keep(self):
                return
        self.abort()

    def abort(self) -> None:
        """Cut the connection now."""
        self.usable = False
        if self._feed is not None:
            self._feed.stop()
        self._transport.abort()

    def host_gone(self) -> None:
        """Break the connection, because the copy's host is silent."""
        self._break("The copy's host does not answer.")

    def _idle_bytes(self, data: bytes) -> None:
        """Read the proxy's message that the copy is connected. Other bytes end the connection."""
        if self._connected is None or self._connected.done() or data != tls.CONNECTED:
            self.abort()
        else:
            self._connected.set_result(None)

    def _finish(self, reusable: bool) -> None:
        self._disarm()
        if self._reply is not None:
            was_sent = self._feed is None or self._feed.is_whole
            self._reply.end(reusable and was_sent)

    def _break(self, reason: str) -> None:
        if self._reply is not None:
            self._reply.fail(BrokenError(reason))
        self.abort()

    def _body_broke(self, error: BodyBrokenError) -> None:
        """Cut the connection, so that the copy does not take a part of the body for the whole."""
        if self._reply is not None:
            self._reply.fail(error)
        self.abort()

    def _expire(self, further_s: float) -> None:
        reply = self._reply
        if reply is None:
            return
        if further_s > 0 and reply.phase is ReplyPhase.HEAD:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(further_s, self._expire, 0.0)
            return
        reply.fail(DeadlineError("The time limit passed before the answer was whole."))
        # Now, and not when the reply is closed: a slow caller would hold the copy for longer.
        self.abort()

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class UpstreamPool:
    """Open connections by address, which are cut after `max_idle_s` idle.

    An address is one of `base.address`, or `unix:PATH`.
    """

    def __init__(self, max_idle_s: float = MAX_IDLE_S) -> None:
        self._max_idle_s = max_idle_s
        self._idle: dict[str, deque[UpstreamConnection]] = {}
        self._sweep: asyncio.TimerHandle | None = None
        self._hosts = SilentHosts()

    async def send(
        self,
        address: str,
        parts: tuple[bytes, bytes],
        timeouts: Timeouts,
        whole_below_bytes: int | None = None,
    ) -> Reply:
        """Send a request, and return its reply once the head has arrived. The caller closes it.

        `parts` are the request's head and body. With `whole_below_bytes`, the reply is returned
        once its body is whole, or larger than that. If the copy closed a kept connection before it
        read any of the request, a new connection is used. Raises ConnectError if no connection can
        be made, BrokenError and DeadlineError.
        """
        kept = self._take(address)
        if kept is not None:
            try:
                return await self._send(kept, parts, timeouts, whole_below_bytes)
            except BrokenError:
                if not kept.may_repeat:
                    raise
        fresh = await self._connect(address, timeouts.connect_s)
        return await self._send(fresh, parts, timeouts, whole_below_bytes)

    def send_now(
        self, address: str, parts: tuple[bytes, bytes], timeouts: Timeouts
    ) -> Reply | None:
        """Send on a kept connection, and return the reply. None without such a connection.

        The caller closes it. If it fails and `may_repeat` is True, the request may be sent again.
        """
        kept = self._take(address)
        return None if kept is None else kept.send(parts, timeouts)

    async def stream(
        self, address: str, head: bytes, body: StreamedBody, timeouts: Timeouts
    ) -> Reply:
        """Send a body in pieces, on a new connection.

        `body` is not read before the connection is made. A copy may answer before the body's end.
        The rest is then dropped when the reply is closed. Raises as `send` does. Raises
        BodyBrokenError and cuts the connection if the body breaks off.
        """
        fresh = await self._connect(address, timeouts.connect_s)
        reply = fresh.stream(head, body, timeouts)
        try:
            await reply.head()
        except BaseException:
            reply.close()
            raise
        return reply

    def keep(self, connection: UpstreamConnection) -> bool:
        """Keep `connection` for a later request. False if enough are kept."""
        idle = self._idle.setdefault(connection.address, deque())
        if len(idle) >= MAX_IDLE_CONNECTIONS:
            return False
        loop = asyncio.get_running_loop()
        connection.kept_at = loop.time()
        idle.append(connection)
        if self._sweep is None:
            self._sweep = loop.call_later(self._max_idle_s / 2, self._cut_idle)
        return True

    def forget(self, connection: UpstreamConnection) -> None:
        """Remove a closed `connection`."""
        self._hosts.forget(connection)
        idle = self._idle.get(connection.address)
        if idle is None:
            return
        if connection in idle:
            idle.remove(connection)
        if not idle:
            del self._idle[connection.address]

    def _cut_idle(self) -> None:
        """Cut connections that have been idle for too long."""
        loop = asyncio.get_running_loop()
        oldest = loop.time() - self._max_idle_s
        for idle in tuple(self._idle.values()):
            while idle and idle[0].kept_at <= oldest:
                idle.popleft().abort()
        again = (
            loop.call_later(self._max_idle_s / 2, self._cut_idle)
            if any(self._idle.values())
            else None
        )
        self._sweep = again

    def close(self) -> None:
        """Cut every idle connection."""
        self._hosts.close()
        if self._sweep is not None:
            self._sweep.cancel()
            self._sweep = None
        for idle in tuple(self._idle.values()):
            for connection in tuple(idle):
                connection.abort()
        self._idle.clear()

    def _take(self, address: str) -> UpstreamConnection | None:
        idle = self._idle.get(address)
        while idle:
            connection = idle.pop()
            if not connection.has_ended:
                return connection
            connection.abort()
        return None

    async def _connect(self, address: str, timeout_s: float) -> UpstreamConnection:
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(timeout_s):
                if address.startswith(UNIX):
                    _, connection = await loop.create_unix_connection(
                        lambda: UpstreamConnection(self, address), address.removeprefix(UNIX)
                    )
                    return connection
                target = Address.parse(address)
                if target.name is not None:
                    return await self._connect_peer(address, target, target.name)
                _, connection = await loop.create_connection(
                    lambda: UpstreamConnection(self, address),
                    target.host,
                    target.port,
                    ssl=True if target.scheme == "https" else None,
                )
        except (OSError, TimeoutError, TerminalError) as error:
            raise ConnectError(f"No connection to {address}: {error or 'timed out'}.") from error
        return connection

    async def _connect_peer(self, address: str, target: Address, name: str) -> UpstreamConnection:
        """Connect through a node proxy, and wait until it has connected to the copy."""
        loop = asyncio.get_running_loop()
        connected: asyncio.Future[None] = loop.create_future()
        transport, connection = await loop.create_connection(
            lambda: UpstreamConnection(self, address, connected),
            target.host,
            target.port,
            ssl=tls.in_use().client(),
            server_hostname=name,
        )
        found = transport.get_extra_info("socket")
        self._hosts.watch(connection, found, connection.host_gone)
        try:
            await connected
        except BaseException:
            connection.abort()
            raise
        return connection

    @staticmethod
    async def _send(
        connection: UpstreamConnection,
        parts: tuple[bytes, bytes],
        timeouts: Timeouts,
        whole_below_bytes: int | None,
    ) -> Reply:
        reply = connection.send(parts, timeouts)
        if whole_below_bytes is not None:
            reply.expect_whole(whole_below_bytes)
        try:
            await reply.head()
        except BaseException:
            reply.close()
            raise
        return reply
