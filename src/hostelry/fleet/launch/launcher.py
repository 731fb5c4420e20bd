"""Protocol of launchers, which start copies, and the launcher of programs of this machine.

A copy's server is a plain process or a container, and hosted_copy.py does not know which. A
launcher keeps records in the copy's folder, by which the copy can be found and ended after all
other processes have crashed.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from hostelry.base.errors import TerminalError
from hostelry.base.proc import ProcessIdentity
from hostelry.fleet.host.cgroups import CgroupParent
from hostelry.fleet.host.processes import WatchedProcess, stop_processes
from hostelry.fleet.launch.container_order import ContainerOrder
from hostelry.fleet.launch.copy_log import CopyLog
from hostelry.fleet.launch.limited_process import (
    LimitedProcess,
    LimitRecord,
    confine,
    release,
    start_unprivileged,
)
from hostelry.fleet.launch.run_as import prepare_run_as
from hostelry.fleet.launch.warm import ColdStartError, ForkedProcess, WarmForks
from hostelry.fleet.launch.warm_runtimes import LentZygote, WarmRuntimes
from hostelry.fleet.rules.copy_user import CopyUser, RunAs
from hostelry.fleet.rules.limits import CopyLimits


def describe_exit(code: int | None) -> str:
    """Describe a process exit."""
    if code is None:
        return "The model server's process is gone."
    if code < 0:
        return f"The model server was ended by signal {-code}."
    return f"The model server exited with code {code}."


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchOrder:
    """A request to start one copy.

    argv: the program and its arguments, or the arguments of a container's entry point.
    environment: all of its variables.
    folder: the copy's own folder, which is a program's working folder.
    log: the file for its output.
    container: set if the copy is a container.
    limits: the limits of a program. None for no limits.
    key: the key that its server or its proxy requires, if any.
    """

    argv: Sequence[str]
    environment: Mapping[str, str]
    folder: Path
    log: Path
    container: ContainerOrder | None = None
    limits: CopyLimits | None = None
    key: str | None = field(default=None, repr=False)


class CopyProcess(Protocol):
    """The first process of a copy's server."""

    @property
    def identity(self) -> ProcessIdentity:
        """The identity of the process."""
        ...

    @property
    def memory_limit(self) -> str:
        """How its memory limit is enforced: "cgroup", "watched", "container" or "" (not)."""
        ...

    @property
    def start_kind(self) -> str:
        """How it was started: "cold", or "warm" from an interpreter with its libraries loaded."""
        ...

    async def wait(self) -> int | None:
        """Wait for the end. Returns the exit code (negative: the signal) if it is known."""
        ...


class Launcher(Protocol):
    """Starts copies, adopts copies that outlived their agent, and ends copies."""

    async def start(self, order: LaunchOrder) -> CopyProcess:
        """Start the copy. Raises TerminalError if it cannot be started.

        `stop` ends all processes that a cancelled start leaves behind.
        """
        ...

    def adopt(self, folder: Path, identity: ProcessIdentity) -> CopyProcess | None:
        """The recorded process of the copy in `folder`, or None if it has ended."""
        ...

    async def explain_exit(self, folder: Path, code: int | None) -> str:
        """Describe how the copy in `folder` ended. Called before `stop`."""
        ...

    async def stop(self, folder: Path, leader: ProcessIdentity | None, grace_s: float) -> None:
        """End the copy in `folder` if it runs: TERM, then KILL after `grace_s`."""
        ...


class ProcessLauncher:
    """Starts built-in model servers and operators' commands as plain processes.

    Control groups are made below `cgroup_parents`. With `warm` a program is forked from an
    interpreter that has imported its libraries, if possible. It runs as `user`, by default the
    agent's own.
    """

    def __init__(
        self,
        cgroup_parents: Sequence[CgroupParent] = (),
        warm: WarmForks | None = None,
        user: CopyUser | None = None,
        runtimes: WarmRuntimes | None = None,
    ) -> None:
        self._cgroup_parents = tuple(cgroup_parents)
        self._warm = warm
        self._runtimes = runtimes
        self._giving: set[asyncio.Task[None]] = set()
        self._user = user
        self._processes: dict[Path, LimitedProcess] = {}

    async def start(self, order: LaunchOrder) -> LimitedProcess:
        """Start the process. Raises TerminalError if it cannot be executed."""
        limits = order.limits or CopyLimits(cpus=0.0)
        run_as = None if self._user is None else _prepare_user(order.folder, self._user)
        forked = await self._fork(order, run_as)
        if forked is None:
            lent = self._lend(order, run_as)
            cold = _start_cold(order, run_as, lent)
            limited = confine(cold, order.folder, limits, self._cgroup_parents)
            if lent is not None:
                giving = asyncio.create_task(lent.give(limited), name="a fork for a copy")
                self._giving.add(giving)
                giving.add_done_callback(self._giving.discard)
            return self._keep(limited, order)
        limited = self._keep(confine(forked, order.folder, limits, self._cgroup_parents), order)
        forked.begin()
        return limited

    def adopt(self, folder: Path, identity: ProcessIdentity) -> LimitedProcess | None:
        """The recorded process, or None if it has ended."""
        process = WatchedProcess.adopt(identity)
        if process is None:
            return None
        limited = LimitedProcess(process, folder, LimitRecord.load(folder))
        self._processes[folder] = limited
        return limited

    async def explain_exit(self, folder: Path, code: int | None) -> str:
        """Describe the exit, or the limit of memory or disk that caused it."""
        process = self._processes.get(folder)
        return (process.describe_limit_cause(code) if process else None) or describe_exit(code)

    async def stop(self, folder: Path, leader: ProcessIdentity | None, grace_s: float) -> None:
        """End every process of the copy."""
        await stop_processes(folder, leader, grace_s)
        ended = self._processes.pop(folder, None)
        await asyncio.to_thread(release, folder, ended.groups if ended else ())
        if ended is not None:
            await asyncio.to_thread(ended.clear)

    async def _fork(self, order: LaunchOrder, run_as: RunAs | None) -> ForkedProcess | None:
        """Fork the copy, which waits for `begin`. None if it must be started cold."""
        if self._warm is None:
            return None
        try:
            return await self._warm.fork(
                order.argv, order.environment, order.folder, order.log, run_as
            )
        except ColdStartError as error:
            CopyLog(order.log).note(f"a cold start, since {error}")
            return None

    def _lend(self, order: LaunchOrder, run_as: RunAs | None) -> LentZygote | None:
        """Prepare the fork that the server gets. None if the server imports its framework."""
        if self._runtimes is None:
            return None
        try:
            return self._runtimes.lend(
                order.argv, order.environment, order.folder, order.log, run_as
            )
        except ColdStartError as error:
            CopyLog(order.log).note(f"a cold start, since {error}")
            return None

    def _keep(self, process: LimitedProcess, order: LaunchOrder) -> LimitedProcess:
        self._processes[order.folder] = process
        return process


def _prepare_user(folder: Path, user: CopyUser) -> RunAs:
    try:
        return prepare_run_as(folder, user)
    except OSError as error:
        raise TerminalError(f"{folder} cannot be given to the user {user.name}: {error}") from error


def _start_cold(
    order: LaunchOrder, run_as: RunAs | None, lent: LentZygote | None
) -> WatchedProcess:
    environment = run_as.environment(order.environment) if run_as else order.environment
    folder = run_as.work if run_as else order.folder
    pass_fds = () if lent is None else (lent.front.fileno(),)
    try:
        return start_unprivileged(
            order.argv,
            {**environment, **(lent.variables if lent else {})},
            folder,
            order.log,
            run_as,
            pass_fds,
        )
    except (OSError, ValueError) as error:
        if lent is not None:
            lent.close()
        user = f" as {run_as.user.name}" if run_as else ""
        raise TerminalError(f"cannot start {order.argv[0]}{user}: {error}") from error
