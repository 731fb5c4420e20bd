"""Copies that run as another user than their agent: their abilities and limits."""

import asyncio
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.integration.agent_rig import (
    Rig,
    echo,
    kill,
    rig,
    until,
    until_gone,
    until_ready,
    until_true,
)
from tests.integration.test_agent_warm import left_clean, proc, warm

from hostelry.base.errors import TerminalError
from hostelry.base.guards import COPY_KEY_HEADER
from hostelry.base.proc import effective_capabilities
from hostelry.domain.copy import CopySpec
from hostelry.fleet.launch.launcher import ProcessLauncher
from hostelry.fleet.local.client import HttpAgent
from hostelry.fleet.rules.copy_user import CopyUser, FolderMode, find_closed_folder, find_refusal
from hostelry.home.copy_user_option import check_copy_user, open_home
from hostelry.home.home import load_config, save_config

pytestmark = pytest.mark.integration

UID = 61_234
USER = CopyUser(uid=UID, name="user61234")
SOURCES = Path(__file__).parents[2] / "src"
DRILL = "hostelry/containers/drill/__main__.py"
IT_IMPORTS = (
    "hostelry/__init__.py",
    "hostelry/base/__init__.py",
    "hostelry/base/guards.py",
    "hostelry/base/guards.py",
)
# Run as a copy: tries to read files and signal processes, and prints the outcome.
TRIES = """
import json, os, sys
def outcome(act, *given):
    try:
        act(*given)
    except OSError as error:
        return type(error).__name__
    return "done"
asked = json.load(sys.stdin)
print(json.dumps({
    "read": {it: outcome(lambda at: open(at).read(), it) for it in asked["read"]},
    "list": {it: outcome(os.listdir, it) for it in asked["list"]},
    "write": {it: outcome(lambda at: open(at, "a").close(), it) for it in asked["write"]},
    "signal": {str(it): outcome(os.kill, it, 0) for it in asked["signal"]},
    "again root": outcome(os.setuid, 0),
}))
"""


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that other users can enter. pytest's own folders are private."""
    with tempfile.TemporaryDirectory(prefix="hostelry-", dir="/tmp") as name:
        Path(name).chmod(0o711)
        yield Path(name)


def python_of_all() -> str:
    """An interpreter that every user of this machine can run."""
    system = shutil.which("python3", path="/usr/bin:/usr/local/bin:/bin")
    for found in (str(Path(sys.executable).resolve()), system):
        if found and find_closed_folder(UID, _above(Path(found).resolve())) is None:
            return found
    raise AssertionError("no Python on this machine that other users than root can run")


def _above(path: Path) -> list[FolderMode]:
    return [
        FolderMode(path=folder, owner=folder.stat().st_uid, mode=folder.stat().st_mode)
        for folder in reversed(path.parents)
    ]


def drilled(there: Rig, folder: Path, user: CopyUser) -> None:
    """Have `there` run the drill server as the user, by an interpreter that the user can run."""
    code = folder / "code"
    for package in ("", "hostelry", "hostelry/base"):
        (code / package).mkdir()
        (code / package).chmod(0o755)
    for module in IT_IMPORTS:
        shutil.copy(SOURCES / module, code / module)
    server = shutil.copy(SOURCES / DRILL, code / "drill_server.py")
    there.home.images.write_text(
        f'[[image]]\npattern = "drilled:*"\ncommand = ["{python_of_all()}", "{server}"]\n'
        '[image.probe]\ncontent_type = "application/json"\nbody = "{}"\n'
    )
    save_config(there.home, replace(load_config(there.home), copy_user=user))
    open_home(there.home)


def group_of(pid: int) -> str:
    return proc(pid, "status").split("Gid:\t")[1].split("\t")[0]


def as_copy(pid: int, asked: dict[str, list[Any]]) -> dict[str, Any]:
    """The outcome of these attempts by a process with the rights of the copy `pid`."""
    tried = subprocess.run(
        [python_of_all(), "-c", TRIES],
        input=json.dumps(asked),
        user=UID,
        group=int(group_of(pid)),
        extra_groups=[],
        cwd="/",
        capture_output=True,
        text=True,
        check=True,
    )
    reported: dict[str, Any] = json.loads(tried.stdout)
    return reported


def spec(copy_id: str) -> CopySpec:
    return echo(copy_id, image="drilled:1", environment={"DRILL_ANSWER": copy_id})


def refused_here(there: Rig) -> bool:
    """Whether this process may not start such copies, so that `up` refuses."""
    why_not = find_refusal(str(UID), UID, os.geteuid(), effective_capabilities())
    if why_not is None:
        return False
    with pytest.raises(TerminalError, match=re.escape(why_not)):
        check_copy_user(str(UID), there.home)
    return True


async def started(
    there: Rig, folder: Path, *copy_ids: str, user: CopyUser = USER
) -> tuple[HttpAgent, list[int]]:
    """An agent with these copies ready and measured, and their pids."""
    drilled(there, folder, user)
    agent = await there.launch()
    await agent.apply([spec(it) for it in copy_ids])
    pids = [(await until_ready(agent, it)).pid for it in copy_ids]
    await until(agent, lambda copies: all(it.memory_bytes > 0 for it in copies.values()))
    return agent, [pid for pid in pids if pid is not None]


def test_a_copy_of_another_user_serves_with_no_right_of_its_agent(folder: Path) -> None:
    async def work() -> None:
        agent, (pid, other) = await started(there, folder, "c-1", "c-2")
        async with httpx.AsyncClient(trust_env=False, verify=False) as http:
            reported = await until_ready(agent, "c-1")
            shown = {COPY_KEY_HEADER: reported.key or ""}
            answer = await http.post(f"{reported.address}/invocations", json={}, headers=shown)
        assert "c-1" in answer.text
        status = proc(pid, "status")
        assert f"Uid:\t{UID}\t{UID}\t{UID}\t{UID}\n" in status
        assert "Groups:\t \n" in status
        assert "NoNewPrivs:\t1" in status
        assert "CapPrm:\t0000000000000000" in status
        assert "Max core file size        0                    0" in proc(pid, "limits")
        assert group_of(pid) != group_of(other)
        assert f"HOME={there.folder().copy('c-1').root}/work\0" in proc(pid, "environ")

    with rig(folder) as there:
        if not refused_here(there):
            asyncio.run(work())


def test_a_copy_of_another_user_reads_and_signals_nothing_of_the_platform(folder: Path) -> None:
    async def work() -> None:
        _, (pid, other) = await started(there, folder, "c-1", "c-2")
        instance, home = there.folder(), there.home
        own, others = instance.copy("c-1"), instance.copy("c-2")
        private = [home.credentials, home.config, home.images, instance.desired, instance.agent_log]
        private += [own.record, own.root / "limits.json", own.log, others.record, others.log]
        private += [Path(f"/proc/{it}/environ") for it in (other, there.agent_pid())]
        closed = [home.root, home.objects, home.run, home.logs, instance.root, instance.copies]
        closed += [others.root, others.root / "work"]
        reported = as_copy(
            pid,
            {
                "read": [str(it) for it in private],
                "list": [str(it) for it in [*closed, own.model, own.root / "work"]],
                "write": [f"{own.root}/work/mine", f"{own.root}/copy.json", f"{own.model}/more"],
                "signal": [there.agent_pid(), os.getpid()],
            },
        )
        assert reported["read"] == {str(it): "PermissionError" for it in private}
        assert reported["list"] == {str(it): "PermissionError" for it in closed} | {
            str(own.model): "done",
            f"{own.root}/work": "done",
        }
        assert list(reported["write"].values()) == ["done", "PermissionError", "PermissionError"]
        assert set(reported["signal"].values()) == {"PermissionError"}
        assert reported["again root"] == "PermissionError"

    with rig(folder) as there:
        if not refused_here(there):
            asyncio.run(work())


def test_a_copy_of_another_user_is_adopted_started_again_and_ended(folder: Path) -> None:
    async def work() -> None:
        _, (pid,) = await started(there, folder, "c-1")
        kill(there.agent_pid())
        successor = await there.launch()
        assert (await until_ready(successor, "c-1")).pid == pid, "adopted, not restarted"
        kill(pid)
        await until(successor, lambda it: it["c-1"].restarts == 1)
        again = (await until_ready(successor, "c-1")).pid
        assert again is not None
        assert f"Uid:\t{UID}\t" in proc(again, "status")
        await successor.apply([])
        await until_gone(again)

    with rig(folder) as there:
        if not refused_here(there):
            asyncio.run(work())


def test_a_forked_copy_is_the_users_before_its_first_line(folder: Path) -> None:
    async def work() -> None:
        async with warm(folder) as there:
            launcher = ProcessLauncher(warm=there.forks, user=USER)
            process = await replace(there, launcher=launcher).start("c-1", OPTION_TASK="fork")
            copy = folder / "copies" / "c-1"
            file = copy / "work" / "told.json"
            await until_true(file.exists, "the copy runs")
            reported, pid = json.loads(file.read_text()), process.identity.pid
            assert (process.start_kind, reported["cwd"]) == ("warm", f"{copy}/work")
            assert reported["environment"]["HOME"] == f"{copy}/work"
            assert reported["environment"]["TMPDIR"] == f"{copy}/work"
            assert file.stat().st_uid == UID
            status = proc(pid, "status")
            assert f"Uid:\t{UID}\t{UID}\t{UID}\t{UID}\n" in status
            assert "CapPrm:\t0000000000000000" in status
            assert os.stat(f"/proc/{pid}").st_uid == UID, "it may look at itself"
            assert "this is a copy" in (copy / "log").read_text()
            await launcher.stop(copy, process.identity, 5.0)
            assert await process.wait() == -signal.SIGTERM

    with rig(folder / "unused") as there:
        if refused_here(there):
            return
    with left_clean(folder):
        asyncio.run(work())
