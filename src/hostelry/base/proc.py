"""Reader of /proc: what Linux publishes of processes, their files and sockets, and the machine.

The one place that parses it. What a process that has ended, or one of another user, does not show
reads as None or empty: processes end while they are looked at. Any other failure, such as too many
open files, raises OSError: it must not pass for the end of a process. Source: proc(5).
"""

import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import NamedTuple

import msgspec

PROC = Path("/proc")
TICKS_PER_S = os.sysconf("SC_CLK_TCK")
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
KIB = 1024
ESTABLISHED, LISTENING = "01", "0A"  # states of TCP sockets
NUM_TCP_FIELDS = 10
NOT_SHOWN = (FileNotFoundError, ProcessLookupError, PermissionError)


class ProcessStat(NamedTuple):
    """A process as its `stat` shows it.

    `start_ticks` counts from the boot. With the pid it names the process, since pids are reused.
    `cpu_ticks` includes children that it has waited for. `environment_at` is the address of the
    variables it was started with, 0 if the process may not be inspected.
    """

    pid: int
    state: str
    group: int
    session: int
    cpu_ticks: int
    num_threads: int
    start_ticks: int
    environment_at: int


class ProcessIdentity(msgspec.Struct, frozen=True, kw_only=True):
    """A process, beyond doubt: the kernel reuses pids.

    `start_ticks` is the kernel's start time of the process, `boot_id` the boot it is counted from.
    """

    pid: int
    start_ticks: int
    boot_id: str


class TcpSocket(NamedTuple):
    """A row of the TCP tables. `remote` is an address as the kernel prints it."""

    local_port: int
    remote: str
    remote_port: int
    state: str
    inode: int


class CpuTimes(NamedTuple):
    """Ticks of all CPUs since the boot."""

    total: int
    idle: int


def parse_stat(text: bytes) -> ProcessStat:
    """The fields of a `stat`, by their numbers in proc_pid_stat(5)."""
    # The command in parentheses may itself hold spaces and parentheses.
    before, after = text.split(b" ", 1)[0], text[text.rindex(b")") + 2 :]
    fields = [b"", before, b"", *after.split()]
    return ProcessStat(
        pid=int(before),
        state=fields[3].decode(),
        group=int(fields[5]),
        session=int(fields[6]),
        cpu_ticks=sum(map(int, fields[14:18])),
        num_threads=int(fields[20]),
        start_ticks=int(fields[22]),
        environment_at=int(fields[50]),
    )


def process_stat(pid: int) -> ProcessStat | None:
    """Return the living process `pid`, or None. A zombie is not alive."""
    text = _read(f"{pid}/stat")
    stat = parse_stat(text) if text else None
    return None if stat is None or stat.state in "ZXx" else stat


def thread_states(pid: int) -> list[str]:
    """The state of each thread of a process, such as R, S, D or T. Empty once it is gone."""
    try:
        threads = os.listdir(PROC / str(pid) / "task")
    except NOT_SHOWN:
        return []
    texts = [_read(f"{pid}/task/{name}/stat") for name in threads]
    return [parse_stat(text).state for text in texts if text]


def processes() -> Iterator[ProcessStat]:
    """Every living process."""
    for entry in os.listdir(PROC):
        if entry.isdigit() and (stat := process_stat(int(entry))) is not None:
            yield stat


def is_same_process(pid: int, start_ticks: int) -> bool:
    """Whether the process that had this pid and start is still alive."""
    stat = process_stat(pid)
    return stat is not None and stat.start_ticks == start_ticks


def uptime_s(stat: ProcessStat) -> float:
    """Seconds since the process started."""
    since_boot_s = float((PROC / "uptime").read_text().split()[0])
    return max(0.0, since_boot_s - stat.start_ticks / TICKS_PER_S)


def first_environment(pid: int) -> bytes:
    """The variables that a process was started with, NUL-terminated. It may have changed them."""
    return _read(f"{pid}/environ")


def environment_value(pid: int, name: str) -> str | None:
    """The value of a variable that a process was started with."""
    prefix = name.encode() + b"="
    for entry in first_environment(pid).split(b"\0"):
        if entry.startswith(prefix):
            return os.fsdecode(entry[len(prefix) :])
    return None


def arguments(pid: int) -> list[str]:
    """The command line of a process, program first. Empty once it is gone."""
    # A forked process shows its own in the space of its parent's, filled up with zeros.
    shown = _read(f"{pid}/cmdline").rstrip(b"\0")
    return [os.fsdecode(it) for it in shown.split(b"\0")] if shown else []


def resident_bytes(pid: int) -> int:
    """Resident memory of one process, shared pages included."""
    fields = _read(f"{pid}/statm").split()
    return int(fields[1]) * PAGE_BYTES if fields else 0


def group_resident_bytes(group: int) -> int:
    """Resident memory of a process group. A shared page counts once for each process."""
    return sum(resident_bytes(stat.pid) for stat in processes() if stat.group == group)


def size_sum(path: str, names: Iterable[bytes]) -> int:
    """The bytes of these lines of a file as `sizes` reads it, in a quarter of its time."""
    text, total = b"\n" + _read(path), 0
    for name in names:
        at = text.find(b"\n%b:" % name)
        if at >= 0:
            total += int(text[at + len(name) + 2 : text.index(b" kB", at)]) * KIB
    return total


def sizes(path: str) -> dict[bytes, int]:
    """Bytes by name, of the lines "Name:   123 kB" in a file such as PID/status or meminfo."""
    found = {}
    for line in _read(path).splitlines():
        name, _, value = line.partition(b":")
        if value.endswith(b" kB"):
            found[name] = int(value[:-3]) * KIB
    return found


def cpu_wait_s(pid: int) -> float:
    """Seconds for which a process's first thread could run and had no CPU, by proc(5)'s schedstat.

    0 if the process does not exist, or if the kernel does not count them.
    """
    fields = _read(f"{pid}/schedstat").split()
    return int(fields[1]) / 1e9 if len(fields) > 1 else 0.0


def open_files(pid: int) -> list[str]:
    """The paths below /proc that stand for the files a process has open."""
    try:
        return [f"{PROC}/{pid}/fd/{name}" for name in os.listdir(PROC / str(pid) / "fd")]
    except NOT_SHOWN:
        return []


def socket_inodes(pid: int) -> set[int]:
    """The inodes of the sockets a process has open."""
    found = set()
    for path in open_files(pid):
        with suppress(OSError):  # closed meanwhile
            target = os.readlink(path)
            if target.startswith("socket:["):
                found.add(int(target[len("socket:[") : -1]))
    return found


def tcp_sockets() -> Iterator[TcpSocket]:
    """Every TCP socket of this network namespace."""
    for name in ("tcp", "tcp6"):
        with suppress(FileNotFoundError):  # a machine without IPv6 has no such table
            yield from parse_tcp((PROC / "net" / name).read_text())


def parse_tcp(text: str) -> Iterator[TcpSocket]:
    """The rows of a TCP table, without torn rows."""
    for line in text.splitlines()[1:]:
        fields = line.split()
        if len(fields) >= NUM_TCP_FIELDS:
            remote, _, remote_port = fields[2].rpartition(":")
            local_port = int(fields[1].rpartition(":")[2], 16)
            yield TcpSocket(local_port, remote, int(remote_port, 16), fields[3], int(fields[9]))


def oom_kills() -> int:
    """Processes that the kernel killed since the boot because memory ran out. 0 if unknown."""
    with suppress(OSError):
        for line in (PROC / "vmstat").read_bytes().splitlines():
            if line.startswith(b"oom_kill "):
                return int(line.split()[1])
    return 0


def cpu_times() -> CpuTimes:
    """What the CPUs of the machine have done so far."""
    return parse_cpu_times((PROC / "stat").read_bytes())


def parse_cpu_times(text: bytes) -> CpuTimes:
    """The first line of proc_stat(5). Its user time includes virtual machines already."""
    ticks = [int(field) for field in text.splitlines()[0].split()[1:9]]
    return CpuTimes(total=sum(ticks), idle=sum(ticks[3:5]))  # idle and iowait


def effective_capabilities() -> int:
    """The capabilities of this process, a bit each."""
    for line in (PROC / "self/status").read_text().splitlines():
        if line.startswith("CapEff:"):
            return int(line.split()[1], 16)
    return 0


@cache
def boot_id() -> str:
    """The kernel's id of this boot."""
    return (PROC / "sys/kernel/random/boot_id").read_text().strip()


def _read(path: str) -> bytes:
    try:
        with open(f"{PROC}/{path}", "rb", buffering=0) as file:
            return file.readall()
    except NOT_SHOWN:
        return b""
