"""Runs a load test: connections send requests at planned times, or one after the other."""

import asyncio
import itertools
import math
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial

from msgspec.structs import replace

from hostelry.base.clock import monotonic_s
from hostelry.loadtest.recording import AnswerRecord
from hostelry.loadtest.requests import LoadClient, LoadPlan, LoadSource
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
PAUSE_S = 0.1  # after a failed connection
MAX_DRAIN_S = 30.0  # for requests under way at the end of the test
Show = Callable[[LoadTally, float, int], None]


class LoadSearch:
    """A search under way: a run for each concurrency that the search chooses.

    `show(concurrency)` shows the state of a running step, and `show_step` each step that ended.
    """

    def __init__(
        self,
        plan: LoadPlan,
        source: LoadSource,
        settings: SearchSettings,
        show: Callable[[int], Show],
        show_step: Callable[[SearchStep], None],
    ) -> None:
        self._plan = plan
        self._source = source
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
            self._run = LoadRun(plan, self._source, self._show(action))
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

    def __init__(self, plan: LoadPlan, source: LoadSource, show: Show) -> None:
        self._plan = plan
        self._source = source
        self._show = show
        self._tally = LoadTally()
        self._due_numbers = itertools.count()
        self._sent_numbers = itertools.count()
        self._workers: list[asyncio.Task[None]] = []
        self._ended = asyncio.Event()
        self._in_flight = 0
        self._num_users = 0
        self._start_s = 0.0
        self._last_s = 0.0
        self._window_start_s = 0.0
        self._window_cpu_s = 0.0

    async def measure(self) -> LoadTally:
        """Measure the load, and wait for the requests under way at its end."""
        async with self.load():
            with suppress(TimeoutError):
                await asyncio.wait_for(self._ended.wait(), self._plan.duration_s)
        self._count_unsent()
        return self.take_window()

    async def measure_step(self, settings: SearchSettings) -> SearchStep:
        """Measure one step of a search, after a warm-up."""
        windows: list[LoadTally] = []
        num_connections = self._plan.concurrency
        async with self.load():
            await self.wait_until(partial(is_warm_up_over, settings, num_connections))
            self.take_window()
            while not self._ended.is_set():
                await self.wait_until(partial(self._is_window_over, settings))
                is_late = self.elapsed_s >= settings.step_s and windows
                window = self.take_window()
                if not is_late:
                    windows.append(window)
                if is_step_over(settings, windows, self.elapsed_s):
                    break
        return build_step(settings, num_connections, windows)

    def _is_window_over(self, settings: SearchSettings, num_done: int, open_s: float) -> bool:
        is_full = is_window_over(settings, self._plan.concurrency, num_done, open_s)
        return is_full or self.elapsed_s >= settings.step_s

    async def wait_until(self, is_over: Callable[[int, float], bool]) -> None:
        """Wait until `is_over(requests, age in seconds)` of the open window, or an interrupt."""
        while not is_over(self._tally.num_requests, monotonic_s() - self._window_start_s):
            with suppress(TimeoutError):
                await asyncio.wait_for(self._ended.wait(), WINDOW_LOOK_EVERY_S)
                return

    @property
    def elapsed_s(self) -> float:
        """Seconds since the start of the load."""
        return monotonic_s() - self._start_s

    def _begin_window(self) -> None:
        self._tally = LoadTally()
        self._window_cpu_s, self._window_start_s = time.process_time(), monotonic_s()

    def take_window(self) -> LoadTally:
        """Return the measures since the last window, and begin the next window."""
        window = self._tally
        window.measured_s = monotonic_s() - self._window_start_s
        window.cpu_s = time.process_time() - self._window_cpu_s
        self._begin_window()
        return window

    @asynccontextmanager
    async def load(self) -> AsyncIterator[None]:
        """Send the load during the block, then wait for the requests under way."""
        self._start_s = monotonic_s()
        self._begin_window()
        self.set_users(self._plan.concurrency)
        watch = asyncio.create_task(self._watch())
        try:
            yield
            self._ended.set()
            self._last_s = self.elapsed_s
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

    def set_users(self, num_users: int) -> None:
        """Change the number of users, while the load is sent. Surplus users end their request."""
        self._num_users = num_users
        for number in range(num_users):
            if number == len(self._workers):
                self._workers.append(asyncio.create_task(self._worker(number)))
            elif self._workers[number].done():
                self._workers[number].result()  # raises an unexpected error
                self._workers[number] = asyncio.create_task(self._worker(number))

    def interrupt(self) -> None:
        """End the test early. A second call also ends the requests under way."""
        if self._ended.is_set():
            for worker in self._workers:
                worker.cancel()
        self._ended.set()

    async def _worker(self, number: int) -> None:
        client = self._source.open_client(self._plan)
        try:
            while number < self._num_users and (due_s := await self._next_due()) is not None:
                self._in_flight += 1
                try:
                    await self._send(client, due_s)
                finally:
                    self._in_flight -= 1
        finally:
            client.close()

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

    async def _send(self, client: LoadClient, due_s: float) -> None:
        """Send one request, and record the answer."""
        answer = AnswerRecord(lambda: self._tally, due_s, streams_text=self._source.streams_text)
        try:
            await client.send(next(self._sent_numbers), answer)
        except TimeoutError:
            answer.give_up("timeout", f"no whole answer within {self._plan.timeout_s:g} s")
        except OSError as error:
            answer.fail(f"connection: {error.strerror or error}")
            await asyncio.sleep(PAUSE_S)
        except asyncio.CancelledError:
            answer.give_up("unfinished", "under way when the time was over")
            raise

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
