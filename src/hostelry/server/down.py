"""`hostelry down`: ask `up` to stop, wait, and leave nothing behind whatever happened to it."""

import os
import signal
import time
from collections.abc import Callable
from enum import Enum

from hostelry.base.clock import monotonic_s
from hostelry.base.errors import TerminalError
from hostelry.fleet.sweep import stop_everything
from hostelry.server.home import Home
from hostelry.server.leftovers import end_services
from hostelry.server.process_table import process_stat
from hostelry.server.run_file import RunFile, live_run_file, live_run_files, remove_run_file

POLL_S = 0.05
KILL_WAIT_S = 10.0


class Leftover(Enum):
    """How a hostelry was found, and ended."""

    STOPPED = "stopped"
    KILLED = "killed"
    SWEPT = "swept"
    NOTHING = "not running"


def stop_hostelry(home: Home, timeout_s: float, phase: Callable[[str], None]) -> Leftover:
    """Return once no process of the home is left; blocks.

    An `up` that does not end within `timeout_s` is killed, and what it supervised with it.
    """
    record = live_run_file(home, "up")
    if record is not None and ask_to_stop(record):
        if wait_for_end(home, record, timeout_s, phase):
            return Leftover.STOPPED
        phase("killing what did not stop")
        kill(record)
        sweep(home)
        return Leftover.KILLED
    phase("looking for what an earlier hostelry left behind")
    return Leftover.SWEPT if sweep(home) else Leftover.NOTHING


def ask_to_stop(record: RunFile) -> bool:
    """Send SIGTERM; False where the process is gone by now."""
    try:
        os.kill(record.pid, signal.SIGTERM)
    except ProcessLookupError:
        return False
    return True


def wait_for_end(
    home: Home, record: RunFile, timeout_s: float, phase: Callable[[str], None]
) -> bool:
    """Whether `up` ended in time; tells which of its processes it is waiting for."""
    deadline = monotonic_s() + timeout_s
    told = ""
    while record.alive:
        if monotonic_s() > deadline:
            return False
        waiting_for = ", ".join(it.name for it in live_run_files(home) if it.name != "up")
        text = f"stopping {waiting_for or 'agents and copies'}"
        if text != told:
            phase(text)
            told = text
        time.sleep(POLL_S)
    return True


def kill(record: RunFile) -> None:
    """Kill `up` itself; the kernel ends its services with it.

    Raises TerminalError when the kernel keeps the process, as it does one that waits for a disk.
    """
    if process_stat(record.pid) is not None and record.alive:
        os.kill(record.pid, signal.SIGKILL)
    deadline = monotonic_s() + KILL_WAIT_S
    while record.alive:
        if monotonic_s() > deadline:
            raise TerminalError(
                f"process {record.pid} did not end within {KILL_WAIT_S:g} s of SIGKILL; "
                "it may be waiting for a disk: run `hostelry down` again"
            )
        time.sleep(POLL_S)


def sweep(home: Home) -> bool:
    """End services, agents and copies that nobody supervises; whether there were any."""
    ended = end_services(home)
    remove_run_file(home, "up")
    agents = any(home.instances.glob("*/agent.json"))
    stop_everything(home.instances)
    return bool(ended) or agents
