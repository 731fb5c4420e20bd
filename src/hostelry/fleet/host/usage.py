"""Memory, processor time, accelerators and disk that copies use."""

import contextlib
import os
import shutil
import stat
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from hostelry.base.proc import (
    TICKS_PER_S,
    ProcessIdentity,
    open_files,
    process_stat,
    size_sum,
    sizes,
)
from hostelry.domain.copy import GpuUse
from hostelry.fleet.records import CopyFolder

# Memory and CPU time of a copy's processes.
#
# Memory has two sizes, since they answer two questions. *Resident* is what the copy needs to run
# fast, mapped weights included, each shared page divided by the processes that share it. *Held* is
# what the kernel could not take back without swapping: the processes' own memory, and shared
# memory. A limit is on the second, as a cgroup's is: weights that are only mapped can always be
# read again.


# Fields of smaps_rollup and of status.
HELD_BY_SHARE = (b"Pss_Anon", b"Pss_Shmem", b"SwapPss")
HELD_AT_MOST = (b"RssAnon", b"RssShmem", b"VmSwap")


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryUse:
    """Memory of some processes together, in bytes."""

    resident_bytes: int = 0
    held_bytes: int = 0


def memory_use(processes: Iterable[ProcessIdentity]) -> MemoryUse:
    """The memory of the processes together; 0 for those that are gone."""
    uses = [_use(process.pid) for process in processes]
    return MemoryUse(
        resident_bytes=sum(it.resident_bytes for it in uses),
        held_bytes=sum(it.held_bytes for it in uses),
    )


def held_at_most(processes: Iterable[ProcessIdentity]) -> int:
    """An upper bound of `MemoryUse.held_bytes` for microseconds: counts shared pages repeatedly."""
    return sum(size_sum(f"{process.pid}/status", HELD_AT_MOST) for process in processes)


def cpu_seconds(processes: Iterable[ProcessIdentity]) -> float:
    """CPU seconds of the living processes and of children that they have waited for."""
    stats = (process_stat(process.pid) for process in processes)
    return sum(stat.cpu_ticks for stat in stats if stat is not None) / TICKS_PER_S


def _use(pid: int) -> MemoryUse:
    """One process's memory; by its status where its pages may not be inspected."""
    shares = sizes(f"{pid}/smaps_rollup")
    if b"Pss" in shares:
        return MemoryUse(resident_bytes=shares[b"Pss"], held_bytes=_total(shares, HELD_BY_SHARE))
    status = sizes(f"{pid}/status")
    return MemoryUse(
        resident_bytes=status.get(b"VmRSS", 0), held_bytes=_total(status, HELD_AT_MOST)
    )


def _total(found: dict[bytes, int], names: Iterable[bytes]) -> int:
    return sum(found.get(name, 0) for name in names)


# Utilization of the machine's accelerators, by nvidia-smi; empty where there is none.
#
# Source: nvidia-smi --help-query-gpu.


TOOL = "nvidia-smi"
FIELDS = "index,uuid,utilization.gpu,memory.used,memory.total"
TIMEOUT_S = 2.0  # it hangs when the driver does


def gpu_uses() -> Mapping[str, GpuUse]:
    """The use of each device of the machine, by its number and by its UUID."""
    tool = shutil.which(TOOL)
    if tool is None:
        return {}
    query = [tool, f"--query-gpu={FIELDS}", "--format=csv,noheader,nounits"]
    try:
        answer = subprocess.run(
            query, capture_output=True, text=True, timeout=TIMEOUT_S, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return {}
    return parsed(answer.stdout)


def parsed(text: str) -> Mapping[str, GpuUse]:
    """The tool's lines; a device that does not report ("[N/A]") is left out."""
    found: dict[str, GpuUse] = {}
    for line in text.splitlines():
        cells = [it.strip() for it in line.split(",")]
        try:
            number, uuid = cells[:2]
            busy, used_mb, total_mb = map(float, cells[2:])
            use = GpuUse(device=number, busy_percent=busy, memory_percent=100 * used_mb / total_mb)
        except (ValueError, ZeroDivisionError):
            continue
        found[number] = found[uuid] = use
    return found


def uses_of(devices: Sequence[str], machine: Mapping[str, GpuUse]) -> tuple[GpuUse, ...]:
    """The use of `devices`; those without a reading are left out."""
    return tuple(machine[it] for it in devices if it in machine)


# Disk usage of a copy that is a program: counting and removing what it wrote. Linux only.
#
# Counts the files in its folder, the log included, and unlinked files that it keeps open. Its model
# and the agent's own files there do not count.


BLOCK_BYTES = 512  # what st_blocks counts. Source: inode(7)
LEAST_BYTES = 4096  # an empty file takes an inode
ENTRIES = 200_000  # entries counted at most; the sum is then a lower bound


def written_bytes(folder: Path, processes: Iterable[ProcessIdentity], agents: Iterable[str]) -> int:
    """Bytes that the copy in `folder` uses; top-level names in `agents` are the agent's."""
    seen = {it[:2]: it[2] for it in _files(folder, frozenset(agents))}
    with contextlib.suppress(OSError):
        device = folder.stat().st_dev
        seen |= {it[:2]: it[2] for it in _unlinked(processes) if it[0] == device}
    return sum(seen.values())


def remove_written(folder: Path, agents: Iterable[str]) -> None:
    """Remove the files of a copy whose processes have ended, except its log."""
    kept = {*agents, CopyFolder(folder).log.name}
    with contextlib.suppress(OSError):
        for path in list(folder.iterdir()):
            if path.name in kept:
                continue
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)


def _files(folder: Path, agents: frozenset[str]) -> Iterator[tuple[int, int, int]]:
    """Device, inode and size of each file, of the first ENTRIES at most."""
    waiting, left = [os.fspath(folder)], ENTRIES
    while waiting:
        path = waiting.pop()
        with contextlib.suppress(OSError), os.scandir(path) as entries:
            for entry in entries:
                if path == os.fspath(folder) and entry.name in agents:
                    continue
                left -= 1
                if left < 0:
                    return
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(entry.path)
                with contextlib.suppress(OSError):
                    yield _size(entry.stat(follow_symlinks=False))


def _unlinked(processes: Iterable[ProcessIdentity]) -> Iterator[tuple[int, int, int]]:
    for process in processes:
        for path in open_files(process.pid):
            with contextlib.suppress(OSError):
                found = os.stat(path)
                if stat.S_ISREG(found.st_mode) and found.st_nlink == 0:
                    yield _size(found)


def _size(found: os.stat_result) -> tuple[int, int, int]:
    return found.st_dev, found.st_ino, max(LEAST_BYTES, found.st_blocks * BLOCK_BYTES)
