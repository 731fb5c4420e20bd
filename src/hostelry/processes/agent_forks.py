"""Agents, forked from the interpreter that control was forked from.

Control has a stream of orders to it, from `service_forks`. A control that was started as a program
has none, and one whose stream has ended starts its agents as programs.
"""

import asyncio
import logging
import os
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path

from hostelry.base.clock import monotonic_s
from hostelry.base.files import PRIVATE_UMASK
from hostelry.fleet.launch.warm import TITLE_ROOM, ColdStartError, ForkedProcess, WarmStream
from hostelry.fleet.launch.warm_messages import ForkOrder
from hostelry.home.home import SERVICE_VARIABLE

LOG = logging.getLogger(__name__)
FORKS_VARIABLE = "HOSTELRY_FORKS_FD"
RETRY_AFTER_S = 60.0  # after a failure


class AgentForks:
    """Forks agents, which run `module` in the folder `home`, by orders on `stream`."""

    def __init__(self, stream: socket.socket, module: str, home: Path) -> None:
        self._stream = WarmStream(stream)
        self._module = module
        self._home = home
        self._turn = asyncio.Lock()
        self._not_before = 0.0
        self._last_number = 0

    async def fork(
        self, argv: Sequence[str], environment: Mapping[str, str], log: Path
    ) -> ForkedProcess | None:
        """Fork a process that waits for `begin`. None if it must be started as a program."""
        if sum(len(os.fsencode(it)) + 1 for it in argv) >= TITLE_ROOM:
            return None  # it would not be found by its command line
        async with self._turn:
            if monotonic_s() < self._not_before:
                return None
            self._last_number += 1
            order = ForkOrder(
                number=self._last_number,
                module=self._module,
                argv=tuple(argv),
                environment={k: v for k, v in environment.items() if k != SERVICE_VARIABLE},
                marker=SERVICE_VARIABLE,  # blanked, because an agent is not a service
                folder=str(self._home),
                log=str(log),
                umask=PRIVATE_UMASK,
            )
            try:
                return await self._stream.fork(order)
            except ColdStartError as error:
                LOG.warning("agents are not forked for %g s: %s", RETRY_AFTER_S, error)
                self._not_before = monotonic_s() + RETRY_AFTER_S
                return None


def lent_forks(module: str, home: Path) -> AgentForks | None:
    """Forks of `module` in `home`, by the stream that this process was given, or None."""
    number = os.environ.pop(FORKS_VARIABLE, None)
    if number is None:
        return None
    os.set_inheritable(int(number), False)
    return AgentForks(socket.socket(fileno=int(number)), module, home)
