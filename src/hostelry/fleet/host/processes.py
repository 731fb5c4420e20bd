"""Processes of copies: identified, watched through pidfds and stopped as a whole. Linux only.

A copy is every process of its leader's session, and every process that carries the copy's folder in
its environment, so that a child which left the session is found too.
"""

import asyncio
import contextlib
import math
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Generic, TypeVar

import msgspec

from hostelry.base.clock import monotonic_s, thread_cpu_s
from hostelry.base.proc import (
    TICKS_PER_S,
    ProcessIdentity,
    boot_id,
    environment_value,
    is_same_process,
    process_stat,
)
from hostelry.base.proc import processes as living_processes
from hostelry.fleet.rules.copy_user import RunAs

T = TypeVar("T")

MARKER_VARIABLE = "HOSTELRY_COPY_FOLDER"
SCAN_PAUSE_S = 0.05
SCAN_REST = 3.0  # times a scan's processor time, so that scans take at most a quarter of a core
ORPHAN_GRACE_S = 1.0
KILL_PATIENCE_S = 5.0
SETTLED_S = 60.0  # a process without a marker by then has run its program, and gets no marker

# By pid and start. Replaced as a whole, so that threads may share it.
_markers: dict[tuple[int, int], str | None] = {}


class ProcessRow(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the process table."""

    pid: int
    session: int
    start_ticks: int
    marker: str | None


class ProcessTable(tuple[ProcessRow, ...]):
    """Every living process at one moment, found by its copy's folder or by its session."""

    @cached_property
    def by_marker(self) -> Mapping[str, Sequence[ProcessRow]]:
        """The processes of each copy's folder."""
        found: dict[str, list[ProcessRow]] = {}
        for row in self:
            if row.marker is not None:
                found.setdefault(row.marker, []).append(row)
        return found

    @cached_property
    def by_session(self) -> Mapping[int, Sequence[ProcessRow]]:
        """The processes of each session."""
        found: dict[int, list[ProcessRow]] = {}
        for row in self:
            found.setdefault(row.session, []).append(row)
        return found

    @cached_property
    def starts(self) -> Mapping[int, int]:
        """The start of each process, by its pid."""
        return {row.pid: row.start_ticks for row in self}


def identify(pid: int) -> ProcessIdentity | None:
    """The identity of the living process `pid`, or None. A zombie does not live."""
    stat = process_stat(pid)
    if stat is None:
        return None
    return ProcessIdentity(pid=pid, start_ticks=stat.start_ticks, boot_id=boot_id())


def is_alive(process: ProcessIdentity) -> bool:
    """Whether exactly this process still runs."""
    return process.boot_id == boot_id() and is_same_process(process.pid, process.start_ticks)


def own_identity() -> ProcessIdentity:
    """The identity of the calling process."""
    mine = identify(os.getpid())
    assert mine is not None
    return mine


def process_table() -> ProcessTable:
    """Every living process, with the copy folder that its environment names if it is readable.

    Reading environments takes five times as long as everything else. So an environment that cannot
    change any more is read only once.
    """
    global _markers
    known, kept, rows = _markers, dict[tuple[int, int], str | None](), list[ProcessRow]()
    settled = (time.clock_gettime(time.CLOCK_BOOTTIME) - SETTLED_S) * TICKS_PER_S
    for stat in living_processes():
        key = stat.pid, stat.start_ticks
        is_known = key in known
        marker = known[key] if is_known else read_copy_folder(stat.pid)
        if marker is not None or stat.start_ticks < settled:
            kept[key] = marker
        rows.append(
            ProcessRow(
                pid=stat.pid, session=stat.session, start_ticks=stat.start_ticks, marker=marker
            )
        )
    _markers = kept
    return ProcessTable(rows)


def read_copy_folder(pid: int) -> str | None:
    """The copy's folder that a process's environment names, if it is readable.

    A process that was just forked from a warm interpreter has the interpreter's placeholder until
    it writes its folder there. Only a folder begins with a slash.
    """
    value = environment_value(pid, MARKER_VARIABLE)
    return value if value is not None and value.startswith("/") else None


class Recent(Generic[T]):
    """A fact about the machine that is read again only after `max_age_s`. Copies share it."""

    def __init__(self, read: Callable[[], T], max_age_s: float) -> None:
        self._read = read
        self._max_age_s = max_age_s
        self._lock = threading.Lock()
        self._known: tuple[float, T] | None = None  # with the instant at which it was read

    def value(self) -> T:
        """The fact, at most `max_age_s` old."""
        with self._lock:
            if self._known is None or monotonic_s() - self._known[0] > self._max_age_s:
                self._known = monotonic_s(), self._read()
            return self._known[1]


class ProcessScans:
    """Scans of the process table, in a thread. Calls that wait for a scan's start share the scan.

    So hundreds of copies may end at once and each look for their processes. After a scan the next
    waits for `SCAN_REST` times the scan's processor time.
    """

    def __init__(self) -> None:
        self._running: asyncio.Task[ProcessTable] | None = None
        self._next: asyncio.Task[ProcessTable] | None = None
        self._rested_at = -math.inf  # the earliest begin of the next scan

    async def fresh(self) -> ProcessTable:
        """The table, read after the call."""
        loop = asyncio.get_running_loop()
        if self._next is None or self._next.get_loop() is not loop:
            before = self._running
            if before is not None and before.get_loop() is not loop:
                before = None
            self._next = loop.create_task(self._scan(before), name="scan of processes")
        return await asyncio.shield(self._next)

    async def _scan(self, before: "asyncio.Task[ProcessTable] | None") -> ProcessTable:
        if before is not None:
            await asyncio.wait({before})
        await asyncio.sleep(max(0.0, self._rested_at - monotonic_s()))
        self._running, self._next = self._next, None
        return await asyncio.to_thread(self._read)

    def _read(self) -> ProcessTable:
        used_s = thread_cpu_s()
        table = process_table()
        self._rested_at = monotonic_s() + (thread_cpu_s() - used_s) * SCAN_REST
        return table


SCANS = ProcessScans()


def find_members(
    table: ProcessTable, folder: Path, leader: ProcessIdentity | None
) -> list[ProcessIdentity]:
    """The processes of the copy in `folder`, whose recorded leader may be dead or unknown.

    If the leader's pid now belongs to another program, its session is gone, because the kernel does
    not reuse a pid while a session of that number exists.
    """
    session = _living_session(table, leader)
    found = {row.pid: row for row in table.by_marker.get(str(folder), ())}
    if session is not None:
        found |= {row.pid: row for row in table.by_session.get(session, ())}
    return [
        ProcessIdentity(pid=row.pid, start_ticks=row.start_ticks, boot_id=boot_id())
        for row in found.values()
    ]


def send(processes: Iterable[ProcessIdentity], number: signal.Signals) -> None:
    """Signal all of the processes that are still alive."""
    for process in processes:
        with contextlib.suppress(OSError):
            pidfd = os.pidfd_open(process.pid)
            try:
                if is_alive(process):
                    signal.pidfd_send_signal(pidfd, number)
            finally:
                os.close(pidfd)


def signal_group(group: int, number: signal.Signals) -> bool:
    """Signal every process of a group. False if the group has no processes."""
    try:
        os.killpg(group, number)
    except ProcessLookupError:
        return False
    return True


class WatchedProcess:
    """A process whose end is noticed at once: a child of this process, or an adopted one."""

    memory_limit = ""  # none is enforced
    start_kind = "cold"

    def __init__(
        self, identity: ProcessIdentity, child: "subprocess.Popen[bytes] | None" = None
    ) -> None:
        self.identity = identity
        self._child = child

    @classmethod
    def adopt(cls, identity: ProcessIdentity) -> "WatchedProcess | None":
        """The recorded process, or None if it has ended."""
        return cls(identity) if is_alive(identity) else None

    @classmethod
    def start(
        cls,
        argv: Sequence[str],
        environment: Mapping[str, str],
        folder: Path,
        log: Path,
        pass_fds: Sequence[int] = (),
        run_as: RunAs | None = None,
    ) -> "WatchedProcess":
        """Start `argv` in a new session. Its output is appended to `log`.

        With `run_as` it runs as that user, without supplementary groups. Raises OSError if the
        program cannot be started.
        """
        descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            child = subprocess.Popen(
                list(argv),
                env=dict(environment),
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=descriptor,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                pass_fds=pass_fds,
                user=run_as.uid if run_as else None,
                group=run_as.gid if run_as else None,
                extra_groups=() if run_as else None,
            )
        finally:
            os.close(descriptor)
        reap(child)
        # A child that has already ended is a zombie, which is known only by its pid.
        identity = identify(child.pid) or ProcessIdentity(
            pid=child.pid, start_ticks=-1, boot_id=boot_id()
        )
        return cls(identity, child)

    def begin(self) -> None:
        """Let a forked process run. A program runs already."""

    async def wait(self) -> int | None:
        """Wait for the end. Returns a child's exit code (negative: the signal), otherwise None."""
        try:
            pidfd = os.pidfd_open(self.identity.pid)
        except OSError:
            return self._exit_code()
        try:
            if self._child is not None or is_alive(self.identity):
                await _readable(pidfd)
        finally:
            os.close(pidfd)
        return self._exit_code()

    def _exit_code(self) -> int | None:
        return self._child.wait() if self._child is not None else None


def reap(child: "subprocess.Popen[bytes]") -> None:
    """Collect the child's exit status in a thread, so that no zombie is left."""
    threading.Thread(target=child.wait, name=f"reap {child.pid}", daemon=True).start()


async def stop_processes(
    folder: Path, leader: ProcessIdentity | None, grace_s: float
) -> list[ProcessIdentity]:
    """End every process of the copy in `folder`: TERM, then KILL after `grace_s`.

    Returns the processes that survived even KILL.
    """
    stopping = _Stopping([(folder, leader)], grace_s)
    while True:
        if not stopping.signal_members(await SCANS.fresh()):
            return stopping.left
        await asyncio.sleep(SCAN_PAUSE_S)


def stop_all(
    groups: Sequence[tuple[Path, ProcessIdentity | None]], grace_s: float
) -> list[ProcessIdentity]:
    """As `stop_processes` for every (folder, leader) at once. Blocks."""
    stopping = _Stopping(groups, grace_s)
    while stopping.signal_members(process_table()):
        time.sleep(SCAN_PAUSE_S)
    return stopping.left


class _Stopping:
    """Stops copies: signals their processes in rounds, each with a scan of the process table."""

    def __init__(
        self, groups: Sequence[tuple[Path, ProcessIdentity | None]], grace_s: float
    ) -> None:
        self._groups = groups
        self._kill_at = monotonic_s() + grace_s
        self._give_up_at: float | None = None
        self._terminated: set[ProcessIdentity] = set()
        self.left: list[ProcessIdentity] = []

    def signal_members(self, table: ProcessTable) -> bool:
        """Signal the remaining processes. False once all have ended, or time is up.

        now >= _give_up_at -> stop trying, with the remaining processes in `left`
        a leader lives     -> TERM, once each, until `grace_s` is over
        no leader lives    -> TERM, for ORPHAN_GRACE_S at most
        afterwards         -> KILL in every round
        """
        found: set[ProcessIdentity] = set()
        for folder, leader in self._groups:
            found.update(find_members(table, folder, leader))
        self.left = sorted(found, key=lambda it: it.pid)
        now = monotonic_s()
        if not found or (self._give_up_at is not None and now >= self._give_up_at):
            return False
        if not any(leader in found for _, leader in self._groups):
            # Children that outlive their model server have no process that would stop them.
            self._kill_at = min(self._kill_at, now + ORPHAN_GRACE_S)
        if now >= self._kill_at:
            # Again in every round, since they may have forked meanwhile.
            self._give_up_at = self._give_up_at or now + KILL_PATIENCE_S
            send(found, signal.SIGKILL)
        else:
            send(found - self._terminated, signal.SIGTERM)
            self._terminated |= found
        return True


async def _readable(descriptor: int) -> None:
    loop = asyncio.get_running_loop()
    done = loop.create_future()

    def resolve() -> None:
        if not done.done():
            done.set_result(None)

    loop.add_reader(descriptor, resolve)
    try:
        await done
    finally:
        loop.remove_reader(descriptor)


def _living_session(table: ProcessTable, leader: ProcessIdentity | None) -> int | None:
    if leader is None or leader.boot_id != boot_id():
        return None
    is_reused = table.starts.get(leader.pid, leader.start_ticks) != leader.start_ticks
    return None if is_reused else leader.pid
