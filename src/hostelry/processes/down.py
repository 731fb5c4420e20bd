"""`hostelry down`: stop `up` and every process that this or a killed `up` has left running."""

import fcntl
import os
import signal
import time
from collections.abc import Callable
from enum import Enum
from typing import IO

from hostelry.base.clock import monotonic_s
from hostelry.base.errors import TerminalError
from hostelry.base.proc import process_stat
from hostelry.home.home import Home
from hostelry.home.run_file import RunFile, live_run_file, live_run_files, remove_run_file
from hostelry.processes.fleets import stop_fleet
from hostelry.processes.leftovers import AFTER_COPIES, BEFORE_COPIES, end_services, wait_gone

POLL_S = 0.05
KILL_WAIT_S = 10.0


class StopOutcome(Enum):
    """Outcome of `hostelry down`."""

    STOPPED = "stopped"
    KILLED = "killed"
    SWEPT = "swept"
    NOTHING = "not running"


def stop_hostelry(home: Home, timeout_s: float, phase: Callable[[str], None]) -> StopOutcome:
    """Stop every process of the home. Blocks until all have ended.

    An `up` that does not end within `timeout_s` is killed together with its services. If no `up`
    runs, the processes that it left are ended with their grace periods. No watcher restarts `up`.
    """
    home.kept.unlink(missing_ok=True)
    deadline = monotonic_s() + timeout_s
    outcome, shown = StopOutcome.NOTHING, ""
    asked: RunFile | None = None
    while (lock := take_lock(home)) is None:  # `up` takes it before it writes anything
        record = live_run_file(home, "up")
        if record is not None and record != asked and ask_to_stop(record):
            asked, outcome = record, StopOutcome.STOPPED
        if record is not None and monotonic_s() > deadline:
            phase("killing the processes that did not stop")
            kill(record)
            outcome = StopOutcome.KILLED
        elif monotonic_s() > deadline + KILL_WAIT_S:
            raise TerminalError(f"an `up` of {home.root} neither starts nor ends; see its log")
        if (text := describe_wait(home)) != shown:
            phase(text)
            shown = text
        time.sleep(POLL_S)
    with lock:
        if asked is not None and not wait_gone(asked, KILL_WAIT_S):
            kill(asked)
        if outcome is StopOutcome.NOTHING:
            phase("looking for processes that an earlier hostelry left")
        swept = sweep(home, at_once=outcome is StopOutcome.KILLED)
    return StopOutcome.SWEPT if swept and outcome is StopOutcome.NOTHING else outcome


def take_lock(home: Home) -> IO[str] | None:
    """Take the home's lock until the file is closed. None while an `up` holds it."""
    file = home.up_lock.open("a")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.close()
        return None
    return file


def describe_wait(home: Home) -> str:
    """The processes that a stop waits for, in words."""
    names = ", ".join(it.name for it in live_run_files(home) if it.name != "up")
    return f"stopping {names or 'agents and copies'}"


def ask_to_stop(record: RunFile) -> bool:
    """Send SIGTERM. False if the process is gone."""
    try:
        os.kill(record.pid, signal.SIGTERM)
    except ProcessLookupError:
        return False
    return True


def kill(record: RunFile) -> None:
    """Kill `up` itself.

    Raises TerminalError if the kernel keeps the process, as while it waits for a disk.
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


def sweep(home: Home, *, at_once: bool = False) -> bool:
    """End services, agents and copies without a supervisor. False if nothing ran."""
    ended = end_services(home, BEFORE_COPIES, at_once=at_once)
    agents = not home.instances.is_symlink() and any(home.instances.glob("*/agent.json"))
    problem = stop_fleet(home)
    ended += end_services(home, AFTER_COPIES)
    remove_run_file(home, "up")
    if problem is not None:
        raise TerminalError(problem)
    return bool(ended) or agents
