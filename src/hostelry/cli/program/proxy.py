"""The proxy of a program's HTTPS: AWS's hosts are answered here, all others are tunnelled.

botocore, the AWS SDKs of other languages and Terraform honour HTTPS_PROXY and AWS_CA_BUNDLE, so a
client that names https://sts.REGION.amazonaws.com itself comes here, too.
"""

import asyncio
import base64
import contextlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

from hostelry.cli.program.call import is_aws

MAX_HEAD_BYTES = 16 * 1024
HEAD_WITHIN_S = 30.0
CONNECT_WITHIN_S = 30.0
CHUNK_BYTES = 64 * 1024
END = b"\r\n\r\n"
USER = "hostelry"
# Of names that no host can have and of ports beyond 65535 come UnicodeError and OverflowError.
UNREACHABLE = (
    OSError,
    TimeoutError,
    UnicodeError,
    OverflowError,
    asyncio.IncompleteReadError,
    asyncio.LimitOverrunError,
)
UNPROVEN = (
    b'HTTP/1.1 407 this proxy serves one program\r\nProxy-Authenticate: Basic realm="hostelry exec"'
    b"\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class UsersProxy:
    """The proxy that the user has set for HTTPS; `bypass` is the user's NO_PROXY."""

    url: str = ""
    bypass: str = ""

    def for_host(self, host: str) -> str:
        """The proxy's URL for this host; empty where it is reached without one."""
        entries = (entry.strip().lstrip("*.").lower() for entry in self.bypass.split(","))
        own = host.lower()
        passed = any(entry and (own == entry or own.endswith(f".{entry}")) for entry in entries)
        return "" if passed or "*" in self.bypass.split(",") else self.url


def users_proxy(environment: Mapping[str, str]) -> UsersProxy:
    """The user's proxy for HTTPS, as curl and Python read it."""
    url = environment.get("https_proxy") or environment.get("HTTPS_PROXY") or ""
    bypass = environment.get("no_proxy") or environment.get("NO_PROXY") or ""
    return UsersProxy(url=url, bypass=bypass)


class Proxy:
    """Answers CONNECT: for AWS's hosts with the server at `tls_port`, for others with a tunnel.

    Only a request that shows `secret` is served. Every user of the machine can reach the port, and
    tunnels use the password of the user's own proxy.
    """

    def __init__(self, tls_port: int, users: UsersProxy, secret: str) -> None:
        self._tls_port = tls_port
        self._users = users
        self._credentials = basic_credentials(USER, secret)
        self._open: set[asyncio.Task[None]] = set()

    async def close(self) -> None:
        """End every connection."""
        for task in self._open:
            task.cancel()
        await asyncio.gather(*self._open, return_exceptions=True)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection to its end."""
        task = asyncio.create_task(self._serve(reader, writer))
        self._open.add(task)
        task.add_done_callback(self._open.discard)
        await asyncio.wait((task,))

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(HEAD_WITHIN_S):
                head = await reader.readuntil(END)
            authority = connect_authority(head)
            if authority is None:
                writer.write(b"HTTP/1.1 501 only CONNECT is served here\r\n\r\n")
                return
            if not hmac.compare_digest(given_credentials(head), self._credentials):
                writer.write(UNPROVEN)
                return
            async with asyncio.timeout(CONNECT_WITHIN_S):
                upstream = await self._opened(*authority)
            writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
            await tunnel((reader, writer), upstream)
        except UNREACHABLE:
            with contextlib.suppress(OSError):
                writer.write(b"HTTP/1.1 502 the host cannot be reached\r\n\r\n")
        finally:
            await closed(writer)

    async def _opened(
        self, host: str, port: int
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if is_aws(host):
            return await asyncio.open_connection("127.0.0.1", self._tls_port)
        proxy = self._users.for_host(host)
        if not proxy:
            return await asyncio.open_connection(host, port)
        return await through(proxy, host, port)


def basic_credentials(user: str, password: str) -> bytes:
    """The value of a Proxy-Authorization header."""
    return b"Basic " + base64.b64encode(f"{user}:{password}".encode())


def given_credentials(head: bytes) -> bytes:
    """The value of the head's Proxy-Authorization; empty if it has none."""
    for line in head.split(b"\r\n")[1:]:
        name, _, value = line.partition(b":")
        if name.strip().lower() == b"proxy-authorization":
            return value.strip()
    return b""


def connect_authority(head: bytes) -> tuple[str, int] | None:
    """Host and port of a CONNECT request's head; None for anything else."""
    method, _, rest = head.partition(b" ")
    host, colon, port = rest.partition(b" ")[0].decode("latin-1").rpartition(":")
    if method != b"CONNECT" or not colon or not host or not port.isdecimal():
        return None
    return host.strip("[]"), int(port)


async def through(
    proxy: str, host: str, port: int
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A connection to `host` through the user's proxy; raises ConnectionError where it refuses."""
    at = urlsplit(proxy if "//" in proxy else f"http://{proxy}")
    secure = at.scheme == "https"
    default = 443 if secure else 80
    reader, writer = await asyncio.open_connection(
        at.hostname or "", at.port or default, ssl=secure or None
    )
    lines = [f"CONNECT {host}:{port} HTTP/1.1", f"Host: {host}:{port}"]
    if at.username is not None:
        shown = basic_credentials(unquote(at.username), unquote(at.password or ""))
        lines.append(f"Proxy-Authorization: {shown.decode()}")
    writer.write("\r\n".join([*lines, "", ""]).encode("latin-1"))
    answer = await reader.readuntil(END)
    if b" 200" not in answer.partition(b"\r\n")[0]:
        writer.close()
        raise ConnectionError(f"the proxy refuses {host}")
    return reader, writer


async def tunnel(
    near: tuple[asyncio.StreamReader, asyncio.StreamWriter],
    far: tuple[asyncio.StreamReader, asyncio.StreamWriter],
) -> None:
    """Copy both ways until both sides have ended."""
    try:
        await asyncio.gather(copy(near[0], far[1]), copy(far[0], near[1]))
    finally:
        await closed(far[1])


async def closed(writer: asyncio.StreamWriter) -> None:
    """Close a connection, and wait until it is."""
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()


async def copy(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    """Copy until the source ends, and end the sink's half."""
    try:
        while chunk := await source.read(CHUNK_BYTES):
            sink.write(chunk)
            await sink.drain()
    finally:
        if sink.can_write_eof():
            with contextlib.suppress(OSError):
                sink.write_eof()
