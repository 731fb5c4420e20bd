"""Memory, processor time, accelerators, disk and connections that copies use."""

import contextlib
import os
import shutil
import stat
import subprocess
import sys
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from hostelry.base.proc import (
    ESTABLISHED,
    LISTENING,
    TICKS_PER_S,
    ProcessIdentity,
    TcpSocket,
    open_files,
    process_stat,
    size_sum,
    sizes,
    socket_inodes,
    tcp_sockets,
)
from hostelry.domain.copy import GpuUse
from hostelry.fleet.host.processes import ProcessTable
from hostelry.fleet.records import CopyFolder

# Fields of smaps_rollup and of status.
HELD_BY_SHARE = (b"Pss_Anon", b"Pss_Shmem", b"SwapPss")
HELD_AT_MOST = (b"RssAnon", b"RssShmem", b"VmSwap")


class MemoryUse(msgspec.Struct, frozen=True, kw_only=True):
    """Memory of some processes together, in bytes.

    *Resident* memory includes mapped weights. Each shared page is divided by the processes that
    share it. A copy needs it to run fast. *Held* memory, the processes' own and shared memory, is
    all that the kernel cannot take back without swapping. Limits apply to held memory, as in a
    cgroup, because mapped weights can always be read again.
    """

    resident_bytes: int = 0
    held_bytes: int = 0


def memory_use(processes: Iterable[ProcessIdentity]) -> MemoryUse:
    """The memory of the processes together. A process that is gone has 0."""
    uses = [_use(process.pid) for process in processes]
    return MemoryUse(
        resident_bytes=sum(it.resident_bytes for it in uses),
        held_bytes=sum(it.held_bytes for it in uses),
    )


def bound_held_bytes(processes: Iterable[ProcessIdentity]) -> int:
    """An upper bound of `MemoryUse.held_bytes`, within microseconds. Counts shared pages again."""
    return sum(size_sum(f"{process.pid}/status", HELD_AT_MOST) for process in processes)


def cpu_seconds(processes: Iterable[ProcessIdentity]) -> float:
    """CPU seconds of the living processes and of children that they have waited for."""
    stats = (process_stat(process.pid) for process in processes)
    return sum(stat.cpu_ticks for stat in stats if stat is not None) / TICKS_PER_S


def _use(pid: int) -> MemoryUse:
    """The memory of one process, from its status if its pages may not be inspected."""
    shares = sizes(f"{pid}/smaps_rollup")
    if b"Pss" in shares:
        return MemoryUse(resident_bytes=shares[b"Pss"], held_bytes=_total(shares, HELD_BY_SHARE))
    status = sizes(f"{pid}/status")
    return MemoryUse(
        resident_bytes=status.get(b"VmRSS", 0), held_bytes=_total(status, HELD_AT_MOST)
    )


def _total(found: dict[bytes, int], names: Iterable[bytes]) -> int:
    return sum(found.get(name, 0) for name in names)


# Source: nvidia-smi --help-query-gpu.
TOOL = "nvidia-smi"
FIELDS = "index,uuid,utilization.gpu,memory.used,memory.total"
TIMEOUT_S = 2.0  # it hangs when the driver does


def gpu_uses() -> Mapping[str, GpuUse]:
    """The use of each device, by its number and by its UUID. Empty without nvidia-smi."""
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
    return parse_gpu_uses(answer.stdout)


def parse_gpu_uses(text: str) -> Mapping[str, GpuUse]:
    """The use of each device from the tool's lines, without devices that report "[N/A]"."""
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


def select_gpu_uses(devices: Sequence[str], machine: Mapping[str, GpuUse]) -> tuple[GpuUse, ...]:
    """The use of `devices`, without devices that have no reading."""
    return tuple(machine[it] for it in devices if it in machine)


BLOCK_BYTES = 512  # the unit of st_blocks. Source: inode(7)
LEAST_BYTES = 4096  # an empty file takes an inode
ENTRIES = 200_000  # counted at most. With more entries the sum is a lower bound


def written_bytes(folder: Path, processes: Iterable[ProcessIdentity], agents: Iterable[str]) -> int:
    """Bytes that the program in `folder` has written, including its log and unlinked open files.

    Top-level names in `agents` are the agent's files, which do not count.
    """
    seen = {it[:2]: it[2] for it in _files(folder, frozenset(agents))}
    with contextlib.suppress(OSError):
        device = folder.stat().st_dev
        seen |= {it[:2]: it[2] for it in _find_unlinked(processes) if it[0] == device}
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


def _find_unlinked(processes: Iterable[ProcessIdentity]) -> Iterator[tuple[int, int, int]]:
    for process in processes:
        for path in open_files(process.pid):
            with contextlib.suppress(OSError):
                found = os.stat(path)
                if stat.S_ISREG(found.st_mode) and found.st_nlink == 0:
                    yield _size(found)


def _size(found: os.stat_result) -> tuple[int, int, int]:
    return found.st_dev, found.st_ino, max(LEAST_BYTES, found.st_blocks * BLOCK_BYTES)


def _format_as_kernel(address: bytes) -> str:
    """An address as the kernel prints it, in words of the machine's byte order."""
    words = [address[at : at + 4] for at in range(0, len(address), 4)]
    return "".join(f"{int.from_bytes(it, sys.byteorder):08X}" for it in words)


LOOPBACK = bytes([127, 0, 0, 1])
COPIES_AT = frozenset(
    {_format_as_kernel(LOOPBACK), _format_as_kernel(bytes(10) + b"\xff\xff" + LOOPBACK)}
)


def open_connections(ports: Collection[int]) -> Mapping[int, int]:
    """Connections that other processes hold to each of `ports` on this machine.

    This process's own connections are pings and do not count. Raises OSError if the kernel's tables
    cannot be read.
    """
    return count_connections(tcp_sockets(), ports, socket_inodes(os.getpid()))


def count_connections(
    sockets: Iterable[TcpSocket], ports: Collection[int], own: Collection[int]
) -> Mapping[int, int]:
    """Established connections to loopback by their port, without the sockets of the inodes `own`.

    A connection is counted at its client's end, so that a container's own network makes no
    difference. Other addresses do not count, because another machine may use the same port.
    """
    found: Counter[int] = Counter(dict.fromkeys(ports, 0))
    for tcp in sockets:
        to_copy = tcp.state == ESTABLISHED and tcp.remote in COPIES_AT and tcp.remote_port in found
        if to_copy and tcp.inode not in own:
            found[tcp.remote_port] += 1
    return found


def belongs_to_another(port: int, folder: Path, table: ProcessTable) -> bool:
    """Whether other copies listen on `port`, but not the copy in `folder`.

    A copy listens on its port seconds after a free port was chosen. Meanwhile another copy may have
    got the same port. A listener that is not a copy may help a copy, as a container engine's proxy
    does.
    """
    try:
        listening = (it for it in tcp_sockets() if it.state == LISTENING)
        inodes = {it.inode for it in listening if it.local_port == port}
        own = table.by_marker.get(str(folder), ())
        if any(inodes & socket_inodes(row.pid) for row in own):
            return False  # without a look at the files of all other copies
        return any(inodes & socket_inodes(row.pid) for row in table if row.marker)
    except OSError:
        return False
