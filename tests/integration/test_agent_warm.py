"""Copies forked from a warm interpreter: processes like any other, and cold at any fault."""

import asyncio
import json
import os
import shutil
import signal
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.cases import case, cases
from tests.integration.agent_rig import (
    echo,
    kill,
    object_store,
    rig,
    until,
    until_gone,
    until_ready,
    until_true,
)
from tests.integration.lmi_rig import byte_model

from hostelry.base.guards import COPY_KEY_HEADER
from hostelry.domain.copy import CopySpec, CopyStatus
from hostelry.domain.model import ArtifactSource, Container
from hostelry.domain.shape import Requirements
from hostelry.fleet.host.processes import (
    MARKER_VARIABLE,
    WatchedProcess,
    find_members,
    is_alive,
    process_table,
    stop_all,
)
from hostelry.fleet.launch.launcher import LaunchOrder, ProcessLauncher
from hostelry.fleet.launch.limited_process import LimitedProcess
from hostelry.fleet.launch.warm import WarmForks
from hostelry.fleet.rules.limits import WAIT_VARIABLES, CopyLimits

pytestmark = pytest.mark.integration

SERVER = Path(__file__).parent / "servers" / "warm_server.py"
MIB = 2**20


@dataclass(frozen=True)
class Warm:
    """A launcher with warm starts of a small server, in a separate folder."""

    folder: Path
    forks: WarmForks
    launcher: ProcessLauncher
    environment: dict[str, str]

    async def start(self, name: str, **variables: str) -> LimitedProcess:
        copy = self.folder / "copies" / name
        copy.mkdir(parents=True)
        order = LaunchOrder(
            argv=(sys.executable, str(SERVER)),
            environment={**self.environment, MARKER_VARIABLE: str(copy), **variables},
            folder=copy,
            log=copy / "log",
            limits=CopyLimits(cpus=1.0, max_memory_bytes=512 * MIB),
        )
        return await self.launcher.start(order)

    async def reported(self, name: str) -> dict[str, Any]:
        file = self.folder / "copies" / name / "told.json"
        await until_true(file.exists, "the copy runs")
        reported: dict[str, Any] = json.loads(file.read_text())
        return reported

    def parent(self) -> int:
        """The warm interpreter's pid."""
        (pid,) = _parents(self.folder)
        return pid


@contextmanager
def left_clean(folder: Path) -> Iterator[None]:
    """End everything that the test started."""
    try:
        yield
    finally:
        copies = folder / "copies"
        stop_all([(it, None) for it in copies.iterdir()] if copies.exists() else [], grace_s=0.0)


@asynccontextmanager
async def warm(folder: Path, module: str = "") -> AsyncIterator[Warm]:
    """Warm starts with the small server. `module` is imported in advance."""
    shutil.copy(SERVER, folder)
    (folder / "beside.py").write_text(module)
    environment = {"PYTHONPATH": str(folder), "PYTHONUNBUFFERED": "1", **WAIT_VARIABLES}
    argv: tuple[str, ...] = (sys.executable, str(SERVER))
    forks = WarmForks(folder, environment, {argv: ("warm_server", "beside")})
    try:
        yield Warm(folder, forks, ProcessLauncher(warm=forks), environment)
    finally:
        forks.close()


async def test_a_forked_copy_is_a_process_of_its_own(tmp_path: Path) -> None:
    with left_clean(tmp_path):
        async with warm(tmp_path) as there:
            process = await there.start("c-1", OPTION_MINE="1")
            reported = await there.reported("c-1")
            copy = tmp_path / "copies" / "c-1"
            pid = process.identity.pid
            assert process.start_kind == "warm"
            assert reported["cwd"] == str(copy)
            assert reported["environment"] == {
                **there.environment, MARKER_VARIABLE: str(copy), "OPTION_MINE": "1"
            }  # fmt: skip
            assert "this is a copy" in (copy / "log").read_text()
            assert os.getsid(pid) == pid
            assert "NoNewPrivs:\t1" in proc(pid, "status")
            assert [it for it in os.listdir(f"/proc/{pid}/fd") if int(it) > 2] == []
            found = find_members(process_table(), copy, None)
            assert found == [process.identity], "its environment tells whose it is"


async def test_an_exit_code_and_a_signal_are_reported(tmp_path: Path) -> None:
    with left_clean(tmp_path):
        async with warm(tmp_path) as there:
            assert await (await there.start("c-1", OPTION_TASK="exit 7")).wait() == 7
            process = await there.start("c-2")
            waiting = asyncio.create_task(process.wait())
            await there.reported("c-2")
            kill(process.identity.pid)
            assert await waiting == -signal.SIGKILL


async def test_no_copy_shows_the_secrets_of_another(tmp_path: Path) -> None:
    with left_clean(tmp_path):
        async with warm(tmp_path) as there:
            pids = [
                (await there.start(f"c-{n}", OPTION_SECRET=f"hush-{n}")).identity.pid
                for n in (1, 2)
            ]
            for own, other in ((1, 2), (2, 1)):
                reported = json.dumps((await there.reported(f"c-{own}"))["environment"])
                assert f"hush-{own}" in reported
                assert f"hush-{other}" not in reported
            for pid in (*pids, there.parent()):
                assert "hush" not in proc(pid, "environ")


@pytest.mark.parametrize("task", ["child", "fork"])
async def test_what_a_forked_copy_leaves_is_found_and_ended(tmp_path: Path, task: str) -> None:
    with left_clean(tmp_path):
        async with warm(tmp_path) as there:
            process = await there.start("c-1", OPTION_TASK=task)
            copy = tmp_path / "copies" / "c-1"

            def both() -> bool:
                return len(find_members(process_table(), copy, process.identity)) == 2

            await until_true(both, "the copy and its child")
            found = find_members(process_table(), copy, process.identity)
            await there.launcher.stop(copy, process.identity, 0.0)
            assert [is_alive(it) for it in found] == [False, False]


# Faults in the interpreter while it imports. A start meets each of them.
ENDS = "raise SystemExit(3)"
FAILS = "import nothing_that_exists"
BABBLES = "import os, sys; os.write(int(sys.argv[2]), b'{\"pid\": what}\\n')"
FLOODS = "import os, sys; os.write(int(sys.argv[2]), b'x' * 1000)\nos._exit(0)"
THREADS = (
    "import threading, time\nthreading.Thread(target=time.sleep, args=(60,), daemon=True).start()\n"
)


@cases(
    "module, cause",
    case("the interpreter ends", ENDS, "it ended"),
    case("a module cannot be imported", FAILS, "it ended"),
    case("it prints nonsense", BABBLES, "invalid message"),
    case("it prints half a message and ends", FLOODS, "invalid message"),
    case("a module started a thread", THREADS, "more than one thread"),
)
async def test_a_warm_interpreter_that_fails_costs_a_cold_start_and_no_more(
    tmp_path: Path, module: str, cause: str
) -> None:
    with left_clean(tmp_path):
        async with warm(tmp_path, module) as there:
            for name in ("c-1", "c-2"):
                process = await there.start(name)
                assert process.start_kind == "cold"
                assert (await there.reported(name))["environment"][MARKER_VARIABLE].endswith(name)
            assert cause in (tmp_path / "copies" / "c-1" / "log").read_text()
            await until_true(lambda: not _parents(tmp_path), "the interpreter is gone")


async def test_a_hung_interpreter_is_killed_and_its_copies_go_on(tmp_path: Path) -> None:
    with left_clean(tmp_path):
        async with warm(tmp_path) as there:
            first = await there.start("c-1")
            await there.reported("c-1")
            parent = there.parent()
            kill(parent, signal.SIGSTOP)
            second = await there.start("c-2")
            assert (first.start_kind, second.start_kind) == ("warm", "cold")
            assert "did not fork within" in (tmp_path / "copies" / "c-2" / "log").read_text()
            await until_gone(parent)
            assert is_alive(first.identity)
            waiting = asyncio.create_task(first.wait())
            kill(first.identity.pid)
            assert await waiting is None, "nobody is left to tell its exit code"


async def test_an_interpreter_killed_during_a_fork_leaves_one_copy(tmp_path: Path) -> None:
    with left_clean(tmp_path):
        async with warm(tmp_path) as there:
            await there.start("c-1")
            await there.reported("c-1")
            parent = there.parent()
            kill(parent, signal.SIGSTOP)
            starting = asyncio.create_task(there.start("c-2"))
            await asyncio.sleep(0.1)
            kill(parent)
            process = await starting
            assert process.start_kind == "cold"
            await there.reported("c-2")
            found = find_members(process_table(), tmp_path / "copies" / "c-2", None)
            assert found == [process.identity]


async def test_a_start_without_a_waiter_leaves_no_process(tmp_path: Path) -> None:
    with left_clean(tmp_path):
        async with warm(tmp_path) as there:
            await there.start("c-1")
            await there.reported("c-1")
            parent = there.parent()
            kill(parent, signal.SIGSTOP)
            starting = asyncio.create_task(there.start("c-2"))
            await asyncio.sleep(0.1)
            starting.cancel()
            await asyncio.gather(starting, return_exceptions=True)
            kill(parent, signal.SIGCONT)
            third = await there.start("c-3")
            reported = await there.reported("c-3")
            assert third.start_kind == "warm"
            assert reported["environment"][MARKER_VARIABLE].endswith("c-3")
            copies = tmp_path / "copies"
            assert find_members(process_table(), copies / "c-3", None) == [third.identity]

            def nothing_left() -> bool:
                return not find_members(process_table(), copies / "c-2", None)

            await until_true(nothing_left, "the copy that nobody waited for is gone")
            assert not (copies / "c-2" / "told.json").exists()


async def test_an_interpreter_imports_ahead_only_for_copies_that_can_use_it(tmp_path: Path) -> None:
    with left_clean(tmp_path):
        async with warm(tmp_path) as there:
            argv = (sys.executable, str(SERVER))
            there.forks.prepare(argv, {"PYTHONHASHSEED": "1"})
            there.forks.prepare(("another", "command"), {})
            assert there.forks.processes == []
            there.forks.prepare(argv, {"OPTION_MODEL_ID": "x"})
            [process] = there.forks.processes
            await there.start("c-1")
            assert there.forks.processes == [process]


async def test_the_interpreter_ends_with_its_agent_and_its_copies_do_not(tmp_path: Path) -> None:
    with left_clean(tmp_path):
        async with warm(tmp_path) as there:
            process = await there.start("c-1")
            await there.reported("c-1")
            parent = there.parent()
        await until_gone(parent)
        adopted = WatchedProcess.adopt(process.identity)
        assert adopted is not None
        kill(process.identity.pid)
        assert await adopted.wait() is None


async def test_language_models_are_forked_and_restarted_and_adopted(tmp_path: Path) -> None:
    with object_store(tmp_path) as store, rig(tmp_path, store.url) as there:
        model = store.put_archive("llm.tar.gz", byte_model(tmp_path))
        desired = [lmi("c-1", model), lmi("c-2", model)]
        agent = await there.launch()
        await agent.apply(desired)
        for spec in desired:
            status = await until_ready(agent, spec.id)
            assert status.start_kind == "warm"
            assert status.start_s is not None
            assert 0 < status.start_s < 60
            assert await generated(status) != ""
        first = await until_ready(agent, "c-1")
        assert first.pid is not None
        (engine,) = proc(first.pid, f"task/{first.pid}/children").split()
        kill(int(engine))
        # Not the first reason: the server still answers for a second, but not with 200 to pings.
        over = (await until(agent, lambda it: it["c-1"].last_end is not None))["c-1"].last_end
        assert over is not None
        assert "exited with code 1" in over.cause
        again = await until_ready(agent, "c-1")
        assert (again.start_kind, again.restarts) == ("warm", 1)
        parents = _parents(there.folder().root)
        kill(there.agent_pid())
        await until_true(lambda: not is_there(parents), "the interpreter ended with the agent")
        agent = await there.launch()
        assert (await until_ready(agent, "c-1")).pid == again.pid
        await agent.apply([])
        await until_gone(again.pid or 0)


def lmi(copy_id: str, model: ArtifactSource) -> CopySpec:
    given = echo(copy_id)
    return CopySpec(
        id=copy_id,
        owner=given.owner,
        container=Container(
            image="lmi:1",
            source=model,
            environment={"OPTION_DTYPE": "fp32"},
        ),
        requirements=Requirements(min_memory_bytes=MIB, max_memory_bytes=2048 * MIB, cpus=1.0),
        download_timeout_s=20.0,
        startup_timeout_s=60.0,
    )


async def generated(status: CopyStatus) -> str:
    body = {"inputs": "Hello", "parameters": {"max_new_tokens": 4}}
    async with httpx.AsyncClient(trust_env=False, verify=False, timeout=30) as http:
        answer = await http.post(
            f"{status.address}/invocations", json=body, headers={COPY_KEY_HEADER: status.key or ""}
        )
    assert answer.status_code == 200, answer.text
    return answer.text


def proc(pid: int, name: str) -> str:
    return Path(f"/proc/{pid}/{name}").read_text()


def is_there(pids: list[int]) -> bool:
    return any(Path(f"/proc/{pid}").exists() for pid in pids)


def _parents(folder: Path) -> list[int]:
    """Warm interpreters that run in `folder`."""
    found = []
    for cmdline in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            mine = os.readlink(cmdline.parent / "cwd") == str(folder)
            if mine and b"hostelry.fleet.launch.warm_process" in cmdline.read_bytes():
                found.append(int(cmdline.parent.name))
        except OSError:
            continue
    return found
