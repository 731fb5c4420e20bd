"""The workers of one model and the queue before them."""

import asyncio
import logging
from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from hostelry.base.clock import Clock
from hostelry.base.errors import HostelryError
from hostelry.containers.predictive.batching import BatchLimits, wait_s
from hostelry.containers.predictive.metrics import PredictiveMetrics
from hostelry.containers.predictive.worker_process import (
    Answered,
    Asked,
    ModelLoadError,
    ModelPlaces,
    WorkerLostError,
    WorkerProcess,
    start_worker,
)
from hostelry.containers.predictive.zygote_process import ZygoteError, ZygoteProcess

FIRST_PAUSE_S, MAX_PAUSE_S = 0.1, 30.0

log = logging.getLogger(__name__)


class PoolBusyError(HostelryError):
    """No request is taken now: the model is not loaded yet, or too many wait."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolLimits:
    """Limits of a pool; times in seconds."""

    num_workers: int
    max_queued: int
    predict_timeout_s: float
    load_timeout_s: float
    batch: BatchLimits


@dataclass(slots=True, eq=False)
class UnansweredRequest:
    """A request in the queue, and where its answer goes."""

    asked: Asked
    arrived_at: float
    answer: "asyncio.Future[Answered]"


class WorkerPool:
    """`start` it, then `invoke`. A worker that is lost is replaced."""

    def __init__(
        self,
        zygote: ZygoteProcess,
        places: ModelPlaces,
        limits: PoolLimits,
        clock: Clock,
        metrics: PredictiveMetrics,
    ) -> None:
        self._zygote = zygote
        self._places = places
        self._limits = limits
        self._clock = clock
        self._metrics = metrics
        self._queue: deque[UnansweredRequest] = deque()
        self._gathering = asyncio.Lock()  # one worker at a time gathers a batch
        self._changed = asyncio.Event()
        self._runners: list[asyncio.Task[None]] = []
        self._workers: list[WorkerProcess | None] = []
        self._fault: str | None = None
        self._closed = False
        self._reason = ""
        self._parameters: dict[str, Any] | None = None

    @property
    def pids(self) -> tuple[int, ...]:
        """The living workers' process ids."""
        return tuple(it.pid for it in self._workers if it is not None and it.is_alive)

    @property
    def fault(self) -> str | None:
        """Why it is not ready: every worker is to load the model first, later one must serve."""
        if self._closed:
            return "the model is being unloaded"
        if not self._runners:
            return f"{len(self.pids)} of {self._limits.num_workers} workers have loaded the model"
        return None if self.pids else (self._fault or "every worker is lost; others are started")

    async def start(self) -> None:
        """Start every worker. Raises ModelLoadError, WorkerLostError, ZygoteError."""
        first = await self._another()
        found = await first.execution_parameters(self._limits.predict_timeout_s)
        num_workers = self._limits.num_workers
        self._parameters = found and {
            name: num_workers if value is None else value for name, value in found.items()
        }
        rest = [self._another() for _ in range(self._limits.num_workers - 1)]
        for started in await asyncio.gather(*rest, return_exceptions=True):
            if isinstance(started, BaseException):
                raise started
        self._runners = [
            asyncio.create_task(self._run(number), name=f"worker {number}")
            for number in range(self._limits.num_workers)
        ]

    async def invoke(self, asked: Asked) -> Answered:
        """The answer to a request. Raises PoolBusyError, WorkerLostError, ModelLoadError."""
        if self._closed or not self._runners:
            raise PoolBusyError(self.fault)
        if len(self._queue) >= self._limits.max_queued:
            raise PoolBusyError(
                f"{len(self._queue)} requests wait already (SAGEMAKER_MODEL_JOB_QUEUE_SIZE); try "
                "again later"
            )
        answer: asyncio.Future[Answered] = asyncio.get_running_loop().create_future()
        waiting = UnansweredRequest(asked=asked, arrived_at=self._clock.now(), answer=answer)
        self._queue.append(waiting)
        self._changed.set()
        try:
            return await answer
        except asyncio.CancelledError:
            if waiting in self._queue:
                self._queue.remove(waiting)
            raise

    @property
    def execution_parameters(self) -> dict[str, Any] | None:
        """What execution_parameters_fn of the model gave when it was loaded, or its framework has.

        None without either. A value of None is the number of workers.
        """
        return self._parameters

    async def close(self, reason: str = "the server ends") -> None:
        """End the workers; requests that wait or come are refused with the reason."""
        self._closed = True
        self._reason = reason
        for task in self._runners:
            task.cancel()
        await asyncio.gather(*self._runners, return_exceptions=True)
        for worker in self._workers:
            if worker is not None:
                worker.end()
        while self._queue:
            refuse(self._queue.popleft(), WorkerLostError(reason))

    async def _started(self) -> WorkerProcess:
        return await start_worker(self._zygote, self._places, self._limits.load_timeout_s)

    async def _another(self) -> WorkerProcess:
        """A worker that `close` ends, whatever becomes of the others."""
        worker = await self._started()
        self._workers.append(worker)
        return worker

    async def _run(self, number: int) -> None:
        while True:
            worker = self._workers[number]
            if worker is None or not worker.is_alive:
                self._workers[number] = worker = await self._replacement()
            batch = await self._next_batch()
            if batch:
                await self._serve(worker, batch)

    async def _replacement(self) -> WorkerProcess:
        """Another worker, however many tries it takes; meanwhile `fault` says why there is none."""
        pause_s = FIRST_PAUSE_S
        while True:
            try:
                return await self._started()
            except (ModelLoadError, WorkerLostError, ZygoteError) as error:
                self._fault = str(error)
                log.warning("a worker cannot be replaced: %s; again in %g s", error, pause_s)
            if not self.pids:
                while self._queue:
                    refuse(self._queue.popleft(), WorkerLostError(self._fault))
            await self._clock.sleep(pause_s)
            pause_s = min(MAX_PAUSE_S, 2 * pause_s)

    async def _next_batch(self) -> list[UnansweredRequest]:
        async with self._gathering:
            while (left_s := self._wait_s()) != 0:
                self._changed.clear()
                with suppress(TimeoutError):
                    async with asyncio.timeout(left_s):
                        await self._changed.wait()
            count = min(self._limits.batch.size, len(self._queue))
            taken = [self._queue.popleft() for _ in range(count)]
        return [it for it in taken if not it.answer.done()]

    def _wait_s(self) -> float | None:
        """Seconds until the next batch is to be taken; None while nothing waits."""
        if not self._queue:
            return None
        oldest_at = self._queue[0].arrived_at
        return wait_s(self._limits.batch, len(self._queue), oldest_at, self._clock.now())

    async def _serve(self, worker: WorkerProcess, batch: list[UnansweredRequest]) -> None:
        now = self._clock.now()
        self._metrics.began([now - it.arrived_at for it in batch])
        try:
            asked = [it.asked for it in batch]
            answers = await worker.invoke(asked, self._limits.predict_timeout_s)
        except WorkerLostError as error:
            for waiting in batch:
                refuse(waiting, error)
            return
        except asyncio.CancelledError:
            for waiting in batch:
                refuse(waiting, WorkerLostError(self._reason))
            raise
        for waiting, answer in zip(batch, answers, strict=True):
            if not waiting.answer.done():
                waiting.answer.set_result(answer)


def refuse(waiting: UnansweredRequest, error: HostelryError) -> None:
    """End a request with an error, unless its client is gone."""
    if not waiting.answer.done():
        waiting.answer.set_exception(error)
