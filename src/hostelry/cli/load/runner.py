"""Runs a load test: connections send requests at planned times, or one after the other."""

import asyncio
import itertools
import math
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import msgspec
import uvloop

from hostelry.base.clock import monotonic_s
from hostelry.base.json import decode
from hostelry.cli.calls.llm_calls import AnswerPiece, AnswerReader, ModelAnswerError, error_text
from hostelry.cli.load.measures import LoadTally
from hostelry.cli.load.requests import BROKEN, ERROR_HEADER, LoadConnection, LoadRequests

LOOK_EVERY_S = 0.05
SHOW_EVERY_S = 0.5
CONNECT_TIMEOUT_S = 5.0
PAUSE_S = 0.1  # after a failed connection
MAX_DRAIN_S = 30.0  # for requests under way at the end of the test
MAX_ERROR_BYTES = 4096
Show = Callable[[LoadTally, float, int], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadPlan:
    """A load test. With `rate_per_s` each request has a planned time, else it follows an answer.

    At most `concurrency` requests are under way. `timeout_s` limits one request.
    """

    host: str
    port: int
    concurrency: int
    duration_s: float
    rate_per_s: float | None
    timeout_s: float


def run_load(plan: LoadPlan, requests: LoadRequests, show: Show) -> LoadTally:
    """Send the load and return its measures. Ctrl-C ends it early."""
    return uvloop.run(LoadRun(plan, requests, show).run())


class LoadRun:
    """One load test under way."""

    def __init__(self, plan: LoadPlan, requests: LoadRequests, show: Show) -> None:
        self._plan = plan
        self._requests = requests
        self._show = show
        self._tally = LoadTally()
        self._due_numbers = itertools.count()
        self._sent_numbers = itertools.count()
        self._workers: list[asyncio.Task[None]] = []
        self._ended = asyncio.Event()
        self._in_flight = 0
        self._start_s = 0.0
        self._last_s = 0.0

    async def run(self) -> LoadTally:
        """Run the test, wait for the requests under way at its end, and return the measures."""
        began_cpu_s, self._start_s = time.process_time(), monotonic_s()
        with on_interrupt(self._interrupted):
            for _ in range(self._plan.concurrency):
                self._workers.append(asyncio.create_task(self._worker()))
            watch = asyncio.create_task(self._watch())
            with suppress(TimeoutError):
                await asyncio.wait_for(self._ended.wait(), self._plan.duration_s)
            self._ended.set()
            self._last_s = monotonic_s() - self._start_s
            drain_s = min(MAX_DRAIN_S, self._plan.timeout_s)
            await asyncio.wait(self._workers, timeout=drain_s)
            self._cancel()
            await asyncio.gather(*self._workers, return_exceptions=True)
            watch.cancel()
        for worker in self._workers:
            if not worker.cancelled():
                worker.result()  # raises an unexpected error
        self._count_unsent()
        self._tally.measured_s = monotonic_s() - self._start_s
        self._tally.cpu_s = time.process_time() - began_cpu_s
        return self._tally

    def _interrupted(self) -> None:
        """End the test. A second call also ends the requests under way."""
        if self._ended.is_set():
            self._cancel()
        self._ended.set()

    def _cancel(self) -> None:
        for worker in self._workers:
            worker.cancel()

    async def _worker(self) -> None:
        connection: LoadConnection | None = None
        try:
            while (due_s := await self._next_due()) is not None:
                self._in_flight += 1
                try:
                    connection = await self._send(connection, due_s)
                finally:
                    self._in_flight -= 1
        finally:
            if connection is not None:
                connection.close()

    async def _next_due(self) -> float | None:
        """Wait until the next request is due, and return that time. None if no request is left."""
        if self._ended.is_set():
            return None
        rate = self._plan.rate_per_s
        if rate is None:
            return monotonic_s()
        offset_s = next(self._due_numbers) / rate
        if offset_s >= self._plan.duration_s:
            return None
        due_s = self._start_s + offset_s
        wait_s = due_s - monotonic_s()
        if wait_s > 0:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._ended.wait(), wait_s)
                return None
            self._tally.late.append(max(0.0, monotonic_s() - due_s))
        return due_s

    async def _send(self, connection: LoadConnection | None, due_s: float) -> LoadConnection | None:
        """Send one request, record the answer, and return the connection for the next request."""
        answer = _Answer(self._tally, due_s, streams_text=self._requests.streams_text)
        try:
            if connection is None or not connection.is_open:
                connection = await self._connect()
            request = self._requests.make(next(self._sent_numbers))
            async with asyncio.timeout(self._plan.timeout_s):
                status = await connection.ask(request, answer.take)
            answer.ended(status, connection.header)
            if status != BROKEN:
                return connection
        except TimeoutError:
            answer.gave_up("timeout", f"no whole answer within {self._plan.timeout_s:g} s")
        except OSError as error:
            answer.failed(f"connection: {error.strerror or error}")
            await asyncio.sleep(PAUSE_S)
        except asyncio.CancelledError:
            answer.gave_up("unfinished", "under way when the time was over")
            raise
        finally:
            if connection is not None and not answer.is_whole:
                connection.close()
        return None

    async def _connect(self) -> LoadConnection:
        async with asyncio.timeout(CONNECT_TIMEOUT_S):
            _, connection = await asyncio.get_running_loop().create_connection(
                lambda: LoadConnection(ERROR_HEADER), self._plan.host, self._plan.port
            )
        return connection

    async def _watch(self) -> None:
        """Measure the client's own delays, and show the state."""
        shown_s = monotonic_s()
        while True:
            due_s = monotonic_s() + LOOK_EVERY_S
            await asyncio.sleep(LOOK_EVERY_S)
            now_s = monotonic_s()
            self._tally.late.append(max(0.0, now_s - due_s))
            if now_s - shown_s >= SHOW_EVERY_S:
                shown_s = now_s
                self._show(self._tally, now_s - self._start_s, self._in_flight)

    def _count_unsent(self) -> None:
        """Count requests that were due before the end but found no free connection."""
        rate = self._plan.rate_per_s
        if rate is None:
            return
        end_s = min(self._last_s, self._plan.duration_s)
        waited_s = monotonic_s() - self._start_s
        for number in range(next(self._due_numbers), math.ceil(end_s * rate)):
            self._tally.num_unsent += 1
            self._tally.fail("unsent")
            self._tally.latencies.append(waited_s - number / rate)


class _Answer:
    """Records one answer in the tally as it comes."""

    def __init__(self, tally: LoadTally, due_s: float, *, streams_text: bool) -> None:
        self.is_whole = False
        self._tally = tally
        self._due_s = due_s
        self._reader = AnswerReader() if streams_text else None
        self._first_s: float | None = None
        self._last_s = due_s
        self._num_pieces = 0
        self._beginning = b""
        self._trouble = ""

    def take(self, part: bytes) -> None:
        """Record a part of the body."""
        now_s = monotonic_s()
        self._tally.num_bytes += len(part)
        if len(self._beginning) < MAX_ERROR_BYTES:
            self._beginning += part[:MAX_ERROR_BYTES]
        reader = self._reader
        num_pieces = 1 if reader is None else self._take_text(lambda: reader.feed(part))
        for _ in range(num_pieces):
            if self._first_s is None:
                self._first_s = now_s - self._due_s
            elif self._reader is not None:
                self._tally.gaps.append(now_s - self._last_s)
            self._last_s = now_s
        self._num_pieces += num_pieces

    def ended(self, status: int, error_type: bytes) -> None:
        """Record the end of the answer."""
        if status == BROKEN:
            self.failed("connection broke off")
            return
        self.is_whole = True
        if not 200 <= status < 300:
            self.failed(*refusal(status, error_type, self._beginning))
            return
        if self._reader is not None and not self._trouble:
            self._take_text(self._reader.end)
        if self._trouble:
            self.failed("broken answer", self._trouble)
            return
        self._tally.num_ok += 1
        self._tally.latencies.append(monotonic_s() - self._due_s)
        if self._first_s is not None:
            self._tally.first.append(self._first_s)
        if self._reader is not None:
            stated = self._reader.num_tokens
            self._tally.num_tokens += self._num_pieces if stated is None else stated

    def failed(self, code: str, text: str = "") -> None:
        """Record a request without an answer."""
        self._tally.fail(code, text)

    def gave_up(self, code: str, text: str) -> None:
        """Record an unanswered request with the time that it has taken so far."""
        self._tally.fail(code, text)
        self._tally.latencies.append(monotonic_s() - self._due_s)

    def _take_text(self, read: Callable[[], list[AnswerPiece]]) -> int:
        """Count the texts in new bytes. 0 once the answer is broken."""
        try:
            return 0 if self._trouble else len(read())
        except ModelAnswerError as error:
            self._trouble = str(error)
            return 0


def refusal(status: int, error_type: bytes, beginning: bytes) -> tuple[str, str]:
    """The code and the text of an error answer."""
    try:
        body = decode(beginning, dict[str, Any])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        body = {}
    found = body.get("error")
    code = found.get("code") if isinstance(found, dict) else None
    kind = error_type.decode("latin-1").partition(":")[0] or str(code or "")
    text = error_text(body) if body else beginning.decode("utf-8", "replace")
    return f"{status} {kind}".strip(), text


@contextmanager
def on_interrupt(act: Callable[[], None]) -> Iterator[None]:
    """Call `act` on Ctrl-C during the block."""
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGINT, act)
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGINT)
