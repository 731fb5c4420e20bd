"""The status that a server of this machine answers, for pings. Cheaper than an HTTP client.

The servers are any container's. The gateway has the same parser, so an answer that is invalid here
is invalid for invocations, too. Each request has a separate connection, which the server is asked
to close. The answer is read to its end, within bounds, and never kept.
"""

import asyncio
import contextlib
import socket
import struct
from collections.abc import Awaitable, Callable, Mapping

import httptools

from hostelry.base.address import Address

MAX_HEAD_BYTES = 64 * 1024
MAX_BODY_BYTES = 1024 * 1024  # of a longer one the rest is not read
READ_BYTES = 16 * 1024
CLOSED_WITHIN_S = 0.05
RESET = struct.pack("ii", 1, 0)  # linger for 0 s, socket(7)
FIRST_FINAL = 200  # those below announce another answer
FRAMING = (b"content-length", b"transfer-encoding")

AskStatus = Callable[[str, str, str, Mapping[str, str], float], Awaitable[int | None]]


async def http_status(
    method: str, address: str, path: str, headers: Mapping[str, str], timeout_s: float
) -> int | None:
    """The status that `address`, http://HOST:PORT, answers with its whole body in time, or None.

    None: refused, cut off, too late, or no HTTP. A body beyond MAX_BODY_BYTES need not end.
    """
    target = Address.parse(address)
    fields = {"Host": target.url.partition("://")[2], "Connection": "close", **headers}
    head = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
    request = f"{method} {path} HTTP/1.1\r\n{head}\r\n".encode("latin-1")
    loop = asyncio.get_running_loop()
    family = socket.AF_INET6 if ":" in target.host else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_STREAM) as connection:
            connection.setblocking(False)
            async with asyncio.timeout(timeout_s):
                await loop.sock_connect(connection, (target.host, target.port))
                await loop.sock_sendall(connection, request)
                status = await _status(loop, connection, method)
            await _reset_if_closed(loop, connection)
            return status
    except (OSError, _NotHttpError):  # a TimeoutError is an OSError
        return None


async def _reset_if_closed(loop: asyncio.AbstractEventLoop, connection: socket.socket) -> None:
    """Have a connection that the server has closed end by a reset, which the server never sees.

    Otherwise the kernel lists each one for another minute, and agents read that list.
    """
    with contextlib.suppress(OSError):
        async with asyncio.timeout(CLOSED_WITHIN_S):
            if not await loop.sock_recv(connection, READ_BYTES):
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)


class _NotHttpError(Exception):
    """The bytes are not an HTTP answer to the request."""


async def _status(
    loop: asyncio.AbstractEventLoop, connection: socket.socket, method: str
) -> int | None:
    """The status once the answer is complete, or None if the server closes before."""
    answer = _Answer(method)
    while not answer.is_complete:
        read = await loop.sock_recv(connection, READ_BYTES)
        if not read:
            return answer.status if answer.ends_with_connection else None
        answer.take(read)
    return answer.status


class _Answer:
    """What has come of one answer, which a parser reports here."""

    def __init__(self, method: str) -> None:
        self.status: int | None = None  # once its headers are read
        self.is_complete = False
        self.ends_with_connection = False
        self._has_body = method != "HEAD"
        self._num_head_bytes = self._num_body_bytes = 0
        self._is_framed = False
        self._parser = httptools.HttpResponseParser(self)

    def take(self, read: bytes) -> None:
        """Parse the bytes. Raises _NotHttpError."""
        if self.status is None:
            self._num_head_bytes += len(read)
        else:
            self._num_body_bytes += len(read)
        try:
            self._parser.feed_data(read)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            if not self.is_complete:
                raise _NotHttpError from error
        if self.status is None and self._num_head_bytes > MAX_HEAD_BYTES:
            raise _NotHttpError
        self.is_complete = self.is_complete or self._num_body_bytes > MAX_BODY_BYTES

    def on_header(self, name: bytes, _: bytes) -> None:
        """One header."""
        self._is_framed = self._is_framed or name.lower() in FRAMING

    def on_headers_complete(self) -> None:
        """The end of the headers of an answer, or of an announcement."""
        code = self._parser.get_status_code()
        if code >= FIRST_FINAL and self._parser.get_http_version().startswith("1."):
            self.status = code
            self.is_complete = not self._has_body
            self.ends_with_connection = not self._is_framed

    def on_message_complete(self) -> None:
        """The end of the body, or of an announcement."""
        self.is_complete = self.status is not None
