"""Runs a load test: connections send requests at planned times, or one after the other."""

import asyncio
import itertools
import math
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import Any

import msgspec

from hostelry.base.clock import monotonic_s
from hostelry.base.json import decode
from hostelry.loadtest.answers import AnswerPiece, AnswerReader, ModelAnswerError, error_text
from hostelry.loadtest.requests import BROKEN, ERROR_HEADER, LoadConnection, LoadPlan, LoadRequests
from hostelry.loadtest.search import (
    SearchOutcome,
    SearchSettings,
    SearchStep,
    build_step,
    choose_action,
    interrupted_outcome,
    is_step_over,
    is_warm_up_over,
    is_window_over,
)
from hostelry.loadtest.tally import LoadTally

LOOK_EVERY_S = 0.05
WINDOW_LOOK_EVERY_S = 0.01  # for the end of a window
SHOW_EVERY_S = 0.5
CONNECT_TIMEOUT_S = 5.0
PAUSE_S = 0.1  # after a failed connection
MAX_DRAIN_S = 30.0  # for requests under way at the end of the test
MAX_ERROR_BYTES = 4096
Show = Callable[[LoadTally, float, int], None]


class LoadSearch:
    """A search under way: a run for each concurrency that the search chooses.

    `show(concurrency)` shows the state of a running step, and `show_step` each step that ended.
    """

    def __init__(
        self,
        plan: LoadPlan,
        requests: LoadRequests,
        settings: SearchSettings,
        show: Callable[[int], Show],
        show_step: Callable[[SearchStep], None],
    ) -> None:
        self._plan = plan
        self._requests = requests
        self._settings = settings
        self._show = show
        self._show_step = show_step
        self._run: LoadRun | None = None
        self._is_interrupted = False

    async def measure(self) -> tuple[list[SearchStep], SearchOutcome]:
        """Measure the steps, and return them with the outcome."""
        steps: list[SearchStep] = []
        while isinstance(action := choose_action(self._settings, steps), int):
            plan = replace(self._plan, concurrency=action)
            self._run = LoadRun(plan, self._requests, self._show(action))
            step = await self._run.measure_step(self._settings)
            if self._is_interrupted:
                return steps, interrupted_outcome(steps)
            steps.append(step)
            self._show_step(step)
        return steps, action

    def interrupt(self) -> None:
        """End the search early. The step under way is not counted."""
        self._is_interrupted = True
        if self._run is not None:
            self._run.interrupt()


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
        self._window_start_s = 0.0
        self._window_cpu_s = 0.0

    async def measure(self) -> LoadTally:
        """Measure the load, and wait for the requests under way at its end."""
        async with self._load():
            with suppress(TimeoutError):
                await asyncio.wait_for(self._ended.wait(), self._plan.duration_s)
        self._count_unsent()
        return self._take_window()

    async def measure_step(self, settings: SearchSettings) -> SearchStep:
        """Measure one step of a search, after a warm-up."""
        windows: list[LoadTally] = []
        num_connections = self._plan.concurrency
        async with self._load():
            await self._wait_until(partial(is_warm_up_over, settings, num_connections))
            self._take_window()
            while not self._ended.is_set():
                await self._wait_until(partial(self._is_window_over, settings))
                is_late = self._elapsed_s() >= settings.step_s and windows
                window = self._take_window()
                if not is_late:
                    windows.append(window)
                if is_step_over(settings, windows, self._elapsed_s()):
                    break
        return build_step(settings, num_connections, windows)

    def _is_window_over(self, settings: SearchSettings, num_done: int, open_s: float) -> bool:
        is_full = is_window_over(settings, self._plan.concurrency, num_done, open_s)
        return is_full or self._elapsed_s() >= settings.step_s

    async def _wait_until(self, is_over: Callable[[int, float], bool]) -> None:
        """Wait until `is_over(requests, age in seconds)` of the open window, or an interrupt."""
        while not is_over(self._tally.num_requests, monotonic_s() - self._window_start_s):
            with suppress(TimeoutError):
                await asyncio.wait_for(self._ended.wait(), WINDOW_LOOK_EVERY_S)
                return

    def _elapsed_s(self) -> float:
        return monotonic_s() - self._start_s

    def _begin_window(self) -> None:
        self._tally = LoadTally()
        self._window_cpu_s, self._window_start_s = time.process_time(), monotonic_s()

    def _take_window(self) -> LoadTally:
        """Return the measures since the last window, and begin the next window."""
        window = self._tally
        window.measured_s = monotonic_s() - self._window_start_s
        window.cpu_s = time.process_time() - self._window_cpu_s
        self._begin_window()
        return window

    @asynccontextmanager
    async def _load(self) -> AsyncIterator[None]:
        """Send the load during the block, then wait for the requests under way."""
        self._start_s = monotonic_s()
        self._begin_window()
        for _ in range(self._plan.concurrency):
            self._workers.append(asyncio.create_task(self._worker()))
        watch = asyncio.create_task(self._watch())
        try:
            yield
            self._ended.set()
            self._last_s = self._elapsed_s()
            drain_s = min(MAX_DRAIN_S, self._plan.timeout_s)
            await asyncio.wait(self._workers, timeout=drain_s)
        finally:
            tasks = [*self._workers, watch]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        for task in tasks:
            if not task.cancelled():
                task.result()  # raises an unexpected error

    def interrupt(self) -> None:
        """End the test early. A second call also ends the requests under way."""
        if self._ended.is_set():
            for worker in self._workers:
                worker.cancel()
        self._ended.set()

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
        answer = _Answer(lambda: self._tally, due_s, streams_text=self._requests.streams_text)
        try:
            if connection is None or not connection.is_open:
                connection = await self._connect()
            request = self._requests.make(next(self._sent_numbers))
            async with asyncio.timeout(self._plan.timeout_s):
                status = await connection.ask(request, answer.take)
            answer.end(status, connection.header)
            if status != BROKEN:
                return connection
        except TimeoutError:
            answer.give_up("timeout", f"no whole answer within {self._plan.timeout_s:g} s")
        except OSError as error:
            answer.fail(f"connection: {error.strerror or error}")
            await asyncio.sleep(PAUSE_S)
        except asyncio.CancelledError:
            answer.give_up("unfinished", "under way when the time was over")
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
                self._show(self._tally, now_s - self._window_start_s, self._in_flight)

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
    """Records one answer as it comes, in the tally of the window that is open then."""

    def __init__(
        self, get_tally: Callable[[], LoadTally], due_s: float, *, streams_text: bool
    ) -> None:
        self.is_whole = False
        self._get_tally = get_tally
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
        self._get_tally().num_bytes += len(part)
        if len(self._beginning) < MAX_ERROR_BYTES:
            self._beginning += part[:MAX_ERROR_BYTES]
        reader = self._reader
        num_pieces = 1 if reader is None else self._take_text(lambda: reader.take(part))
        for _ in range(num_pieces):
            if self._first_s is None:
                self._first_s = now_s - self._due_s
            elif self._reader is not None:
                self._get_tally().gaps.append(now_s - self._last_s)
            self._last_s = now_s
        self._num_pieces += num_pieces

    def end(self, status: int, error_type: bytes) -> None:
        """Record the end of the answer."""
        if status == BROKEN:
            self.fail("connection broke off")
            return
        self.is_whole = True
        if not 200 <= status < 300:
            self.fail(*refusal(status, error_type, self._beginning))
            return
        if self._reader is not None and not self._trouble:
            self._take_text(self._reader.end)
        if self._trouble:
            self.fail("broken answer", self._trouble)
            return
        tally = self._get_tally()
        tally.num_ok += 1
        tally.latencies.append(monotonic_s() - self._due_s)
        if self._first_s is not None:
            tally.first.append(self._first_s)
        if self._reader is not None:
            stated = self._reader.num_tokens
            tally.num_tokens += self._num_pieces if stated is None else stated

    def fail(self, code: str, text: str = "") -> None:
        """Record a request without an answer."""
        self._get_tally().fail(code, text)

    def give_up(self, code: str, text: str) -> None:
        """Record an unanswered request with the time that it has taken so far."""
        self._get_tally().fail(code, text)
        self._get_tally().latencies.append(monotonic_s() - self._due_s)

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
