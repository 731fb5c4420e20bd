"""Process of a copy within its limits: confined at its start, watched, its end explained.

The kernel enforces the memory limit where a cgroup can be created. Otherwise the memory is measured
twice a second, and the copy is killed above its limit. Its folder is measured every two seconds.
"""

import asyncio
import contextlib
import ctypes
import itertools
import logging
import os
import resource
import shutil
import signal
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path

import msgspec

from hostelry.base.concurrency import run_periodically
from hostelry.base.files import write_whole
from hostelry.base.json import decode
from hostelry.base.proc import PROC, ProcessIdentity, oom_kills
from hostelry.fleet.host.cgroups import CgroupParent, CopyGroup, make_group, remove_groups
from hostelry.fleet.host.processes import (
    Recent,
    WatchedProcess,
    identify,
    is_alive,
    members,
    process_table,
    send,
)
from hostelry.fleet.host.usage import held_at_most, memory_use, remove_written, written_bytes
from hostelry.fleet.rules.copy_user import RunAs
from hostelry.fleet.rules.limits import (
    CopyLimits,
    MemoryEvidence,
    disk_budget_bytes,
    disk_cause,
    memory_cause,
    over_limit,
)

LOG = logging.getLogger(__name__)

LIMITS_FILE = "limits.json"
# In a copy's folder; do not count as the copy's.
AGENT_FILES = ("copy.json", "model", "packages", LIMITS_FILE)
LOOK_EVERY_S = 0.5
IDLE_LOOK_EVERY_S = 2.0  # without a limit: only to notice kills by the kernel
SEARCH_EVERY_S = 2.0  # for processes that it has started since
# All copies look at the same moments.
TABLE = Recent(process_table, max_age_s=SEARCH_EVERY_S / 4)
KILLS = Recent(oom_kills, max_age_s=LOOK_EVERY_S / 4)
COPY_OOM_SCORE = 500  # out of memory, the kernel kills a copy before the platform
MAX_OPEN_FILES = 65_536
PR_SET_NO_NEW_PRIVS = 38


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitRecord:
    """limits.json in a copy's folder: its limits, for the next agent."""

    max_memory_bytes: int | None = None
    max_disk_bytes: int | None = None
    groups: tuple[str, ...] = ()
    memory_group: str | None = None

    @classmethod
    def load(cls, folder: Path) -> "LimitRecord":
        """The record of the copy in `folder`; an empty one if none can be read."""
        try:
            return decode((folder / LIMITS_FILE).read_bytes(), cls)
        except (OSError, msgspec.DecodeError, msgspec.ValidationError):
            return cls()

    def save(self, folder: Path) -> None:
        """Write it. On a full disk the next agent misses the limits; the copy runs on."""
        with contextlib.suppress(OSError):
            write_whole(folder / LIMITS_FILE, msgspec.json.encode(self), durable=False)

    @property
    def group(self) -> CopyGroup | None:
        """The copy's control group, where it has one."""
        if not self.groups:
            return None
        memory = Path(self.memory_group) if self.memory_group else None
        return CopyGroup(folders=tuple(map(Path, self.groups)), memory=memory)

    @property
    def memory_limit(self) -> str:
        """How the limit is enforced, as `CopyStatus.memory_limit` reports it."""
        if self.max_memory_bytes is None:
            return ""
        return "cgroup" if self.memory_group else "watched"


@dataclass(slots=True)
class _Measured:
    """The latest measurements of a copy."""

    known: list[ProcessIdentity] = field(default_factory=list)
    evidence: MemoryEvidence = field(default_factory=MemoryEvidence)
    machine_kills: int = 0
    over_disk_bytes: int = 0  # bytes written, if it was killed for them


class LimitedProcess:
    """A copy's first process, whose memory and disk use are watched during `wait`."""

    def __init__(self, process: WatchedProcess, folder: Path, record: LimitRecord) -> None:
        self._process = process
        self._folder = folder
        self._record = record
        self._group = record.group
        self._included: ProcessIdentity | None = None
        self._seen = _Measured(known=[process.identity], machine_kills=oom_kills())

    @property
    def identity(self) -> ProcessIdentity:
        """The identity of the process."""
        return self._process.identity

    @property
    def memory_limit(self) -> str:
        """How its memory limit is enforced: "cgroup", "watched", or "" without one."""
        return self._record.memory_limit

    @property
    def start_kind(self) -> str:
        """How it was started: "cold", or "warm" from an interpreter with its libraries loaded."""
        included = self._included is not None and is_alive(self._included)
        return "warm" if included else self._process.start_kind

    def include(self, pid: int) -> None:
        """Set the limits of another first process of the copy, forked for it elsewhere."""
        self._included = identify(pid)
        if self._included is None:
            return
        self._seen.known.append(self._included)
        with contextlib.suppress(OSError):
            (PROC / str(pid) / "oom_score_adj").write_text(str(COPY_OOM_SCORE))
        self._enclose()

    @property
    def groups(self) -> tuple[Path, ...]:
        """The folders of its control groups."""
        return self._group.folders if self._group else ()

    async def wait(self) -> int | None:
        """Wait for the end; the exit code (negative: the signal) of a child, None of others."""
        watching = asyncio.create_task(self._watch())
        try:
            return await self._process.wait()
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)

    def limit_cause(self, exit_code: int | None) -> str | None:
        """The cause of death as text if memory or disk was it; otherwise None."""
        if self._seen.over_disk_bytes:
            return disk_cause(self._seen.over_disk_bytes, self._record.max_disk_bytes or 0)
        evidence = self._seen.evidence
        if self._group is not None and self._group.memory is not None:
            evidence = replace(evidence, group_kills=self._group.memory_kills())
        else:
            evidence = replace(evidence, machine_kills=oom_kills() - self._seen.machine_kills)
        return memory_cause(evidence, exit_code, self._record.max_memory_bytes)

    async def _watch(self) -> None:
        """Measure memory, and less often members and disk use, until cancelled."""
        limited = self._record.max_memory_bytes is not None
        pause_s = LOOK_EVERY_S if limited else IDLE_LOOK_EVERY_S
        num_rounds = round(SEARCH_EVERY_S / pause_s)
        rounds = itertools.cycle(range(num_rounds))
        before = KILLS.value()

        async def measure() -> None:
            nonlocal before
            await self._measure()
            self._seen.machine_kills, before = before, KILLS.value()
            if next(rounds) == num_rounds - 1:
                await asyncio.to_thread(self._search)

        await run_periodically("watching a copy's use", measure, pause_s)

    async def _measure(self) -> None:
        """Measure once; kill the copy if it is over its limit, or was partly killed already."""
        seen = self._seen
        held = held_at_most(seen.known)
        peak = max(seen.evidence.peak_bytes, held)
        seen.evidence = replace(seen.evidence, peak_bytes=peak)
        if self._group is not None and self._group.memory is not None:
            if self._group.memory_kills():
                await asyncio.to_thread(self._kill)
        elif over_limit(held, self._record.max_memory_bytes):
            await asyncio.to_thread(self._judge)

    def _judge(self) -> None:
        """Measure exactly, shared pages once; kill the copy if it is still over its limit."""
        use = memory_use(self._members())
        if over_limit(use.held_bytes, self._record.max_memory_bytes):
            self._seen.evidence = replace(self._seen.evidence, over_limit_bytes=use.held_bytes)
            LOG.warning("copy in %s held %d bytes: killed", self._folder, use.held_bytes)
            self._kill()

    def _search(self) -> None:
        """Find its processes again, and judge what they have written."""
        self._seen.known = self._members_lately()
        self._enclose()
        self._judge_disk()

    def _judge_disk(self) -> None:
        """Kill the copy if it has written more than its budget."""
        written = written_bytes(self._folder, self._seen.known, AGENT_FILES)
        if over_limit(written, self._record.max_disk_bytes):
            self._seen.over_disk_bytes = written
            LOG.warning("copy in %s wrote %d bytes: killed", self._folder, written)
            self._kill()

    def clear(self) -> None:
        """Remove its files if they were the cause of its end; after all processes ended. Blocks."""
        if self._seen.over_disk_bytes:
            remove_written(self._folder, AGENT_FILES)

    def _kill(self) -> None:
        send(self._members(), signal.SIGKILL)

    def _members_lately(self) -> list[ProcessIdentity]:
        """Its processes, from a table that all copies of the agent share."""
        return members(TABLE.value(), self._folder, self.identity)

    def _members(self) -> list[ProcessIdentity]:
        return members(process_table(), self._folder, self.identity)

    def _enclose(self) -> None:
        """Move processes into the group that were started before it was joined."""
        if self._group is None:
            return
        inside = self._group.pids()
        for process in self._seen.known:
            if self._group.memory is not None and process.pid not in inside:
                with contextlib.suppress(OSError):
                    self._group.add(process.pid)


def confine(
    process: WatchedProcess, folder: Path, limits: CopyLimits, parents: Sequence[CgroupParent]
) -> LimitedProcess:
    """Set the limits of a process that was just started, as far as the machine allows."""
    pid = process.identity.pid
    with contextlib.suppress(OSError, ValueError):
        limit_files(pid)
    with contextlib.suppress(OSError):
        (PROC / str(pid) / "oom_score_adj").write_text(str(COPY_OOM_SCORE))
    group = make_group(parents, group_name(folder), limits)
    if group is not None:
        try:
            group.add(pid)
        except OSError as error:
            LOG.info("copy in %s: its cgroup takes no process: %s", folder, error)
            group.remove()
            group = None
    record = LimitRecord(
        max_memory_bytes=limits.max_memory_bytes,
        max_disk_bytes=disk_budget_bytes(limits, shutil.disk_usage(folder).free),
        groups=tuple(map(str, group.folders)) if group else (),
        memory_group=str(group.memory) if group and group.memory else None,
    )
    record.save(folder)
    return LimitedProcess(process, folder, record)


def limit_files(pid: int) -> None:
    """No core dumps and a bound on open files, for `pid` (0: this process) and what it starts.

    Raises OSError or ValueError: a process of another user takes CAP_SYS_RESOURCE.
    """
    resource.prlimit(pid, resource.RLIMIT_CORE, (0, 0))
    _, most = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    files = MAX_OPEN_FILES if most == resource.RLIM_INFINITY else min(MAX_OPEN_FILES, most)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (files, files))


def release(folder: Path, known: Sequence[Path] = ()) -> None:
    """Remove the control groups of the copy in `folder`, whose processes have ended; blocks.

    `known` are groups that its record may lack after a full disk.
    """
    recorded = map(Path, LimitRecord.load(folder).groups)
    remove_groups(dict.fromkeys((*known, *recorded)))
    with contextlib.suppress(OSError):
        (folder / LIMITS_FILE).unlink()


def group_name(folder: Path) -> str:
    """A name unique on this machine: from the copy's and its instance's folder."""
    return f"{folder.parent.parent.name}.{folder.name}.{os.stat(folder).st_ino}"[-200:]


def start_unprivileged(
    argv: Sequence[str],
    environment: Mapping[str, str],
    folder: Path,
    log_file: Path,
    run_as: RunAs | None = None,
    pass_fds: Sequence[int] = (),
) -> WatchedProcess:
    """`WatchedProcess.start` with no_new_privs set.

    Raises OSError or ValueError if the program cannot be started. The flag belongs to a thread and
    is inherited by its children, so it is set in a thread of its own.
    """

    def start() -> WatchedProcess:
        ctypes.CDLL(None).prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
        return WatchedProcess.start(argv, environment, folder, log_file, pass_fds, run_as)

    with ThreadPoolExecutor(max_workers=1) as thread:
        return thread.submit(start).result()
