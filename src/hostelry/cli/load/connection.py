"""One HTTP connection of a load generator, carrying one request at a time."""

import asyncio
from collections.abc import Callable
from typing import cast

import httptools

BROKEN = 0  # the status where no whole answer came
Take = Callable[[bytes], None]


def message(path: str, headers: dict[str, str], body: bytes) -> bytes:
    """A whole HTTP request, a POST of `body`."""
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    head = f"POST {path} HTTP/1.1\r\n{lines}Content-Length: {len(body)}\r\n\r\n"
    return head.encode("latin-1") + body


class LoadConnection(asyncio.Protocol):
    """Sends whole messages, each after the answer to the last one.

    `is_open` is False once the server closed it, or an answer broke off. `header` has the value of
    the header that was asked for, of the last answer.
    """

    def __init__(self, header: bytes = b"") -> None:
        self.is_open = True
        self.header = b""
        self._wanted = header
        self._answered: asyncio.Future[int] | None = None
        self._take: Take = _drop
        self._parser = httptools.HttpResponseParser(self)
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Ready to send."""
        self._transport = cast(asyncio.Transport, transport)

    async def ask(self, request: bytes, take: Take) -> int:
        """The status of the answer, whose body's parts go to `take`; BROKEN without an end."""
        if not self.is_open:
            return BROKEN
        self._answered = asyncio.get_running_loop().create_future()
        self._take, self.header = take, b""
        self._transport.write(request)
        return await self._answered

    def data_received(self, data: bytes) -> None:
        """Read on; what is no HTTP breaks the connection."""
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserCallbackError):
            self.close()

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep the one that was asked for."""
        if name.lower() == self._wanted:
            self.header = value

    def on_body(self, part: bytes) -> None:
        """Pass it on."""
        self._take(part)

    def on_message_complete(self) -> None:
        """The answer is whole."""
        self.is_open = self.is_open and self._parser.should_keep_alive()
        self._end(self._parser.get_status_code())

    def connection_lost(self, exc: Exception | None) -> None:
        """No answer will come."""
        self.is_open = False
        self._end(BROKEN)

    def close(self) -> None:
        """Cut the connection."""
        self.is_open = False
        self._transport.abort()

    def _end(self, status: int) -> None:
        if self._answered is not None and not self._answered.done():
            self._answered.set_result(status)


def _drop(part: bytes) -> None:
    del part
