"""Client connection: it reads requests, calls the handler for each, and writes the answers.

One task lives as long as its connection and serves the requests in order. If the client
disconnects, the task is cancelled. A sweep over all connections checks the time limits, because a
timer for each request costs more. `states.py` has the states.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import cast

from hostelry.base.http import HttpRequest, HttpResponse
from hostelry.dataplane.http.connection_limits import (
    ConnectionLimitError,
    ConnectionLimits,
    find_client,
)
from hostelry.dataplane.http.exchange import Exchange
from hostelry.dataplane.http.reader import HttpLimits, HttpRefusedError, Received, RequestReader
from hostelry.dataplane.http.states import ReadState, ServeEvent, ServeState

LOG = logging.getLogger(__name__)
Handler = Callable[[Exchange], Awaitable[None]]
RefusalAnswer = Callable[[HttpRefusedError], HttpResponse]
Admit = Callable[[HttpRequest], bool]
WRITE_BUFFER_BYTES = 256 * 1024
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
UNREAD = HttpRequest("POST", "/")
TLS_END_S = 0.5
MAX_TURNED_AWAY = 256  # connections over the limit that get an answer, others are cut


@dataclass(slots=True, kw_only=True)
class ServerState:
    """The state that all connections of one server share.

    `handler` answers a request and must not raise. `refusal_answer` builds the answer to bytes that
    were refused. `admit` looks at a head before its body is read. It returns True if the head
    proves who sends it, and raises HttpRefusedError if no body can make the request acceptable.
    `changed` is called when a connection has ended. `common_head` are the header lines of every
    answer. `idle_sweeps` counts the server's sweeps since the last request.
    """

    handler: Handler
    refusal_answer: RefusalAnswer
    limits: HttpLimits
    now_s: Callable[[], float]
    admit: Admit = lambda _: False
    changed: Callable[[], None] = lambda: None
    common_head: bytes = b""
    draining: bool = False
    idle_sweeps: int = 0
    connections: "set[HttpConnection]" = field(default_factory=set)
    connection_limits: "ConnectionLimits[HttpConnection]" = field(init=False)

    def __post_init__(self) -> None:
        most = self.limits.max_connections
        num_bytes = self.limits.max_unverified_bytes
        self.connection_limits = ConnectionLimits(most, (most + 1) // 2, num_bytes)


class HttpConnection(asyncio.Protocol):
    """One client connection."""

    def __init__(self, server: ServerState) -> None:
        self.address = self.peer = ""
        self.is_verified = False
        self.held_bytes = 0
        self._server = server
        self._limits = server.limits
        self._now_s = server.now_s
        self._reader = RequestReader(server.limits)
        self._refusal: HttpRefusedError | None = None
        self._transport: asyncio.Transport
        self._task: asyncio.Task[None] | None = None
        self._arrival: asyncio.Future[None] | None = None
        self._room: asyncio.Future[None] | None = None
        self._write_paused = False
        self._read_paused = False
        self._state = ServeState.FRESH
        self._phase_since_s = self._now_s()
        self._seen: tuple[float, int] = (0.0, 0)  # last progress of the body: time and bytes
        self._unsent_bytes = 0
        self._unsent_since_s = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin to serve."""
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=WRITE_BUFFER_BYTES)
        peer = transport.get_extra_info("peername")
        self.peer = str(peer[0]) if peer else ""
        self.address = find_client(self.peer) if peer else ""
        self._server.connections.add(self)
        self._enter()
        self._task = asyncio.get_running_loop().create_task(self._serve())
        self._task.add_done_callback(self._end_after_defect)

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancel the request that is being served."""
        self._server.connections.discard(self)
        self._server.connection_limits.remove(self)
        self._server.changed()
        if self._task is not None:
            self._task.cancel()

    def data_received(self, data: bytes) -> None:
        """Parse bytes, and wake the serving task once a request is whole or refused."""
        if self._state.is_refusing:
            return
        reader = self._reader
        before = reader.state
        try:
            reader.feed(data)
            if reader.state is not before and not (reader.state.in_body and before.in_body):
                self._phase_since_s = self._now_s()
                self._seen = (self._phase_since_s, 0)
            is_streamed = reader.state is ReadState.STREAMED_BODY
            if not is_streamed and (reader.state.is_held or self.held_bytes or self._state.is_busy):
                self._wait_for_more(len(data))
        except HttpRefusedError as refusal:
            self._refuse(refusal)
        if reader.requests or self._refusal is not None:
            if self._state.is_busy:
                self._pause_reading()
            self._wake(self._arrival)
        elif reader.wants_continue and not self._state.is_busy:
            reader.wants_continue = False
            self._transport.write(CONTINUE)

    @property
    def can_be_shed(self) -> bool:
        """True if the connection holds a request that is not whole."""
        return self._reader.state not in (ReadState.IDLE, ReadState.REFUSED)

    @property
    def reading_since_s(self) -> float:
        """The time at which the current part of an unfinished request began to arrive."""
        return self._phase_since_s

    def pause_writing(self) -> None:
        """Note that the client reads slower than the server writes."""
        self._write_paused = True

    def resume_writing(self) -> None:
        """Note that the client has caught up, and wake the writer."""
        self._write_paused = False
        self._wake(self._room)

    def write(self, *parts: bytes) -> bool:
        """Send `parts`. True if the client has no room for more now."""
        if len(parts) == 1:
            self._transport.write(parts[0])
        else:
            self._transport.writelines(parts)
        return self._write_paused

    async def wait_for_room(self) -> None:
        """Wait until the client has caught up."""
        if self._write_paused:
            self._room = asyncio.get_running_loop().create_future()
            await self._room

    def abort(self) -> None:
        """Cut the connection. Buffered bytes are dropped."""
        self._transport.abort()

    def close_when_idle(self) -> None:
        """Close now, or after the answer to the request under way."""
        state = self._state
        if not (state.is_busy or self._reader.requests or state is ServeState.LINGERING):
            is_sent = not self._transport.get_write_buffer_size()
            self._transport.close()
            if is_sent and not self._transport.can_write_eof():  # TLS waits for the client's end
                asyncio.get_running_loop().call_later(TLS_END_S, self._transport.abort)

    def sweep(self, now_s: float) -> None:
        """Enforce the time limits at `now_s`.

        serving          reading  limit                          enforced by
        any              any      write_stall_s                  abort
        lingering        refused  linger_s                       abort
        busy, refused    any      none: the handler has its own
        no request yet   idle     header_timeout_s               close
        waiting          idle     idle_timeout_s                 close
        neither          head     header_timeout_s               408
        neither          body     as `_too_slow`                 408
        """
        self._sweep_unsent(now_s)
        waited_s = now_s - self._phase_since_s
        if self._state is ServeState.LINGERING:
            if waited_s > self._limits.linger_s:
                self.abort()
        elif self._state.is_busy or self._state.is_refusing:
            return
        elif self._reader.state is ReadState.IDLE:
            fresh = self._state is ServeState.FRESH
            limit_s = self._limits.header_timeout_s if fresh else self._limits.idle_timeout_s
            if waited_s > limit_s:
                self._transport.close()
        elif self._too_slow(now_s):
            self._refuse(HttpRefusedError(408, "The request came too slowly."))
            self._wake(self._arrival)

    def _too_slow(self, now_s: float) -> bool:
        """True if the head or the body is late, or the body makes no progress."""
        limits, body_bytes = self._limits, self._reader.body_bytes
        waited_s = now_s - self._phase_since_s
        if self._reader.state is ReadState.HEAD:
            return waited_s > limits.header_timeout_s
        if body_bytes != self._seen[1]:
            self._seen = (now_s, body_bytes)
        owed_bytes = (waited_s - limits.body_grace_s) * limits.min_body_bytes_per_s
        return body_bytes < owed_bytes or now_s - self._seen[0] > limits.body_grace_s

    def _enter(self) -> None:
        """Take a slot, which may be another connection's. Without a slot, refuse with 503."""
        server = self._server
        try:
            shed = server.connection_limits.add(self)
        except ConnectionLimitError as error:
            self._refuse(HttpRefusedError(503, f"{error} Try again in a moment."))
            if len(server.connections) > server.limits.max_connections + MAX_TURNED_AWAY:
                self.abort()
            return
        if shed is not None:
            shed.abort()

    def _wait_for_more(self, num_bytes: int) -> None:
        """Look at the head of an unfinished request once, and count the unverified bytes.

        Raises HttpRefusedError.
        """
        reader, limits = self._reader, self._server.connection_limits
        if reader.state in (ReadState.BODY, ReadState.SMALL_BODY):
            reader.note_admission(self._server.admit(reader.head()))
        is_verified = reader.state is ReadState.VERIFIED_BODY
        if is_verified and not self._state.is_busy and not reader.requests:
            self._recount()
            return
        limits.hold(self, self.held_bytes + num_bytes)
        if limits.is_full:
            for connection in limits.to_shed(self._now_s()):
                connection.shed()

    def shed(self) -> None:
        """Drop the unfinished request, because others need the memory."""
        limit = self._limits.max_unverified_bytes
        reason = (
            f"The gateway holds {limit} bytes of requests whose signatures it cannot verify yet, "
            "its limit, and this one came in slowest. Try again in a moment."
        )
        self._refuse(HttpRefusedError(503, reason))
        self._wake(self._arrival)

    def _refuse(self, refusal: HttpRefusedError) -> None:
        self._refusal = refusal
        self._state = self._state.next["refused"]
        self._reader.refuse()
        self._server.connection_limits.hold(self, 0)

    def _recount(self) -> None:
        """Count the bytes of the unfinished request, unless its head proves who sends it."""
        reader = self._reader
        num_bytes = 0 if reader.state is ReadState.VERIFIED_BODY else reader.held_bytes
        self._server.connection_limits.hold(self, num_bytes)

    def _note_verified(self) -> None:
        """Note that the sender of the current request is verified."""
        if not self.is_verified:
            self._server.connection_limits.note_verified(self)
        if self.held_bytes and not self._reader.requests:
            self._recount()

    def _sweep_unsent(self, now_s: float) -> None:
        unsent_bytes = self._transport.get_write_buffer_size()
        if unsent_bytes == 0 or unsent_bytes != self._unsent_bytes:
            self._unsent_since_s = now_s
            self._unsent_bytes = unsent_bytes
        elif now_s - self._unsent_since_s > self._limits.write_stall_s:
            self.abort()

    async def _serve(self) -> None:
        handler = self._server.handler
        while True:
            received = await self._next()
            if isinstance(received, HttpRefusedError):
                self._answer_refusal(received)
                return
            self._state = self._state.next["serve"]
            self._server.idle_sweeps = 0
            exchange = Exchange(
                self,
                received,
                self._server.common_head,
                self._server.draining,
                self._note_verified,
                self.peer,
            )
            if received.body is not None:
                received.body.attach(self._pause_reading, self._read_on)
            await handler(exchange)
            if received.body is not None and exchange.finished and not received.body.is_whole:
                self._linger("answered_early")
                return
            if self.held_bytes and not self._reader.requests:
                self._recount()
            if not exchange.finished:
                self.abort()
                return
            if not exchange.keep_alive or self._server.draining:
                self._transport.close()
                return
            await self.wait_for_room()
            self._state = self._state.next["answered"]
            self._phase_since_s = self._now_s()
            del received, exchange  # an idle connection must not hold the body of its last request

    def _end_after_defect(self, task: asyncio.Task[None]) -> None:
        """Cut the connection after a defect of the handler, so that its client does not wait."""
        if not task.cancelled() and (defect := task.exception()) is not None:
            LOG.error("a connection was cut by a defect", exc_info=defect)
            self.abort()

    async def _next(self) -> Received | HttpRefusedError:
        reader = self._reader
        while not reader.requests:
            if self._refusal is not None:
                return self._refusal
            self._resume_reading()
            self._arrival = asyncio.get_running_loop().create_future()
            await self._arrival
        return reader.requests.popleft()

    def _answer_refusal(self, refusal: HttpRefusedError) -> None:
        """Answer, then read for a moment, because a reset would destroy the answer on its way."""
        response = self._server.refusal_answer(refusal)
        received = Received(refusal.request or UNREAD, False, True)
        Exchange(self, received, self._server.common_head, False).respond(response)
        self._linger("refusal_sent")

    def _linger(self, event: ServeEvent) -> None:
        """Take no more requests, and drop further bytes of the client for a moment."""
        self._state = self._state.next[event]
        self._phase_since_s = self._now_s()
        self._resume_reading()
        if self._transport.can_write_eof():
            self._transport.write_eof()

    def _pause_reading(self) -> None:
        if not self._read_paused:
            self._read_paused = True
            self._transport.pause_reading()

    def _resume_reading(self) -> None:
        if self._read_paused:
            self._read_paused = False
            self._transport.resume_reading()

    def _read_on(self) -> None:
        """Take more of a streamed body."""
        if self._reader.wants_continue:
            self._reader.wants_continue = False
            self._transport.write(CONTINUE)
        self._resume_reading()

    @staticmethod
    def _wake(waiter: asyncio.Future[None] | None) -> None:
        if waiter is not None and not waiter.done():
            waiter.set_result(None)
