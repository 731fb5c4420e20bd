"""Ports on a node's loopback that lead to servers of control's host, over mutual TLS.

The bytes pass unchanged, so that a client signs the address it connects to, and the server sees it.
Of several hosts of control the first that has the server gets them: a further one has no object
store and no gateway. If none has it, a request is answered with 503 and the reason.
"""

import asyncio
import contextlib
import logging
import socket
from collections.abc import Callable, Sequence
from xml.sax.saxutils import escape

import msgspec

from hostelry.base.address import Address, on_host
from hostelry.base.errors import TerminalError
from hostelry.base.splice import SpliceEnd
from hostelry.base.tls import CONNECTED, LINK_PROTOCOL, ClusterTls
from hostelry.cluster.proxy import keep_alive
from hostelry.http1.heads import build_answer

LOG = logging.getLogger(__name__)
BACKLOG = 1024


class LinkLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Bounds of one port. `refusal_s` is the time in which a client may read a refusal."""

    connections: int = 1024
    connect_s: float = 5.0
    refusal_s: float = 5.0


class LinkEnd(SpliceEnd):
    """A client's end, which `accepted` gets. What it sends before it is connected waits."""

    def __init__(self, accepted: Callable[["LinkEnd"], None]) -> None:
        super().__init__()
        self.lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._accepted = accepted
        self._early: list[bytes] | None = []  # None: it is connected, or refused

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Have it connected to the server."""
        super().connection_made(transport)
        self._accepted(self)

    def data_received(self, data: bytes) -> None:
        """Forward the bytes, or keep them and read no more. Drop a refused client's bytes."""
        if self._early is None:
            super().data_received(data)
            return
        self._early.append(data)
        if self.transport is not None:  # uvloop takes no pause while a connection is made
            self.transport.pause_reading()

    def connect(self, server: SpliceEnd) -> None:
        """Forward the received bytes to `server`, and all later ones."""
        early, self._early, self.other = self._early or [], None, server
        if self.transport is None or server.transport is None:
            return
        server.transport.writelines(early)
        if self.ended or self.transport.is_closing():
            server.transport.close()
        else:
            self.transport.resume_reading()

    def refuse(self, answer: bytes) -> None:
        """Send the answer, and read on, so that the client comes to read it."""
        self._early = None
        if self.transport is not None and not self.transport.is_closing():
            self.transport.write(answer)
            self.transport.resume_reading()

    def connection_lost(self, error: Exception | None) -> None:
        """Forward the loss."""
        super().connection_lost(error)
        if not self.lost.done():
            self.lost.set_result(None)


class HostEnd(SpliceEnd):
    """The end of the server's node proxy. `connected` is done once the proxy confirms the server.

    It fails if the host has no such server.
    """

    def __init__(self, client: LinkEnd) -> None:
        super().__init__()
        self.connected: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._client = client

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Wait for the proxy's word. A proxy of an earlier version sends none."""
        super().connection_made(transport)
        if transport.get_extra_info("ssl_object").selected_alpn_protocol() != LINK_PROTOCOL:
            self._begin()

    def data_received(self, data: bytes) -> None:
        """Take the proxy's word, and forward the server's bytes."""
        if not self.connected.done():
            if data[:1] != CONNECTED:
                self._fail("its node proxy answers something else")
                return
            self._begin()
            data = data[1:]
        if data:
            super().data_received(data)

    def eof_received(self) -> bool:
        """Forward the server's end, unless it was never connected."""
        return False if self.other is None else super().eof_received()

    def connection_lost(self, error: Exception | None) -> None:
        """Forward the loss, or fail."""
        self._fail(str(error or "it is not there"))
        super().connection_lost(error)

    def _begin(self) -> None:
        self.other = self._client
        self.connected.set_result(None)

    def _fail(self, fault: str) -> None:
        if not self.connected.done():
            self.connected.set_exception(ConnectionError(fault))
            if self.transport is not None:
                self.transport.abort()


class HostLink:
    """Forwards connections to the server called `name`, on the first of `controls` that has it."""

    def __init__(
        self,
        name: str,
        tls: ClusterTls,
        controls: Callable[[], Sequence[str]],
        limits: LinkLimits | None = None,
    ) -> None:
        self._name = name
        self._tls = tls
        self._controls = controls
        self._limits = limits or LinkLimits()
        self._open: set[asyncio.Task[None]] = set()
        self._fault = ""

    async def serve(self, listener: socket.socket) -> None:
        """Accept connections until cancelled, which ends them."""
        loop = asyncio.get_running_loop()
        server = await loop.create_server(
            lambda: LinkEnd(self._accept), sock=listener, backlog=BACKLOG
        )
        try:
            await server.serve_forever()
        finally:
            tasks = tuple(self._open)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def _accept(self, end: LinkEnd) -> None:
        task = asyncio.get_running_loop().create_task(self._carry(end))
        self._open.add(task)
        task.add_done_callback(self._forget)

    def _forget(self, task: asyncio.Task[None]) -> None:
        self._open.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            LOG.error("a connection ended by a defect", exc_info=error)

    async def _carry(self, end: LinkEnd) -> None:
        """Connect the client's end to the server, and hold the connection until it ends."""
        try:
            if len(self._open) > self._limits.connections:
                fault = f"{self._limits.connections} connections are open, which is the limit"
            else:
                fault = await self._connect_any(end)
            if fault and fault != self._fault:
                LOG.warning("%s is not reached: %s", self._name, fault)
            self._fault = fault
            if fault:
                end.refuse(refusal(self._name, fault))
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._limits.refusal_s if fault else None):
                    await end.lost
        finally:
            if end.transport is not None:
                end.transport.abort()

    async def _connect_any(self, end: LinkEnd) -> str:
        """Connect the server. Return the reason if that fails, else the empty string."""
        faults = []
        for control in self._controls():
            address = Address.parse(on_host(control, self._name))
            try:
                await self._connect(end, address)
            except (OSError, TimeoutError, TerminalError) as error:
                faults.append(f"{address}: {error or 'no answer'}")
            else:
                return ""
        return "; ".join(faults) or "no host of control is known"

    async def _connect(self, end: LinkEnd, address: Address) -> None:
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(self._limits.connect_s):
            transport, server = await loop.create_connection(
                lambda: HostEnd(end),
                address.host,
                address.port,
                ssl=self._tls.link_client(),
                server_hostname=address.name,
            )
            try:
                await server.connected
            except BaseException:
                transport.abort()
                raise
        keep_alive(transport.get_extra_info("socket"))
        end.connect(server)


def refusal(name: str, fault: str) -> bytes:
    """An answer that AWS's clients try again after, and read the reason from."""
    text = escape(f"{name} of the platform is not reached from this node: {fault}")
    body = f"<Error><Code>ServiceUnavailable</Code><Message>{text}</Message></Error>".encode()
    return build_answer(503, {"Content-Type": "application/xml", "Connection": "close"}, body)
