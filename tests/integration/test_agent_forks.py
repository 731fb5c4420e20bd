"""Agents forked from the interpreter that control was forked from, by orders on a lent stream."""

import asyncio
import math
import os
import re
import signal
import socket
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest
import uvloop
from msgspec.structs import replace
from tests.cases import case, cases
from tests.integration.agent_rig import Rig, agent_command, instance, kill, rig, until_true
from tests.integration.test_service_forks import (
    MODULE,
    SERVER,
    children,
    interpreter,
    open_fds,
    status,
)
from tests.integration.test_service_forks import rig as service_rig

from hostelry.base.errors import HostelryError, RetryableError, TerminalError
from hostelry.base.proc import arguments, environment_value, process_stat
from hostelry.fleet.launch.warm import TITLE_ROOM, WarmParent
from hostelry.fleet.local.fleet import AgentStart, LocalFleet
from hostelry.home.home import SERVICE_VARIABLE
from hostelry.processes.agent_forks import FORKS_VARIABLE, AgentForks
from hostelry.processes.fleets import AGENT_MODULE
from hostelry.processes.leftovers import find_marked

pytestmark = pytest.mark.integration
ALL_SIGNALS = 0x7FFF_FFFF  # but those that libc catches for itself, once there are threads
PASSING = {"/proc/N/stat", "anon_inode:[pidfd]"}
MARK_ROOM = "-" * 4096
READY = b'{"ready":true,"number":0,"forked":null,"refused":null,"ended":null,"exit_code":0}\n'


@dataclass(frozen=True)
class Lent:
    """An interpreter, and forks by a stream that it was lent, as control has them."""

    parent: WarmParent
    forks: AgentForks
    environment: Mapping[str, str]
    folder: Path

    def fleet(self, root: Path, task: str) -> LocalFleet:
        """A fleet whose agents obey `task`."""
        command = [sys.executable, "-m", MODULE]
        environment = {**self.environment, "OPTION_TASK": task}
        return LocalFleet(root, command, "key", start=AgentStart(environment, self.forks))

    async def fork(self, *argv: str, **variables: str) -> bool:
        """Whether one more process is forked, which then ends."""
        given = [sys.executable, "-m", MODULE, *argv]
        environment = {**self.environment, "OPTION_TASK": "exit 0", **variables}
        forked = await self.forks.fork(given, environment, self.folder / "log")
        if forked is not None:
            forked.begin()
            assert await forked.wait() == 0
        return forked is not None


@asynccontextmanager
async def lent(folder: Path, module: str = MODULE) -> AsyncIterator[Lent]:
    environment = {"PYTHONPATH": str(SERVER), "PATH": os.environ["PATH"]}
    marked = {**environment, SERVICE_VARIABLE: MARK_ROOM}
    parent = WarmParent((module,), marked, folder / "forkserver.log", math.inf)
    try:
        forks = AgentForks(await parent.lend(), module, folder)
        yield Lent(parent, forks, environment, folder)
    finally:
        parent.end("the test ends")


def test_a_forked_agent_is_as_a_started_one_and_outlives_what_it_was_forked_from(
    tmp_path: Path,
) -> None:
    async def work(there: Rig) -> None:
        command, root = agent_command(there.home), there.home.instances
        async with lent(there.home.root, AGENT_MODULE) as forked:
            fleet = LocalFleet(root, command, there.key, start=AgentStart(forks=forked.forks))
            await fleet.launch(instance("i-1"))
            await there.fleet.launch(instance("i-2"))
            interpreter = forked.parent.process.identity.pid
            warm, cold = there.agent_pid("i-1"), there.agent_pid("i-2")
            assert warm in children(interpreter)
            assert facts(warm, "i-1") == facts(cold, "i-2")
            assert not set(sockets(warm)) & set(sockets(interpreter))
            assert "Umask:\t0077" in status(warm)
            assert environment_value(warm, SERVICE_VARIABLE) == ""
            assert list(find_marked(there.home)) == []
            kill(interpreter)
            await until_true(lambda: not forked.parent.usable, "the interpreter is gone")
            await fleet.launch(instance("i-3"))
            assert there.agent_pid("i-3") in children(os.getpid()), "a program"
        assert {it.id for it in await there.fleet.list()} == {"i-1", "i-2", "i-3"}
        assert there.agent_pid("i-1") == warm

    with rig(tmp_path) as there:
        uvloop.run(work(there))


def facts(pid: int, instance_id: str) -> dict[str, object]:
    """The facts of an agent that do not depend on the process or the time."""
    files = open_fds(pid) | {fd: os.readlink(f"/proc/{pid}/fd/{fd}") for fd in range(3)}
    shown = {fd: it.replace(instance_id, "ID") for fd, it in files.items()}
    lines = dict(it.split(":\t", 1) for it in status(pid).splitlines())
    return {
        "argv": [it.replace(instance_id, "ID") for it in arguments(pid)],
        "leads its session": os.getsid(pid) == os.getpgid(pid) == pid,
        "signals": [int(lines[it], 16) & ALL_SIGNALS for it in ("SigBlk", "SigIgn", "SigCgt")],
        "may gain privileges": lines["NoNewPrivs"],
        "standard files": [shown[fd] for fd in range(3)],
        "kinds of files": {re.sub(r"\d+", "N", it) for it in shown.values()} - PASSING,
    }


@cases(
    "task, kind, cause",
    case("with its code", "exit 3", TerminalError, "code 3: this is a copy"),
    case("with its signal", "signal 9", RetryableError, "signal 9"),
)
def test_a_forked_agent_that_ends_at_its_start_is_reported(
    tmp_path: Path, task: str, kind: type[HostelryError], cause: str
) -> None:
    async def work() -> None:
        async with lent(tmp_path) as there:
            with pytest.raises(kind, match=cause):
                await there.fleet(tmp_path / "instances", task).launch(instance("i-1"))

    uvloop.run(work())


def test_the_end_of_an_agent_without_its_interpreter_has_an_unknown_cause(tmp_path: Path) -> None:
    async def work() -> None:
        async with lent(tmp_path) as there:
            fleet = there.fleet(tmp_path / "instances", "")
            launching = asyncio.create_task(fleet.launch(instance("i-1")))
            await until_true((tmp_path / "told.json").exists, "the agent runs")
            (agent,) = children(there.parent.process.identity.pid)
            kill(there.parent.process.identity.pid)
            await until_true(lambda: not there.parent.usable, "the interpreter is gone")
            kill(agent)
            with pytest.raises(RetryableError, match="an unknown cause: this is a copy"):
                await launching

    uvloop.run(work())


@cases(
    "sent",
    case("with what is no order", b"no order\n"),
    case("with an order of many depths", b'{"x":' + b"[" * 100_000 + b"\n"),
    case("that lends another one", b'{"lend":true}\n'),
    case("with an order without an end", b"x" * (5 << 20)),
    case("whose process is gone", b""),
)
async def test_a_lent_stream_ends_alone(tmp_path: Path, sent: bytes) -> None:
    async with lent(tmp_path) as there:
        broken = await there.parent.lend()
        broken.setblocking(False)
        loop = asyncio.get_running_loop()
        with broken:
            assert await loop.sock_recv(broken, 4096) == READY
            with suppress(ConnectionError):
                await loop.sock_sendall(broken, sent)
                if not sent:
                    broken.shutdown(socket.SHUT_WR)
            with suppress(ConnectionResetError):
                assert await loop.sock_recv(broken, 4096) == b""
        assert await there.fork(), "another lent stream"
        (await there.parent.lend()).close()
        assert there.parent.usable


@cases(
    "argument, variable",
    case("whose command line could not be shown", "x" * TITLE_ROOM, ""),
    case("with a variable that is no text", "", "\udcff"),
)
def test_a_process_is_not_forked(tmp_path: Path, argument: str, variable: str) -> None:
    async def work() -> None:
        async with lent(tmp_path) as there:
            assert not await there.fork(argument, OPTION_MINE=variable)

    uvloop.run(work())


async def test_each_control_is_lent_a_stream_of_its_own(tmp_path: Path) -> None:
    async with service_rig(tmp_path) as there:
        command = replace(there.command, may_fork=True)
        other = (await there.fork()).identity.pid
        await there.reported()
        parent = interpreter()
        unlent = sockets(parent)
        for _ in range(2):
            control = (await there.fork(command)).identity.pid
            given = int((await there.reported())["environment"][FORKS_VARIABLE])
            assert list(open_fds(control)) == [given]
            assert len(sockets(parent)) == len(unlent) + 1
            kill_group(control)
            await until_true(
                lambda: sockets(parent) == unlent, "the stream of a killed one is closed"
            )
        assert process_stat(other) is not None
        kill_group(other)


def sockets(pid: int) -> list[str]:
    return [it for it in open_fds(pid).values() if it.startswith("socket:")]


def kill_group(pid: int) -> None:
    os.killpg(pid, signal.SIGKILL)
