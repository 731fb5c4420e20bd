"""Services forked from one interpreter: the state of each process, and the end of the parent."""

import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from tests.cases import case, cases
from tests.integration.agent_rig import until_true

from hostelry.base.clock import monotonic_s
from hostelry.base.proc import arguments, environment_value, process_stat
from hostelry.fleet.launch.warm import ForkedProcess
from hostelry.home.home import MARK_ROOM, SERVICE_VARIABLE, Home
from hostelry.processes.service_forks import ServiceForks
from hostelry.processes.supervisor import Command

pytestmark = pytest.mark.integration
SERVER = Path(__file__).parent / "servers"
MODULE = "warm_server"


@dataclass(frozen=True)
class Rig:
    home: Home
    forks: ServiceForks
    command: Command

    @property
    def mark(self) -> str:
        return str(self.home.run / "service-1")

    async def fork(self, command: Command | None = None) -> ForkedProcess:
        given = command or self.command
        forked = await self.forks.fork(MODULE, given, self.mark, self.home.logs / "s.log")
        assert forked is not None
        return forked

    async def reported(self) -> dict[str, Any]:
        file = self.home.root / "told.json"
        await until_true(file.exists, "the service runs")
        reported: dict[str, Any] = json.loads(file.read_text())
        file.unlink()
        return reported


@asynccontextmanager
async def rig(tmp_path: Path, modules: tuple[str, ...] = (MODULE,)) -> AsyncIterator[Rig]:
    home = Home(tmp_path / "home")
    home.make()
    environment = {"PYTHONPATH": str(SERVER), "PATH": os.environ["PATH"]}
    argv = [sys.executable, "-m", MODULE, "--home", str(home.root)]
    forks = ServiceForks(home, modules, environment)
    try:
        yield Rig(home, forks, Command(argv=argv, env=environment))
    finally:
        forks.close()


def kill(pid: int) -> None:
    os.killpg(pid, signal.SIGKILL)


async def test_a_forked_service_looks_like_one_that_was_started(tmp_path: Path) -> None:
    async with rig(tmp_path) as there:
        forked = await there.fork()
        pid, reported = forked.identity.pid, await there.reported()
        assert reported["cwd"] == str(there.home.root)
        assert reported["environment"] == {**there.command.env, SERVICE_VARIABLE: there.mark}
        assert environment_value(pid, SERVICE_VARIABLE) == there.mark
        assert arguments(pid) == list(there.command.argv)
        assert os.getsid(pid) == pid
        assert "NoNewPrivs:\t0" in status(pid)
        assert (there.home.root / "told.scratch").exists() is False
        log = there.home.logs / "s.log"
        assert "this is a copy" in log.read_text()
        assert log.stat().st_mode & 0o077 == 0
        kill(pid)
        assert await forked.wait() == -signal.SIGKILL


async def test_a_descriptor_gets_its_number_in_that_service_alone(tmp_path: Path) -> None:
    async with rig(tmp_path) as there:
        given, far = os.pipe()
        command = replace(there.command, pass_fds=(given,))
        with_pipe = await there.fork(command)
        await there.reported()
        without = await there.fork()
        await there.reported()
        assert open_fds(with_pipe.identity.pid) == {given: os.readlink(f"/proc/self/fd/{given}")}
        assert open_fds(without.identity.pid) == {}
        parent = interpreter()
        assert not set(open_fds(parent).values()) & {os.readlink(f"/proc/self/fd/{given}")}
        os.close(given)
        os.close(far)
        for forked in (with_pipe, without):
            kill(forked.identity.pid)


async def test_services_outlive_their_interpreter_and_others_are_started_cold(
    tmp_path: Path,
) -> None:
    async with rig(tmp_path) as there:
        forked = await there.fork()
        await there.reported()
        parent = interpreter()
        kill(parent)
        await until_true(lambda: process_stat(parent) is None, "the interpreter is gone")
        assert process_stat(forked.identity.pid) is not None
        kill(forked.identity.pid)
        assert await forked.wait() is None
        log = there.home.logs / "s.log"
        assert await there.forks.fork(MODULE, there.command, there.mark, log) is not None


@cases(
    "modules, variable, mark",
    case("with a variable that the interpreter has not", (MODULE,), "OTHER", "m"),
    case("whose path is too long to be shown", (MODULE,), "", "m" * (MARK_ROOM + 1)),
    case("whose module cannot be imported", ("no_such_module",), "", "m"),
)
async def test_a_service_is_not_forked(
    tmp_path: Path, modules: tuple[str, ...], variable: str, mark: str
) -> None:
    async with rig(tmp_path, modules) as there:
        env = {**there.command.env, **({variable: "1"} if variable else {})}
        command = replace(there.command, env=env)
        began = monotonic_s()
        assert await there.forks.fork(MODULE, command, mark, there.home.logs / "s.log") is None
        assert monotonic_s() - began < 30.0, "a failed import is noticed at once"


def open_fds(pid: int) -> dict[int, str]:
    folder = Path(f"/proc/{pid}/fd")
    return {int(it.name): os.readlink(it) for it in folder.iterdir() if int(it.name) > 2}


def children(pid: int) -> list[int]:
    text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    return [int(it) for it in text.split()]


def interpreter() -> int:
    """The warm interpreter of this process, which may have other children of other tests."""
    program = "hostelry.fleet.launch.warm_process"
    (found,) = (pid for pid in children(os.getpid()) if program in arguments(pid))
    return found


def status(pid: int) -> str:
    return Path(f"/proc/{pid}/status").read_text()
