"""The workers of one model and the queue in front of them."""

import asyncio
import logging
from collections import deque
from contextlib import suppress
from typing import Any

import msgspec

from hostelry.base.clock import Clock
from hostelry.base.errors import HostelryError
from hostelry.containers.http.serving_app import RefusedRequestError
from hostelry.containers.predictive.metrics import PredictiveMetrics
from hostelry.containers.predictive.worker_process import (
    ModelLoadError,
    ModelPlaces,
    Prediction,
    PredictRequest,
    WorkerLostError,
    WorkerProcess,
    start_worker,
)
from hostelry.containers.predictive.zygote_process import ZygoteError, ZygoteProcess

FIRST_PAUSE_S, MAX_PAUSE_S = 0.1, 30.0
LOG = logging.getLogger(__name__)


class BatchLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of a batch: its requests, and the time that the first one waits for others."""

    size: int
    delay_s: float


def wait_s(limits: BatchLimits, num_waiting: int, oldest_at: float, now: float) -> float:
    """Seconds until an idle worker takes a batch: 0 if the batch is full or `delay_s` has passed.

    At least one request waits, the oldest since `oldest_at`.
    """
    if num_waiting >= limits.size:
        return 0.0
    return max(0.0, oldest_at + limits.delay_s - now)


class PoolBusyError(RefusedRequestError):
    """The model is not loaded yet, or too many requests wait."""

    def __init__(self, message: str) -> None:
        super().__init__(message, 503)


class PoolLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of a pool."""

    num_workers: int
    max_queued: int
    predict_timeout_s: float
    load_timeout_s: float
    batch: BatchLimits


class UnansweredRequest(msgspec.Struct, eq=False):
    """A request in the queue, and the future of its answer."""

    asked: PredictRequest
    arrived_at: float
    answer: "asyncio.Future[Prediction]"


class WorkerPool:
    """The workers of one model. Call `start`, then `invoke`. A lost worker is replaced."""

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
        self._batching = asyncio.Lock()  # held while a worker waits for its batch
        self._changed = asyncio.Event()
        self._runners: list[asyncio.Task[None]] = []
        self._workers: list[WorkerProcess | None] = []
        self._fault: str | None = None
        self._closed = False
        self._reason = ""
        self._parameters: dict[str, Any] | None = None

    @property
    def pids(self) -> tuple[int, ...]:
        """The ids of the living workers."""
        return tuple(it.pid for it in self._workers if it is not None and it.is_alive)

    @property
    def fault(self) -> str | None:
        """The reason why it is not ready. At first every worker must have loaded the model."""
        if self._closed:
            return "the model is being unloaded"
        if not self._runners:
            return f"{len(self.pids)} of {self._limits.num_workers} workers have loaded the model"
        return None if self.pids else (self._fault or "every worker is lost; others are started")

    async def start(self) -> None:
        """Start every worker. Raises ModelLoadError, WorkerLostError, ZygoteError."""
        num_workers = self._limits.num_workers
        first = await self._add_worker()
        given = await first.get_execution_parameters(self._limits.predict_timeout_s)
        self._parameters = given and {
            name: num_workers if value is None else value for name, value in given.items()
        }
        rest = [self._add_worker() for _ in range(num_workers - 1)]
        for started in await asyncio.gather(*rest, return_exceptions=True):
            if isinstance(started, BaseException):
                raise started
        self._runners = [
            asyncio.create_task(self._run(number), name=f"worker {number}")
            for number in range(num_workers)
        ]

    async def invoke(self, asked: PredictRequest) -> Prediction:
        """Answer a request. Raises PoolBusyError, WorkerLostError, ModelLoadError."""
        if self._closed or not self._runners:
            raise PoolBusyError(str(self.fault))
        if len(self._queue) >= self._limits.max_queued:
            raise PoolBusyError(
                f"{len(self._queue)} requests wait already (SAGEMAKER_MODEL_JOB_QUEUE_SIZE); try "
                "again later"
            )
        answer: asyncio.Future[Prediction] = asyncio.get_running_loop().create_future()
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
        """The result of execution_parameters_fn, or the framework's default, or None."""
        return self._parameters

    async def close(self, reason: str = "the server ends") -> None:
        """End the workers. Waiting and later requests fail with the reason."""
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

    async def _start_worker(self) -> WorkerProcess:
        return await start_worker(self._zygote, self._places, self._limits.load_timeout_s)

    async def _add_worker(self) -> WorkerProcess:
        worker = await self._start_worker()
        self._workers.append(worker)
        return worker

    async def _run(self, number: int) -> None:
        while True:
            worker = self._workers[number]
            if worker is None or not worker.is_alive:
                self._workers[number] = worker = await self._replace_worker()
            batch = await self._next_batch()
            if batch:
                await self._serve(worker, batch)

    async def _replace_worker(self) -> WorkerProcess:
        """Start a worker, with as many tries as needed. Meanwhile `fault` has the reason."""
        pause_s = FIRST_PAUSE_S
        while True:
            try:
                return await self._start_worker()
            except (ModelLoadError, WorkerLostError, ZygoteError) as error:
                self._fault = str(error)
                LOG.warning("a worker cannot be replaced: %s; again in %g s", error, pause_s)
            if not self.pids:
                while self._queue:
                    refuse(self._queue.popleft(), WorkerLostError(self._fault))
            await self._clock.sleep(pause_s)
            pause_s = min(MAX_PAUSE_S, 2 * pause_s)

    async def _next_batch(self) -> list[UnansweredRequest]:
        async with self._batching:
            while (left_s := self._wait_s()) != 0:
                self._changed.clear()
                with suppress(TimeoutError):
                    async with asyncio.timeout(left_s):
                        await self._changed.wait()
            count = min(self._limits.batch.size, len(self._queue))
            taken = [self._queue.popleft() for _ in range(count)]
        return [it for it in taken if not it.answer.done()]

    def _wait_s(self) -> float | None:
        """Seconds until the next batch is due. None if the queue is empty."""
        if not self._queue:
            return None
        oldest_at = self._queue[0].arrived_at
        return wait_s(self._limits.batch, len(self._queue), oldest_at, self._clock.now())

    async def _serve(self, worker: WorkerProcess, batch: list[UnansweredRequest]) -> None:
        now = self._clock.now()
        self._metrics.count_batch([now - it.arrived_at for it in batch])
        try:
            asked = [it.asked for it in batch]
            is_answering = await worker.invoke(asked, self._limits.predict_timeout_s)
        except WorkerLostError as error:
            for waiting in batch:
                refuse(waiting, error)
            return
        except asyncio.CancelledError:
            for waiting in batch:
                refuse(waiting, WorkerLostError(self._reason))
            raise
        for waiting, answer in zip(batch, is_answering, strict=True):
            if not waiting.answer.done():
                waiting.answer.set_result(answer)


def refuse(waiting: UnansweredRequest, error: HostelryError) -> None:
    """Fail the request with the error, unless its client is gone."""
    if not waiting.answer.done():
        waiting.answer.set_exception(error)
