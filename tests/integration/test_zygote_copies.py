"""An agent's interpreter with an imported framework, forked for copies as real processes."""

import asyncio
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.integration.agent_rig import until_gone

from hostelry.base.proc import environment_value, process_stat
from hostelry.containers.predictive.zygote_process import (
    LENT_FD,
    CopyOrder,
    ZygoteError,
    ZygoteProcess,
    take_lent_socket,
)

pytestmark = pytest.mark.integration

MARKER = "HOSTELRY_TEST_MARKER"


def zygote(folder: Path, *, of_agent: bool = False) -> ZygoteProcess:
    """One that imports a module of the standard library, and another later, which leaves a file."""
    (folder / "beside.py").write_text(f"open({str(folder / 'beside')!r}, 'w').close()")
    return ZygoteProcess(
        Path(sys.executable),
        ("colorsys",),
        {"PYTHONPATH": str(folder), MARKER: "-" * 4096},
        later=("beside", "no_such_module") if of_agent else (),
        idle_s=60.0 if of_agent else None,
    )


@dataclass
class Lent:
    """A copy's zygote before its server has it, and the gate at which it waits."""

    pid: int
    front: socket.socket
    gate: socket.socket


@dataclass
class Agent:
    """An agent with a zygote, and folders of copies."""

    folder: Path
    zygote: ZygoteProcess

    @asynccontextmanager
    async def lent(self, *, uid: int | None = None, whole: bool = False) -> AsyncIterator[Lent]:
        copy = self.folder / "copy"
        copy.mkdir(exist_ok=True)
        order = CopyOrder(
            folder=str(copy), copy_folder=str(copy), marker=MARKER, log=str(copy / "log"),
            uid=uid, gid=uid,
        )  # fmt: skip
        front, back = socket.socketpair()
        gate, theirs = socket.socketpair()
        with front, gate:
            with back, theirs:
                pid = await self.zygote.fork_copy(order, whole, back, theirs)
            yield Lent(pid, front, gate)


@asynccontextmanager
async def agent(folder: Path) -> AsyncIterator[Agent]:
    own = zygote(folder, of_agent=True)
    await own.start()
    try:
        yield Agent(folder, own)
    finally:
        await own.close()


def is_gone(pid: int) -> bool:
    return process_stat(pid) is None


async def test_a_fork_is_the_copys_own_and_outlives_the_agent(tmp_path: Path) -> None:
    copys = zygote(tmp_path)
    async with agent(tmp_path) as there, there.lent() as lent:
        lent.gate.send(b"!")
        await copys.start(lent.front)
        assert copys.pid == lent.pid
        assert set(copys.versions) == {"python", "colorsys"}
        assert environment_value(lent.pid, MARKER) == str(tmp_path / "copy")
        assert os.readlink(f"/proc/{lent.pid}/cwd") == str(tmp_path / "copy")
        assert os.readlink(f"/proc/{lent.pid}/fd/1") == str(tmp_path / "copy" / "log")
        stat = process_stat(lent.pid)
        assert stat is not None
        assert stat.session == lent.pid
        assert not (tmp_path / "beside").exists()
        await there.zygote.close()
        worker, stream = await copys.fork()
        with stream:
            assert not is_gone(worker)
            await copys.close()
        await until_gone(lent.pid)
        await until_gone(worker)


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")
def test_a_fork_becomes_the_copys_user(tmp_path: Path) -> None:
    async def work() -> str:
        async with agent(tmp_path) as there, there.lent(uid=61_234) as lent:
            lent.gate.send(b"!")
            copys = zygote(tmp_path)
            await copys.start(lent.front)
            status = await asyncio.to_thread(Path(f"/proc/{lent.pid}/status").read_text)
            await copys.close()
            return status

    lines = asyncio.run(work()).splitlines()
    status = dict(it.split(":", 1) for it in lines)
    assert status["Uid"].split() == ["61234"] * 4
    assert status["Gid"].split() == ["61234"] * 4
    assert status["Groups"].split() == []
    assert status["NoNewPrivs"].strip() == "1"
    assert status["CapEff"].strip().strip("0") == ""


async def test_what_is_imported_later_is_there_for_a_copy_that_needs_it(tmp_path: Path) -> None:
    async with agent(tmp_path) as there, there.lent(whole=True) as lent:
        assert (tmp_path / "beside").exists()
        lent.front.close()
        lent.gate.send(b"!")
        await until_gone(lent.pid)


@pytest.mark.parametrize("lost", ["by the agent's end", "by its own end"])
async def test_a_server_whose_fork_is_lost_imports_itself(tmp_path: Path, lost: str) -> None:
    async with agent(tmp_path) as there, there.lent() as lent:
        if lost == "by its own end":
            os.kill(lent.pid, signal.SIGKILL)
        else:
            lent.gate.close()
        copys = zygote(tmp_path)
        await copys.start(lent.front)
        assert copys.pid != lent.pid
        worker, stream = await copys.fork()
        with stream:
            assert not is_gone(worker)
        await copys.close()


async def test_no_fork_comes_from_one_that_has_ended(tmp_path: Path) -> None:
    async with agent(tmp_path) as there:
        os.kill(there.zygote.pid, signal.SIGKILL)
        await there.zygote.ended.wait()
        with pytest.raises(ZygoteError, match="is gone"):
            async with there.lent():
                pass


def test_a_server_takes_the_socket_that_its_variable_names() -> None:
    here, there = socket.socketpair()
    environment = {LENT_FD: str(there.detach()), "OTHER": "1"}
    taken = take_lent_socket(environment)
    assert taken is not None
    assert environment == {"OTHER": "1"}
    with here, taken:
        here.send(b"a")
        assert taken.recv(1) == b"a"
    assert take_lent_socket({LENT_FD: "9999"}) is None
    assert take_lent_socket({LENT_FD: "-1"}) is None
    assert take_lent_socket({}) is None
