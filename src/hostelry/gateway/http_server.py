"""The door's HTTP server: listens, sweeps time limits, and stops without dropping answers."""

import asyncio
import contextlib
import socket
from email.utils import formatdate

from hostelry.base.clock import Clock, monotonic_s
from hostelry.gateway.http_connection import Handler, HttpConnection, RefusalAnswer, ServerState
from hostelry.gateway.http_reader import HttpLimits

SWEEP_INTERVAL_S = 1.0
DRAIN_POLL_S = 0.05
BACKLOG = 2048


class HttpServer:
    """Serves one listening socket; `handler` is called once a request and must not raise."""

    def __init__(
        self, handler: Handler, refusal_answer: RefusalAnswer, limits: HttpLimits, clock: Clock
    ) -> None:
        self._state = ServerState(
            handler=handler, refusal_answer=refusal_answer, limits=limits, now_s=monotonic_s
        )
        self._clock = clock
        self._listener: asyncio.Server | None = None
        self._sweeper: asyncio.Task[None] | None = None

    @property
    def num_connections(self) -> int:
        """Client connections that are open."""
        return len(self._state.connections)

    async def start(self, listening: socket.socket) -> None:
        """Accept connections from `listening`, a bound socket, which is taken over."""
        self._sweep()
        loop = asyncio.get_running_loop()
        self._listener = await loop.create_server(
            lambda: HttpConnection(self._state), sock=listening, backlog=BACKLOG
        )
        self._sweeper = loop.create_task(self._sweep_forever())

    async def stop(self, grace_s: float) -> None:
        """Accept nothing more; let requests under way finish for `grace_s`, then cut them."""
        self._state.draining = True
        if self._listener is not None:
            self._listener.close()
        for connection in tuple(self._state.connections):
            connection.close_when_idle()
        give_up_at_s = monotonic_s() + grace_s
        while self._state.connections and monotonic_s() < give_up_at_s:
            await self._clock.sleep(DRAIN_POLL_S)
        for connection in tuple(self._state.connections):
            connection.abort()
        if self._sweeper is not None:
            self._sweeper.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._sweeper

    async def _sweep_forever(self) -> None:
        while True:
            await self._clock.sleep(SWEEP_INTERVAL_S)
            self._sweep()

    def _sweep(self) -> None:
        date = formatdate(self._clock.now(), usegmt=True)
        self._state.common_head = f"Date: {date}\r\nServer: hostelry\r\n".encode()
        now_s = monotonic_s()
        for connection in tuple(self._state.connections):
            connection.sweep(now_s)
