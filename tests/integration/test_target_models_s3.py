"""Models of a multi-model container from a real SeaweedFS through a real artifact cache."""

import asyncio
import os
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest
from tests.integration.agent_rig import ObjectStore, object_store
from tests.unit.base.tars import Member, targz

from hostelry.base.clock import MonotonicClock
from hostelry.fleet.agent.model_server import Answer
from hostelry.fleet.agent.models.target_models import TargetModels
from hostelry.fleet.agent.models.values import (
    TargetModelDeps,
    TargetModelError,
    TargetModelLimits,
)
from hostelry.fleet.artifacts.cache import ArtifactCache
from hostelry.fleet.artifacts.objects import S3Objects
from hostelry.fleet.artifacts.store import ArtifactStore
from hostelry.placement.model_cache_values import ModelTier

pytestmark = pytest.mark.integration

KB = 1024
SIZE = 100 * KB
HANGS_AFTER_S = 60.0


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObjectStore]:
    with object_store(tmp_path_factory.mktemp("s3")) as store:
        yield store


class ReadingContainer:
    """Loads a model by reading its file. Each model takes SIZE of memory."""

    def __init__(self) -> None:
        self.loaded: dict[str, bytes] = {}
        self.loads = 0

    async def load(self, target: str, folder: Path, timeout_s: float) -> Answer:
        self.loads += 1
        self.loaded[target] = (folder / "model").read_bytes()
        return Answer(status=200)

    async def unload(self, target: str) -> Answer:
        return Answer(status=200 if self.loaded.pop(target, None) else 404)

    async def memory_bytes(self, target: str, files_bytes: int) -> int | None:
        return SIZE


class Instance:
    """A container and its models, with limits on models in memory, on disk and in the cache."""

    def __init__(self, s3: ObjectStore, folder: Path, memory: int, disk: int, cache: int) -> None:
        self.container = ReadingContainer()
        self.store = ArtifactStore(
            S3Objects(s3.client), ArtifactCache(folder / "cache", cache * SIZE + SIZE // 2)
        )
        self.notes: list[str] = []
        self.models = TargetModels(
            "c-1",
            "s3://models/mme/",
            TargetModelDeps(
                routes=self.container,
                artifacts=self.store,
                clock=MonotonicClock(),
                note=self.notes.append,
            ),
            TargetModelLimits(
                memory_bytes=memory * SIZE, disk_bytes=disk * SIZE, failure_kept_s=0.0
            ),
        )

    async def asked(self, target: str) -> bytes:
        """The content of the model that answers a request."""
        use = await self.models.acquire(target)
        content = self.container.loaded[target]
        self.models.release(use)
        return content

    def play(self, acts: Callable[[], Awaitable[None]]) -> None:
        async def bounded() -> None:
            async with asyncio.timeout(HANGS_AFTER_S):
                await acts()
                await self.models.close()

        asyncio.run(bounded())
        self.store.close()


def put(s3: ObjectStore, target: str) -> bytes:
    content = os.urandom(SIZE)
    s3.put(f"mme/{target}", targz([Member(name="model", body=content)]))
    return content


def test_a_model_is_served_once_its_object_is_there_and_stays_through_its_end(
    s3: ObjectStore, tmp_path: Path
) -> None:
    instance = Instance(s3, tmp_path, memory=1, disk=2, cache=4)

    async def acts() -> None:
        with pytest.raises(TargetModelError, match=r"bucket: models, key: mme/late/a.tar.gz"):
            await instance.asked("late/a.tar.gz")
        first = put(s3, "late/a.tar.gz")
        assert await instance.asked("late/a.tar.gz") == first
        second = put(s3, "late/a.tar.gz")
        put(s3, "late/b.tar.gz")
        await instance.asked("late/b.tar.gz")  # "a" leaves the memory, not the disk
        assert await instance.asked("late/a.tar.gz") == first
        for name in "cdcdcd":  # "a" leaves the disk, too
            put(s3, f"late/{name}.tar.gz")
            await instance.asked(f"late/{name}.tar.gz")
        s3.client.delete_object(Bucket="models", Key="mme/late/c.tar.gz")
        assert await instance.asked("late/d.tar.gz")
        assert await instance.asked("late/a.tar.gz") == second

    instance.play(acts)


def test_a_broken_archive_fails_alone(s3: ObjectStore, tmp_path: Path) -> None:
    instance = Instance(s3, tmp_path, memory=4, disk=4, cache=8)

    async def acts() -> None:
        content = put(s3, "ok.tar.gz")
        s3.put("mme/broken.tar.gz", b"no archive")
        asked = [instance.asked(name) for name in ("ok.tar.gz", "broken.tar.gz", "ok.tar.gz")]
        first, broken, again = await asyncio.gather(*asked, return_exceptions=True)
        assert first == again == content
        assert isinstance(broken, TargetModelError)
        assert {it.key for it in instance.models.models if it.on_disk} == {"ok.tar.gz"}

    instance.play(acts)
    assert instance.container.loads == 1


def test_a_cache_smaller_than_the_disk_for_models_gives_up_models_and_serves_all(
    s3: ObjectStore, tmp_path: Path
) -> None:
    instance = Instance(s3, tmp_path, memory=2, disk=50, cache=4)

    async def acts() -> None:
        names = [f"many/{number}.tar.gz" for number in range(10)]
        contents = [put(s3, name) for name in names]
        for _ in range(2):
            assert await asyncio.gather(*(instance.asked(name) for name in names)) == contents
        assert sum(it.loaded for it in instance.models.models) <= 2
        disk = [it for it in instance.models.evictions if it.tier is ModelTier.DISK]
        assert any("disk is full" in it.reason for it in disk)

    instance.play(acts)
