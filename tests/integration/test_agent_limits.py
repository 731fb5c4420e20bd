"""Limits of copies, with real processes: memory, devices, privileges, and leftovers."""

import asyncio
import os
import signal
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import httpx
import pytest
from tests.integration.agent_rig import (
    NoArtifacts,
    Rig,
    agent_command,
    ask,
    echo,
    instance,
    kill,
    rig,
    until,
    until_ready,
)
from tests.integration.echo_image import ECHO

from hostelry.base.guards import COPY_KEY_HEADER
from hostelry.domain.copy import CopyPhase, CopySpec, CopyStatus
from hostelry.domain.shape import Requirements, Shape
from hostelry.fleet.agent.agent import InstanceAgent
from hostelry.fleet.agent.deps import CopyDeps
from hostelry.fleet.agent.model_server import build_http_client
from hostelry.fleet.host.cgroups import CgroupParent, cgroup_parents
from hostelry.fleet.launch.launcher import ProcessLauncher
from hostelry.fleet.launch.limited_process import LimitRecord
from hostelry.fleet.local.fleet import LocalFleet
from hostelry.fleet.rules.limits import compute_limits
from hostelry.fleet.shapes import default_shape

pytestmark = pytest.mark.integration

MIB = 2**20
SMALL = Requirements(min_memory_bytes=32 * MIB, max_memory_bytes=96 * MIB, cpus=1.0)
# Where control groups cannot be made, only the watched way can be tried.
WAYS = [
    pytest.param([], id="watched by the agent"),
    pytest.param(cgroup_parents(), id="kept by the kernel where it can be"),
]


def deps(there: Rig, http: httpx.AsyncClient, places: Sequence[CgroupParent]) -> CopyDeps:
    return CopyDeps(
        images_file=there.home.images,
        artifacts=NoArtifacts(),
        launcher=ProcessLauncher(places),
        http=http,
        region="us-west-2",
        shape=default_shape(),
        operator_environment={"PATH": "/usr/bin"},
    )


def an_agent(
    there: Rig,
    http: httpx.AsyncClient,
    places: Sequence[CgroupParent] = (),
    shape: Shape | None = None,
) -> InstanceAgent:
    folder = there.folder()
    folder.root.mkdir(exist_ok=True)
    made = deps(there, http, places)
    return InstanceAgent("i-1", folder, replace(made, shape=shape or made.shape))


async def eat(status: CopyStatus, path: str) -> None:
    """Have the copy allocate memory. It may be killed before it answers."""
    try:
        await ask(status, path)
    except httpx.HTTPError:
        return


@pytest.mark.parametrize("places", WAYS)
@pytest.mark.parametrize("how", ["/eat?mb=200", "/feed?mb=200"])
async def test_only_the_copy_over_its_memory_dies_and_the_reason_names_it(
    tmp_path: Path, places: Sequence[CgroupParent], how: str
) -> None:
    left: list[str] = []
    with rig(tmp_path) as there:
        async with build_http_client() as http:
            agent = an_agent(there, http, places)
            await agent.start()
            await agent.apply([echo("hungry", requirements=SMALL), echo("other")])
            hungry, other = await until_ready(agent, "hungry"), await until_ready(agent, "other")
            assert hungry.memory_limit in ({"watched", "cgroup"} if places else {"watched"})
            assert other.memory_limit == ""
            eating = asyncio.create_task(eat(hungry, how))
            over = await until(agent, lambda it: bool(it["hungry"].reason))
            reason = over["hungry"].reason
            assert reason is not None
            assert "limit of 96 MB (MaxMemoryRequiredInMb" in reason
            assert "killed" in reason
            again = await until_ready(agent, "hungry")
            assert (again.restarts, again.pid != hungry.pid) == (1, True)
            assert await ask(other, "/model") == {}
            same = await until_ready(agent, "other")
            assert (same.pid, same.restarts) == (other.pid, 0)
            await eating
            groups = LimitRecord.load(there.folder().copy("hungry").root).groups
            await agent.stop()
            left.extend(groups)
    assert existing(left) == []


def existing(folders: list[str]) -> list[str]:
    return [it for it in folders if Path(it).exists()]


async def test_a_copy_that_needs_more_than_its_limit_to_start_fails_by_memory(
    tmp_path: Path,
) -> None:
    greedy = "import time; held = bytearray(b'x' * (200 << 20)); time.sleep(60)"
    with rig(tmp_path) as there:
        there.home.images.write_text(
            there.home.images.read_text().replace(f'"{ECHO}"', f'"-c", "{greedy}"')
        )
        async with build_http_client() as http:
            agent = an_agent(there, http)
            await agent.start()
            await agent.apply([echo("c-1", requirements=SMALL)])
            copies = await until(agent, lambda it: it["c-1"].phase is CopyPhase.FAILED)
            reason = copies["c-1"].reason
            assert reason is not None
            assert "CannotStartContainerError" in reason
            assert "limit of 96 MB (MaxMemoryRequiredInMb" in reason
            assert "; killed" in reason
            await agent.stop()


def written(folder: Path) -> list[str]:
    """The files in a copy's folder that are not the agent's."""
    return sorted(
        {it.name for it in folder.iterdir()} - {"copy.json", "limits.json", "log", "model"}
    )


async def test_only_the_copy_over_its_disk_budget_dies_and_the_cause_names_it(
    tmp_path: Path,
) -> None:
    with rig(tmp_path) as there:
        async with build_http_client() as http:
            agent = an_agent(there, http)
            await agent.start()
            small = {"HOSTELRY_MAX_DISK_MB": "8"}
            await agent.apply([echo("full", image="hostelry/drill", environment=small), echo("b")])
            full, other = await until_ready(agent, "full"), await until_ready(agent, "b")
            folder = there.folder().copy("full").root
            assert full.key is not None
            shown, url = {COPY_KEY_HEADER: full.key}, f"{full.address}/invocations"
            await http.post(url, content=b'{"write_bytes": 4000000}', headers=shown)
            assert written(folder) == ["drill-ballast"]
            await http.post(url, content=b'{"write_bytes": 8000000}', headers=shown)
            await until(agent, lambda it: it["full"].pid not in (None, full.pid))
            again = await until_ready(agent, "full")
            assert again.last_end is not None
            assert "over its disk budget of 8 MB; killed" in again.last_end.cause
            assert written(folder) == [], "the room is there again"
            assert (await until_ready(agent, "b")).pid == other.pid
            await agent.stop()


async def test_an_adopted_copy_is_still_held_to_its_memory(tmp_path: Path) -> None:
    with rig(tmp_path) as there:
        agent = await there.launch()
        await agent.apply([echo(requirements=SMALL)])
        before = await until_ready(agent)
        kill(there.agent_pid())
        agent = await there.launch()
        after = await until_ready(agent)
        assert (after.pid, after.memory_limit) == (before.pid, before.memory_limit)
        eating = asyncio.create_task(eat(after, "/eat?mb=200"))
        copies = await until(agent, lambda it: bool(it["c-1"].reason))
        assert "limit of 96 MB (MaxMemoryRequiredInMb" in str(copies["c-1"].reason)
        await eating


async def test_memory_is_reported_with_the_readiness_and_its_peak_stays(tmp_path: Path) -> None:
    with rig(tmp_path) as there:
        agent = await there.launch()
        await agent.apply([echo()])
        copies = await until(agent, lambda it: it["c-1"].memory_bytes > 0)
        status = copies["c-1"]
        assert status.phase is CopyPhase.READY
        assert 4 * MIB < status.memory_bytes <= status.peak_memory_bytes < 100 * MIB


async def test_a_copy_can_gain_no_privilege_and_dumps_no_core(tmp_path: Path) -> None:
    with rig(tmp_path) as there:
        agent = await there.launch()
        await agent.apply([echo(requirements=SMALL)])
        proc = Path(f"/proc/{(await until_ready(agent)).pid}")
        assert "NoNewPrivs:\t1" in (proc / "status").read_text()
        assert int((proc / "oom_score_adj").read_text()) >= 500
        limits = (proc / "limits").read_text()
        assert [it.split()[4:6] for it in limits.splitlines() if "core file" in it] == [["0", "0"]]
        agents = proc.with_name(str(there.agent_pid()))
        assert "NoNewPrivs:\t0" in (agents / "status").read_text()


async def test_copies_see_the_real_devices_of_their_instance_and_only_their_own(
    tmp_path: Path,
) -> None:
    def two_of(spec: CopySpec, *ids: int) -> CopySpec:
        return CopySpec(
            id=spec.id,
            owner=spec.owner,
            container=spec.container,
            requirements=Requirements(min_memory_bytes=MIB, accelerators=len(ids)),
            download_timeout_s=20.0,
            startup_timeout_s=30.0,
            device_ids=ids,
        )

    with rig(tmp_path) as there:
        command = agent_command(there.home)
        fleet = LocalFleet(there.home.instances, command, there.key, devices=["0", "1", "2"])
        for name in ("i-1", "i-2"):
            await fleet.launch(instance(name, "ml.g5.xlarge"))
        assert [there.folder(it).load_devices() for it in ("i-1", "i-2")] == [("0",), ("1",)]
        agent = await there.launch("i-2")
        await agent.apply([two_of(echo("one"), 0), two_of(echo("none"))])
        seen = [
            (await ask(await until_ready(agent, name), "/environment"))["CUDA_VISIBLE_DEVICES"]
            for name in ("one", "none")
        ]
        assert seen == ["1", ""]


def weight_of(there: Rig, copy_id: str) -> str | None:
    """The share of the CPUs of the copy's control group. None if the group has no share."""
    for group in map(Path, LimitRecord.load(there.folder().copy(copy_id).root).groups):
        for name in ("cpu.shares", "cpu.weight"):
            if (group / name).exists():
                return (group / name).read_text().strip()
    return None


@pytest.mark.parametrize("places", WAYS)
def test_threads_and_weights_are_what_was_decided(
    tmp_path: Path, places: Sequence[CgroupParent]
) -> None:
    shape = Shape(cpus=48, memory_bytes=2**34, accelerators=4)  # declared: more than is here
    asked = {
        "half": Requirements(min_memory_bytes=MIB, cpus=24),
        "gpu": Requirements(min_memory_bytes=MIB, accelerators=2),
        "none": Requirements(min_memory_bytes=MIB),
    }
    cpus = len(os.sched_getaffinity(0))
    decided = {name: compute_limits(it, shape, cpus, 24.0) for name, it in asked.items()}
    weights = {name: it.cpus for name, it in decided.items()}
    assert weights == {"half": 24, "gpu": 12, "none": 1}

    async def work() -> None:
        async with build_http_client() as http:
            agent = an_agent(there, http, places, shape)
            await agent.start()
            await agent.apply([echo(name, requirements=it) for name, it in asked.items()])
            for name, limits in decided.items():
                seen = await ask(await until_ready(agent, name), "/environment")
                assert seen["OMP_NUM_THREADS"] == str(limits.num_threads)
                assert seen["GOMP_SPINCOUNT"] == "5000"
                weight = weight_of(there, name)
                if any("cpu" in place.controllers for place in places):
                    assert weight in {f"{limits.cpus * per_cpu:.0f}" for per_cpu in (1024, 100)}
                else:
                    assert weight is None
            await agent.stop()

    with rig(tmp_path) as there:
        asyncio.run(work())


async def test_a_copy_that_is_killed_is_not_reported_as_out_of_memory(tmp_path: Path) -> None:
    with rig(tmp_path) as there:
        agent = await there.launch()
        await agent.apply([echo(requirements=SMALL)])
        status = await until_ready(agent)
        record = there.folder().copy("c-1").root / "limits.json"
        of_the_first = record.stat()
        kill(status.pid)
        copies = await until(agent, lambda it: bool(it["c-1"].reason))
        assert f"signal {signal.SIGKILL}" in str(copies["c-1"].reason)
        await until_ready(agent)
        assert record.stat().st_mtime_ns > of_the_first.st_mtime_ns, "limits are each process's own"
