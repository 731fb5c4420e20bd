"""A copy's process within its limits: confined at its start, watched, and told why it ended.

The kernel keeps the memory limit where a cgroup can be had; otherwise the process's memory is
looked at twice a second, and the copy is killed when it holds more than it may. What it writes into
its folder is looked at every two seconds.
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

from hostelry.base.json import decode
from hostelry.base.private_file import write_whole
from hostelry.base.proc import PROC, oom_kills
from hostelry.base.recurring import run_periodically
from hostelry.fleet.host.cgroups import CgroupParent, CopyGroup, make_group, remove_groups
from hostelry.fleet.host.disk import remove_written, written_bytes
from hostelry.fleet.host.processes import WatchedProcess, members, process_table, send
from hostelry.fleet.host.usage import held_at_most, memory_use
from hostelry.fleet.records import ProcessIdentity
from hostelry.fleet.rules.copy_user import RunAs
from hostelry.fleet.rules.limits import (
    CopyLimits,
    MemoryEvidence,
    disk_budget_bytes,
    disk_cause,
    memory_cause,
    over_limit,
)

log = logging.getLogger(__name__)

LIMITS_FILE = "limits.json"
AGENT_FILES = ("copy.json", "model", LIMITS_FILE)  # in a copy's folder, and not the copy's
LOOK_EVERY_S = 0.5
IDLE_LOOK_EVERY_S = 2.0  # at a copy without a limit: only what the kernel killed
SEARCH_EVERY_S = 2.0  # for processes it started since
COPY_OOM_SCORE = 500  # the kernel, short of memory, takes a copy before the platform
MAX_OPEN_FILES = 65_536
PR_SET_NO_NEW_PRIVS = 38


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitRecord:
    """limits.json in a copy's folder: what a successor of the agent must know of its limits."""

    max_memory_bytes: int | None = None
    max_disk_bytes: int | None = None
    groups: tuple[str, ...] = ()
    memory_group: str | None = None

    @classmethod
    def load(cls, folder: Path) -> "LimitRecord":
        """The record of the copy in `folder`; an empty one where there is none to be read."""
        try:
            return decode((folder / LIMITS_FILE).read_bytes(), cls)
        except (OSError, msgspec.DecodeError, msgspec.ValidationError):
            return cls()

    def save(self, folder: Path) -> None:
        """Write it; a full disk costs the successor the limit, and the copy nothing."""
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
        """How the limit is kept, as `CopyStatus.memory_limit` tells it."""
        if self.max_memory_bytes is None:
            return ""
        return "cgroup" if self.memory_group else "watched"


@dataclass(slots=True)
class _Look:
    """What the last look at a copy saw."""

    known: list[ProcessIdentity] = field(default_factory=list)
    evidence: MemoryEvidence = field(default_factory=MemoryEvidence)
    machine_kills: int = 0
    over_disk_bytes: int = 0  # what it had written when it was killed for that


class LimitedProcess:
    """A copy's first process, watched for its memory for as long as somebody waits for its end."""

    def __init__(self, process: WatchedProcess, folder: Path, record: LimitRecord) -> None:
        self._process = process
        self._folder = folder
        self._record = record
        self._group = record.group
        self._seen = _Look(known=[process.identity], machine_kills=oom_kills())

    @property
    def identity(self) -> ProcessIdentity:
        """The process, beyond doubt."""
        return self._process.identity

    @property
    def memory_limit(self) -> str:
        """How its memory limit is kept: "cgroup", "watched", or "" without one."""
        return self._record.memory_limit

    @property
    def start_kind(self) -> str:
        """How it was started: "cold", or "warm" from an interpreter that had its libraries."""
        return self._process.start_kind

    @property
    def groups(self) -> tuple[Path, ...]:
        """The folders of its control groups."""
        return self._group.folders if self._group else ()

    async def wait(self) -> int | None:
        """Return when it is gone: its exit code (negative: the signal), if it was ours."""
        watching = asyncio.create_task(self._watch())
        try:
            return await self._process.wait()
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)

    def limit_cause(self, exit_code: int | None) -> str | None:
        """That memory or disk ended it, in words; None when neither did, or it still runs."""
        if self._seen.over_disk_bytes:
            return disk_cause(self._seen.over_disk_bytes, self._record.max_disk_bytes or 0)
        kills = self._group.memory_kills() if self._group else 0
        evidence = replace(
            self._seen.evidence,
            group_kills=kills,
            machine_kills=oom_kills() - self._seen.machine_kills,
        )
        return memory_cause(evidence, exit_code, self._record.max_memory_bytes)

    async def _watch(self) -> None:
        """Look after its memory, for ever."""
        limited = self._record.max_memory_bytes is not None
        pause_s = LOOK_EVERY_S if limited else IDLE_LOOK_EVERY_S
        looks = round(SEARCH_EVERY_S / pause_s)
        turns = itertools.cycle(range(looks))
        before = oom_kills()

        async def look() -> None:
            nonlocal before
            await self._look()
            self._seen.machine_kills, before = before, oom_kills()
            if next(turns) == looks - 1:
                self._seen.known = await asyncio.to_thread(self._members)
                self._enclose()
                await asyncio.to_thread(self._judge_disk)

        await run_periodically("watching what a copy takes", look, pause_s)

    async def _look(self) -> None:
        """One look; kills the copy when it is over its limit, or the kernel took a part of it."""
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
        """Count exactly, shared pages once; kill when it still is too much."""
        use = memory_use(self._members())
        if over_limit(use.held_bytes, self._record.max_memory_bytes):
            self._seen.evidence = replace(self._seen.evidence, over_limit_bytes=use.held_bytes)
            log.warning("copy in %s held %d bytes: killed", self._folder, use.held_bytes)
            self._kill()

    def _judge_disk(self) -> None:
        """Kill when it has written more than it may."""
        written = written_bytes(self._folder, self._seen.known, AGENT_FILES)
        if over_limit(written, self._record.max_disk_bytes):
            self._seen.over_disk_bytes = written
            log.warning("copy in %s wrote %d bytes: killed", self._folder, written)
            self._kill()

    def clear(self) -> None:
        """Remove what it wrote, where that ended it; its processes are ended. Blocks."""
        if self._seen.over_disk_bytes:
            remove_written(self._folder, AGENT_FILES)

    def _kill(self) -> None:
        send(self._members(), signal.SIGKILL)

    def _members(self) -> list[ProcessIdentity]:
        return members(process_table(), self._folder, self.identity)

    def _enclose(self) -> None:
        """Put processes that were started before the group was joined into it as well."""
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
    """Set the limits of a process that was just started; what the machine refuses is left out."""
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
            log.info("copy in %s: its cgroup takes no process: %s", folder, error)
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
    """Remove the control groups of the copy in `folder`, whose processes are ended; blocks.

    `known` are those that its record, on a full disk, may not name.
    """
    recorded = map(Path, LimitRecord.load(folder).groups)
    remove_groups(dict.fromkeys((*known, *recorded)))
    with contextlib.suppress(OSError):
        (folder / LIMITS_FILE).unlink()


def group_name(folder: Path) -> str:
    """A name that no other copy of this machine has: the copy's and its instance's folder."""
    return f"{folder.parent.parent.name}.{folder.name}.{os.stat(folder).st_ino}"[-200:]


def start_unprivileged(
    argv: Sequence[str],
    environment: Mapping[str, str],
    folder: Path,
    log_file: Path,
    run_as: RunAs | None = None,
) -> WatchedProcess:
    """`WatchedProcess.start`, of a process that can gain no privilege by what it executes.

    Raises OSError or ValueError when the program cannot be started. The promise is a thread's and
    is inherited, so it is made in a thread of its own.
    """

    def start() -> WatchedProcess:
        ctypes.CDLL(None).prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
        return WatchedProcess.start(argv, environment, folder, log_file, run_as=run_as)

    with ThreadPoolExecutor(max_workers=1) as thread:
        return thread.submit(start).result()
