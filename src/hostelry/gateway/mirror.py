"""Mirror: sends copies of requests to shadow variants, whose answers no client gets.

a request whose turn it is                            result
----------------------------------------------------  ------------------------------------------
the shadow has no copy, or the circuits of all are    dropped, and counted
open, or each has as many as it takes
this worker has as many requests, or bytes of their   dropped, and counted
bodies, as it may
any other                                             sent once; its outcome is the shadow's own

No answer to a client waits for anything here. Answers are read at a bounded rate, so that a shadow
that floods is slowed down instead of this worker. Taps get what they keep of an answer as it is
read; the rest is discarded.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from hostelry.domain.routes import CopyRoute
from hostelry.gateway.balancing.even_positions import EvenPositions
from hostelry.gateway.balancing.load_balancer import head_end
from hostelry.gateway.balancing.outstanding import Outstanding
from hostelry.gateway.http.reply import ConnectError, Reply, TooLargeError, UpstreamError
from hostelry.gateway.http.upstream import Timeouts, Upstream
from hostelry.gateway.metering.meter import Measurement, Meter
from hostelry.gateway.route_table import Shadow
from hostelry.routing.circuit import Circuit, chosen, refused, unanswered
from hostelry.routing.copy_choice import choose_copy
from hostelry.routing.traffic_split import takes_new

log = logging.getLogger(__name__)
MAX_IN_FLIGHT = 256  # of a worker; each has a connection of its own
LEAST_CHUNK_BYTES = 512  # what a smaller chunk counts as: it costs as much to read
CLOSED = Circuit()
BURST_S = 0.5  # what may be read at once after a pause, in seconds of the rate


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorLimits:
    """Limits of one worker: requests in flight on a shadow copy, on all; their bodies; reading.

    An answer of an invocation that is no stream may have `max_answer_bytes`. A request is sent
    `delay_s` after production's, so that fast models have answered before this costs anything.
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
    """Takes one answer of a shadow as it is read; keeps what it has room for, and never waits.

    Only an answer with 2xx is added; `close` without `finish` is a failure, of whatever kind.
    """

    def add(self, chunk: bytes) -> None:
        """Take the next part."""
        ...

    def finish(self, answered: Mapping[str, str]) -> None:
        """The answer is whole; `answered` are its headers."""
        ...

    def close(self) -> None:
        """No more will come."""
        ...


class ShadowMirror:
    """Requests in flight on shadow copies, of one worker; bodies are shared with their owners.

    Args:
        pool: connections to copies.
        meter: counts under the shadow's own name.
        limits: what it may take up.
        draw: uniform random numbers in [0, 1).
        now_s: seconds of a clock that never goes back.
        sleep: waits.
    """

    def __init__(
        self,
        pool: Upstream,
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
        self._positions = EvenPositions(draw)
        self._bytes = 0
        self._read_until_s = 0.0
        self._tasks: set[asyncio.Task[None]] = set()

    def offer(
        self,
        shadow: Shadow,
        head: Callable[[], bytes],
        body: bytes,
        taps: Sequence[AnswerTap] = (),
        *,
        is_stream: bool,
    ) -> None:
        """Send a copy of a request to `shadow` where it is its turn, once the caller waits.

        `head` makes the request's head, without the end that carries the copy's key. `taps` get
        the answer; of a request that is not sent they receive nothing.
        """
        if not self._is_due(shadow):
            return
        num_bytes = len(body)
        copy = self._free_copy(shadow) if self._has_room(num_bytes) else None
        if copy is None:
            self._meter.dropped(shadow.key)
            return
        self._bytes += num_bytes
        give_back = self._counts.reserve(copy.id)
        parts = (head() + head_end(copy.key), body)
        run = self._run(shadow, copy, parts, taps, is_stream=is_stream)
        task = asyncio.get_running_loop().create_task(run)

        def over(task: asyncio.Task[None]) -> None:
            self._bytes -= num_bytes
            give_back()
            self._tasks.discard(task)
            if not task.cancelled() and task.exception() is not None:
                log.error("a mirrored request failed", exc_info=task.exception())

        self._tasks.add(task)
        task.add_done_callback(over)

    @property
    def num_in_flight(self) -> int:
        """Requests in flight on shadow copies."""
        return len(self._tasks)

    async def close(self) -> None:
        """Cut what is in flight."""
        tasks = tuple(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _has_room(self, num_bytes: int) -> bool:
        is_full = self.num_in_flight >= self._limits.max_in_flight_all
        return not is_full and self._bytes + num_bytes <= self._limits.max_bytes

    def _is_due(self, shadow: Shadow) -> bool:
        """Whether the next request is one of the shadow's share, which are evenly spread."""
        if shadow.share >= 1:
            return True
        return takes_new(self._positions.take(shadow.key), shadow.share)

    def _free_copy(self, shadow: Shadow) -> CopyRoute | None:
        """The copy to send to; None where none can take a request now."""
        now_s, most = self._now_s(), self._limits.max_in_flight
        free = [it for it in shadow.copies if self._counts.of(it.id) < most]
        if self._circuits:
            free = [it for it in free if not self._circuit(it).is_open(now_s)]
        if not free:
            return None
        counts = [self._counts.of(it.id) for it in free]
        copy = free[choose_copy(shadow.routing, counts, self._draw())]
        if copy.id in self._circuits:
            self._circuits[copy.id] = chosen(self._circuits[copy.id], now_s)
        return copy

    def _circuit(self, copy: CopyRoute) -> Circuit:
        return self._circuits.get(copy.id, CLOSED)

    async def _run(
        self,
        shadow: Shadow,
        copy: CopyRoute,
        parts: tuple[bytes, bytes],
        taps: Sequence[AnswerTap],
        *,
        is_stream: bool,
    ) -> None:
        if self._limits.delay_s:
            await self._sleep(self._limits.delay_s)
        measured = self._meter.begin(shadow.key)
        measured.chosen(copy.id, self._counts.of(copy.id), copy.config)
        measured.moved(len(parts[1]), 0)
        timeouts = self._limits.stream if is_stream else self._limits.whole
        reply = None
        try:
            reply = await self._pool.send(copy.address, parts, timeouts)
            del parts
            await self._read(reply, measured, taps, is_stream=is_stream)
            self._circuits.pop(copy.id, None)
        except UpstreamError as error:
            self._note(copy, error)
            if reply is not None and is_stream and reply.status < 300:
                measured.stream_broke()
            else:
                measured.got_no_answer()
        finally:
            if reply is not None:
                reply.close()
            for tap in taps:
                tap.close()
            measured.end()

    async def _read(
        self, reply: Reply, measured: Measurement, taps: Sequence[AnswerTap], *, is_stream: bool
    ) -> None:
        """Read the answer to its end; what is kept of it, `taps` keep."""
        is_ok = 200 <= reply.status < 300
        most = None if is_stream and is_ok else self._limits.max_answer_bytes
        num_read = 0
        while (chunk := await reply.next_chunk()) is not None:
            if is_stream and is_ok and not num_read:
                measured.first_chunk()
            num_read += len(chunk)
            if most is not None and num_read > most:
                raise TooLargeError(f"The answer is larger than the limit of {most} bytes.")
            if is_ok:
                for tap in taps:
                    tap.add(chunk)
            await self._paced(len(chunk))
        measured.answered()
        measured.moved(0, num_read)
        if not is_ok:
            measured.refused_by_model(reply.status)
            return
        for tap in taps:
            tap.finish(reply.headers)

    async def _paced(self, num_bytes: int) -> None:
        """Wait until as much may be read."""
        now_s = self._now_s()
        took_s = max(num_bytes, LEAST_CHUNK_BYTES) / self._limits.read_bytes_per_s
        self._read_until_s = max(self._read_until_s, now_s - BURST_S) + took_s
        if self._read_until_s > now_s:
            await self._sleep(self._read_until_s - now_s)

    def _note(self, copy: CopyRoute, error: UpstreamError) -> None:
        """Count the failure for the copy's circuit."""
        if isinstance(error, TooLargeError):
            return
        before = self._circuit(copy)
        after = (refused if isinstance(error, ConnectError) else unanswered)(before, self._now_s())
        if after.trips > before.trips:
            log.info("circuit open for shadow copy %s for %g s: %s", copy.id, after.open_s, error)
        self._circuits[copy.id] = after
