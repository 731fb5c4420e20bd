"""Processes of this machine: distinguished, found whole, ended whole."""

import asyncio
import signal
import socket
import sys
from pathlib import Path

import pytest
from msgspec.structs import replace
from tests.integration.agent_rig import kill, until_gone, until_true

from hostelry.base.errors import TerminalError
from hostelry.base.ports import free_port
from hostelry.fleet.host.processes import (
    MARKER_VARIABLE,
    WatchedProcess,
    find_members,
    identify,
    is_alive,
    own_identity,
    process_table,
    stop_all,
    stop_processes,
)
from hostelry.fleet.host.usage import belongs_to_another, memory_use
from hostelry.fleet.launch.launcher import LaunchOrder, ProcessLauncher

pytestmark = pytest.mark.integration

SLEEP = "import time; time.sleep(60)"
STUBBORN = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(60)"
# Its child leaves the session, as a daemon does, and only the environment identifies its copy.
RUNAWAY = (
    "import subprocess, sys, time; "
    f"subprocess.Popen([sys.executable, '-c', {STUBBORN!r}], start_new_session=True); "
    "time.sleep(60)"
)
LISTEN = (
    "import socket, sys, time; s = socket.socket(); "
    "s.bind(('127.0.0.1', int(sys.argv[1]))); s.listen(); print('listening', flush=True); "
    "time.sleep(60)"
)


def start(folder: Path, code: str, *arguments: str) -> WatchedProcess:
    argv = [sys.executable, "-c", code, *arguments]
    environment = {MARKER_VARIABLE: str(folder)}
    return WatchedProcess.start(argv, environment, folder, folder / "log")


async def until_members(folder: Path, process: WatchedProcess, count: int) -> None:
    def there() -> bool:
        return len(find_members(process_table(), folder, process.identity)) == count

    await until_true(there, f"{count} members")


async def test_how_a_process_ended_is_known_at_once(tmp_path: Path) -> None:
    assert await start(tmp_path, "raise SystemExit(7)").wait() == 7
    sleeper = start(tmp_path, SLEEP)
    waiting = asyncio.create_task(sleeper.wait())
    kill(sleeper.identity.pid)
    assert await waiting == -signal.SIGKILL
    assert not is_alive(sleeper.identity)
    assert WatchedProcess.adopt(sleeper.identity) is None
    assert await WatchedProcess(sleeper.identity).wait() is None


async def test_an_adopted_process_is_watched_without_its_exit_code(tmp_path: Path) -> None:
    sleeper = start(tmp_path, SLEEP)
    adopted = WatchedProcess.adopt(sleeper.identity)
    assert adopted is not None
    kill(sleeper.identity.pid)
    assert await adopted.wait() is None


@pytest.mark.parametrize("program", ["/nowhere/at-all", "/etc/passwd", "a\0b"])
def test_a_program_that_cannot_be_executed_is_named(tmp_path: Path, program: str) -> None:
    order = LaunchOrder(argv=[program], environment={}, folder=tmp_path, log=tmp_path / "log")
    with pytest.raises(TerminalError, match="cannot start"):
        asyncio.run(ProcessLauncher().start(order))


def test_the_same_pid_at_another_time_or_boot_is_another_process() -> None:
    mine = own_identity()
    assert is_alive(mine)
    assert not is_alive(replace(mine, start_ticks=mine.start_ticks - 1))
    assert not is_alive(replace(mine, boot_id="another"))
    assert identify(2**22 + 1) is None


async def test_a_runaway_child_is_found_and_ended(tmp_path: Path) -> None:
    leader = start(tmp_path, RUNAWAY)
    await until_members(tmp_path, leader, 2)
    found = find_members(process_table(), tmp_path, leader.identity)
    assert memory_use(found).resident_bytes > 4 * 2**20
    assert await stop_processes(tmp_path, leader.identity, grace_s=5.0) == []
    assert [is_alive(it) for it in found] == [False, False]


async def test_without_a_record_the_environment_identifies(tmp_path: Path) -> None:
    leader = start(tmp_path, RUNAWAY)
    await until_members(tmp_path, leader, 2)
    stop_all([(tmp_path, None)], grace_s=0.0)
    assert find_members(process_table(), tmp_path, leader.identity) == []


async def test_an_unrelated_process_is_no_member_whatever_the_record_has(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    unrelated = start(tmp_path / "other", SLEEP)
    lie = replace(unrelated.identity, start_ticks=1)
    assert find_members(process_table(), tmp_path, lie) == []
    await stop_processes(tmp_path, lie, grace_s=0.0)
    assert is_alive(unrelated.identity)
    await stop_processes(tmp_path / "other", unrelated.identity, grace_s=0.0)
    await until_gone(unrelated.identity.pid)


async def test_a_port_that_another_copy_listens_on_is_reported(tmp_path: Path) -> None:
    port = free_port()
    (tmp_path / "one").mkdir()
    one = start(tmp_path / "one", LISTEN, str(port))
    log = tmp_path / "one" / "log"
    await until_true(lambda: "listening" in log.read_text(), "the copy listens")
    table = process_table()
    assert not belongs_to_another(port, tmp_path / "one", table)
    assert belongs_to_another(port, tmp_path / "two", table)
    with socket.create_server(("127.0.0.1", 0)) as ours:
        no_copy = ours.getsockname()[1]
        assert not belongs_to_another(no_copy, tmp_path / "two", table)
    await stop_processes(tmp_path / "one", one.identity, grace_s=0.0)
