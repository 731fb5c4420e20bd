"""A container with model routes and an object store, whose behaviour a test decides."""

import asyncio
from collections.abc import Callable, Collection
from pathlib import Path

from hostelry.base.clock import ManualClock
from hostelry.domain.model import ModelCacheSetting
from hostelry.fleet.agent.model_server import Answer
from hostelry.fleet.agent.models.target_models import TargetModels
from hostelry.fleet.agent.models.values import TargetModelDeps, TargetModelLimits
from hostelry.fleet.artifacts.protocol import (
    ArtifactCacheFullError,
    ArtifactError,
    ArtifactUnavailableError,
    Fetch,
)
from hostelry.placement.model_cache_values import ModelTier

MB = 1024 * 1024
LIMITS = TargetModelLimits(memory_bytes=100 * MB, disk_bytes=1000 * MB, wait_s=60.0)


class FakeContainer:
    """Loads models within `memory_mb`. Tests name their sizes. Answers 507 above the limit."""

    def __init__(self, clock: ManualClock, memory_mb: float = 1e9) -> None:
        self.clock = clock
        self.memory_mb = memory_mb
        self.sizes_mb: dict[str, float] = {}
        self.loaded: dict[str, float] = {}
        self.calls: list[str] = []
        self.answers: dict[str, Answer] = {}
        self.gates: dict[str, asyncio.Event] = {}
        self.reports = True
        self.took = asyncio.Event()
        self.most_mb = 0.0
        self.names: dict[str, str] = {}
        self.keeps_refused = False  # True: as AWS's multi-model-server does
        self.num_unnoticed = 0  # deletes of a refused model that have no effect yet
        self.refused: set[str] = set()
        self.unload_gates: dict[str, asyncio.Event] = {}
        self.silent: set[str] = set()  # models whose unloading gets no answer

    async def load(self, target: str, folder: Path, timeout_s: float) -> Answer:
        name = self.names[target] = folder.name
        self.calls.append(f"load {name}")
        if name in self.gates:
            await self.gates[name].wait()
        await self.clock.sleep(0.5)
        if name in self.answers:
            return self.answers[name]
        if name in self.loaded or name in self.refused:
            return Answer(status=409)
        size_mb = self.sizes_mb.get(name, 10)
        if sum(self.loaded.values()) + size_mb > self.memory_mb:
            if self.keeps_refused:
                self.refused.add(name)
            return Answer(status=507, fault="POST /models answered 507: no memory")
        self.loaded[name] = size_mb
        self.took.set()
        self.most_mb = max(self.most_mb, sum(self.loaded.values()))
        return Answer(status=200)

    async def unload(self, target: str) -> Answer:
        name = self.names.get(target, target)
        self.calls.append(f"unload {name}")
        if name in self.unload_gates:
            await self.unload_gates[name].wait()
        if name in self.silent:
            return Answer(fault="DELETE /models/ID did not answer within 60 s")
        await self.clock.sleep(0.01)
        if name in self.refused and self.num_unnoticed:
            self.num_unnoticed -= 1
            return Answer(status=404)
        self.refused.discard(name)
        return Answer(status=200 if self.loaded.pop(name, None) else 404)

    async def memory_bytes(self, target: str, files_bytes: int) -> int | None:
        return int(self.loaded[self.names[target]] * MB) if self.reports else None


class FakeFiles:
    """An object store and its cache. It can have `missing` objects, fail, or be full."""

    def __init__(self, folder: Path, clock: ManualClock) -> None:
        self.folder = folder
        self.clock = clock
        self.missing: set[str] = set()
        self.unavailable = 0
        self.capacity: int | None = None
        self.fetched: list[str] = []
        self.held: dict[str, str] = {}
        self.sizes_mb: dict[str, float] = {}
        self.versions: dict[str, int] = {}  # of replaced objects

    async def fetch(self, want: Fetch) -> Path:
        name = want.source.uri.rpartition("/")[2]
        folder = self.folder / str(self.versions.get(name, "")) / name
        if want.holder in self.held:
            return folder
        self.fetched.append(name)
        await self.clock.sleep(1.0)
        if name in self.missing:
            raise ArtifactError("NoSuchKey: it is not there")
        if self.unavailable:
            self.unavailable -= 1
            raise ArtifactUnavailableError("the store does not answer")
        if self.capacity is not None and len(self.held) >= self.capacity:
            raise ArtifactCacheFullError("it needs 10 bytes", 10)
        self.held[want.holder] = name
        folder.mkdir(exist_ok=True, parents=True)
        with (folder / "model").open("wb") as file:
            file.truncate(int(self.sizes_mb.get(name, 10) * MB))  # a sparse file takes no disk
        return folder

    def retain(self, copy_ids: Collection[str]) -> None:
        raise NotImplementedError

    def release(self, holder: str) -> None:
        self.held.pop(holder, None)


class Rig:
    """The models of one container, over the fakes."""

    def __init__(
        self,
        folder: Path,
        limits: TargetModelLimits = LIMITS,
        setting: ModelCacheSetting = ModelCacheSetting.ENABLED,
    ) -> None:
        self.clock = ManualClock(1000.0)
        self.container = FakeContainer(self.clock)
        self.files = FakeFiles(folder, self.clock)
        self.notes: list[str] = []
        note: Callable[[str], None] = self.notes.append
        deps = TargetModelDeps(
            routes=self.container, artifacts=self.files, clock=self.clock, note=note
        )
        self.models = TargetModels("c-1", "s3://b/p/", deps, limits, setting)

    def sizes(self, **megabytes: float) -> None:
        self.container.sizes_mb |= megabytes
        self.files.sizes_mb |= megabytes

    async def use(self, *names: str) -> list[bool]:
        """Send requests one after another. Returns whether each found its model loaded."""
        hits = []
        for name in names:
            use = await self.models.acquire(name)
            hits.append(use.hit)
            self.models.release(use)
            self.clock.advance(1.0)
        return hits

    def there(self, tier: ModelTier) -> set[str]:
        return {it.key for it in self.models.models if it.held_bytes(tier)}
