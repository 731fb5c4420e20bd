"""`hostelry upgrade`: this version takes over what an earlier one runs; no copy is restarted.

`up` is killed, which everything else outlives, and the `up` of this version adopts or replaces
each process (`adoption`): gateway workers beside their successors, so that no connection is
refused. Then each agent in turn is asked to end; control starts its successor, which adopts its
copies.
"""

import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from hostelry.base.clock import monotonic_s
from hostelry.base.errors import TerminalError
from hostelry.base.proc import arguments, environment_value
from hostelry.fleet.host.processes import is_alive, send
from hostelry.fleet.records import InstanceFolder, ProcessIdentity, instance_folders
from hostelry.server.detached import StartupProgress, decode_options, start_detached
from hostelry.server.home import Home
from hostelry.server.run_file import RunFile, live_run_file, live_run_files
from hostelry.server.up_options import UpOptions

SYSTEMD_VARIABLE = "INVOCATION_ID"  # of each process that systemd starts, systemd.exec(5)
RESTARTED_WITHIN_S = 90.0
AGENT_WITHIN_S = 90.0
POLL_S = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class UpgradedHost:
    """What became of a host's processes; agents are named by their instances."""

    adopted: tuple[str, ...]
    replaced: tuple[str, ...]
    agents: tuple[str, ...]


def upgrade_host(home: Home, report: Callable[[str], None]) -> UpgradedHost:
    """Have this version take over the home's platform; blocks until it has.

    Raises TerminalError where none runs, or nothing would start `up` again, and where the new `up`
    or a new agent does not come: all else serves on then.
    """
    old = live_run_file(home, "up")
    if old is None:
        raise TerminalError(
            f"no `up` runs on {home.root}: `hostelry up` starts this version, and adopts what runs"
        )
    before = {it.name: it.pid for it in live_run_files(home)}
    if (watcher := live_run_file(home, "watcher")) is not None:
        restart_detached(home, old, watcher, report)
    elif environment_value(old.pid, SYSTEMD_VARIABLE) is not None:
        report("waiting for systemd to start `up`")
        os.kill(old.pid, signal.SIGKILL)
        await_up(home, old.pid)
    else:
        raise TerminalError(
            f"`up` (pid {old.pid}) runs in a terminal, where nothing would start it again: "
            f"`kill -9 {old.pid}`, and start it there with the same options"
        )
    agents = [renew_agent(folder, report) for folder in instance_folders(home.instances)]
    after = {it.name: it.pid for it in live_run_files(home) if it.name not in ("up", "watcher")}
    adopted = tuple(name for name, pid in after.items() if before.get(name) == pid)
    return UpgradedHost(
        adopted=adopted,
        replaced=tuple(name for name in after if name not in adopted),
        agents=tuple(name for name in agents if name is not None),
    )


def restart_detached(
    home: Home, old: RunFile, watcher: RunFile, report: Callable[[str], None]
) -> None:
    """Start `up` by this program with the options of the one that runs; raises TerminalError."""
    options = options_of(old)

    def show(progress: StartupProgress) -> None:
        if (text := progress.phase or progress.note) is not None:
            report(text)

    os.kill(old.pid, signal.SIGSTOP)  # it would start another watcher
    os.kill(watcher.pid, signal.SIGKILL)
    os.kill(old.pid, signal.SIGKILL)
    await_end(old)
    start_detached(options, show)


def options_of(up: RunFile) -> UpOptions:
    """The options of a detached `up`; raises TerminalError where its command line has none."""
    try:
        return decode_options(arguments(up.pid)[3])
    except (IndexError, msgspec.DecodeError) as error:
        raise TerminalError(
            f"the command line of `up` (pid {up.pid}) is not ours: {error}"
        ) from None


def await_end(record: RunFile) -> None:
    """Wait until a killed process is gone; raises TerminalError."""
    until(lambda: not record.alive, 10.0, f"`up` (pid {record.pid}) does not end")


def await_up(home: Home, old_pid: int) -> None:
    """Wait until systemd has started another `up`; raises TerminalError."""

    def is_there() -> bool:
        found = live_run_file(home, "up")
        return found is not None and found.pid != old_pid

    until(is_there, RESTARTED_WITHIN_S, "systemd started no other `up`: systemctl status hostelry")


def renew_agent(folder: InstanceFolder, report: Callable[[str], None]) -> str | None:
    """Have the instance's agent replaced, and its copies adopted; None where it has no agent.

    Raises TerminalError where no other comes.
    """
    record = folder.load_agent()
    if record is None or not is_alive(record.process):
        return None
    name = folder.root.name
    report(f"replacing the agent of {name}")
    send([record.process], signal.SIGTERM)
    until(
        lambda: is_replaced(folder, record.process),
        AGENT_WITHIN_S,
        f"instance {name} got no other agent; its copies run on. `hostelry logs control` has why",
    )
    return name


def is_replaced(folder: InstanceFolder, old: ProcessIdentity) -> bool:
    """Whether another agent listens for this instance."""
    now = folder.load_agent()
    return now is not None and now.process != old and now.port != 0 and is_alive(now.process)


def until(holds: Callable[[], bool], within_s: float, otherwise: str) -> None:
    """Wait until the condition holds; raises TerminalError with `otherwise` when it does not."""
    deadline = monotonic_s() + within_s
    while not holds():
        if monotonic_s() > deadline:
            raise TerminalError(f"{otherwise} (waited {within_s:g} s)")
        time.sleep(POLL_S)
