"""The node proxy: TLS connections of peers, spliced to servers of this host."""

import asyncio
import contextlib
import logging
import socket
import ssl
from collections.abc import Awaitable, Callable

import msgspec

from hostelry.base.errors import TerminalError
from hostelry.base.peers import PeerName
from hostelry.base.splice import SpliceEnd
from hostelry.base.tls import (
    CONNECTED,
    LINK_PROTOCOL,
    PEER_PROTOCOL,
    UNREAD,
    ClusterTls,
    asked_name,
    get_peer,
)
from hostelry.cluster.targets import may_reach
from hostelry.http1.silent_hosts import acked_bytes, never_read

LOG = logging.getLogger(__name__)
BACKLOG = 4096
ACCEPT_PAUSE_S = 0.1
# The kernel finds a peer whose host is gone, because a stream may be silent for minutes.
KEEPALIVE_IDLE_S, KEEPALIVE_EVERY_S, KEEPALIVE_TIMES = 15, 5, 3
# It also ends a connection whose peer reads nothing: above the gateway's own limit for that.
UNACKED_MS = 90_000
REQUEST_STARTS = (b"POST /", b"GET /", b"PUT /", b"DELETE /", b"HEAD /", b"PATCH /", b"OPTIONS ")


class ProxyLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Bounds of a node proxy.

    Of connections whose peer is not verified yet, and of those without a certificate, the oldest
    is cut.
    """

    connections: int = 16_384
    unverified: int = 1_024
    anonymous: int = 64
    handshake_s: float = 5.0
    connect_s: float = 2.0


# Serves a connection itself: the reader and writer of its bytes, and the peer, if it has a name.
Front = Callable[[asyncio.StreamReader, asyncio.StreamWriter, PeerName | None], Awaitable[None]]


class PeerEnd(SpliceEnd):
    """The peer's end. It is not read before the server is connected. `lost` is set at its end."""

    def __init__(self, lost: "asyncio.Future[None]") -> None:
        super().__init__()
        self._lost = lost

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take no bytes yet."""
        super().connection_made(transport)
        assert self.transport is not None
        self.transport.pause_reading()

    def data_received(self, data: bytes) -> None:
        """Forward the bytes to the server's end, which counts them."""
        if isinstance(self.other, ServerEnd):
            self.other.send(data)

    def eof_received(self) -> bool:
        """Forward the peer's end, which in TLS ends both directions."""
        super().eof_received()
        return False

    def connection_lost(self, error: Exception | None) -> None:
        """Forward the loss."""
        super().connection_lost(error)
        if not self._lost.done():
            self._lost.set_result(None)


class ServerEnd(SpliceEnd):
    """The end of a server on this host. A peer of `PEER_PROTOCOL` gets a word of its end.

    at the server's end                               the peer gets
    -----------------------------------------------   -------------------------
    it may have read a request it did not answer      no word: the close alone
    any other clean end, also of a kept connection    UNREAD, then the close
    a reset                                           a reset

    Of a proxy that `is_ending` it gets UNREAD for its next request, which the server does not get.
    """

    def __init__(
        self, other: SpliceEnd, *, reports_unread: bool, is_ending: Callable[[], bool]
    ) -> None:
        super().__init__(other)
        self._reports_unread = reports_unread
        self._is_ending = is_ending
        self._is_refused = False
        self._socket: socket.socket | None = None
        self._sent_bytes = 0
        self._answered_bytes = 0  # of those sent, when bytes last came back
        self._is_request = False  # the bytes sent since begin as a request

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the socket, which knows how much the server's kernel acknowledged."""
        super().connection_made(transport)
        self._socket = transport.get_extra_info("socket")

    def send(self, data: bytes) -> None:
        """Bytes of the peer."""
        if self._is_refused:
            return
        if self._sent_bytes == self._answered_bytes:
            self._is_request = data.startswith(REQUEST_STARTS)
            if self._is_request and self._sent_bytes and self._is_ending() and self._refuse():
                return
        self._sent_bytes += len(data)
        if self.transport is not None:
            self.transport.write(data)

    def _refuse(self) -> bool:
        """Whether the peer got the word that its request was not read."""
        peer = None if self.other is None else self.other.transport
        if not self._reports_unread or peer is None or peer.is_closing():
            return False
        self._is_refused = True
        peer.write(UNREAD)
        peer.close()
        return True

    def data_received(self, data: bytes) -> None:
        """Forward the bytes."""
        self._answered_bytes = self._sent_bytes
        super().data_received(data)

    def eof_received(self) -> bool:
        """Forward the server's end."""
        self._report(None)
        return super().eof_received()

    def connection_lost(self, error: Exception | None) -> None:
        """Forward the server's end, or its loss."""
        self._report(error)
        super().connection_lost(error)

    def _report(self, loss: Exception | None) -> None:
        peer = None if self.other is None else self.other.transport
        if not self._reports_unread or peer is None or peer.is_closing():
            return
        is_open = self._sent_bytes > self._answered_bytes and self._is_request
        acked = acked_bytes(self._socket) if is_open else self._answered_bytes
        if never_read(loss, acked, self._answered_bytes):
            peer.write(UNREAD)
            peer.close()


class NodeProxy:
    """Accepts peers on a listening socket. `address_of` finds a server, `fronts` serve the rest."""

    def __init__(
        self,
        tls: ClusterTls,
        address_of: Callable[[str], tuple[str, int] | None],
        fronts: dict[str, Front],
        limits: ProxyLimits | None = None,
    ) -> None:
        self._tls = tls
        self._address_of = address_of
        self._fronts = fronts
        self._limits = limits or ProxyLimits()
        self._unverified: dict[asyncio.Task[None], None] = {}  # the oldest first
        self._anonymous: dict[asyncio.Task[None], None] = {}  # without a certificate: they join
        self._open: set[asyncio.Task[None]] = set()
        self._is_ending = False

    async def serve(self, listener: socket.socket) -> None:
        """Accept connections until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            try:
                accepted, _ = await loop.sock_accept(listener)
            except OSError as error:  # no descriptor is left, or the peer has gone
                LOG.warning("no connection is accepted: %s", error)
                await asyncio.sleep(ACCEPT_PAUSE_S)
                continue
            verified = len(self._open) - len(self._unverified) - len(self._anonymous)
            if verified >= self._limits.connections:
                accepted.close()
                continue
            task = loop.create_task(self._admit(accepted))
            _enter(self._unverified, task, self._limits.unverified)
            self._open.add(task)
            task.add_done_callback(self._forget)

    async def drain(self, timeout_s: float) -> None:
        """Return once every connection has ended, or after `timeout_s`.

        Of a peer that speaks `PEER_PROTOCOL` each ends with its next request, which is sent again.
        """
        self._is_ending = True
        if self._open:
            await asyncio.wait(self._open, timeout=timeout_s)

    async def close(self) -> None:
        """End every connection."""
        tasks = tuple(self._open)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _forget(self, task: asyncio.Task[None]) -> None:
        self._open.discard(task)
        self._unverified.pop(task, None)
        self._anonymous.pop(task, None)
        if not task.cancelled() and (error := task.exception()) is not None:
            LOG.error("a connection ended by a defect", exc_info=error)

    async def _admit(self, accepted: socket.socket) -> None:
        """Verify the peer, connect its server, and hold the connection until both end."""
        loop = asyncio.get_running_loop()
        lost: asyncio.Future[None] = loop.create_future()
        try:
            keep_alive(accepted)
            end = PeerEnd(lost)
            transport, _ = await loop.connect_accepted_socket(
                lambda: end,
                accepted,
                ssl=self._tls.server(),
                ssl_handshake_timeout=self._limits.handshake_s,
            )
        except (OSError, TimeoutError, TerminalError) as error:
            accepted.close()
            LOG.debug("a peer is refused: %s", error)
            return
        except asyncio.CancelledError:
            accepted.close()
            raise
        self._leave_unverified(transport)
        try:
            if await self._connect(end, transport):
                await lost
        finally:
            transport.abort()

    def _leave_unverified(self, transport: asyncio.Transport) -> None:
        """Note that the handshake of this task's connection has verified its certificate."""
        task = asyncio.current_task()
        assert task is not None
        self._unverified.pop(task, None)
        if not transport.get_extra_info("ssl_object").getpeercert():
            _enter(self._anonymous, task, self._limits.anonymous)

    async def _connect(self, end: PeerEnd, transport: asyncio.Transport) -> bool:
        """Whether the server that the peer asks for is connected to `end` now."""
        secured: ssl.SSLObject = transport.get_extra_info("ssl_object")
        name = asked_name(secured)
        peer = get_peer(secured) if secured.getpeercert() else None
        if not may_reach(peer, name):
            LOG.warning("%s may not reach %.64r", "no peer" if peer is None else peer.uri, name)
            return False
        if name in self._fronts:
            await _by_front(self._fronts[name], transport, peer)
            return False
        address = self._address_of(name)
        if address is None:
            LOG.info("%.64r is not on this host", name)
            return False
        loop = asyncio.get_running_loop()
        protocol = secured.selected_alpn_protocol()
        reports = protocol == PEER_PROTOCOL
        try:
            async with asyncio.timeout(self._limits.connect_s):
                _, server = await loop.create_connection(
                    lambda: ServerEnd(
                        end, reports_unread=reports, is_ending=lambda: self._is_ending
                    ),
                    *address,
                )
        except (OSError, TimeoutError) as error:
            LOG.info("%s at %s port %d: %s", name, *address, error)
            return False
        if transport.is_closing():
            server.connection_lost(None)
            if server.transport is not None:
                server.transport.close()
            return False
        end.other = server
        if protocol in (PEER_PROTOCOL, LINK_PROTOCOL):
            transport.write(CONNECTED)
        transport.resume_reading()
        return True


def _enter(tasks: dict[asyncio.Task[None], None], task: asyncio.Task[None], most: int) -> None:
    """Add `task`. The oldest makes room."""
    if len(tasks) >= most:
        oldest = next(iter(tasks))
        del tasks[oldest]
        oldest.cancel()
    tasks[task] = None


def keep_alive(connected: socket.socket) -> None:
    """Have the kernel end the connection when its peer's host is gone for 90 s."""
    connected.setblocking(False)
    connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (
        (socket.TCP_KEEPIDLE, KEEPALIVE_IDLE_S),
        (socket.TCP_KEEPINTVL, KEEPALIVE_EVERY_S),
        (socket.TCP_KEEPCNT, KEEPALIVE_TIMES),
        (socket.TCP_USER_TIMEOUT, UNACKED_MS),
        (socket.TCP_NODELAY, 1),
    ):
        connected.setsockopt(socket.IPPROTO_TCP, option, value)


def open_listener(host: str, port: int) -> socket.socket:
    """A listening socket for `NodeProxy`. Raises TerminalError naming the address."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        raise TerminalError(f"{host} port {port} cannot be listened on: {error}") from None
    listener.setblocking(False)
    return listener


async def _by_front(front: Front, transport: asyncio.Transport, peer: PeerName | None) -> None:
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=64 * 1024)
    protocol = asyncio.StreamReaderProtocol(reader)
    transport.set_protocol(protocol)
    protocol.connection_made(transport)
    writer = asyncio.StreamWriter(transport, protocol, reader, loop)
    transport.resume_reading()
    with contextlib.suppress(OSError, TimeoutError):
        await front(reader, writer, peer)
        writer.close()
        await writer.wait_closed()
