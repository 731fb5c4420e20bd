"""Memory of accelerators as a model's archive declares it, and evictions for it."""

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from msgspec.structs import replace
from tests.cases import case, cases
from tests.unit.fleet.agent.models.multi_model_fakes import LIMITS, MB, Rig

from hostelry.base.errors import TerminalError
from hostelry.domain.shape import Shape
from hostelry.fleet.agent.models.copy_models import compute_model_limits
from hostelry.fleet.agent.models.loading import accelerator_bytes
from hostelry.fleet.agent.models.values import TargetModelLoadError
from hostelry.placement.model_cache_values import ModelTier


@pytest.mark.parametrize("declared_bytes", [100 * MB, 1 << 60], ids=["declared", "the machine's"])
def test_models_beside_other_containers_have_a_part_of_the_memory(
    tmp_path: Path, declared_bytes: int
) -> None:
    shape = Shape(cpus=2, memory_bytes=declared_bytes)
    alone, of_three = (compute_model_limits(shape, tmp_path, {}, number) for number in (1, 3))
    assert 0 < alone.memory_bytes <= 0.9 * declared_bytes
    assert of_three.memory_bytes == pytest.approx(alone.memory_bytes / 3, abs=1)


@cases(
    "content, expected_mb",
    case("without a file the container's word counts", None, 7),
    case("as with an empty one", b"{}", 7),
    case("its own word comes first", b'{"accelerator_memory_mb": 512}', 512),
    case("a model that takes none", b'{"accelerator_memory_mb": 0}', 0),
)
def test_a_models_declaration(tmp_path: Path, content: bytes | None, expected_mb: int) -> None:
    if content is not None:
        (tmp_path / "hostelry.json").write_bytes(content)
    assert accelerator_bytes(tmp_path, 7 * MB) == expected_mb * MB


def link(file: Path) -> None:
    file.symlink_to("/etc/passwd")


@cases(
    "made, message",
    case("no JSON", lambda it: it.write_bytes(b"{"), "truncated"),
    case("a wrong name", lambda it: it.write_bytes(b'{"accelerator_memory": 1}'), "unknown field"),
    case("less than nothing", lambda it: it.write_bytes(b'{"accelerator_memory_mb": -1}'), ">= 0"),
    case("a text", lambda it: it.write_bytes(b'{"accelerator_memory_mb": "1"}'), "int"),
    case("a huge one", lambda it: it.write_bytes(b" " * 70_000), "more than 65536"),
    case("a link", link, "cannot be read"),
    case("a folder", lambda it: it.mkdir(), "cannot be read"),
    case("a pipe that no process writes", os.mkfifo, "truncated"),
)  # fmt: skip
def test_a_wrong_declaration_is_refused_with_its_fault(
    tmp_path: Path, made: Callable[[Path], object], message: str
) -> None:
    made(tmp_path / "hostelry.json")
    with pytest.raises(TerminalError, match=message):
        accelerator_bytes(tmp_path, 0)


@asynccontextmanager
async def played(rig: Rig) -> AsyncIterator[None]:
    async with asyncio.timeout(20.0):
        yield
        await rig.models.close()


def rig_with(folder: Path, capacity_mb: int | None, model_mb: int) -> Rig:
    capacity_bytes = None if capacity_mb is None else capacity_mb * MB
    return Rig(
        folder,
        replace(LIMITS, accelerator_bytes=capacity_bytes, model_accelerator_bytes=model_mb * MB),
    )


async def test_models_share_an_accelerator_by_what_they_declare(tmp_path: Path) -> None:
    rig = rig_with(tmp_path, 1000, 400)
    async with played(rig):
        rig.sizes(a=1, b=1, c=1, d=1)
        assert await rig.use("a", "b") == [False, False]
        assert await rig.use("b", "c") == [True, False]
        assert sorted(rig.container.loaded) == ["b", "c"], "a third does not fit"
        (gone,) = rig.models.evictions
        assert (gone.key, gone.tier, gone.freed_bytes) == ("a", ModelTier.ACCELERATOR, 400 * MB)
        assert "c needs 400" in gone.reason
        (tmp_path / "d").mkdir()
        (tmp_path / "d" / "hostelry.json").write_text('{"accelerator_memory_mb": 200}')
        await rig.use("d")
        assert sorted(rig.container.loaded) == ["b", "c", "d"], "a small one does"


async def test_a_model_larger_than_the_accelerator_is_refused_alone(tmp_path: Path) -> None:
    rig = rig_with(tmp_path, 1000, 400)
    async with played(rig):
        await rig.use("a")
        (tmp_path / "huge").mkdir()
        (tmp_path / "huge" / "hostelry.json").write_text('{"accelerator_memory_mb": 2000}')
        with pytest.raises(TargetModelLoadError, match="accelerator for models has") as caught:
            await rig.use("huge")
        assert caught.value.status == 507
        (tmp_path / "odd").mkdir()
        (tmp_path / "odd" / "hostelry.json").write_text("x")
        with pytest.raises(TargetModelLoadError, match=r"hostelry\.json of the model") as caught:
            await rig.use("odd")
        assert caught.value.status == 400
        assert await rig.use("a") == [True]
        assert sorted(rig.container.loaded) == ["a"]


async def test_nothing_is_counted_where_the_container_declares_nothing(tmp_path: Path) -> None:
    rig = rig_with(tmp_path, None, 0)
    async with played(rig):
        (tmp_path / "a").mkdir()
        (tmp_path / "a" / "hostelry.json").write_text("x")
        assert await rig.use("a") == [False]
        assert all(it.accelerator_bytes == 0 for it in rig.models.models)
