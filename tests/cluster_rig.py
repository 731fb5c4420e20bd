"""Certificates of a cluster in folders, and a node proxy before a server on loopback."""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from hostelry.base import tls
from hostelry.base.certificates import Pair, issue, new_authority, new_key, signing_request
from hostelry.base.clock import SystemClock
from hostelry.base.peers import PeerName, PeerRole
from hostelry.base.tls import ClusterTls, TlsFolder
from hostelry.cluster.proxy import Front, NodeProxy, ProxyLimits, open_listener

NOW = SystemClock().now()
AUTHORITY = new_authority("one", NOW)
Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def identity(
    root: Path,
    role: PeerRole = PeerRole.CONTROL,
    name: str = "first",
    *,
    authority: Pair = AUTHORITY,
    cluster: str = "one",
    now: float | None = None,
    trusted: bytes = AUTHORITY.certificate,
) -> TlsFolder:
    """A folder with a certificate that `authority` signed."""
    root.mkdir(exist_ok=True)
    folder = TlsFolder(root)
    key = new_key()
    peer = PeerName(cluster, role, name)
    at = NOW if now is None else now
    folder.identity.write_bytes(key + issue(authority, signing_request(key), peer, at))
    folder.trusted.write_bytes(trusted)
    return folder


class ProxyRig:
    """A node proxy and its address. `handle` is the server with the name ``c-1``."""

    def __init__(self, proxy: NodeProxy, host: str, port: int) -> None:
        self.proxy = proxy
        self.host, self.port = host, port

    def address(self, name: str = "c-1") -> str:
        """The address of a name."""
        return f"https://{name}@{self.host}:{self.port}"

    async def connect(
        self, context: ssl.SSLContext, name: str | None = "c-1"
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A TLS connection that asks for `name`."""
        return await asyncio.open_connection(
            self.host, self.port, ssl=context, server_hostname=name or ""
        )


@asynccontextmanager
async def proxied(
    folder: TlsFolder,
    handle: Handler,
    limits: ProxyLimits | None = None,
    fronts: dict[str, Front] | None = None,
    *,
    without: str = "",
) -> AsyncIterator[ProxyRig]:
    """A node proxy with the certificate in `folder`, in front of a server that `handle` serves.

    The host has no server with the name `without`.
    """
    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        gone = free.getsockname()[1]
        ports = {"c-1": port, "control": port, "i-1": port, "s3": port, "c-gone": gone}
        servers = {name: ("127.0.0.1", it) for name, it in ports.items() if name != without}
        proxy = NodeProxy(ClusterTls(folder), servers.get, fronts or {}, limits)
        listener = open_listener("127.0.0.1", 0)
        serving = asyncio.create_task(proxy.serve(listener))
        try:
            yield ProxyRig(proxy, *listener.getsockname())
        finally:
            serving.cancel()
            await asyncio.gather(serving, return_exceptions=True)
            await proxy.close()
            listener.close()
            server.close()


def as_process(folder: TlsFolder) -> None:
    """Have this process use the certificate in `folder`."""
    tls.use(folder.root)
