"""HTTP connections to a server, kept alive and reused; a request is sent once and never again.

The server is the gateway, or a tritonserver (`containers/triton`).

A call may have done its work although its connection broke, so nothing is repeated. Connections
that were idle for MAX_IDLE_S are closed: the gateway closes them later.
"""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import suppress

import httptools

from hostelry.base.clock import monotonic_s
from hostelry.base.errors import HostelryError

MAX_IDLE_S = 5.0
MAX_IDLE_CONNECTIONS = 64
MAX_CONNECTIONS = 256
MAX_HEAD_BYTES = 64 * 1024
READ_BYTES = 256 * 1024
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class GatewayLostError(HostelryError):
    """The gateway did not answer, or its answer broke off; the call may have done its work."""


class GatewayAnswer:
    """One answer, its head there; read it to its end, or close it."""

    def __init__(self, connection: "GatewayConnection") -> None:
        self._connection = connection
        self._is_closed = False
        self.status = connection.status
        self.headers = connection.headers

    async def body(self, max_bytes: int) -> bytes:
        """The whole body; raises GatewayLostError, also for more than `max_bytes`."""
        read = bytearray()
        async for piece in self.pieces():
            read += piece
            if len(read) > max_bytes:
                raise GatewayLostError(f"the answer has more than {max_bytes} bytes")
        return bytes(read)

    async def pieces(self) -> AsyncGenerator[bytes, None]:
        """The body as it comes; raises GatewayLostError where it breaks off."""
        while True:
            for piece in self._connection.take():
                yield piece
            if self._connection.is_complete:
                return
            await self._connection.receive()

    def close(self) -> None:
        """Give the connection back, once; one whose answer was not read to its end is closed."""
        if not self._is_closed:
            self._is_closed = True
            self._connection.pool.release(self._connection)


class GatewayConnection:
    """One connection; carries one request at a time."""

    def __init__(
        self,
        pool: "GatewayPool",
        streams: Streams,
    ) -> None:
        self.pool = pool
        self._reader, self._writer = streams
        self._parser = httptools.HttpResponseParser(self)
        self._pieces: list[bytes] = []
        self._head_bytes = 0
        self._keeps_alive = True
        self.kept_at = 0.0
        self.status = 0
        self.headers: dict[str, str] = {}
        self.has_head = False
        self.is_complete = True

    @property
    def is_usable(self) -> bool:
        """Whether it can carry another request."""
        return (
            self.is_complete
            and self._keeps_alive
            and not self._reader.at_eof()
            and not self._writer.is_closing()
        )

    async def send(self, head: bytes, body: bytes) -> GatewayAnswer:
        """Send a request; its answer once its head is there. Raises GatewayLostError."""
        self._parser = httptools.HttpResponseParser(self)
        self.headers, self.has_head, self.is_complete, self._head_bytes = {}, False, False, 0
        try:
            self._writer.write(head + body if len(body) < READ_BYTES else head)
            if len(body) >= READ_BYTES:
                self._writer.write(body)
            await self._writer.drain()
        except (OSError, RuntimeError) as error:
            raise GatewayLostError(f"the request could not be sent: {error}") from None
        while not self.has_head:
            await self.receive()
        return GatewayAnswer(self)

    async def receive(self) -> None:
        """Feed what arrives next; raises GatewayLostError."""
        try:
            data = await self._reader.read(READ_BYTES)
        except OSError as error:
            raise GatewayLostError(f"the connection broke: {error}") from None
        if not data:
            raise GatewayLostError(
                f"{self.pool.server} closed the connection before its answer's end"
            )
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            raise GatewayLostError(f"the answer is no HTTP: {error}") from None
        self._head_bytes += 0 if self.has_head else len(data)
        if self._head_bytes > MAX_HEAD_BYTES:
            raise GatewayLostError(f"the answer's head has more than {MAX_HEAD_BYTES} bytes")

    def take(self) -> list[bytes]:
        """The pieces of the body that have come since."""
        pieces, self._pieces = self._pieces, []
        return pieces

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

    def on_message_complete(self) -> None:
        """Called by the parser."""
        self.is_complete = self.has_head
        self._keeps_alive = bool(self._parser.should_keep_alive())  # later it is not known

    def close(self) -> None:
        """Close it."""
        with suppress(RuntimeError):  # the loop is closing
            self._writer.close()


class GatewayPool:
    """Connections to one server; at most MAX_CONNECTIONS carry requests at once.

    `opened` opens one; `server` is what errors call the server.
    """

    def __init__(self, opened: Callable[[], Awaitable[Streams]], server: str) -> None:
        self._open = opened
        self.server = server
        self._idle: deque[GatewayConnection] = deque()
        self._free = asyncio.Semaphore(MAX_CONNECTIONS)

    async def send(self, head: bytes, body: bytes) -> GatewayAnswer:
        """The answer to a request; the caller closes it. Raises GatewayLostError."""
        await self._free.acquire()
        connection: GatewayConnection | None = None
        try:
            connection = self._kept() or await self._opened()
            return await connection.send(head, body)
        except BaseException:
            if connection is not None:
                connection.close()
            self._free.release()
            raise

    def release(self, connection: GatewayConnection) -> None:
        """Take a connection back after its answer."""
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

    def _kept(self) -> GatewayConnection | None:
        while self._idle:
            connection = self._idle.pop()
            if connection.is_usable and monotonic_s() - connection.kept_at < MAX_IDLE_S:
                return connection
            connection.close()
        return None

    async def _opened(self) -> GatewayConnection:
        try:
            streams = await self._open()
        except OSError as error:
            raise GatewayLostError(f"{self.server} cannot be reached: {error}") from None
        return GatewayConnection(self, streams)
