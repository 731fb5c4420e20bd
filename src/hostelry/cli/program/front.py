"""The front of a running program: the proxy of its HTTPS, and with a report also of its HTTP."""

import asyncio
import contextlib
import secrets
import shutil
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import httpcore
import uvicorn

from hostelry.base.clock import Clock
from hostelry.cli.program.authority import RunAuthority, java_truststore
from hostelry.cli.program.call import SeenCall
from hostelry.cli.program.forward import Forwarder
from hostelry.cli.program.proxy import MAX_HEAD_BYTES, USER, Proxy, UsersProxy

HOST = "127.0.0.1"
MAX_CONNECTIONS = 200
SECRET_BYTES = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class FrontAddresses:
    """Where the program finds its front: the proxy, files of trusted certificates, and URLs.

    The proxy's URL has a secret of this run. The others are those of the gateway and the object
    store unless calls are recorded.
    """

    proxy_url: str
    trusted: Path
    gateway_url: str
    store_url: str
    trusted_by_java: Path | None = None


class FrontServer(uvicorn.Server):
    """uvicorn without signal handlers: signals are the program's."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Capture none."""
        yield


@dataclass(frozen=True, slots=True, kw_only=True)
class Front:
    """What a front needs: the platform's addresses, a private folder, and what gets the calls.

    `authorities`: PEM of what the front trusts, of the store. `trusted`: PEM of what the program
    trusts, apart from the front.
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
        """Serve until the end of the block; every call is seen if `recording`, else strays only."""
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
                served(self._forwarder(pool), authority.server_context())
            )
            secret = secrets.token_urlsafe(SECRET_BYTES)
            proxy = await stack.enter_async_context(self._proxy(tls, secret))
            gateway, store = self.gateway_url, self.store_url
            if recording:
                plain = await stack.enter_async_context(served(self._forwarder(pool), None))
                objects = self._forwarder(pool, for_store=True)
                gateway = f"http://{HOST}:{plain}"
                store = f"http://{HOST}:{await stack.enter_async_context(served(objects, None))}"
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
async def served(app: Forwarder, context: ssl.SSLContext | None) -> AsyncIterator[int]:
    """Serve `app` on a free port of loopback, over TLS with a context; the port."""
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
