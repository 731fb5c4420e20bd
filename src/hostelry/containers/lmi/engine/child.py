"""Start and end of the engine process: spawned as a program, or forked if that is cheaper.

A server that was itself forked from an interpreter with the imported engine forks its engine first.
Later it has threads, and a fork would not be safe.
"""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping
from typing import Protocol

import msgspec

from hostelry.base.system import readable
from hostelry.containers.lmi.settings.engine_settings import EngineSettings

EXIT_WAIT_S = 2.0


class EngineChild(Protocol):
    """The engine process, a child of this one."""

    @property
    def pid(self) -> int:
        """Its process id."""
        ...

    def wait(self, timeout: float | None = None) -> int:
        """Its exit code once it ended. Raises subprocess.TimeoutExpired."""
        ...

    def kill(self) -> None:
        """End it at once."""
        ...


class ForkedEngine:
    """A forked engine process, which waits for its first message on `stream`."""

    def __init__(self, pid: int, stream: socket.socket) -> None:
        self.pid = pid
        self.stream = stream
        self._ended = os.pidfd_open(pid)
        self._code: int | None = None

    def wait(self, timeout: float | None = None) -> int:
        """Its exit code once it ended. Raises subprocess.TimeoutExpired."""
        if self._code is None:
            if not readable(self._ended, within_s=timeout):
                raise subprocess.TimeoutExpired("the engine process", timeout or 0.0)
            self._code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
            os.close(self._ended)
        return self._code

    def kill(self) -> None:
        """End it at once."""
        if self._code is None:
            signal.pidfd_send_signal(self._ended, signal.SIGKILL)


class EngineSide(msgspec.Struct, frozen=True, kw_only=True):
    """The engine's side of a fork: its end of the socket, and the server's pid."""

    stream: socket.socket
    parent: int


def fork_engine() -> ForkedEngine | EngineSide:
    """Fork this process. The parent gets `ForkedEngine`, the child `EngineSide`.

    Call it while the process has a single thread.
    """
    ours, theirs = socket.socketpair()
    parent = os.getpid()
    pid = os.fork()
    if pid == 0:
        ours.close()
        return EngineSide(stream=theirs, parent=parent)
    theirs.close()
    return ForkedEngine(pid, ours)


def spawn_engine(settings: EngineSettings) -> tuple[EngineChild, socket.socket]:
    """Start the engine's program. Returns the process and the server's end of its socket."""
    ours, theirs = socket.socketpair()
    command = [
        sys.executable, "-m", "hostelry.containers.lmi.engine.process",
        "--socket-fd", str(theirs.fileno()), "--parent", str(os.getpid()),
    ]  # fmt: skip
    # Not asyncio's: the kernel's parent-death signal is tied to the thread that starts it.
    process = subprocess.Popen(
        command,
        pass_fds=(theirs.fileno(),),
        stdin=subprocess.DEVNULL,
        env=engine_environment(os.environ, settings),
    )
    theirs.close()
    return process, ours


def engine_environment(inherited: Mapping[str, str], settings: EngineSettings) -> dict[str, str]:
    """The environment of the engine process: `inherited`, with threads and accelerators set."""
    environment = dict(inherited)
    if settings.num_threads:
        environment["OMP_NUM_THREADS"] = str(settings.num_threads)
    if not settings.use_accelerators:
        environment["CUDA_VISIBLE_DEVICES"] = ""
    return environment


def reap(process: EngineChild) -> None:
    """Wait for the process to exit. Kill it after EXIT_WAIT_S."""
    try:
        process.wait(EXIT_WAIT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
