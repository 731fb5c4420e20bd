"""Interpreters of runtimes that have imported their framework, and their forks for copies.

An agent keeps an interpreter for each runtime that its copies use. A copy's server gets the socket
to a fork. Without a fork it imports the framework itself, so a failure here only makes its start
slower. Forks of different copies share the framework's pages.
"""

import asyncio
import logging
import os
import signal
import socket
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from hostelry.base.clock import monotonic_s
from hostelry.base.runtimes import find_installed, runtime_python
from hostelry.containers.predictive.config import MODULES, MULTI_MODEL_MODULES, TOOLKIT
from hostelry.containers.predictive.zygote_process import (
    LENT_FD,
    CopyOrder,
    ZygoteError,
    ZygoteProcess,
    build_worker_environment,
)
from hostelry.fleet.host.processes import MARKER_VARIABLE
from hostelry.fleet.launch.limited_process import LimitedProcess, limit_files
from hostelry.fleet.launch.warm import IDLE_S, RETRY_AFTER_S, ColdStartError
from hostelry.fleet.launch.warm_rules import (
    build_parent_environment,
    find_cold_cause,
    find_home_cause,
    parse_framework,
)
from hostelry.fleet.rules.copy_user import RunAs

LOG = logging.getLogger(__name__)


class WarmRuntimes:
    """The interpreters of an agent.

    `runtimes` is the folder of runtimes. `operator` is the part of the operator's environment that
    copies get. They end after `idle_s` without copies.
    """

    def __init__(self, runtimes: Path, operator: Mapping[str, str], idle_s: float = IDLE_S) -> None:
        self._idle_s = idle_s
        self._runtimes = runtimes
        self._environment = build_parent_environment(operator)
        self._zygotes: dict[str, ZygoteProcess] = {}
        self._starting: dict[str, asyncio.Task[None]] = {}
        self._not_before: dict[str, float] = {}

    def prepare(self, argv: Sequence[str], given: Mapping[str, str]) -> None:
        """Start importing for a copy of `argv` and its own variables. Returns at once."""
        expected = {**self._environment, MARKER_VARIABLE: "", **given}
        if find_cold_cause(self._environment, expected) is None:
            self._get_zygote(argv)

    def lend(
        self,
        argv: Sequence[str],
        environment: Mapping[str, str],
        folder: Path,
        copy_log: Path,
        run_as: RunAs | None = None,
    ) -> "LentZygote | None":
        """Prepare a fork for a copy before its start. None for other programs.

        Raises ColdStartError.
        """
        if parse_framework(argv) is None:
            return None
        cause = find_cold_cause(self._environment, environment)
        if cause is None and run_as is not None:
            cause = find_home_cause(environment)
        if cause is not None:
            raise ColdStartError(cause)
        zygote = self._get_zygote(argv)
        if zygote is None:
            raise ColdStartError("no interpreter of its runtime has imported the framework")
        copy = CopyOrder(
            folder=str(run_as.work if run_as else folder),
            copy_folder=str(folder),
            marker=MARKER_VARIABLE,
            log=str(copy_log),
            uid=run_as.uid if run_as else None,
            gid=run_as.gid if run_as else None,
        )
        return LentZygote(zygote, copy, environment.get("SAGEMAKER_MULTI_MODEL") == "true")

    def close(self) -> None:
        """End the interpreters. The copies keep running."""
        for task in self._starting.values():
            task.cancel()
        for zygote in self._zygotes.values():
            if not zygote.ended.is_set():
                with suppress(ProcessLookupError):
                    os.kill(zygote.pid, signal.SIGKILL)

    def _get_zygote(self, argv: Sequence[str]) -> ZygoteProcess | None:
        """The interpreter for the program, which may still import. None if it failed."""
        found = parse_framework(argv)
        if found is None:
            return None
        framework, runtime = found
        zygote = self._zygotes.get(runtime)
        if zygote is not None and not zygote.ended.is_set():
            return zygote
        if monotonic_s() < self._not_before.get(runtime, 0.0):
            return None
        if find_installed(self._runtimes, runtime) is None:
            return None
        python = runtime_python(self._runtimes, runtime)
        zygote = ZygoteProcess(
            python,
            MODULES[framework],
            build_worker_environment(self._environment, python, Path("/"), threads=1),
            TOOLKIT,
            MULTI_MODEL_MODULES.get(framework, ()),
            self._idle_s,
        )
        self._zygotes[runtime] = zygote
        self._starting[runtime] = asyncio.create_task(self._start(runtime, zygote))
        return zygote

    async def _start(self, runtime: str, zygote: ZygoteProcess) -> None:
        try:
            await zygote.start()
            limit_files(zygote.pid)
        except (ZygoteError, OSError, ValueError) as error:
            LOG.warning("%s: %s; cold starts for %g s", runtime, error, RETRY_AFTER_S)
            self._not_before[runtime] = monotonic_s() + RETRY_AFTER_S
            zygote.ended.set()


class LentZygote:
    """A fork for one copy. Its server gets the socket `front` and `variables`."""

    def __init__(self, zygote: ZygoteProcess, copy: CopyOrder, whole: bool) -> None:
        self._zygote = zygote
        self._copy = copy
        self._whole = whole
        self.front, self._back = socket.socketpair()

    @property
    def variables(self) -> dict[str, str]:
        """The variable by which the server finds its socket."""
        return {LENT_FD: str(self.front.fileno())}

    async def give(self, limited: LimitedProcess) -> None:
        """Fork it within the limits of the copy once its server has started."""
        self.front.close()
        gate, theirs = socket.socketpair()
        with self._back, gate:
            try:
                with theirs:
                    pid = await self._zygote.fork_copy(self._copy, self._whole, self._back, theirs)
                limited.include(pid)
                gate.send(b"!")
            except (ZygoteError, OSError) as error:
                LOG.info("a copy imports its framework itself: %s", error)

    def close(self) -> None:
        """Give up the fork, because the server did not start."""
        self.front.close()
        self._back.close()
