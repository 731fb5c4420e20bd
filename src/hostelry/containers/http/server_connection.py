"""HTTP connections to the gateway or a tritonserver, kept alive and reused, without retries.

A call may have done its work although its connection broke, so no request is sent again.
Connections that were idle for MAX_IDLE_S are closed, before the gateway would close them.
"""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import suppress
from typing import cast

import httptools

from hostelry.base.clock import monotonic_s
from hostelry.base.errors import HostelryError

MAX_IDLE_S = 5.0
MAX_IDLE_CONNECTIONS = 64
MAX_CONNECTIONS = 256
MAX_HEAD_BYTES = 64 * 1024
READ_BYTES = 256 * 1024
Connect = Callable[[Callable[[], asyncio.Protocol]], Awaitable[object]]


class ServerLostError(HostelryError):
    """The server did not answer, or its answer broke off. The call may have done its work."""


class ServerAnswer:
    """One answer, after its head has arrived. The caller reads it to its end or closes it."""

    def __init__(self, connection: "ServerConnection") -> None:
        self._connection = connection
        self._is_closed = False
        self.status = connection.status
        self.headers = connection.headers

    async def body(self, max_bytes: int) -> bytes:
        """The whole body. Raises ServerLostError, also for more than `max_bytes`."""
        read = bytearray()
        async for piece in self.pieces():
            read += piece
            if len(read) > max_bytes:
                raise ServerLostError(f"the answer has more than {max_bytes} bytes")
        return bytes(read)

    async def pieces(self) -> AsyncGenerator[bytes, None]:
        """The body as it arrives. Raises ServerLostError if it breaks off."""
        while True:
            while pieces := self._connection.take():  # more arrive while these are used
                for piece in pieces:
                    yield piece
            if self._connection.is_complete:
                return
            await self._connection.receive()

    def close(self) -> None:
        """Give the connection back. It is closed if the answer was not read to its end."""
        if not self._is_closed:
            self._is_closed = True
            self._connection.pool.release(self._connection)


class ServerConnection(asyncio.Protocol):
    """One connection, for one request at a time."""

    def __init__(self, pool: "ServerPool") -> None:
        self.pool = pool
        self._transport: asyncio.Transport
        self._parser = httptools.HttpResponseParser(self)
        self._pieces: list[bytes] = []
        self._held_bytes = 0  # in the pieces
        self._is_paused = False
        self._more: asyncio.Future[None] | None = None  # what `receive` waits for
        self._lost = ""  # the reason why no more data can arrive
        self._head_bytes = 0
        self._keeps_alive = True
        self.kept_at = 0.0
        self.status = 0
        self.headers: dict[str, str] = {}
        self.has_head = False
        self.is_complete = True

    @property
    def is_usable(self) -> bool:
        """True if it can carry another request."""
        return self.is_complete and self._keeps_alive and not self._lost

    async def send(self, head: bytes, body: bytes) -> ServerAnswer:
        """Send a request, and return the answer once its head has arrived.

        Raises ServerLostError.
        """
        self._parser = httptools.HttpResponseParser(self)
        self.headers, self.has_head, self.is_complete, self._head_bytes = {}, False, False, 0
        self.take()  # of an answer that was closed unread
        if len(body) < READ_BYTES:
            self._transport.write(head + body)
        else:
            self._transport.writelines((head, body))
        while not self.has_head:
            await self.receive()
        return ServerAnswer(self)

    async def receive(self) -> None:
        """Return once more has arrived. Raises ServerLostError if the connection is lost."""
        if self._lost:
            raise ServerLostError(self._lost)
        self._more = asyncio.get_running_loop().create_future()
        try:
            await self._more
        finally:
            self._more = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by the transport."""
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        """Called by the transport."""
        if self.is_complete:
            self._lose(f"{self.pool.server} sent what was not asked for")
            return
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self._lose(f"the answer is no HTTP: {error}")
            return
        self._head_bytes += 0 if self.has_head else len(data)
        if self._head_bytes > MAX_HEAD_BYTES:
            self._lose(f"the answer's head has more than {MAX_HEAD_BYTES} bytes")
            return
        if self._held_bytes > READ_BYTES and not self._is_paused:
            self._is_paused = True
            self._transport.pause_reading()
        self._wake()

    def connection_lost(self, exc: Exception | None) -> None:
        """Called by the transport, also if the server closed its side."""
        closed = f"{self.pool.server} closed the connection"
        end = f"the connection broke: {exc}" if exc else closed
        self._lose(f"{end} before its answer's end")

    def take(self) -> list[bytes]:
        """Take the pieces of the body that have arrived."""
        pieces, self._pieces, self._held_bytes = self._pieces, [], 0
        if self._is_paused and not self._lost:
            self._is_paused = False
            self._transport.resume_reading()
        return pieces

    def on_message_begin(self) -> None:
        """Called by the parser."""
        if self.is_complete:
            raise ValueError("a second answer to one request")

    def on_header(self, name: bytes, value: bytes) -> None:
        """Called by the parser."""
        self.headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        """Called by the parser."""
        self.status = self._parser.get_status_code()
        self.has_head = self.status >= 200

    def on_body(self, data: bytes) -> None:
        """Called by the parser."""
        self._pieces.append(data)
        self._held_bytes += len(data)

    def on_message_complete(self) -> None:
        """Called by the parser."""
        self.is_complete = self.has_head
        self._keeps_alive = bool(self._parser.should_keep_alive())  # unknown later

    def close(self) -> None:
        """Close the connection."""
        with suppress(RuntimeError):  # the loop is closing
            self._transport.close()

    def _lose(self, why: str) -> None:
        if not self._lost:
            self._lost = why
            self.close()
        self._wake()

    def _wake(self) -> None:
        if self._more is not None and not self._more.done():
            self._more.set_result(None)


class ServerPool:
    """Connections to one server, of which at most MAX_CONNECTIONS carry requests at once.

    `connect` opens a connection. `server` is the server's name in errors.
    """

    def __init__(self, connect: Connect, server: str) -> None:
        self._connect = connect
        self.server = server
        self._idle: deque[ServerConnection] = deque()
        self._free = asyncio.Semaphore(MAX_CONNECTIONS)

    async def send(self, head: bytes, body: bytes) -> ServerAnswer:
        """Send a request. The caller closes the answer. Raises ServerLostError."""
        await self._free.acquire()
        connection: ServerConnection | None = None
        try:
            connection = self._take_idle() or await self._open_connection()
            return await connection.send(head, body)
        except BaseException:
            if connection is not None:
                connection.close()
            self._free.release()
            raise

    def release(self, connection: ServerConnection) -> None:
        """Take back a connection after its answer."""
        self._free.release()
        if connection.is_usable and len(self._idle) < MAX_IDLE_CONNECTIONS:
            connection.kept_at = monotonic_s()
            self._idle.append(connection)
        else:
            connection.close()

    def close(self) -> None:
        """Close every idle connection."""
        while self._idle:
            self._idle.pop().close()

    def _take_idle(self) -> ServerConnection | None:
        while self._idle:
            connection = self._idle.pop()
            if connection.is_usable and monotonic_s() - connection.kept_at < MAX_IDLE_S:
                return connection
            connection.close()
        return None

    async def _open_connection(self) -> ServerConnection:
        connection = ServerConnection(self)
        try:
            await self._connect(lambda: connection)
        except OSError as error:
            raise ServerLostError(f"{self.server} cannot be reached: {error}") from None
        return connection
