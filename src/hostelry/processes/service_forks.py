"""The platform's own processes, forked from one interpreter that has imported their modules.

A fork is ready in a fifth of the time of a new interpreter, and shares the memory of the imported
modules. If a fork fails, the service is started as a separate program.
"""

import gc
import logging
import math
import os
import socket
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

from msgspec.structs import replace

from hostelry.base.clock import monotonic_s
from hostelry.base.files import PRIVATE_UMASK
from hostelry.fleet.host.processes import identify
from hostelry.fleet.launch.warm import (
    ColdStartError,
    ForkedInterpreter,
    ForkedProcess,
    WarmParent,
)
from hostelry.fleet.launch.warm_messages import ForkOrder
from hostelry.home.home import MARK_ROOM, SERVICE_VARIABLE, Home
from hostelry.processes.agent_forks import FORKS_VARIABLE
from hostelry.processes.fleets import AGENT_MODULE
from hostelry.processes.supervisor import Command

LOG = logging.getLogger("hostelry.up")
RETRY_AFTER_S = 60.0  # after a failure of the interpreter
# What services and agents have in common.
MODULES = ("hostelry.base.peer_http", "hostelry.base.asgi_server", AGENT_MODULE)


def fork_interpreter(home: Home) -> ForkedInterpreter | None:
    """Fork the interpreter of `home`'s services from this process, whose memory it shares.

    Call it before this process starts a thread or opens a file. None if the process was not
    started with room for the services' marks, or cannot fork. In the fork it ends with SystemExit.
    """
    if len(os.environ.pop(SERVICE_VARIABLE, "")) != MARK_ROOM:
        return None
    gc.collect()
    gc.freeze()  # a collection in the fork would copy the shared pages
    ours, theirs = socket.socketpair()
    own_pid = os.getpid()
    try:
        pid = os.fork()
    except OSError:  # services are forked from a new program, or started as programs
        ours.close()
        theirs.close()
        return None
    if pid == 0:
        from hostelry.fleet.launch.warm_process import serve_fork

        raise SystemExit(serve_fork(theirs, own_pid, str(home.logs / "forkserver.log")))
    theirs.close()
    identity = identify(pid)
    threading.Thread(target=os.waitpid, args=(pid, 0), name=f"reap {pid}", daemon=True).start()
    return ForkedInterpreter(identity, ours) if identity is not None else None


class ServiceForks:
    """Forks services of `home` from an interpreter that has imported `modules`.

    Every service has the variables `environment`. The first interpreter is `forked`, if given.
    """

    def __init__(
        self,
        home: Home,
        modules: Sequence[str],
        environment: Mapping[str, str],
        forked: ForkedInterpreter | None = None,
    ) -> None:
        self._root = home.root
        self._log = home.logs / "forkserver.log"
        self._modules = tuple(dict.fromkeys([*MODULES, *modules]))
        self._environment = dict(environment)
        self._forked = forked
        self._parent: WarmParent | None = None
        self._not_before = 0.0
        self._last_number = 0

    def prepare(self) -> None:
        """Start importing, unless the interpreter runs or has failed a short time ago."""
        if (self._parent and self._parent.usable) or monotonic_s() < self._not_before:
            return
        environment = {**self._environment, SERVICE_VARIABLE: "-" * MARK_ROOM}
        forked, self._forked = self._forked, None
        try:
            self._parent = WarmParent(
                self._modules, environment, self._log, math.inf, forked=forked
            )
        except OSError as error:
            self._pause(str(error))

    async def fork(
        self, module: str, command: Command, service: str, log: Path
    ) -> ForkedProcess | None:
        """Fork the service with the files `service`. None if it must be started as a program."""
        if command.env != self._environment or len(os.fsencode(service)) > MARK_ROOM:
            return None
        self.prepare()
        if self._parent is None or not self._parent.usable:
            return None
        try:
            if not command.may_fork:
                return await self._fork(self._parent, module, command, service, log)
            with await self._parent.lend() as stream:
                lent = stream.fileno()
                with_stream = replace(
                    command,
                    env={**command.env, FORKS_VARIABLE: str(lent)},
                    pass_fds=[*command.pass_fds, lent],
                )
                return await self._fork(self._parent, module, with_stream, service, log)
        except ColdStartError as error:
            self._pause(str(error))
            return None

    async def _fork(
        self, parent: WarmParent, module: str, command: Command, service: str, log: Path
    ) -> ForkedProcess:
        self._last_number += 1
        order = ForkOrder(
            number=self._last_number,
            module=module,
            argv=tuple(command.argv),
            environment={**command.env, SERVICE_VARIABLE: service},
            marker=SERVICE_VARIABLE,
            folder=str(self._root),
            log=str(log),
            umask=PRIVATE_UMASK,
            fds=tuple(command.pass_fds),
        )
        forked = await parent.fork(order, command.pass_fds)
        forked.begin()
        return forked

    def close(self) -> None:
        """End the interpreter. Its forks keep running."""
        if self._parent is not None:
            self._parent.end("up ends")

    def _pause(self, reason: str) -> None:
        """Fork nothing for some time after a failure of the interpreter."""
        LOG.warning("services are not forked for %g s: %s", RETRY_AFTER_S, reason)
        self._not_before = monotonic_s() + RETRY_AFTER_S
