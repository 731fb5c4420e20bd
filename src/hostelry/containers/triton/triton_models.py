"""The model of one archive, over a tritonserver that is replaced when it or the model dies."""

import asyncio
import logging
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from hostelry.base.clock import Clock
from hostelry.base.errors import HostelryError, TerminalError
from hostelry.base.files import REGIONS
from hostelry.containers.http.serving_app import RefusedRequestError
from hostelry.containers.predictive.worker_pool import PoolBusyError
from hostelry.containers.predictive.worker_process import (
    ModelLoadError,
    Prediction,
    PredictRequest,
    WorkerLostError,
)
from hostelry.containers.triton.settings import TritonSettings
from hostelry.containers.triton.triton_process import (
    OK,
    TritonLostError,
    TritonOrder,
    TritonProcess,
)

# Words of backends without memory. The answer is 507, so that another model is unloaded.
NO_MEMORY = ("out of memory", "out_of_memory", "outofmemory", "memoryerror", "oom:", "oom)",
             "cublas_status_alloc_failed", "failed to allocate memory",
             "no space left on device")  # fmt: skip
INSUFFICIENT, REFUSED = 507, 400
BINARY = "application/vnd.sagemaker-triton.binary+json;json-header-size="
JSON = "application/json"
LENGTH = "Inference-Header-Content-Length"
FIRST_PAUSE_S, MAX_PAUSE_S = 0.1, 30.0
LOOK_EVERY_S = 1.0
LOG = logging.getLogger("hostelry.containers.triton")


def get_error_status(words: str) -> int:
    """The status for an error of Triton: 507 if memory is missing, otherwise 400."""
    lowered = words.lower()
    return INSUFFICIENT if any(it in lowered for it in NO_MEMORY) else REFUSED


def encode_error(words: str) -> bytes:
    """The body of an error, as Triton's SageMaker endpoint has it."""
    return msgspec.json.encode({"error": words})


class ContentTypeError(HostelryError):
    """The content type has no valid length of the JSON."""


def to_triton_headers(content_type: str, num_bytes: int) -> dict[str, str]:
    """The headers for Triton of a body of `num_bytes`. Raises ContentTypeError.

    A body with binary tensors is JSON, then the tensors' bytes. The length of the JSON is a
    parameter of SageMaker's content type, and a header for Triton. Source: Triton's binary tensor
    data extension, and its SageMaker endpoint.
    """
    kind, _, size = content_type.replace(" ", "").partition("=")
    if not BINARY.startswith(kind.lower() + "=") or not kind:
        return {"Content-Type": JSON}
    if not size.isascii() or not size.isdigit() or len(size) > 12 or int(size) > num_bytes:
        raise ContentTypeError(
            f"json-header-size is {size[:40]!r}; it must be a number from 0 to the body's "
            f"{num_bytes} bytes"
        )
    return {"Content-Type": "application/octet-stream", LENGTH: str(int(size))}


def to_content_type(headers: Mapping[str, str]) -> str:
    """SageMaker's content type of an answer with Triton's headers, whose names are lower case."""
    size = headers.get(LENGTH.lower())
    return JSON if size is None else f"{BINARY}{size}"


class TritonModels:
    """The model of one archive. Implements `ModelProcesses`. `prepare` is called by `start`."""

    def __init__(
        self, prepare: Callable[[], TritonOrder], settings: TritonSettings, clock: Clock
    ) -> None:
        self._prepare = prepare
        self._order: TritonOrder | None = None
        self._settings = settings
        self._clock = clock
        self._process: TritonProcess | None = None
        self._replacing: asyncio.Task[None] | None = None
        self._watching: asyncio.Task[None] | None = None
        self._changed = asyncio.Event()  # set when a replacement has started or failed
        self._fault = "the model is being loaded"
        self._is_closed = False
        self._in_flight = 0

    @property
    def pids(self) -> tuple[int, ...]:
        """The ids of the living processes."""
        return () if self._process is None else self._process.pids

    @property
    def fault(self) -> str | None:
        """The reason why it does not serve. None while it serves."""
        if self._is_closed:
            return self._fault
        return self._fault if self._process is None else None

    @property
    def execution_parameters(self) -> dict[str, Any] | None:
        """None, because Triton has no execution parameters."""
        return None

    async def start(self) -> None:
        """Load the model. Raises ModelLoadError, RefusedRequestError with 507."""
        try:
            self._order = await asyncio.to_thread(self._prepare)
        except TerminalError as error:
            raise ModelLoadError(str(error)) from error
        self._process = await self._start_process(self._order)
        self._fault = ""
        self._watching = asyncio.create_task(self._watch(), name="watch Triton")

    async def invoke(self, asked: PredictRequest) -> Prediction:
        """Answer a request. Raises PoolBusyError, WorkerLostError."""
        if self._in_flight >= self._settings.max_queued:
            raise PoolBusyError(
                f"{self._in_flight} requests wait already (SAGEMAKER_MODEL_JOB_QUEUE_SIZE); try "
                "again later"
            )
        try:
            headers = to_triton_headers(asked.headers.get("Content-Type", JSON), len(asked.body))
        except ContentTypeError as error:
            return Prediction(
                status=400, content_type=JSON, headers={}, body=encode_error(str(error))
            )
        self._in_flight += 1
        try:
            return await self._invoke(headers, asked.body)
        finally:
            self._in_flight -= 1

    async def metrics(self) -> str:
        """Triton's page for Prometheus. Empty without a process."""
        return "" if self._process is None else await self._process.metrics()

    async def close(self, reason: str = "the server ends") -> None:
        """Unload the model and end its processes. Waiting and later requests fail."""
        self._is_closed, self._fault = True, reason
        tasks = [it for it in (self._watching, self._replacing) if it is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._changed.set()
        process, self._process = self._process, None
        if process is not None:
            await process.stop()

    async def _invoke(self, headers: dict[str, str], body: bytes) -> Prediction:
        began_at = self._clock.now()
        limit_s = self._settings.timeout_s
        process: TritonProcess | None = None
        try:
            async with asyncio.timeout(limit_s):
                process = await self._wait_for_process()
                answer = await process.invoke(headers, body)
        except TimeoutError:
            # If other requests were answered meanwhile, only this request takes long.
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
            kind = to_content_type(answer.headers)
            return Prediction(status=OK, content_type=kind, headers={}, body=answer.body)
        words = process.get_error(answer.body)
        return Prediction(
            status=get_error_status(words), content_type=JSON, headers={}, body=encode_error(words)
        )

    async def _wait_for_process(self) -> TritonProcess:
        """The process, after a replacement has started. Raises PoolBusyError, TritonLostError."""
        if self._process is None and self._replacing is not None and not self._is_closed:
            await self._changed.wait()
        if self._process is None:
            if self._replacing is None or self._is_closed:
                raise PoolBusyError(self._fault)
            raise TritonLostError(self._fault)
        return self._process

    async def _watch(self) -> None:
        """Replace a lost process, also without a request."""
        while True:
            await self._clock.sleep(LOOK_EVERY_S)
            process = self._process
            if process is not None and (loss := process.loss) is not None:
                self._replace(process, loss)

    def _replace(self, process: TritonProcess, reason: str) -> None:
        """Start to replace a lost process, unless another caller did."""
        if self._process is not process or self._is_closed:
            return
        LOG.warning("%s; it is started again", " ".join(reason.split()))
        self._process, self._fault = None, reason
        self._changed.clear()
        self._replacing = asyncio.create_task(
            self._start_again(process, reason), name="another Triton"
        )

    async def _start_again(self, lost: TritonProcess, reason: str) -> None:
        """Start a process, with as many tries as needed. Meanwhile `fault` has the reason."""
        assert self._order is not None, "it was started"
        await lost.kill(reason)
        pause_s = FIRST_PAUSE_S
        while True:
            try:
                self._process = await self._start_process(self._order)
            except (ModelLoadError, RefusedRequestError) as error:
                self._fault = str(error)
                LOG.warning("the model cannot be loaded: %s; again in %g s", error, pause_s)
            else:
                self._fault = ""
                self._changed.set()
                return
            self._changed.set()  # waiting requests fail with the reason
            await self._clock.sleep(pause_s)
            pause_s = min(MAX_PAUSE_S, 2 * pause_s)

    async def _start_process(self, order: TritonOrder) -> TritonProcess:
        check_shared_memory(self._settings.shm_bytes)
        process = TritonProcess(order, self._clock)
        try:
            await process.start()
        except ModelLoadError as error:
            await process.kill()
            if get_error_status(str(error)) == 507:
                raise RefusedRequestError(str(error), 507) from error
            raise
        except BaseException:
            with suppress(asyncio.CancelledError):
                await asyncio.shield(process.kill())
            raise
        return process


def check_shared_memory(needed_bytes: int, regions: Path = REGIONS) -> None:
    """Raise RefusedRequestError with 507 if an instance's first region does not fit.

    The kernel kills a process that writes to a region without memory.
    """
    stat = os.statvfs(regions)
    free_bytes = stat.f_bavail * stat.f_frsize
    if free_bytes < needed_bytes:
        raise RefusedRequestError(
            f"{regions} has {free_bytes} bytes free, and a model's first region takes "
            f"{needed_bytes} (SAGEMAKER_TRITON_SHM_DEFAULT_BYTE_SIZE)",
            507,
        )
