"""The loaded models of a multi-model server: a forked process, or a few, for each."""

import asyncio
import logging
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from hostelry.base.clock import Clock
from hostelry.base.errors import HostelryError
from hostelry.containers.predictive.memory import grown_most, no_room, proportional_bytes
from hostelry.containers.predictive.metrics import PredictiveMetrics
from hostelry.containers.predictive.model_processes import ModelProcesses, SharedProcess
from hostelry.containers.predictive.worker_process import (
    Answered,
    Asked,
    ModelLoadError,
    WorkerLostError,
)
from hostelry.containers.predictive.zygote_process import ZygoteError

UNLOAD_LOOK_S = 0.02
WATCH_EVERY_S = 2.0

log = logging.getLogger(__name__)


class ModelRefusedError(HostelryError):
    """A model cannot be had; `status` is the contract's."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


@dataclass(slots=True, eq=False)
class ModelInMemory:
    """A model in memory: its bytes when it was loaded, and when they were measured last.

    `target` is its TargetModel, where the load named one.
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
    """Load, use and unload models by their names. `pool_of` makes the processes of a folder."""

    def __init__(
        self,
        zygote: SharedProcess,
        pool_of: Callable[[Path], ModelProcesses],
        limit_bytes: int | None,
        clock: Clock,
        metrics: PredictiveMetrics,
    ) -> None:
        self._zygote = zygote
        self._pool_of = pool_of
        self._limit_bytes = limit_bytes
        self._clock = clock
        self._metrics = metrics
        self._models: dict[str, ModelInMemory] = {}
        self.is_ready = False
        self._loading: dict[str, asyncio.Task[ModelInMemory]] = {}
        self._watching: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Take orders; nothing is loaded before it is asked for."""
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
        """All that are loaded."""
        return tuple(self._models.values())

    async def load(self, name: str, url: str, target: str = "") -> ModelInMemory:
        """Load the model of a folder. Raises ModelRefusedError: 409, 507, 404, 400."""
        while (loading := self._loading.get(name)) is not None:
            await asyncio.wait({loading})
            if not loading.cancelled():
                loading.result()
        if name in self._models:
            raise ModelRefusedError(409, f"model {name} is already loaded")
        if not is_folder(url):
            raise ModelRefusedError(404, f"the url of model {name} is no folder here: {url[:200]}")
        task = asyncio.create_task(self._loaded(name, url, target), name=f"load {name}")
        self._loading[name] = task
        task.add_done_callback(lambda _: self._loading.pop(name, None))
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if not task.cancelled():
                raise
            raise ModelRefusedError(409, f"model {name} was unloaded while it loaded") from None

    def get(self, name: str) -> ModelInMemory:
        """The model. Raises ModelRefusedError (404) where it is not loaded."""
        if name not in self._models:
            raise ModelRefusedError(404, f"model {name} is not loaded")
        return self._models[name]

    def page(self, limit: int, after: str) -> tuple[Sequence[ModelInMemory], str | None]:
        """At most `limit` models by name, after the name `after`, and the next page's token."""
        names = sorted(name for name in self._models if name > after)
        found = [self._models[name] for name in names[:limit]]
        return found, (found[-1].name if len(names) > limit else None)

    async def invoke(self, name: str, asked: Asked) -> Answered:
        """The model's answer. Raises ModelRefusedError (404), PoolBusyError, WorkerLostError."""
        model = self.get(name)
        model.in_flight += 1
        try:
            return await model.pool.invoke(asked)
        finally:
            model.in_flight -= 1
            model.has_served = True

    async def unload(self, name: str, limit_s: float) -> None:
        """Unload the model; its memory is free on return. Raises ModelRefusedError (404).

        Requests that it has may end, for at most `limit_s`.
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
        await self._ended(model.pool)
        self._metrics.models(len(self._models))

    async def _watch(self) -> None:
        """End the model that has grown the most whenever all together exceed the limit."""
        while True:
            await self._clock.sleep(WATCH_EVERY_S)
            if not self._stale:
                continue
            used_bytes = await self._used_bytes()
            sizes = [(it.name, it.loaded_bytes, it.memory_bytes) for it in self._models.values()]
            name = grown_most(self._limit_bytes, used_bytes, sizes)
            if name is not None:
                await self._end_grown(self._models.pop(name), used_bytes)

    async def _end_grown(self, model: ModelInMemory, used_bytes: int) -> None:
        reason = (
            f"model {model.name} was ended: it grew from {model.loaded_bytes} to "
            f"{model.memory_bytes} bytes, and {used_bytes} bytes are in use; the copy has "
            f"{self._limit_bytes} (HOSTELRY_MEMORY_BYTES)"
        )
        log.warning("%s", reason)
        self._metrics.models(len(self._models))
        await self._ended(model.pool, reason)

    @property
    def _stale(self) -> list[ModelInMemory]:
        """The models whose memory may have changed since it was measured."""
        return [model for model in self._models.values() if model.has_served or model.in_flight]

    async def _ended(self, pool: ModelProcesses, reason: str = "the model is unloaded") -> None:
        pids = pool.pids
        await pool.close(reason)
        await asyncio.gather(*(self._zygote.exit_code(pid) for pid in pids))

    async def _loaded(self, name: str, url: str, target: str) -> ModelInMemory:
        began = self._clock.now()
        self._refuse_without_room(await self._used_bytes())
        pool = self._pool_of(Path(url))
        model = ModelInMemory(name=name, url=url, pool=pool, target=target)
        try:
            await model.pool.start()
            model.loaded_bytes = model.memory_bytes = await measured(model.pool.pids)
            self._refuse_without_room(await self._used_bytes(), model.memory_bytes)
        except (ModelLoadError, WorkerLostError) as error:
            await self._ended(model.pool)
            raise ModelRefusedError(400, f"model {name} cannot be loaded: {error}") from error
        except (ModelRefusedError, ZygoteError, asyncio.CancelledError):
            await self._ended(model.pool)
            raise
        self._models[name] = model
        self._metrics.models(len(self._models))
        self._metrics.model_loaded(self._clock.now() - began)
        return model

    async def _used_bytes(self) -> int:
        """The memory of the front, the zygote and every model; those that served are measured."""
        for model in self._stale:
            model.has_served = False
            model.memory_bytes = await measured(model.pool.pids)
        own = await measured((os.getpid(), self._zygote.pid))
        return own + sum(model.memory_bytes for model in self._models.values())

    def _refuse_without_room(self, used_bytes: int, model_bytes: int = 0) -> None:
        reason = no_room(self._limit_bytes, used_bytes, model_bytes)
        if reason is not None:
            raise ModelRefusedError(507, reason)


def is_folder(url: str) -> bool:
    """Whether it is the path of a folder here."""
    return url.startswith("/") and os.path.isdir(url)


async def measured(pids: Sequence[int]) -> int:
    """The memory of these processes."""
    return await asyncio.to_thread(proportional_bytes, pids)
