"""The model of one archive, over a tritonserver that is replaced when it or the model dies."""

import asyncio
import logging
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from hostelry.base.clock import Clock
from hostelry.base.errors import TerminalError
from hostelry.base.shared_memory import REGIONS
from hostelry.containers.predictive.model_table import ModelRefusedError
from hostelry.containers.predictive.worker_pool import PoolBusyError
from hostelry.containers.predictive.worker_process import (
    Answered,
    Asked,
    ModelLoadError,
    WorkerLostError,
)
from hostelry.containers.triton.answers import error_body, status_of
from hostelry.containers.triton.binary_tensors import (
    JSON,
    ContentTypeError,
    content_type_of,
    request_headers,
)
from hostelry.containers.triton.settings import TritonSettings
from hostelry.containers.triton.triton_process import (
    OK,
    TritonLostError,
    TritonOrder,
    TritonProcess,
)

FIRST_PAUSE_S, MAX_PAUSE_S = 0.1, 30.0
LOOK_EVERY_S = 1.0

log = logging.getLogger("hostelry.containers.triton")


class TritonModels:
    """`start` it, then `invoke`; implements `ModelProcesses`. `order` is made when it starts."""

    def __init__(
        self, order: Callable[[], TritonOrder], settings: TritonSettings, clock: Clock
    ) -> None:
        self._order_of = order
        self._order: TritonOrder | None = None
        self._settings = settings
        self._clock = clock
        self._process: TritonProcess | None = None
        self._replacing: asyncio.Task[None] | None = None
        self._watching: asyncio.Task[None] | None = None
        self._changed = asyncio.Event()  # a replacement is there, or has failed
        self._fault = "the model is being loaded"
        self._is_closed = False
        self._in_flight = 0

    @property
    def pids(self) -> tuple[int, ...]:
        """The living processes."""
        return () if self._process is None else self._process.pids

    @property
    def fault(self) -> str | None:
        """Why it does not serve; None while it does."""
        if self._is_closed:
            return self._fault
        return self._fault if self._process is None else None

    @property
    def execution_parameters(self) -> dict[str, Any] | None:
        """None: Triton has none."""
        return None

    async def start(self) -> None:
        """Load the model. Raises ModelLoadError, ModelRefusedError (507)."""
        try:
            self._order = await asyncio.to_thread(self._order_of)
        except TerminalError as error:
            raise ModelLoadError(str(error)) from error
        self._process = await self._started(self._order)
        self._fault = ""
        self._watching = asyncio.create_task(self._watch(), name="watch Triton")

    async def invoke(self, asked: Asked) -> Answered:
        """The answer to a request. Raises PoolBusyError, WorkerLostError."""
        if self._in_flight >= self._settings.max_queued:
            raise PoolBusyError(
                f"{self._in_flight} requests wait already (SAGEMAKER_MODEL_JOB_QUEUE_SIZE); try "
                "again later"
            )
        try:
            headers = request_headers(asked.headers.get("Content-Type", JSON), len(asked.body))
        except ContentTypeError as error:
            return Answered(status=400, content_type=JSON, headers={}, body=error_body(str(error)))
        self._in_flight += 1
        try:
            return await self._answered(headers, asked.body)
        finally:
            self._in_flight -= 1

    async def metrics(self) -> str:
        """Triton's page for Prometheus; empty while it is not there."""
        return "" if self._process is None else await self._process.metrics()

    async def close(self, reason: str = "the server ends") -> None:
        """Unload the model and end its processes; requests that wait or come are refused."""
        self._is_closed, self._fault = True, reason
        tasks = [it for it in (self._watching, self._replacing) if it is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._changed.set()
        process, self._process = self._process, None
        if process is not None:
            await process.stop()

    async def _answered(self, headers: dict[str, str], body: bytes) -> Answered:
        began_at = self._clock.now()
        limit_s = self._settings.timeout_s
        process: TritonProcess | None = None
        try:
            async with asyncio.timeout(limit_s):
                process = await self._serving()
                answer = await process.invoke(headers, body)
        except TimeoutError:
            # Others were answered meanwhile: then it is this request that takes long.
            if process is not None and process.last_answer_at < began_at:
                self._replace(process, f"the model gave no answer within {limit_s:g} s")
            raise WorkerLostError(
                f"a request was not answered within {limit_s:g} s "
                "(SAGEMAKER_MODEL_SERVER_TIMEOUT_SECONDS)",
                timed_out=True,
            ) from None
        except TritonLostError as error:
            if process is not None:
                self._replace(process, str(error))
            reason = self._fault if self._is_closed else str(error)
            raise WorkerLostError(reason) from None
        if answer.status == OK:
            kind = content_type_of(answer.headers)
            return Answered(status=OK, content_type=kind, headers={}, body=answer.body)
        words = process.words(answer.body)
        return Answered(
            status=status_of(words), content_type=JSON, headers={}, body=error_body(words)
        )

    async def _serving(self) -> TritonProcess:
        """The process, once a replacement that is under way is there."""
        if self._process is None and self._replacing is not None and not self._is_closed:
            await self._changed.wait()
        if self._process is None:
            if self._replacing is None or self._is_closed:
                raise PoolBusyError(self._fault)
            raise TritonLostError(self._fault)
        return self._process

    async def _watch(self) -> None:
        """Replace a process that is lost before a request finds it so."""
        while True:
            await self._clock.sleep(LOOK_EVERY_S)
            process = self._process
            if process is not None and (loss := process.loss) is not None:
                self._replace(process, loss)

    def _replace(self, process: TritonProcess, reason: str) -> None:
        """Start another in the place of one that is lost; once for all that found it lost."""
        if self._process is not process or self._is_closed:
            return
        log.warning("%s; it is started again", " ".join(reason.split()))
        self._process, self._fault = None, reason
        self._changed.clear()
        self._replacing = asyncio.create_task(
            self._replaced(process, reason), name="another Triton"
        )

    async def _replaced(self, lost: TritonProcess, reason: str) -> None:
        """Another process, however many tries it takes; meanwhile `fault` says why."""
        assert self._order is not None, "it was started"
        await lost.kill(reason)
        pause_s = FIRST_PAUSE_S
        while True:
            try:
                self._process = await self._started(self._order)
            except (ModelLoadError, ModelRefusedError) as error:
                self._fault = str(error)
                log.warning("the model cannot be loaded: %s; again in %g s", error, pause_s)
            else:
                self._fault = ""
                self._changed.set()
                return
            self._changed.set()  # those that waited are refused with the reason
            await self._clock.sleep(pause_s)
            pause_s = min(MAX_PAUSE_S, 2 * pause_s)

    async def _started(self, order: TritonOrder) -> TritonProcess:
        check_shared_memory(self._settings.shm_bytes)
        process = TritonProcess(order, self._clock)
        try:
            await process.start()
        except ModelLoadError as error:
            await process.kill()
            if status_of(str(error)) == 507:
                raise ModelRefusedError(507, str(error)) from error
            raise
        except BaseException:
            with suppress(asyncio.CancelledError):
                await asyncio.shield(process.kill())
            raise
        return process


def check_shared_memory(needed_bytes: int, regions: Path = REGIONS) -> None:
    """Raise ModelRefusedError (507) where an instance's first region does not fit.

    A process that writes to a region for which there is no memory is killed.
    """
    found = os.statvfs(regions)
    free_bytes = found.f_bavail * found.f_frsize
    if free_bytes < needed_bytes:
        raise ModelRefusedError(
            507,
            f"{regions} has {free_bytes} bytes free, and a model's first region takes "
            f"{needed_bytes} (SAGEMAKER_TRITON_SHM_DEFAULT_BYTE_SIZE)",
        )
