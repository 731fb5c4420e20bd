"""Servers that do not answer an unload, models that never fit, names that others make up."""

import asyncio
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from msgspec.structs import replace
from tests.cases import case, cases
from tests.unit.fleet.agent.models.multi_model_fakes import LIMITS, MB, Rig

from hostelry.fleet.agent.models.values import (
    TargetModelError,
    TargetModelLoadError,
    TargetModelTooLargeError,
)
from hostelry.placement.model_cache_values import ModelTier

MEMORY, DISK = ModelTier.MEMORY, ModelTier.DISK
HANGS_AFTER_S = 100.0  # of real time: a test that waits for ever fails


@asynccontextmanager
async def played(rig: Rig) -> AsyncIterator[None]:
    async with asyncio.timeout(HANGS_AFTER_S):
        yield
        await rig.models.close()


async def settled() -> None:
    for _ in range(50):
        await asyncio.sleep(0)


def impatient(folder: Path) -> Rig:
    """Models whose memory is not waited for."""
    rig = Rig(folder, replace(LIMITS, unload_wait_s=0.0))
    rig.sizes(a=60, b=60, c=30)
    return rig


async def test_an_unload_that_hangs_holds_up_no_other_model_and_ends_with_the_copy(
    tmp_path: Path,
) -> None:
    rig = impatient(tmp_path)
    async with played(rig):
        rig.container.unload_gates["a"] = asyncio.Event()
        assert await rig.use("a", "b", "c", "b", "c") == [False, False, False, True, True]
        assert rig.there(MEMORY) == {"b", "c"}, "its bytes count as free"
    assert sorted(rig.container.calls) == ["load a", "load b", "load c", "unload a"]


async def test_each_unload_is_waited_for_from_its_own_begin(tmp_path: Path) -> None:
    rig = Rig(tmp_path, replace(LIMITS, unload_wait_s=0.05))
    rig.sizes(a=60, b=60, c=60)
    async with played(rig):
        gate = rig.container.unload_gates["b"] = asyncio.Event()
        rig.container.unload_gates["a"] = asyncio.Event()  # never
        await rig.use("a", "b")
        asyncio.get_running_loop().call_soon(gate.set)
        await rig.use("c")
        calls = rig.container.calls
        assert calls.index("load b") > calls.index("unload a")
        assert set(rig.container.loaded) == {"a", "c"}, "b had gone before c came"


async def test_a_model_whose_unload_had_no_answer_is_named_and_unloaded_again_before_its_load(
    tmp_path: Path,
) -> None:
    rig = impatient(tmp_path)
    async with played(rig):
        rig.container.silent.add("a")
        await rig.use("a", "b")
        await settled()
        assert rig.models.stuck == {"a": "DELETE /models/ID did not answer within 60 s"}
        with pytest.raises(TargetModelLoadError, match="has not unloaded what it had of it before"):
            await rig.models.acquire("a")
        assert await rig.use("b") == [True]
        rig.container.silent.clear()
        rig.clock.advance(10.0)
        assert await rig.use("a") == [False]
        assert rig.models.stuck == {}
    calls = [call for call in rig.container.calls if call.endswith(" a")]
    assert calls == ["load a", "unload a", "unload a", "unload a", "load a"]
    assert any("a was not unloaded: DELETE" in note for note in rig.notes)


async def test_a_server_that_starts_again_has_no_stuck_model(tmp_path: Path) -> None:
    rig = impatient(tmp_path)
    async with played(rig):
        rig.container.silent.add("a")
        await rig.use("a", "b")
        await settled()
        rig.container.loaded.clear()
        rig.models.on_restart()
        assert rig.models.stuck == {}
        assert await rig.use("a") == [False]
        rig.models.on_restart(["old"], "it hangs")
        assert rig.models.stuck == {"old": "it hangs"}
    assert rig.notes[-1] == "old may be in the server still: it hangs"


def refused(rig: Rig, name: str) -> Awaitable[None]:
    async def ask() -> None:
        with pytest.raises(TargetModelTooLargeError) as caught:
            await rig.models.acquire(name)
        assert caught.value.status == 507
        rig.clock.advance(400.0)  # a failure answers further requests for 300 s at most

    return ask()


@cases(
    "container_mb, big_mb",
    case("by its measured memory", 1e9, 150),
    case("by the container alone", 120, 130),
)
async def test_no_other_model_leaves_again_for_one_that_did_not_fit(
    tmp_path: Path, container_mb: float, big_mb: float
) -> None:
    rig = Rig(tmp_path)
    rig.sizes(a=40, b=40)
    rig.container.memory_mb = container_mb
    rig.container.sizes_mb["big"] = big_mb
    rig.files.sizes_mb["big"] = 90
    async with played(rig):
        await rig.use("a", "b")
        await refused(rig, "big")
        await rig.use("a", "b")
        loads = rig.container.calls.count("load big")
        await refused(rig, "big")
        await refused(rig, "big")
        assert await rig.use("a", "b") == [True, True]
        assert rig.container.calls.count("load big") == loads
        assert rig.there(DISK) == {"a", "b"}


@pytest.mark.parametrize(
    "again", ["its object is replaced", "an hour has passed", "the server starts again"]
)
async def test_a_model_that_did_not_fit_is_tried_again_once(tmp_path: Path, again: str) -> None:
    rig = Rig(tmp_path)
    async with played(rig):
        rig.sizes(big=150)
        await refused(rig, "big")
        rig.sizes(big=50)
        await refused(rig, "big")
        if "object" in again:
            rig.files.versions["big"] = 2
        elif "hour" in again:
            rig.clock.advance(3600.0)
        else:
            rig.models.on_restart()
        assert await rig.use("big", "big") == [False, True]


async def test_no_model_leaves_the_accelerator_for_one_that_memory_has_no_room_for(
    tmp_path: Path,
) -> None:
    limits = replace(LIMITS, accelerator_bytes=60 * MB, model_accelerator_bytes=30 * MB)
    rig = Rig(tmp_path, limits)
    async with played(rig):
        rig.sizes(big=90, pinned=80, a=5)
        await rig.use("big")
        rig.models.pin(["pinned"])
        await rig.use("pinned", "a")
        await refused(rig, "big")
        assert rig.there(ModelTier.ACCELERATOR) == {"pinned", "a"}


async def test_a_model_that_is_about_to_be_loaded_is_not_forgotten_for_names_that_are_made_up(
    tmp_path: Path,
) -> None:
    rig = Rig(tmp_path, replace(LIMITS, num_known=20))
    async with played(rig):
        rig.files.missing |= {f"m{number}" for number in range(200)}
        made_up = [rig.models.acquire(f"m{number}") for number in range(200)]
        found, *others = await asyncio.gather(
            rig.models.acquire("a"), *made_up, return_exceptions=True
        )
        assert all(isinstance(it, TargetModelError) for it in others)
        assert rig.there(MEMORY) == {"a"} == set(rig.container.loaded)
        assert not isinstance(found, BaseException)
        rig.models.release(found)
        assert [it.in_flight for it in rig.models.models if it.key == "a"] == [0]
        await rig.use("a")
        assert len(rig.models.models) <= 23


async def test_the_failure_of_a_model_outlives_a_few_names_that_are_made_up(tmp_path: Path) -> None:
    rig = Rig(tmp_path, replace(LIMITS, num_known=20, failure_kept_s=1e9))
    async with played(rig):
        rig.files.missing |= {f"m{number}" for number in range(50)}
        for number in range(50):
            with pytest.raises(TargetModelError):
                await rig.models.acquire(f"m{number}")
        fetched = len(rig.files.fetched)
        for number in (49, 48, 40, 31):
            with pytest.raises(TargetModelError):
                await rig.models.acquire(f"m{number}")
        assert len(rig.files.fetched) == fetched, "the last ones are known"
        with pytest.raises(TargetModelError):
            await rig.models.acquire("m0")
        assert len(rig.files.fetched) == fetched + 1, "and no more of them"
