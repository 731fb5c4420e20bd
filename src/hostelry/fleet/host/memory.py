"""What processes hold in memory, as the kernel counts it. Linux only: reads /proc.

Two numbers, since they answer two questions. *Resident* is what the copy needs to run fast, mapped
weights included, each shared page divided by the processes that share it. *Held* is what the kernel
could not take back without swapping: memory of the processes' own, and shared memory. A limit is
on the second, as a cgroup's is: weights that are only mapped can always be read again.
"""

import contextlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from hostelry.fleet.records import ProcessIdentity

PROC = Path("/proc")
KIB = 1024
# Source: proc(5), smaps_rollup and status; all in kB.
HELD_BY_SHARE = (b"Pss_Anon", b"Pss_Shmem", b"SwapPss")
HELD_AT_MOST = (b"RssAnon", b"RssShmem", b"VmSwap")


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryUse:
    """Memory of some processes together, in bytes."""

    resident_bytes: int = 0
    held_bytes: int = 0


def memory_use(processes: Iterable[ProcessIdentity]) -> MemoryUse:
    """What the processes hold together; those that are gone hold nothing."""
    uses = [_use(PROC / str(process.pid)) for process in processes]
    return MemoryUse(
        resident_bytes=sum(it.resident_bytes for it in uses),
        held_bytes=sum(it.held_bytes for it in uses),
    )


def held_at_most(processes: Iterable[ProcessIdentity]) -> int:
    """A bound of `MemoryUse.held_bytes` that costs microseconds: shared pages count for each."""
    folders = (PROC / str(process.pid) for process in processes)
    return sum(_total(_fields(folder / "status"), HELD_AT_MOST) for folder in folders)


def machine_kills() -> int:
    """How many processes the kernel has killed for want of memory since the boot."""
    with contextlib.suppress(OSError, ValueError):
        for line in (PROC / "vmstat").read_bytes().splitlines():
            name, _, value = line.partition(b" ")
            if name == b"oom_kill":
                return int(value)
    return 0


def _use(folder: Path) -> MemoryUse:
    """One process's memory; what its status says where its pages may not be looked at."""
    shares = _fields(folder / "smaps_rollup")
    if b"Pss" in shares:
        return MemoryUse(
            resident_bytes=shares[b"Pss"] * KIB, held_bytes=_total(shares, HELD_BY_SHARE)
        )
    status = _fields(folder / "status")
    return MemoryUse(
        resident_bytes=status.get(b"VmRSS", 0) * KIB, held_bytes=_total(status, HELD_AT_MOST)
    )


def _total(fields: dict[bytes, int], names: Iterable[bytes]) -> int:
    return sum(fields.get(name, 0) for name in names) * KIB


def _fields(path: Path) -> dict[bytes, int]:
    """The lines "Name:   123 kB" of a file; empty when it cannot be read."""
    try:
        text = path.read_bytes()
    except OSError:
        return {}
    found = {}
    for line in text.splitlines():
        name, _, value = line.partition(b":")
        if value.endswith(b" kB"):
            found[name] = int(value[:-3])
    return found
