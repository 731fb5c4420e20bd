"""Starts of agents: as a fork where one is to be had, else as a program."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

from hostelry.base.errors import TerminalError
from hostelry.fleet.host.processes import WatchedProcess


class WarmAgents(Protocol):
    """Starts agents without a new interpreter."""

    async def fork(
        self, argv: Sequence[str], environment: Mapping[str, str], log: Path
    ) -> WatchedProcess | None:
        """Fork a process that waits for `begin`; None if it is to be started as a program."""
        ...


class AgentStart:
    """Starts agents with the variables `environment`; None: this process's own."""

    def __init__(
        self, environment: Mapping[str, str] | None = None, forks: WarmAgents | None = None
    ) -> None:
        self._environment = environment
        self._forks = forks

    async def start(self, argv: Sequence[str], log: Path) -> WatchedProcess:
        """A process that may wait for `begin`; raises TerminalError where there is no program."""
        # A disk without room for the log is no lack of a program: it raises OSError.
        os.close(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600))
        environment = os.environ if self._environment is None else self._environment
        if self._forks is not None:
            forked = await self._forks.fork(argv, environment, log)
            if forked is not None:
                return forked
        try:
            return WatchedProcess.start(argv, environment, Path(), log)
        except OSError as error:
            why = error.strerror or str(error)
            raise TerminalError(f"cannot start {Path(argv[0]).name}: {why}") from error
