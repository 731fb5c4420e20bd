"""Agents die, hang or lie, and copies hang. Other copies continue, and desired copies start."""

import asyncio
import dataclasses
import fcntl
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import httpx
import msgspec
import pytest
from msgspec.structs import replace
from tests.integration.agent_rig import (
    NoArtifacts,
    Rig,
    echo,
    instance,
    kill,
    rig,
    until,
    until_gone,
    until_ready,
)

from hostelry.base.errors import RetryableError
from hostelry.domain.copy import CopyPhase, CopyStatus
from hostelry.fleet.agent.agent import InstanceAgent
from hostelry.fleet.agent.deps import CopyDeps
from hostelry.fleet.agent.lifecycle import CopyPolicy
from hostelry.fleet.agent.model_server import build_http_client
from hostelry.fleet.host.processes import identify, own_identity
from hostelry.fleet.launch.launcher import ProcessLauncher
from hostelry.fleet.local.client import HttpAgent
from hostelry.fleet.local.fleet import stop_everything
from hostelry.fleet.records import ENDED_LOGS, AgentRecord
from hostelry.fleet.shapes import default_shape

pytestmark = pytest.mark.integration


async def test_a_killed_agents_copies_go_on_and_are_adopted(tmp_path: Path) -> None:
    with rig(tmp_path) as there:
        agent = await there.launch()
        await agent.apply([echo("a"), echo("b")])
        before = [await until_ready(agent, name) for name in ("a", "b")]
        first_agent = there.agent_pid()
        kill(first_agent)
        await until_gone(first_agent)
        assert list(await there.fleet.list()) == []
        with pytest.raises(RetryableError):
            await agent.observe()
        agent = await there.launch()
        assert there.agent_pid() != first_agent
        observation = await agent.observe()
        assert [it.phase for it in observation.copies] == [CopyPhase.READY] * 2, "proven at once"
        assert [it.pid for it in observation.copies] == [it.pid for it in before]
        assert [it.restarts for it in observation.copies] == [0, 0]
        kill(before[0].pid)
        await until(agent, lambda it: it["a"].pid not in (None, before[0].pid))
        after = await until_ready(agent, "a")
        assert after.restarts == 1, "an adopted copy's death is noticed"
        kill(there.agent_pid())
        agent = await there.launch()
        assert (await until_ready(agent, "a")).last_end == after.last_end, "its successor knows"


async def test_a_copy_that_died_with_its_agent_is_started_by_the_next(tmp_path: Path) -> None:
    with rig(tmp_path) as there:
        agent = await there.launch()
        await agent.apply([echo()])
        before = await until_ready(agent)
        kill(there.agent_pid())
        kill(before.pid)
        await until_gone(before.pid or 0)
        after = await until_ready(await there.launch())
        assert after.pid != before.pid
        assert after.last_end is not None
        assert "no agent watched" in after.last_end.cause


async def test_desired_copies_that_were_acknowledged_survive_the_agent(tmp_path: Path) -> None:
    with rig(tmp_path) as there:
        agent = await there.launch()
        await agent.apply([echo("a"), echo("b")])
        kill(there.agent_pid())
        agent = await there.launch()
        assert {it.id for it in (await agent.observe()).copies} == {"a", "b"}
        await until_ready(agent, "a")
        await until_ready(agent, "b")


async def test_copies_that_are_not_desired_any_more_are_ended_by_the_next_agent(
    tmp_path: Path,
) -> None:
    with rig(tmp_path) as there:
        agent = await there.launch()
        await agent.apply([echo("a", "fork")])
        status = await until_ready(agent, "a")
        child = int((there.folder().copy("a").root / "child.pid").read_text())
        kill(there.agent_pid())
        there.folder().save_desired(())
        agent = await there.launch()
        await until(agent, lambda it: it == {})
        assert (identify(status.pid or 0), identify(child)) == (None, None)
        assert not there.folder().copy("a").root.exists()


async def test_copies_run_on_until_desired_copies_can_be_read_again(
    tmp_path: Path,
) -> None:
    with rig(tmp_path) as there:
        agent = await there.launch()
        await agent.apply([echo("a"), echo("b")])
        before = [await until_ready(agent, name) for name in ("a", "b")]
        kill(there.agent_pid())
        there.folder().desired.write_text("{")
        agent = await there.launch()
        assert (await agent.observe()).copies == ()
        await agent.apply([echo("a")])
        assert (await until_ready(agent, "a")).pid == before[0].pid
        await until_gone(before[1].pid or 0)


async def test_a_hung_agent_is_replaced_and_its_copies_stay(tmp_path: Path) -> None:
    async def address() -> str:
        record = there.folder().load_agent()
        assert record is not None
        return record.address

    with rig(tmp_path) as there:
        agent = await there.launch()
        await agent.apply([echo()])
        before = await until_ready(agent)
        hung = there.agent_pid()
        kill(hung, signal.SIGSTOP)
        quick = HttpAgent((await address()), there.key, call_timeout_s=0.3)
        with pytest.raises(RetryableError):
            await quick.observe()
        await there.impatient_fleet().launch(instance("i-1"))
        assert (await until_ready(await there.launch())).pid == before.pid
        assert identify(hung) is None


async def test_a_killed_agent_that_the_kernel_still_holds_is_waited_for(tmp_path: Path) -> None:
    with rig(tmp_path) as there:
        agent = await there.launch()
        await agent.apply([echo()])
        before = await until_ready(agent)
        kill(there.agent_pid())
        await until_gone(there.agent_pid())
        with there.folder().lock.open("w") as lock:  # as its threads in a slow disk write would
            fcntl.flock(lock, fcntl.LOCK_EX)
            with pytest.raises(RetryableError, match=r"i-1 still holds .*agent\.lock"):
                await there.impatient_fleet().launch(instance("i-1"))
            launching = asyncio.create_task(there.launch())
            await asyncio.sleep(0.2)
            assert not launching.done()
        assert (await until_ready(await launching)).pid == before.pid


async def test_terminating_with_a_dead_or_hung_agent_leaves_nothing(tmp_path: Path) -> None:
    with rig(tmp_path) as there:
        pids = []
        for name, number in (("i-dead", signal.SIGKILL), ("i-hung", signal.SIGSTOP)):
            agent = await there.launch(name)
            await agent.apply([echo("c", "fork")])
            status = await until_ready(agent, "c")
            child = there.folder(name).copy("c").root / "child.pid"
            pids += [status.pid or 0, int(child.read_text()), there.agent_pid(name)]
            kill(there.agent_pid(name), number)
        fleet = there.impatient_fleet()
        await asyncio.gather(*(fleet.terminate(name) for name in ("i-dead", "i-hung")))
        assert [identify(pid) for pid in pids] == [None] * 6
        left = [path.name for path in there.home.instances.iterdir()]
        assert left == [ENDED_LOGS]  # the copies' output, until control has read it


async def test_stop_everything_ends_agents_and_copies_in_any_state(tmp_path: Path) -> None:
    with rig(tmp_path) as there:
        pids = []
        for name in ("i-well", "i-dead", "i-hung"):
            agent = await there.launch(name)
            await agent.apply([echo("c", "fork")])
            pids += [(await until_ready(agent, "c")).pid or 0, there.agent_pid(name)]
            child = there.folder(name).copy("c").root / "child.pid"
            pids.append(int(child.read_text()))
        kill(there.agent_pid("i-dead"))
        kill(there.agent_pid("i-hung"), signal.SIGSTOP)
        # A copy whose leader is dead, and one whose record was never written.
        kill(pids[0])
        there.folder("i-dead").copy("c").record.unlink()
        pids = pids
        stop_everything(there.home.instances)
        assert [identify(pid) for pid in pids] == [None] * 9
        stop_everything(there.home.instances)
        stop_everything(there.home.root / "nothing-here")


def test_a_pid_that_was_given_to_another_program_is_left_alone(tmp_path: Path) -> None:
    async def work() -> None:
        agent = await there.launch()
        await agent.apply([echo()])
        status = await until_ready(agent)
        kill(there.agent_pid())
        kill(status.pid)
        await until_gone(status.pid or 0)
        # The records now name the pid of another live process, with the start times of dead ones.
        copy, folder = there.folder().copy("c-1"), there.folder()
        record, agent_record = copy.load(), folder.load_agent()
        assert record is not None
        assert record.process is not None
        assert agent_record is not None
        copy.save(dataclasses.replace(record, process=replace(record.process, pid=unrelated.pid)))
        lie = AgentRecord.of(
            replace(own_identity(), pid=unrelated.pid, start_ticks=1), agent_record.port
        )
        folder.agent.write_bytes(msgspec.json.encode(lie))
        assert list(await there.fleet.list()) == []
        after = await until_ready(await there.launch())
        assert after.pid != unrelated.pid
        await there.fleet.terminate("i-1")
        assert unrelated.poll() is None

    sleeper = [sys.executable, "-c", "import time; time.sleep(60)"]
    with rig(tmp_path) as there, subprocess.Popen(sleeper, start_new_session=True) as unrelated:
        try:
            asyncio.run(work())
        finally:
            unrelated.kill()


async def test_a_hanging_copy_leaves_the_routes_and_is_started_again(tmp_path: Path) -> None:
    """In this process, with less patience than an agent has in earnest."""
    policy = CopyPolicy(
        first_backoff_s=0.1,
        ping_every_s=0.1,
        ping_timeout_s=0.2,
        starting_ping_every_s=0.05,
        hung_after_s=3.0,
    )
    with rig(tmp_path) as there:
        async with build_http_client() as http:
            agent = InstanceAgent("i-1", there.folder(), deps(there, policy, http))
            there.folder().root.mkdir()
            await agent.start()
            await agent.apply([echo()])
            before = await seen(agent, [CopyPhase.READY])
            kill(before.pid, signal.SIGSTOP)
            hung = await seen(agent, [CopyPhase.UNHEALTHY])
            assert "/ping failed 3 times" in (hung.reason or "")
            kill(before.pid, signal.SIGCONT)
            assert (await seen(agent, [CopyPhase.READY])).pid == before.pid, "it recovered"
            kill(before.pid, signal.SIGSTOP)
            restarted = await seen(agent, [CopyPhase.UNHEALTHY, CopyPhase.READY])
            assert restarted.pid != before.pid
            assert restarted.restarts == 1
            await until_gone(before.pid or 0)
            await agent.stop()
            assert (await agent.observe()).copies == ()


def deps(there: Rig, policy: CopyPolicy, http: httpx.AsyncClient) -> CopyDeps:
    return CopyDeps(
        images_file=there.home.images,
        artifacts=NoArtifacts(),
        launcher=ProcessLauncher(),
        http=http,
        region="us-west-2",
        shape=default_shape(),
        operator_environment=dict(os.environ),
        policy=policy,
    )


async def seen(agent: InstanceAgent, phases: Sequence[CopyPhase]) -> CopyStatus:
    """The only copy, after `phases` in this order."""
    have = None
    async with asyncio.timeout(30):
        for phase in phases:
            while True:
                observation = await agent.observe(have, 5.0)
                if observation.copies and observation.copies[0].phase is phase:
                    break
                have = observation.version
    return observation.copies[0]
