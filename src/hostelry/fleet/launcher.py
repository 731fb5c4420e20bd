"""The seam that starts one copy: a program of this machine, in a session of its own."""

import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from hostelry.base.errors import TerminalError
from hostelry.fleet.processes import WatchedProcess
from hostelry.fleet.records import ProcessIdentity


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchOrder:
    """A copy's program, all its environment, its working folder and its log."""

    argv: Sequence[str]
    environment: Mapping[str, str]
    folder: Path
    log: Path


class Launcher(Protocol):
    """Starts one copy, and finds one again that outlived the agent which started it."""

    def start(self, order: LaunchOrder) -> WatchedProcess:
        """The started process; raises TerminalError when it cannot be executed."""
        ...

    def adopt(self, identity: ProcessIdentity) -> WatchedProcess | None:
        """The recorded process if it still runs."""
        ...


class ProcessLauncher:
    """Starts built-in model servers and operators' commands as plain processes."""

    def start(self, order: LaunchOrder) -> WatchedProcess:
        """The started process; raises TerminalError when it cannot be executed."""
        try:
            return WatchedProcess.start(order.argv, order.environment, order.folder, order.log)
        except (OSError, ValueError) as error:
            raise TerminalError(f"cannot start {order.argv[0]}: {error}") from error

    def adopt(self, identity: ProcessIdentity) -> WatchedProcess | None:
        """The recorded process if it still runs."""
        return WatchedProcess.adopt(identity)


def free_port() -> int:
    """A loopback port that nothing listens on at this moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
