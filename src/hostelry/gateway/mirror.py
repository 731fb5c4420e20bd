"""Mirror: sends copies of requests to shadow variants, whose answers no client gets.

a request                                             result
----------------------------------------------------  ------------------------------------------
the shadow has no copy, or the circuits of all are    dropped, and counted
open, or each has as many as it takes
this process has as many requests, or bytes of their  dropped, and counted
bodies, as it may
any other                                             sent once, and measured for the shadow

No answer to a client waits for the mirror. Answers are read at a bounded rate, so that a shadow
with too much data is slowed down instead of this process. Taps get each part of an answer as it is
read. The mirror itself keeps no part.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Protocol

import msgspec

from hostelry.dataplane.balancing.load_balancer import head_end
from hostelry.dataplane.balancing.outstanding import Outstanding
from hostelry.dataplane.metering.meter import Measurement, Meter
from hostelry.dataplane.route_table import Shadow
from hostelry.domain.routes import CopyRoute
from hostelry.http1.reply import (
    ConnectError,
    Reply,
    ReplyPhase,
    TooLargeError,
    UpstreamError,
)
from hostelry.http1.upstream import KeptUpstream, Timeouts
from hostelry.routing.circuit import Circuit, count_failure, note_chosen, open_after_refusal
from hostelry.routing.copy_choice import choose_copy

LOG = logging.getLogger(__name__)
MAX_IN_FLIGHT = 256  # for a gateway worker: each request has a separate connection
LEAST_CHUNK_BYTES = 512  # a smaller chunk counts as this many bytes: reading it costs as much
CLOSED = Circuit()
BATCH_S = 0.001  # one timer sends all requests that are due within this time
BURST_S = 0.5  # after a pause, the bytes of this many seconds can be read at once


class MirrorLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of one process on requests in flight, on the bytes of their bodies, and on reading.

    `max_in_flight` is per shadow copy. A whole answer may have `max_answer_bytes`. A request is
    sent `delay_s` after production's request, or up to 1 ms later: fast models have answered by
    then, before the mirror takes CPU time.
    """

    delay_s: float = 0.002
    max_in_flight: int = 64
    max_in_flight_all: int = MAX_IN_FLIGHT
    max_bytes: int = 64 * 1024 * 1024
    read_bytes_per_s: float = 32 * 1024 * 1024
    max_answer_bytes: int = 25 * 1024 * 1024
    whole: Timeouts
    stream: Timeouts


class AnswerTap(Protocol):
    """Takes one answer of a shadow as it is read. It keeps a bounded part, and never waits.

    Only answers with 2xx are added. `close` without `finish` means that the request failed.
    """

    def add(self, chunk: bytes) -> None:
        """Add the next part of the answer."""
        ...

    def finish(self, answered: Mapping[str, str]) -> None:
        """Mark the answer as whole. `answered` are its headers."""
        ...

    def close(self) -> None:
        """End the answer."""
        ...


class MirroredRequest(msgspec.Struct, kw_only=True):
    """A request for a shadow's copy, from its offer to its end. `parts` are head and body."""

    shadow: Shadow
    copy: CopyRoute
    parts: tuple[bytes, bytes]
    taps: Sequence[AnswerTap]
    is_stream: bool
    due_at_s: float
    give_back: Callable[[], None]
    measured: Measurement | None = None  # begins when the request is due


class ShadowMirror:
    """Sends the requests of one process to shadow copies. Bodies are not copied.

    Args:
        pool: connections to copies.
        meter: counts under the shadow's name.
        limits: limits of requests, bytes and reading.
        draw: uniform random numbers in [0, 1).
        now_s: seconds of a clock that never goes back.
        sleep: waits.
    """

    def __init__(
        self,
        pool: KeptUpstream,
        meter: Meter,
        limits: MirrorLimits,
        draw: Callable[[], float],
        now_s: Callable[[], float],
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._pool = pool
        self._meter = meter
        self._limits = limits
        self._draw = draw
        self._now_s = now_s
        self._sleep = sleep
        self._counts = Outstanding()
        self._circuits: dict[str, Circuit] = {}
        self._bytes = 0
        self._read_until_s = 0.0
        self._waiting: deque[MirroredRequest] = deque()  # in the order of their times
        self._timer: asyncio.TimerHandle | None = None
        self._sent: dict[Reply, MirroredRequest] = {}  # on kept connections, without a task
        self._running: dict[asyncio.Task[None], MirroredRequest] = {}

    def offer(
        self,
        shadow: Shadow,
        head: bytes,
        body: bytes,
        taps: Sequence[AnswerTap] = (),
        *,
        is_stream: bool,
    ) -> None:
        """Send a copy of a request to `shadow` after `delay_s`.

        `head` lacks its last lines, which carry the copy's key. `taps` get the answer. If the
        request is not sent, they are not called.
        """
        num_bytes = len(body)
        copy = self._free_copy(shadow) if self._has_room(num_bytes) else None
        if copy is None:
            self._meter.count_dropped(shadow.key)
            return
        self._bytes += num_bytes
        loop, delay_s = asyncio.get_running_loop(), self._limits.delay_s
        request = MirroredRequest(
            shadow=shadow,
            copy=copy,
            parts=(head + head_end(copy.key), body),
            taps=taps,
            is_stream=is_stream,
            due_at_s=loop.time() + delay_s,
            give_back=self._counts.reserve(copy.id),
        )
        self._waiting.append(request)
        if self._timer is None:
            self._timer = loop.call_later(delay_s, self._send_due)

    @property
    def num_in_flight(self) -> int:
        """Number of requests in flight on shadow copies, or about to be sent."""
        return len(self._waiting) + len(self._sent) + len(self._running)

    async def close(self) -> None:
        """Cut the requests in flight, and drop the waiting ones."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        while self._waiting:
            self._release(self._waiting.popleft())
        while self._sent:
            reply, request = self._sent.popitem()
            self._close(request, reply)
            self._release(request)
        tasks = tuple(self._running)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _send_due(self) -> None:
        """Send the requests that are due, and set a timer for the next one."""
        loop = asyncio.get_running_loop()
        now_s = loop.time()
        while self._waiting and self._waiting[0].due_at_s <= now_s:
            request = self._waiting.popleft()
            request.measured = self._begin_measurement(request)
            if not self._sent_now(request):
                self._start(request, None)
        self._timer = None
        if self._waiting:
            pause_s = max(self._waiting[0].due_at_s - now_s, BATCH_S)
            self._timer = loop.call_later(pause_s, self._send_due)

    def _begin_measurement(self, request: MirroredRequest) -> Measurement:
        copy = request.copy
        measured = self._meter.begin(request.shadow.key)
        measured.record_copy(copy.id, self._counts.of(copy.id), copy.config)
        measured.add_bytes(len(request.parts[1]), 0)
        return measured

    def _sent_now(self, request: MirroredRequest) -> bool:
        """True if the request was sent on a kept connection. Most answers then need no task."""
        if request.is_stream:
            return False
        reply = self._pool.send_now(request.copy.address, request.parts, self._limits.whole)
        if reply is None:
            return False
        self._sent[reply] = request
        reply.listen(partial(self._came, reply))
        return True

    def _came(self, reply: Reply) -> None:
        """Take an answer that is whole. A task takes any other answer."""
        request = self._sent.pop(reply, None)
        if request is None:
            return  # the request was closed meanwhile
        if reply.phase is ReplyPhase.FAILED and reply.may_repeat:
            reply.close()
            self._start(request, None)
        elif (
            reply.phase is not ReplyPhase.WHOLE
            or self._read_until_s > self._now_s()
            or reply.num_buffered > self._limits.max_answer_bytes
        ):
            self._start(request, reply)
        else:
            self._take_whole(request, reply)

    def _take_whole(self, request: MirroredRequest, reply: Reply) -> None:
        chunks = reply.take_chunks()
        num_read = sum(map(len, chunks))
        try:
            for chunk in chunks if 200 <= reply.status < 300 else ():
                for tap in request.taps:
                    tap.add(chunk)
            self._spend(num_read)
            self._finish_answer(request, reply, num_read)
        finally:
            self._close(request, reply)
            self._release(request)

    def _start(self, request: MirroredRequest, reply: Reply | None) -> None:
        task = asyncio.get_running_loop().create_task(self._run(request, reply))
        self._running[task] = request
        task.add_done_callback(self._over)

    def _over(self, task: "asyncio.Task[None]") -> None:
        self._release(self._running.pop(task))
        if not task.cancelled() and task.exception() is not None:
            LOG.error("a mirrored request failed", exc_info=task.exception())

    def _release(self, request: MirroredRequest) -> None:
        """Release the resources of the request."""
        self._bytes -= len(request.parts[1])
        request.give_back()

    def _has_room(self, num_bytes: int) -> bool:
        is_full = self.num_in_flight >= self._limits.max_in_flight_all
        return not is_full and self._bytes + num_bytes <= self._limits.max_bytes

    def _free_copy(self, shadow: Shadow) -> CopyRoute | None:
        """Choose the copy to send to. None if no copy can take a request now."""
        now_s, most = self._now_s(), self._limits.max_in_flight
        free = [it for it in shadow.copies if self._counts.of(it.id) < most]
        if self._circuits:
            free = [it for it in free if not self._circuit(it).is_open(now_s)]
        if not free:
            return None
        counts = [self._counts.of(it.id) for it in free]
        copy = free[choose_copy(shadow.routing, counts, self._draw())]
        if copy.id in self._circuits:
            self._circuits[copy.id] = note_chosen(self._circuits[copy.id], now_s)
        return copy

    def _circuit(self, copy: CopyRoute) -> Circuit:
        return self._circuits.get(copy.id, CLOSED)

    async def _run(self, request: MirroredRequest, reply: Reply | None) -> None:
        """Read the answer. Without a reply, the request is sent first."""
        copy, is_stream, measured = request.copy, request.is_stream, request.measured
        assert measured is not None, "it is measured from when it is due"
        timeouts = self._limits.stream if is_stream else self._limits.whole
        try:
            if reply is None:
                reply = await self._pool.send(copy.address, request.parts, timeouts)
            await reply.head()
            await self._read(request, reply, measured)
        except UpstreamError as error:
            self._note(copy, error)
            if reply is not None and is_stream and 200 <= reply.status < 300:
                measured.record_broken_stream()
            else:
                measured.record_no_answer()
        finally:
            self._close(request, reply)

    def _close(self, request: MirroredRequest, reply: Reply | None) -> None:
        if reply is not None:
            reply.close()
        for tap in request.taps:
            tap.close()
        if request.measured is not None:
            request.measured.end()

    async def _read(self, request: MirroredRequest, reply: Reply, measured: Measurement) -> None:
        """Read the answer to its end, and pass each part to the taps."""
        is_ok, is_stream, taps = 200 <= reply.status < 300, request.is_stream, request.taps
        most = None if is_stream and is_ok else self._limits.max_answer_bytes
        num_read = 0
        while (chunk := await reply.next_chunk()) is not None:
            if is_stream and is_ok and not num_read:
                measured.record_first_chunk()
            num_read += len(chunk)
            if most is not None and num_read > most:
                raise TooLargeError(f"The answer is larger than the limit of {most} bytes.")
            if is_ok:
                for tap in taps:
                    tap.add(chunk)
            pause_s = self._spend(len(chunk))
            if pause_s > 0:
                await self._sleep(pause_s)
        self._finish_answer(request, reply, num_read)

    def _finish_answer(self, request: MirroredRequest, reply: Reply, num_read: int) -> None:
        """Close the copy's circuit, and record the whole answer."""
        self._circuits.pop(request.copy.id, None)
        measured = request.measured
        assert measured is not None, "it is measured from when it is due"
        measured.record_answer()
        measured.add_bytes(0, num_read)
        if not 200 <= reply.status < 300:
            measured.record_model_error(reply.status)
            return
        for tap in request.taps:
            tap.finish(reply.headers)

    def _spend(self, num_bytes: int) -> float:
        """Count bytes that were read. Returns the seconds to wait before the next read."""
        now_s = self._now_s()
        took_s = max(num_bytes, LEAST_CHUNK_BYTES) / self._limits.read_bytes_per_s
        self._read_until_s = max(self._read_until_s, now_s - BURST_S) + took_s
        return self._read_until_s - now_s

    def _note(self, copy: CopyRoute, error: UpstreamError) -> None:
        """Count the failure for the copy's circuit."""
        if isinstance(error, TooLargeError):
            return
        before = self._circuit(copy)
        after = (open_after_refusal if isinstance(error, ConnectError) else count_failure)(
            before, self._now_s()
        )
        if after.trips > before.trips:
            LOG.info("circuit open for shadow copy %s for %g s: %s", copy.id, after.open_s, error)
        self._circuits[copy.id] = after
