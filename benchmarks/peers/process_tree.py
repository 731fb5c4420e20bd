"""A process and everything it started: memory, processor time, pausing, stopping."""

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

KIB = 1024
TERM_WAIT_S = 15.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """Bytes of a whole process tree.

    `peak_rss_bytes` adds up each process's own peak, so that shared pages count more than once.
    `pss_bytes` is the present memory, with each shared page divided by the number of its mappings.
    """

    pss_bytes: int
    peak_rss_bytes: int


def members(pid: int) -> list[int]:
    """`pid` and its living descendants, parents first."""
    found = [pid]
    for each in found:
        for children in Path(f"/proc/{each}/task").glob("*/children"):
            with contextlib.suppress(OSError):
                found += [int(child) for child in children.read_text().split()]
    return found


def memory(pid: int) -> Memory:
    """The memory of the tree of `pid`. Processes that ended meanwhile count nothing."""
    pss, peak = 0, 0
    for each in members(pid):
        pss += _field_bytes(Path(f"/proc/{each}/smaps_rollup"), "Pss:")
        peak += _field_bytes(Path(f"/proc/{each}/status"), "VmHWM:")
    return Memory(pss_bytes=pss, peak_rss_bytes=peak)


def cpu_s(pid: int) -> float:
    """Processor time that the tree has used, in user and kernel mode."""
    return sum(own_cpu_s(each) for each in members(pid))


def own_cpu_s(pid: int) -> float:
    """Processor time of the process alone, or 0 if it has ended."""
    ticks = 0
    with contextlib.suppress(OSError):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        ticks = int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def machine_busy_s() -> float:
    """Processor time that everything on this machine has used, in user and kernel mode."""
    first = Path("/proc/stat").read_text().splitlines()[0].split()
    user, nice, system, _idle, _wait, interrupts, soft_interrupts = map(int, first[1:8])
    ticks = user + nice + system + interrupts + soft_interrupts
    return ticks / os.sysconf("SC_CLK_TCK")


def pause(pid: int) -> None:
    """Pause the tree's processes. `resume` continues them."""
    _signal(members(pid), signal.SIGSTOP)


def resume(pid: int) -> None:
    """Resume paused processes, children first."""
    _signal(reversed(members(pid)), signal.SIGCONT)


def stop(process: "subprocess.Popen[bytes] | subprocess.Popen[str]") -> None:
    """Ask the root to end, and later kill the remaining processes of the tree by their ids."""
    tree = members(process.pid)
    _signal(reversed(tree), signal.SIGCONT)
    process.terminate()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(TERM_WAIT_S)
    left = [pid for pid in tree[1:] if _alive(pid)]
    if process.poll() is None:
        left.append(process.pid)
    _signal(left, signal.SIGKILL)
    process.wait()
    give_up_at_s = time.monotonic() + TERM_WAIT_S
    while any(map(_alive, left)) and time.monotonic() < give_up_at_s:
        time.sleep(0.05)


def _signal(pids: Iterable[int], number: signal.Signals) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def _alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def _field_bytes(path: Path, name: str) -> int:
    try:
        lines = path.read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) * KIB for line in lines if line.startswith(name)), 0)
