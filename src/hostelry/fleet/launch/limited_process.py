"""Process of a copy with limits, which are set at its start, watched, and named if they end it.

The kernel enforces the memory limit if a cgroup can be created. Otherwise the memory is measured
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
from pathlib import Path

import msgspec
from msgspec.structs import replace

from hostelry.base.concurrency import run_periodically
from hostelry.base.files import write_whole
from hostelry.base.json import decode
from hostelry.base.proc import PROC, ProcessIdentity, oom_kills
from hostelry.fleet.host.cgroups import CgroupParent, CopyGroup, make_group, remove_groups
from hostelry.fleet.host.processes import (
    Recent,
    WatchedProcess,
    find_members,
    identify,
    is_alive,
    process_table,
    send,
)
from hostelry.fleet.host.usage import bound_held_bytes, memory_use, remove_written, written_bytes
from hostelry.fleet.rules.copy_user import RunAs
from hostelry.fleet.rules.limits import (
    CopyLimits,
    MemoryEvidence,
    describe_disk_cause,
    describe_memory_cause,
    disk_budget_bytes,
    is_over_limit,
)

LOG = logging.getLogger(__name__)

LIMITS_FILE = "limits.json"
# Files in a copy's folder that do not count as the copy's.
AGENT_FILES = ("copy.json", "model", "packages", LIMITS_FILE)
LOOK_EVERY_S = 0.5
IDLE_LOOK_EVERY_S = 2.0  # without a limit, only to notice kills by the kernel
SEARCH_EVERY_S = 2.0  # for processes that the copy has started since
# All copies look at the same moments.
TABLE = Recent(process_table, max_age_s=SEARCH_EVERY_S / 4)
KILLS = Recent(oom_kills, max_age_s=LOOK_EVERY_S / 4)
COPY_OOM_SCORE = 500  # out of memory, the kernel kills a copy before the platform
MAX_OPEN_FILES = 65_536
PR_SET_NO_NEW_PRIVS = 38


class LimitRecord(msgspec.Struct, frozen=True, kw_only=True):
    """limits.json in a copy's folder: its limits, for the next agent."""

    max_memory_bytes: int | None = None
    max_disk_bytes: int | None = None
    groups: tuple[str, ...] = ()
    memory_group: str | None = None

    @classmethod
    def load(cls, folder: Path) -> "LimitRecord":
        """The record of the copy in `folder`, or an empty record if it cannot be read."""
        try:
            return decode((folder / LIMITS_FILE).read_bytes(), cls)
        except (OSError, msgspec.DecodeError, msgspec.ValidationError):
            return cls()

    def save(self, folder: Path) -> None:
        """Write the record. On a full disk the next agent misses the limits."""
        with contextlib.suppress(OSError):
            write_whole(folder / LIMITS_FILE, msgspec.json.encode(self), durable=False)

    @property
    def group(self) -> CopyGroup | None:
        """The copy's control group, if any."""
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


class _Measured(msgspec.Struct):
    """The latest measurements of a copy."""

    known: list[ProcessIdentity] = msgspec.field(default_factory=list)
    evidence: MemoryEvidence = msgspec.field(default_factory=MemoryEvidence)
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
        """How its memory limit is enforced: "cgroup", "watched", or "" without a limit."""
        return self._record.memory_limit

    @property
    def start_kind(self) -> str:
        """How it was started: "cold", or "warm" from an interpreter with its libraries loaded."""
        included = self._included is not None and is_alive(self._included)
        return "warm" if included else self._process.start_kind

    def include(self, pid: int) -> None:
        """Set the limits of a further first process of the copy, which an interpreter forked."""
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
        """Wait for the end. Returns a child's exit code (negative: the signal), otherwise None."""
        watching = asyncio.create_task(self._watch())
        try:
            return await self._process.wait()
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)

    def describe_limit_cause(self, exit_code: int | None) -> str | None:
        """Describe the cause of death if it was memory or disk, otherwise None."""
        if self._seen.over_disk_bytes:
            return describe_disk_cause(self._seen.over_disk_bytes, self._record.max_disk_bytes or 0)
        evidence = self._seen.evidence
        if self._group is not None and self._group.memory is not None:
            evidence = replace(evidence, group_kills=self._group.memory_kills())
        else:
            evidence = replace(evidence, machine_kills=oom_kills() - self._seen.machine_kills)
        return describe_memory_cause(evidence, exit_code, self._record.max_memory_bytes)

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
        """Measure once. Kills the copy if it is over its limit, or was partly killed already."""
        seen = self._seen
        held = bound_held_bytes(seen.known)
        peak = max(seen.evidence.peak_bytes, held)
        seen.evidence = replace(seen.evidence, peak_bytes=peak)
        if self._group is not None and self._group.memory is not None:
            if self._group.memory_kills():
                await asyncio.to_thread(self._kill)
        elif is_over_limit(held, self._record.max_memory_bytes):
            await asyncio.to_thread(self._judge)

    def _judge(self) -> None:
        """Measure exactly, with shared pages once. Kills the copy if it is over its limit."""
        use = memory_use(self._find_members())
        if is_over_limit(use.held_bytes, self._record.max_memory_bytes):
            self._seen.evidence = replace(self._seen.evidence, over_limit_bytes=use.held_bytes)
            LOG.warning("copy in %s held %d bytes: killed", self._folder, use.held_bytes)
            self._kill()

    def _search(self) -> None:
        """Find its processes again, and judge the bytes that they have written."""
        self._seen.known = self._find_recent_members()
        self._enclose()
        self._judge_disk()

    def _judge_disk(self) -> None:
        """Kill the copy if it has written more than its budget."""
        written = written_bytes(self._folder, self._seen.known, AGENT_FILES)
        if is_over_limit(written, self._record.max_disk_bytes):
            self._seen.over_disk_bytes = written
            LOG.warning("copy in %s wrote %d bytes: killed", self._folder, written)
            self._kill()

    def clear(self) -> None:
        """Remove its files if they caused its end. Called once its processes ended. Blocks."""
        if self._seen.over_disk_bytes:
            remove_written(self._folder, AGENT_FILES)

    def _kill(self) -> None:
        send(self._find_members(), signal.SIGKILL)

    def _find_recent_members(self) -> list[ProcessIdentity]:
        """Its processes, from a recent table that all copies of the agent share."""
        return find_members(TABLE.value(), self._folder, self.identity)

    def _find_members(self) -> list[ProcessIdentity]:
        return find_members(process_table(), self._folder, self.identity)

    def _enclose(self) -> None:
        """Move processes into the group that were started before their parent joined it."""
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
    """Set the limits of a process that was just started, if the machine allows them."""
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
    """Forbid core dumps and limit open files for `pid` (0: this process) and its children.

    Raises OSError or ValueError. Another user's process needs CAP_SYS_RESOURCE.
    """
    resource.prlimit(pid, resource.RLIMIT_CORE, (0, 0))
    _, most = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    files = MAX_OPEN_FILES if most == resource.RLIM_INFINITY else min(MAX_OPEN_FILES, most)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (files, files))


def release(folder: Path, known: Sequence[Path] = ()) -> None:
    """Remove the control groups of the copy in `folder`, whose processes have ended. Blocks.

    `known` are groups that its record may lack after a full disk.
    """
    recorded = map(Path, LimitRecord.load(folder).groups)
    remove_groups(dict.fromkeys((*known, *recorded)))
    with contextlib.suppress(OSError):
        (folder / LIMITS_FILE).unlink()


def group_name(folder: Path) -> str:
    """A name that is unique on this machine, from the folders of the copy and its instance."""
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
    is inherited by its children, so it is set in a new thread.
    """

    def start() -> WatchedProcess:
        ctypes.CDLL(None).prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
        return WatchedProcess.start(argv, environment, folder, log_file, pass_fds, run_as)

    with ThreadPoolExecutor(max_workers=1) as thread:
        return thread.submit(start).result()
