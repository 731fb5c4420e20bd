"""The gateway's HTTP server: listens, enforces time limits, and drains when it stops."""

import asyncio
import logging
import socket
from email.utils import formatdate

from hostelry.base.clock import Clock, monotonic_s
from hostelry.gateway.http.acceptor import Acceptor, NoPeers, Peers
from hostelry.gateway.http.connection import (
    Admit,
    Handler,
    HttpConnection,
    RefusalAnswer,
    ServerState,
)
from hostelry.gateway.http.reader import HttpLimits

log = logging.getLogger(__name__)
SWEEP_INTERVAL_S = 1.0
DRAIN_POLL_S = 0.05


class HttpServer:
    """Serves one listening socket; `handler` is called once a request and must not raise."""

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
        self._opening: set[asyncio.Task[None]] = set()

    @property
    def num_connections(self) -> int:
        """Client connections that are open or being opened."""
        return len(self._state.connections) + len(self._opening)

    async def start(self, listening: socket.socket) -> None:
        """Accept connections from `listening`, which it owns from now on; `peers` may share it."""
        self._sweep()
        self._acceptor = Acceptor(listening, self._serve, lambda: self.num_connections, self._peers)

    async def stop(self, grace_s: float) -> None:
        """Accept no more connections; drain for `grace_s`, then cut what is left."""
        self._state.draining = True
        self._peers.leave()
        if self._acceptor is not None:
            self._acceptor.close()
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
        task = asyncio.get_running_loop().create_task(self._open(accepted))
        self._opening.add(task)
        task.add_done_callback(self._opening.discard)
        self._notify_peers()

    async def _open(self, accepted: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        try:
            await loop.connect_accepted_socket(lambda: HttpConnection(self._state), accepted)
        except OSError as error:
            accepted.close()
            log.info("a connection was lost while it was opened: %s", error)

    def _notify_peers(self) -> None:
        if not self._state.draining:
            self._peers.publish(self.num_connections)

    async def sweep_forever(self) -> None:
        """Enforce all time limits each second, until cancelled."""
        while True:
            await self._clock.sleep(SWEEP_INTERVAL_S)
            self._sweep()

    def _sweep(self) -> None:
        date = formatdate(self._clock.now(), usegmt=True)
        self._state.common_head = f"Date: {date}\r\nServer: hostelry\r\n".encode()
        now_s = monotonic_s()
        for connection in tuple(self._state.connections):
            connection.sweep(now_s)
        self._notify_peers()
