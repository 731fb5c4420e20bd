"""The loaded models of a multi-model server, with the processes and the memory of each."""

import asyncio
import logging
import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Protocol

import msgspec

from hostelry.base.clock import Clock
from hostelry.containers.http.serving_app import RefusedRequestError
from hostelry.containers.predictive.metrics import PredictiveMetrics
from hostelry.containers.predictive.worker_process import (
    ModelLoadError,
    Prediction,
    PredictRequest,
    WorkerLostError,
)
from hostelry.containers.predictive.zygote_process import ZygoteError, ZygoteProcess

KIB = 1024
UNLOAD_LOOK_S = 0.02
WATCH_EVERY_S = 2.0
LOG = logging.getLogger(__name__)


class ModelProcesses(Protocol):
    """The processes of one model. Call `start`, then `invoke`, then `close`."""

    @property
    def pids(self) -> tuple[int, ...]:
        """The ids of the living processes."""
        ...

    @property
    def fault(self) -> str | None:
        """The reason why they do not serve. None while they serve."""
        ...

    @property
    def execution_parameters(self) -> dict[str, Any] | None:
        """The answer to GET /execution-parameters. None for 404."""
        ...

    async def start(self) -> None:
        """Load the model.

        Raises ModelLoadError, WorkerLostError, ZygoteError, RefusedRequestError.
        """
        ...

    async def invoke(self, asked: PredictRequest) -> Prediction:
        """Answer a request. Raises PoolBusyError, WorkerLostError, ModelLoadError."""
        ...

    async def close(self, reason: str = "the server ends") -> None:
        """End the processes. Waiting and later requests fail with the reason."""
        ...


def measure_memory(pids: Iterable[int]) -> int:
    """The memory of the processes (PSS): each gets its share of a shared page.

    A process that has ended counts 0.
    """
    return sum(measure_process(pid) for pid in pids)


def measure_process(pid: int) -> int:
    """The proportional set size (PSS) of a process. 0 once it has ended."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    for line in lines:
        if line.startswith("Pss:"):
            return int(line.split()[1]) * KIB
    return 0


def find_most_grown(
    limit_bytes: int | None, used_bytes: int, sizes: Iterable[tuple[str, int, int]]
) -> str | None:
    """The name of the model that has grown the most. None while the limit is kept. Pure.

    `sizes` has each model's name, its bytes after the load, and its bytes now.
    """
    if limit_bytes is None or used_bytes < limit_bytes:
        return None
    growth_bytes, name = max(
        ((now_bytes - loaded_bytes, name) for name, loaded_bytes, now_bytes in sizes),
        default=(0, ""),
    )
    return name if growth_bytes > 0 else None


def explain_overflow(limit_bytes: int | None, used_bytes: int, model_bytes: int = 0) -> str | None:
    """The reason why a model of `model_bytes` does not fit. None if it fits. Pure.

    `used_bytes` are in use already. Before a load the model's size is unknown (0).
    """
    if limit_bytes is None or used_bytes + model_bytes < limit_bytes:
        return None
    of_it = f", {model_bytes} of them by this model" if model_bytes else ""
    return (
        f"{used_bytes + model_bytes} bytes are in use{of_it}; the copy has {limit_bytes} "
        "(HOSTELRY_MEMORY_BYTES): unload a model first"
    )


class ModelInMemory(msgspec.Struct, eq=False):
    """A loaded model, with its memory after the load and at the last measurement.

    `target` is the TargetModel that the load named, or empty.
    """

    name: str
    url: str
    pool: ModelProcesses
    target: str = ""
    loaded_bytes: int = 0
    memory_bytes: int = 0
    in_flight: int = 0
    has_served: bool = False


class ModelTable:
    """The loaded models by name. `build_pool` makes the processes of a model's folder.

    `zygote` is the process that all models share, or None.
    """

    def __init__(
        self,
        zygote: ZygoteProcess | None,
        build_pool: Callable[[Path], ModelProcesses],
        limit_bytes: int | None,
        clock: Clock,
        metrics: PredictiveMetrics,
    ) -> None:
        self._zygote = zygote
        self._build_pool = build_pool
        self._limit_bytes = limit_bytes
        self._clock = clock
        self._metrics = metrics
        self._models: dict[str, ModelInMemory] = {}
        self.is_ready = False
        self._loading: dict[str, asyncio.Task[ModelInMemory]] = {}
        self._watching: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Accept loads."""
        self.is_ready = True
        if self._limit_bytes is not None:
            self._watching = asyncio.create_task(self._watch(), name="memory of models")

    async def close(self) -> None:
        """End every model's processes."""
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.gather(self._watching, return_exceptions=True)
        for task in self._loading.values():
            task.cancel()
        await asyncio.gather(*self._loading.values(), return_exceptions=True)
        await asyncio.gather(*(model.pool.close() for model in self._models.values()))

    @property
    def pids(self) -> tuple[int, ...]:
        """The process ids of all models."""
        return tuple(pid for model in self._models.values() for pid in model.pool.pids)

    @property
    def models(self) -> tuple[ModelInMemory, ...]:
        """The loaded models."""
        return tuple(self._models.values())

    async def load(self, name: str, url: str, target: str = "") -> ModelInMemory:
        """Load the model of a folder. Raises RefusedRequestError with 400, 404, 409 or 507."""
        while (loading := self._loading.get(name)) is not None:
            await asyncio.wait({loading})
            if not loading.cancelled():
                loading.result()
        if name in self._models:
            raise RefusedRequestError(f"model {name} is already loaded", 409)
        if not is_folder(url):
            reason = f"the url of model {name} is no folder here: {url[:200]}"
            raise RefusedRequestError(reason, 404)
        task = asyncio.create_task(self._load(name, url, target), name=f"load {name}")
        self._loading[name] = task
        task.add_done_callback(lambda _: self._loading.pop(name, None))
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if not task.cancelled():
                raise
            raise RefusedRequestError(f"model {name} was unloaded while it loaded", 409) from None

    def get(self, name: str) -> ModelInMemory:
        """The model. Raises RefusedRequestError with 404 if it is not loaded."""
        if name not in self._models:
            raise RefusedRequestError(f"model {name} is not loaded", 404)
        return self._models[name]

    def page(self, limit: int, after: str) -> tuple[Sequence[ModelInMemory], str | None]:
        """At most `limit` models in order of name after `after`, and the next page's token."""
        names = sorted(name for name in self._models if name > after)
        found = [self._models[name] for name in names[:limit]]
        return found, (found[-1].name if len(names) > limit else None)

    async def invoke(self, name: str, asked: PredictRequest) -> Prediction:
        """The model's answer. Raises RefusedRequestError, also PoolBusyError, WorkerLostError."""
        model = self.get(name)
        model.in_flight += 1
        try:
            return await model.pool.invoke(asked)
        finally:
            model.in_flight -= 1
            model.has_served = True

    async def unload(self, name: str, limit_s: float) -> None:
        """Unload the model, and return once its memory is free.

        Requests in flight get at most `limit_s` to end. Raises RefusedRequestError with 404.
        """
        loading = self._loading.get(name)
        if loading is not None:
            loading.cancel()
            await asyncio.gather(loading, return_exceptions=True)
            if name not in self._models:
                return
        model = self.get(name)
        del self._models[name]
        deadline = self._clock.now() + limit_s
        while model.in_flight and self._clock.now() < deadline:
            await self._clock.sleep(UNLOAD_LOOK_S)
        await self._end(model.pool)
        self._metrics.count_models(len(self._models))

    async def _watch(self) -> None:
        """End the model that has grown the most whenever all models exceed the limit."""
        while True:
            await self._clock.sleep(WATCH_EVERY_S)
            if not self._stale:
                continue
            used_bytes = await self._used_bytes()
            sizes = [(it.name, it.loaded_bytes, it.memory_bytes) for it in self._models.values()]
            name = find_most_grown(self._limit_bytes, used_bytes, sizes)
            if name is not None:
                await self._end_grown(self._models.pop(name), used_bytes)

    async def _end_grown(self, model: ModelInMemory, used_bytes: int) -> None:
        reason = (
            f"model {model.name} was ended: it grew from {model.loaded_bytes} to "
            f"{model.memory_bytes} bytes, and {used_bytes} bytes are in use; the copy has "
            f"{self._limit_bytes} (HOSTELRY_MEMORY_BYTES)"
        )
        LOG.warning("%s", reason)
        self._metrics.count_models(len(self._models))
        await self._end(model.pool, reason)

    @property
    def _stale(self) -> list[ModelInMemory]:
        """The models whose memory may have changed since the last measurement."""
        return [model for model in self._models.values() if model.has_served or model.in_flight]

    async def _end(self, pool: ModelProcesses, reason: str = "the model is unloaded") -> None:
        pids = pool.pids
        await pool.close(reason)
        if self._zygote is not None:
            await asyncio.gather(*(self._zygote.exit_code(pid) for pid in pids))

    async def _load(self, name: str, url: str, target: str) -> ModelInMemory:
        began = self._clock.now()
        self._refuse_without_room(await self._used_bytes())
        pool = self._build_pool(Path(url))
        model = ModelInMemory(name=name, url=url, pool=pool, target=target)
        try:
            await model.pool.start()
            model.loaded_bytes = model.memory_bytes = await measure(model.pool.pids)
            self._refuse_without_room(await self._used_bytes(), model.memory_bytes)
        except (ModelLoadError, WorkerLostError) as error:
            await self._end(model.pool)
            raise RefusedRequestError(f"model {name} cannot be loaded: {error}", 400) from error
        except (RefusedRequestError, ZygoteError, asyncio.CancelledError):
            await self._end(model.pool)
            raise
        self._models[name] = model
        self._metrics.count_models(len(self._models))
        self._metrics.count_load(self._clock.now() - began)
        return model

    async def _used_bytes(self) -> int:
        """The memory of the front, the zygote and every model. Measures models that served."""
        for model in self._stale:
            model.has_served = False
            model.memory_bytes = await measure(model.pool.pids)
        own = await measure((os.getpid(), 0 if self._zygote is None else self._zygote.pid))
        return own + sum(model.memory_bytes for model in self._models.values())

    def _refuse_without_room(self, used_bytes: int, model_bytes: int = 0) -> None:
        reason = explain_overflow(self._limit_bytes, used_bytes, model_bytes)
        if reason is not None:
            raise RefusedRequestError(reason, 507)


def is_folder(url: str) -> bool:
    """True if the URL is the path of a folder on this machine."""
    return url.startswith("/") and os.path.isdir(url)


async def measure(pids: Sequence[int]) -> int:
    """The memory of the processes, measured in a thread."""
    return await asyncio.to_thread(measure_memory, pids)
