"""The HTTPS proxy of a program: requests to AWS's hosts are answered here, others are tunnelled.

botocore, other AWS SDKs and Terraform obey HTTPS_PROXY and AWS_CA_BUNDLE, so calls of clients that
name https://sts.REGION.amazonaws.com themselves arrive here, too.
"""

import asyncio
import base64
import contextlib
import hmac
import secrets
import shutil
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import httpcore
import msgspec
import uvicorn
from starlette.types import Message, Receive, Scope, Send

from hostelry.base.clock import Clock
from hostelry.cli.program.authority import RunAuthority, java_truststore
from hostelry.cli.program.call import (
    SeenCall,
    SeenRequest,
    get_operation,
    is_aws,
    is_s3,
    parse_error,
)

MAX_HEAD_BYTES = 16 * 1024
HEAD_WITHIN_S = 30.0
CONNECT_WITHIN_S = 30.0
CHUNK_BYTES = 64 * 1024
END = b"\r\n\r\n"
USER = "hostelry"
# Impossible host names and ports beyond 65535 raise UnicodeError and OverflowError.
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
HOST = "127.0.0.1"
MAX_CONNECTIONS = 200
SECRET_BYTES = 32
HEAD_BYTES = 64 * 1024  # of a body, enough for the operation in a form and the code of an error
HOP_HEADERS = frozenset({b"connection", b"keep-alive", b"transfer-encoding", b"expect"})
AWAY = b'{"__type":"ServiceUnavailable","message":"The hostelry does not answer."}'


class UsersProxy(msgspec.Struct, frozen=True, kw_only=True):
    """The user's own proxy for HTTPS. `bypass` is the user's NO_PROXY."""

    url: str = ""
    bypass: str = ""

    def for_host(self, host: str) -> str:
        """The proxy's URL for this host. Empty if no proxy is used for the host."""
        entries = [entry.strip().lower() for entry in self.bypass.split(",")]
        domains = [entry.lstrip("*.") for entry in entries]
        own = host.lower()
        passed = any(it and (own == it or own.endswith(f".{it}")) for it in domains)
        return "" if passed or "*" in entries else self.url


def users_proxy(environment: Mapping[str, str]) -> UsersProxy:
    """The user's proxy for HTTPS, as curl and Python read it."""
    url = environment.get("https_proxy") or environment.get("HTTPS_PROXY") or ""
    bypass = environment.get("no_proxy") or environment.get("NO_PROXY") or ""
    return UsersProxy(url=url, bypass=bypass)


class Proxy:
    """Answers CONNECT. AWS's hosts lead to the server at `tls_port`, all others to a tunnel.

    Serves only requests that have the `secret`: every user of the machine can reach the port, and
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
        except UNREACHABLE:
            with contextlib.suppress(OSError):
                writer.write(b"HTTP/1.1 502 the host cannot be reached\r\n\r\n")
        else:
            writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
            with contextlib.suppress(OSError):  # from here on the bytes are of the two sides
                await tunnel((reader, writer), upstream)
        finally:
            await close_writer(writer)

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
    """The value of Proxy-Authorization in a head. Empty if it is missing."""
    for line in head.split(b"\r\n")[1:]:
        name, _, value = line.partition(b":")
        if name.strip().lower() == b"proxy-authorization":
            return value.strip()
    return b""


def connect_authority(head: bytes) -> tuple[str, int] | None:
    """Host and port of a CONNECT request. None for any other request."""
    method, _, rest = head.partition(b" ")
    host, colon, port = rest.partition(b" ")[0].decode("latin-1").rpartition(":")
    if method != b"CONNECT" or not colon or not host or not port.isdecimal():
        return None
    return host.strip("[]"), int(port)


async def through(
    proxy: str, host: str, port: int
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Connect to `host` through the user's proxy. Raises ConnectionError if the proxy refuses."""
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
    try:
        writer.write("\r\n".join([*lines, "", ""]).encode("latin-1"))
        answer = await reader.readuntil(END)
    except BaseException:  # a timeout cancels this task
        writer.close()
        raise
    if b" 200" not in answer.partition(b"\r\n")[0]:
        writer.close()
        raise ConnectionError(f"the proxy refuses {host}")
    return reader, writer


async def tunnel(
    near: tuple[asyncio.StreamReader, asyncio.StreamWriter],
    far: tuple[asyncio.StreamReader, asyncio.StreamWriter],
) -> None:
    """Copy bytes both ways until both sides have ended."""
    try:
        await asyncio.gather(copy(near[0], far[1]), copy(far[0], near[1]))
    finally:
        await close_writer(far[1])


async def close_writer(writer: asyncio.StreamWriter) -> None:
    """Close a connection, and wait until it is closed."""
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()


async def copy(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    """Copy bytes until the source ends. Then end the sink's direction."""
    try:
        while chunk := await source.read(CHUNK_BYTES):
            sink.write(chunk)
            await sink.drain()
    finally:
        if sink.can_write_eof():
            with contextlib.suppress(OSError):
                sink.write_eof()


class FrontAddresses(msgspec.Struct, frozen=True, kw_only=True):
    """The addresses that a program uses: the proxy, files of trusted certificates, and URLs.

    The proxy's URL contains a secret of this run. If calls are recorded, the other URLs lead to
    recording servers, else to the gateway and the object store.
    """

    proxy_url: str
    trusted: Path
    gateway_url: str
    store_url: str
    trusted_by_java: Path | None = None


class FrontServer(uvicorn.Server):
    """uvicorn without signal handlers, because signals are for the program."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Capture no signal."""
        yield


class Forwarder:
    """An ASGI application that forwards requests to `gateway`, and S3's requests to `store`.

    `seen` gets each call before the client gets the end of its answer, and so before the client's
    next action. `for_store` is true on the port of S3.
    """

    def __init__(
        self,
        pool: httpcore.AsyncConnectionPool,
        gateway: str,
        store: str,
        seen: Callable[[SeenCall], None],
        clock: Clock,
        *,
        for_store: bool = False,
    ) -> None:
        self._pool = pool
        self._gateway = httpcore.URL(gateway)
        self._store = httpcore.URL(store)
        self._seen = seen
        self._clock = clock
        self._for_store = for_store

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Forward one request. An answer that breaks off stays incomplete, which cuts it off."""
        exchange = _Exchange(scope, receive)
        host = exchange.headers.get("host", "").partition(":")[0]
        to_store = self._for_store or (is_aws(host) and is_s3(host))

        def note(status: int, headers: dict[str, str], beginning: bytes) -> None:
            service, operation = get_operation(exchange.request())  # the body has been read by now
            error = parse_error(status, headers, beginning) if status >= 400 else ("", "")
            self._seen(
                SeenCall(
                    service=service,
                    operation=operation,
                    status=status,
                    error=error[0],
                    message=error[1],
                    host=host if is_aws(host) else "",
                    at=self._clock.now(),
                )
            )

        await self._pass_on(exchange, self._store if to_store else self._gateway, send, note)

    async def _pass_on(
        self,
        exchange: "_Exchange",
        origin: httpcore.URL,
        send: Send,
        note: Callable[[int, dict[str, str], bytes], None],
    ) -> None:
        """Forward the answer. `note` gets its status, headers and start before its last byte."""
        url = httpcore.URL(
            scheme=origin.scheme, host=origin.host, port=origin.port, target=exchange.target
        )
        has_body = {b"content-length", b"transfer-encoding"} & {it for it, _ in exchange.raw}
        beginning, num_bytes, has_begun, is_noted = b"", 0, False, False
        try:
            async with self._pool.stream(
                exchange.method,
                url,
                headers=[(name, value) for name, value in exchange.raw if name != b"expect"],
                content=exchange.body() if has_body else None,
            ) as answer:
                kept = [it for it in answer.headers if it[0].lower() not in HOP_HEADERS]
                headers, has_begun = _text(kept), True
                length = headers.get("content-length", "")
                await send(
                    {"type": "http.response.start", "status": answer.status, "headers": kept}
                )
                async for chunk in answer.aiter_stream():
                    beginning, num_bytes = (beginning + chunk)[:HEAD_BYTES], num_bytes + len(chunk)
                    if str(num_bytes) == length:
                        is_noted = True
                        note(answer.status, headers, beginning)
                    await send(_body(chunk, more=True))
                if not is_noted:
                    is_noted = True
                    note(answer.status, headers, beginning)
                await send(_body(b"", more=False))
        except (httpcore.NetworkError, httpcore.TimeoutException, httpcore.RemoteProtocolError):
            if not is_noted:
                note(503, {}, AWAY)
            if not has_begun:  # otherwise the server breaks off the incomplete answer
                head = [(b"content-type", b"application/x-amz-json-1.1")]
                await send({"type": "http.response.start", "status": 503, "headers": head})
                await send(_body(AWAY, more=False))


class Front(msgspec.Struct, frozen=True, kw_only=True):
    """The servers between a program and the platform: the proxy, and servers that record calls.

    `folder` is private. `seen` gets each recorded call. `authorities`: PEM of the certificates with
    which the front checks the store. `trusted`: PEM of the other certificates that the program
    trusts.
    """

    gateway_url: str
    store_url: str
    authorities: bytes
    trusted: bytes
    folder: Path
    users_proxy: UsersProxy
    seen: Callable[[SeenCall], None]
    clock: Clock

    @asynccontextmanager
    async def running(self, *, recording: bool) -> AsyncIterator[FrontAddresses]:
        """Serve during the block. Calls that use AWS's host names are recorded in any case.

        With `recording`, calls that use the platform's addresses are recorded, too.
        """
        authority = RunAuthority(self.folder, self.clock.now())
        trusted = self.folder / "trusted.pem"
        trusted.write_bytes(self.trusted + authority.certificate)
        java = self.folder / "trusted.p12" if shutil.which("java") else None
        if java is not None:
            java.write_bytes(java_truststore(trusted.read_bytes()))
        context = None
        if self.store_url.startswith("https:"):
            context = ssl.create_default_context(cadata=self.authorities.decode())
        limits = httpcore.AsyncConnectionPool(context, max_connections=MAX_CONNECTIONS)
        async with contextlib.AsyncExitStack() as stack:
            pool = await stack.enter_async_context(limits)
            tls = await stack.enter_async_context(
                serve_app(self._forwarder(pool), authority.server_context())
            )
            secret = secrets.token_urlsafe(SECRET_BYTES)
            proxy = await stack.enter_async_context(self._proxy(tls, secret))
            gateway, store = self.gateway_url, self.store_url
            if recording:
                plain = await stack.enter_async_context(serve_app(self._forwarder(pool), None))
                objects = self._forwarder(pool, for_store=True)
                gateway = f"http://{HOST}:{plain}"
                store = f"http://{HOST}:{await stack.enter_async_context(serve_app(objects, None))}"
            yield FrontAddresses(
                proxy_url=f"http://{USER}:{secret}@{HOST}:{proxy}",
                trusted=trusted,
                trusted_by_java=java,
                gateway_url=gateway,
                store_url=store,
            )

    def _forwarder(
        self, pool: httpcore.AsyncConnectionPool, *, for_store: bool = False
    ) -> Forwarder:
        return Forwarder(
            pool, self.gateway_url, self.store_url, self.seen, self.clock, for_store=for_store
        )

    @asynccontextmanager
    async def _proxy(self, tls_port: int, secret: str) -> AsyncIterator[int]:
        proxy = Proxy(tls_port, self.users_proxy, secret)
        server = await asyncio.start_server(proxy.serve, HOST, 0, limit=MAX_HEAD_BYTES)
        try:
            yield server.sockets[0].getsockname()[1]
        finally:
            server.close()
            await proxy.close()


@asynccontextmanager
async def serve_app(app: Forwarder, context: ssl.SSLContext | None) -> AsyncIterator[int]:
    """Serve `app` on a free loopback port, with TLS if `context` is given. Yields the port."""
    config = uvicorn.Config(
        app,
        log_config=None,
        log_level="critical",
        access_log=False,
        lifespan="off",
        server_header=False,
        date_header=False,
        timeout_graceful_shutdown=1,
        loop="asyncio",
    )
    config.load()
    config.ssl = context
    listening = socket.create_server((HOST, 0))
    server = FrontServer(config)
    task = asyncio.create_task(server.serve(sockets=[listening]))
    try:
        while not server.started:
            if task.done():
                await task
            await asyncio.sleep(0.002)
        yield listening.getsockname()[1]
    finally:
        server.should_exit = True
        await task


class _Exchange:
    """One request as it comes in. Keeps the beginning of the body."""

    def __init__(self, scope: Scope, receive: Receive) -> None:
        self._receive = receive
        self._beginning = b""
        query = scope["query_string"]
        self.method: str = scope["method"]
        self.target: bytes = scope["raw_path"] + (b"?" + query if query else b"")
        self.raw: list[tuple[bytes, bytes]] = list(scope["headers"])
        self.headers = _text(self.raw)

    def request(self) -> SeenRequest:
        """The parts that identify the operation."""
        return SeenRequest(
            method=self.method,
            target=self.target.decode("latin-1"),
            headers=self.headers,
            body=self._beginning,
        )

    async def body(self) -> AsyncIterator[bytes]:
        """The body as it comes."""
        more = True
        while more:
            message = await self._receive()
            chunk: bytes = message.get("body", b"")
            more = message.get("more_body", False)
            self._beginning = (self._beginning + chunk)[:HEAD_BYTES]
            if chunk:
                yield chunk


def _body(chunk: bytes, *, more: bool) -> Message:
    message: dict[str, Any] = {"type": "http.response.body", "body": chunk, "more_body": more}
    return message


def _text(headers: list[tuple[bytes, bytes]]) -> dict[str, str]:
    return {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in headers}
