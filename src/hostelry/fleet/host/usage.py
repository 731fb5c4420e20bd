"""Memory and CPU time of a copy's processes.

Memory has two sizes, since they answer two questions. *Resident* is what the copy needs to run
fast, mapped weights included, each shared page divided by the processes that share it. *Held* is
what the kernel could not take back without swapping: the processes' own memory, and shared memory.
A limit is on the second, as a cgroup's is: weights that are only mapped can always be read again.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from hostelry.base.proc import TICKS_PER_S, ProcessIdentity, process_stat, size_sum, sizes

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
