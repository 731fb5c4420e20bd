"""The gateway's HTTP server: listens, enforces time limits, and drains when it stops."""

import asyncio
import logging
import socket
from email.utils import formatdate

from hostelry.base.clock import Clock, monotonic_s, until_next_s
from hostelry.base.errors import TerminalError
from hostelry.base.https import HANDSHAKE_S, ServerCertificate, choose_context
from hostelry.base.system import keep_freed_memory, return_freed_memory
from hostelry.dataplane.http.acceptor import Acceptor, NoPeers, Peers
from hostelry.dataplane.http.connection import (
    Admit,
    Handler,
    HttpConnection,
    RefusalAnswer,
    ServerState,
)
from hostelry.dataplane.http.reader import HttpLimits

LOG = logging.getLogger(__name__)
SWEEP_INTERVAL_S = 1.0
RETURN_AFTER_SWEEPS = 10  # without a request, then freed memory is returned to the system
DRAIN_POLL_S = 0.05
MAX_OPENING = 1024  # connections before the choice of TLS or plain HTTP. The oldest is cut


class HttpServer:
    """Serves one listening socket. `handler` is called once per request and must not raise."""

    def __init__(
        self,
        handler: Handler,
        refusal_answer: RefusalAnswer,
        limits: HttpLimits,
        clock: Clock,
        peers: Peers | None = None,
        admit: Admit = lambda _: False,
    ) -> None:
        self._state = ServerState(
            handler=handler,
            refusal_answer=refusal_answer,
            limits=limits,
            now_s=monotonic_s,
            admit=admit,
            changed=self._notify_peers,
        )
        self._clock = clock
        self._peers = peers or NoPeers()
        self._acceptor: Acceptor | None = None
        self._certificate: ServerCertificate | None = None
        self._opening: dict[asyncio.Task[None], None] = {}  # the oldest first

    @property
    def num_connections(self) -> int:
        """Client connections that are open or being opened."""
        return len(self._state.connections) + len(self._opening)

    async def start(
        self, listening: socket.socket, certificate: ServerCertificate | None = None
    ) -> None:
        """Accept connections from `listening`, which the server owns. `peers` may share it.

        With a certificate, connections are TLS, except plain connections from this machine.
        """
        self._certificate = certificate
        keep_freed_memory()
        self._sweep()
        self._acceptor = Acceptor(listening, self._serve, lambda: self.num_connections, self._peers)

    async def stop(self, grace_s: float) -> None:
        """Accept no more connections, drain for `grace_s`, then cut the rest."""
        self._state.draining = True
        self._peers.leave()
        if self._acceptor is not None:
            self._acceptor.close()
        for task in tuple(self._opening):
            if self._certificate is not None:  # a client that has sent nothing loses nothing
                task.cancel()
        if self._opening:
            await asyncio.wait(self._opening)
        for connection in tuple(self._state.connections):
            connection.close_when_idle()
        give_up_at_s = monotonic_s() + grace_s
        while self._state.connections and monotonic_s() < give_up_at_s:
            await self._clock.sleep(DRAIN_POLL_S)
        for connection in tuple(self._state.connections):
            connection.abort()

    def _serve(self, accepted: socket.socket) -> None:
        if len(self._opening) >= MAX_OPENING:
            oldest = next(iter(self._opening))
            del self._opening[oldest]
            oldest.cancel()
        task = asyncio.get_running_loop().create_task(self._open(accepted))
        self._opening[task] = None
        task.add_done_callback(lambda done: self._opening.pop(done, None))
        self._notify_peers()

    async def _open(self, accepted: socket.socket) -> None:
        loop, held = asyncio.get_running_loop(), self._certificate
        try:
            context = None if held is None else await choose_context(accepted, held)
            await loop.connect_accepted_socket(
                lambda: HttpConnection(self._state),
                accepted,
                ssl=context,
                ssl_handshake_timeout=None if context is None else HANDSHAKE_S,
                # Buffered bytes may be sent until then.
                ssl_shutdown_timeout=None if context is None else self._state.limits.write_stall_s,
            )
        except (OSError, TimeoutError, TerminalError) as error:
            accepted.close()
            LOG.info("a connection was lost while it was opened: %s", error)
        except asyncio.CancelledError:
            accepted.close()
            raise

    def _notify_peers(self) -> None:
        if not self._state.draining:
            self._peers.publish(self.num_connections)

    async def sweep_forever(self) -> None:
        """Enforce all time limits each second, until cancelled."""
        while True:
            await self._clock.sleep(until_next_s(self._clock.now(), SWEEP_INTERVAL_S))
            self._sweep()

    def _sweep(self) -> None:
        date = formatdate(self._clock.now(), usegmt=True)
        self._state.common_head = f"Date: {date}\r\nServer: hostelry\r\n".encode()
        now_s = monotonic_s()
        for connection in tuple(self._state.connections):
            connection.sweep(now_s)
        self._state.idle_sweeps += 1
        if self._state.idle_sweeps == RETURN_AFTER_SWEEPS:
            return_freed_memory()
        self._notify_peers()
