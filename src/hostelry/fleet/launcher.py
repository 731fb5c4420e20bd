"""The seam that starts one copy, and its first implementation: a program of this machine.

A copy's server is a plain process, or a container where its image has one; hosted_copy.py does not
know which. A launcher keeps in the copy's folder whatever it must know to find and end the copy
after everything died.
"""

import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from hostelry.base.errors import TerminalError
from hostelry.fleet.processes import WatchedProcess, stop_processes
from hostelry.fleet.reasons import exit_detail
from hostelry.fleet.records import ProcessIdentity


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerOrder:
    """What a container needs beyond a program.

    image: the reference as the model names it.
    network: "none", "host" or "bridge" (`images.ImageRule.network`).
    port: on this machine's loopback; whatever the server listens on inside, it answers there.
    model_folder: mounted read-only at /opt/ml/model.
    mounts: further folders of this machine, read-only, by their path in the container.
    cpus: cores it may use; None for no limit.
    max_memory_bytes: it is killed above this; None for no limit.
    device_ids: accelerators it sees; empty for none.
    pull: whether an image that is not on this machine may be fetched, within pull_timeout_s.
    """

    image: str
    network: str
    port: int
    model_folder: Path
    mounts: Mapping[str, Path]
    cpus: float | None
    max_memory_bytes: int | None
    device_ids: tuple[int, ...]
    pull: bool
    pull_timeout_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchOrder:
    """One copy to be started.

    argv: the program and its arguments; of a container the arguments of its entry point.
    environment: every variable it gets, and none else.
    folder: the copy's own folder; a program's working folder.
    log: the file that gets what it prints.
    container: set where the copy is a container.
    """

    argv: Sequence[str]
    environment: Mapping[str, str]
    folder: Path
    log: Path
    container: ContainerOrder | None = None


class CopyProcess(Protocol):
    """The first process of a copy's server."""

    @property
    def identity(self) -> ProcessIdentity:
        """The process, beyond doubt."""
        ...

    async def wait(self) -> int | None:
        """Return when it is gone: its exit code (negative: the signal), where it can be known."""
        ...


class Launcher(Protocol):
    """Starts one copy, finds one again that outlived its agent, and ends it."""

    async def start(self, order: LaunchOrder) -> CopyProcess:
        """The started copy; raises TerminalError when it cannot be started.

        A start that is cancelled leaves nothing behind that `stop` does not end.
        """
        ...

    def adopt(self, folder: Path, identity: ProcessIdentity) -> CopyProcess | None:
        """The recorded process of the copy in `folder`, if it still runs."""
        ...

    async def explain_exit(self, folder: Path, code: int | None) -> str:
        """How the copy in `folder` ended, in words; asked before `stop`."""
        ...

    async def stop(self, folder: Path, leader: ProcessIdentity | None, grace_s: float) -> None:
        """End all of the copy in `folder`: TERM, KILL after `grace_s`; harmless where none is."""
        ...


class ProcessLauncher:
    """Starts built-in model servers and operators' commands as plain processes."""

    async def start(self, order: LaunchOrder) -> WatchedProcess:
        """The started process; raises TerminalError when it cannot be executed."""
        try:
            return WatchedProcess.start(order.argv, order.environment, order.folder, order.log)
        except (OSError, ValueError) as error:
            raise TerminalError(f"cannot start {order.argv[0]}: {error}") from error

    def adopt(self, folder: Path, identity: ProcessIdentity) -> WatchedProcess | None:
        """The recorded process if it still runs."""
        del folder
        return WatchedProcess.adopt(identity)

    async def explain_exit(self, folder: Path, code: int | None) -> str:
        """The exit code or signal in words."""
        del folder
        return exit_detail(code)

    async def stop(self, folder: Path, leader: ProcessIdentity | None, grace_s: float) -> None:
        """End every process of the copy."""
        await stop_processes(folder, leader, grace_s)


def free_port() -> int:
    """A loopback port that nothing listens on at this moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
