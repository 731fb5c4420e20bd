"""What this machine's processes are: who is alive, since when, with how much memory (Linux /proc).

A pid alone says little, because pids are reused: a process is named by its pid and the clock tick
it started at.
"""

import os
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

PROC = Path("/proc")
# Fields of /proc/PID/stat after the command's closing parenthesis (proc_pid_stat(5), minus two).
STATE_FIELD = 0
GROUP_FIELD = 2
START_FIELD = 19


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessStat:
    """One process as the kernel shows it; `start_ticks` counts from boot."""

    pid: int
    state: str
    group: int
    start_ticks: int


def parse_stat(text: str) -> ProcessStat:
    """The fields of a line of /proc/PID/stat; the command may hold spaces and parentheses."""
    pid, _, rest = text.partition(" ")
    fields = rest[rest.rindex(")") + 1 :].split()
    return ProcessStat(
        pid=int(pid),
        state=fields[STATE_FIELD],
        group=int(fields[GROUP_FIELD]),
        start_ticks=int(fields[START_FIELD]),
    )


def process_stat(pid: int) -> ProcessStat | None:
    """The process, or None where there is none (a zombie counts as none: it does nothing)."""
    try:
        stat = parse_stat((PROC / str(pid) / "stat").read_text())
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if stat.state in "ZX" else stat


def is_same_process(pid: int, start_ticks: int) -> bool:
    """Whether the process that had this pid and start is still alive."""
    stat = process_stat(pid)
    return stat is not None and stat.start_ticks == start_ticks


def every_process() -> Iterator[ProcessStat]:
    """Every live process that can be read now."""
    for entry in PROC.iterdir():
        if entry.name.isdigit() and (stat := process_stat(int(entry.name))) is not None:
            yield stat


def uptime_s(stat: ProcessStat) -> float:
    """Seconds since the process started."""
    since_boot_s = float((PROC / "uptime").read_text().split()[0])
    return max(0.0, since_boot_s - stat.start_ticks / os.sysconf("SC_CLK_TCK"))


def group_memory_bytes(group: int) -> int:
    """Resident memory of every process of a group; pages they share are counted once each."""
    return sum(memory_bytes(stat.pid) for stat in every_process() if stat.group == group)


def memory_bytes(pid: int) -> int:
    """Resident memory of one process; 0 once it is gone."""
    try:
        resident_pages = int((PROC / str(pid) / "statm").read_text().split()[1])
    except (FileNotFoundError, ProcessLookupError, IndexError):
        return 0
    return resident_pages * os.sysconf("SC_PAGE_SIZE")


def signal_group(group: int, number: signal.Signals) -> bool:
    """Signal every process of a group; False when none is left."""
    try:
        os.killpg(group, number)
    except ProcessLookupError:
        return False
    return True
