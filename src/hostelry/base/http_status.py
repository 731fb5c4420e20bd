"""The status that a server of this machine answers, for pings: cheap beside an HTTP client.

The servers are any container's. A request has a connection of its own, which the server is asked to
close; what they send is read to its end, within bounds, and never kept.
"""

import asyncio
import contextlib
import socket
import struct
from collections.abc import Awaitable, Callable, Mapping

from hostelry.base.address import Address

MAX_HEAD_BYTES = 64 * 1024
MAX_BODY_BYTES = 1024 * 1024  # of a longer one the rest is not read
READ_BYTES = 16 * 1024
MAX_DIGITS = 20  # of a length
CLOSED_WITHIN_S = 0.05
RESET = struct.pack("ii", 1, 0)  # linger for 0 s, socket(7)
FIRST_FINAL = 200  # those below announce another answer
BODILESS = (204, 304)

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
                status = await _Reading(loop, connection).status(method)
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
    """The bytes are no answer to the request."""


class _TooLongError(_NotHttpError):
    """More comes than is read; of a body that is no fault."""


class _Reading:
    """The bytes of one answer, of which those not taken yet are held."""

    def __init__(self, loop: asyncio.AbstractEventLoop, connection: socket.socket) -> None:
        self._loop = loop
        self._connection = connection
        self._held = bytearray()
        self._left = MAX_HEAD_BYTES  # bytes that may still be taken

    async def status(self, method: str) -> int:
        """The status, once the answer is complete."""
        code, fields = await self._head()
        while code < FIRST_FINAL:
            code, fields = await self._head()
        if method != "HEAD" and code not in BODILESS:
            self._left = MAX_BODY_BYTES
            with contextlib.suppress(_TooLongError):
                await self._skip_body(fields)
        return code

    async def _head(self) -> tuple[int, list[tuple[bytes, bytes]]]:
        """Status and headers, with names in lower case."""
        code, fields = _status_of(await self._line()), []
        while line := await self._line():
            name, _, value = line.partition(b":")
            fields.append((name.lower(), value.strip()))
        return code, fields

    async def _skip_body(self, fields: list[tuple[bytes, bytes]]) -> None:
        codings = [value.lower() for name, value in fields if name == b"transfer-encoding"]
        lengths = [value for name, value in fields if name == b"content-length"]
        if codings and codings[-1].endswith(b"chunked"):
            await self._skip_chunks()
        elif lengths and not codings:
            # Equal ones count as one. Source: RFC 9110, section 8.6.
            sizes = {_number(it.strip(), 10) for it in b",".join(lengths).split(b",")}
            if len(sizes) > 1:
                raise _NotHttpError
            await self._skip(sizes.pop())
        else:
            while await self._more():
                self._take(len(self._held))

    async def _skip_chunks(self) -> None:
        while size := _number((await self._line()).partition(b";")[0].strip(), 16):
            await self._skip(size)
            await self._line()
        while await self._line():
            pass

    async def _line(self) -> bytes:
        """The next line, without its end."""
        searched = 0
        while (end := self._held.find(b"\n", searched)) < 0:
            searched = len(self._held)
            if searched > self._left:
                raise _TooLongError
            if not await self._more():
                raise _NotHttpError
        line = bytes(self._held[:end])
        self._take(end + 1)
        return line.removesuffix(b"\r")

    async def _skip(self, num_bytes: int) -> None:
        while num_bytes > len(self._held):
            num_bytes -= len(self._held)
            self._take(len(self._held))
            if not await self._more():
                raise _NotHttpError
        self._take(num_bytes)

    def _take(self, num_bytes: int) -> None:
        del self._held[:num_bytes]
        self._left -= num_bytes
        if self._left < 0:
            raise _TooLongError

    async def _more(self) -> bool:
        """Read more bytes. False if the server has closed the connection."""
        read = await self._loop.sock_recv(self._connection, READ_BYTES)
        self._held += read
        return bool(read)


def _status_of(line: bytes) -> int:
    """The status in `HTTP/1.N DDD REASON`."""
    version, _, rest = line.partition(b" ")
    digits, _, _ = rest.partition(b" ")
    is_http = version[:-1] == b"HTTP/1." and version[-1:].isdigit()
    if not is_http or len(digits) != len(b"200") or digits < b"100":
        raise _NotHttpError
    return _number(digits, 10)


def _number(digits: bytes, base: int) -> int:
    # int() takes signs, spaces and underscores, too.
    if not digits.isalnum() or len(digits) > MAX_DIGITS:
        raise _NotHttpError
    try:
        return int(digits, base)
    except ValueError:
        raise _NotHttpError from None
