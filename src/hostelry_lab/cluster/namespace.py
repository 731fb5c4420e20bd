"""A separate network namespace for a host whose network the drill controls.

A process of the drill holds the namespace, so that it ends with the drill. Needs Linux and root.
"""

import ctypes
import os
import shutil
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from hostelry.base.errors import TerminalError

CLONE_NEWNET = 0x40000000
PROGRAMS = ("unshare", "nsenter", "setpriv", "ip", "sleep")
HOLD = "ip link set lo up && echo up && exec sleep infinity"


class NetworkNamespace:
    """The namespace of the process `pid`."""

    def __init__(self, pid: int) -> None:
        self.path = f"/proc/{pid}/ns/net"

    @property
    def prefix(self) -> tuple[str, ...]:
        """The prefix of a command that runs in the namespace."""
        return ("nsenter", f"--net={self.path}")

    def make(self, make: Callable[[], socket.socket]) -> socket.socket:
        """The socket that `make` makes in this namespace. It stays in the namespace."""
        made: list[socket.socket] = []
        failed: list[Exception] = []

        def run() -> None:  # in a thread, since each thread has its own namespace
            try:
                enter(self.path)
                made.append(make())
            except OSError as error:
                failed.append(error)

        thread = threading.Thread(target=run)
        thread.start()
        thread.join()
        if failed:
            raise failed[0]
        return made[0]


def enter(path: str) -> None:
    """Move the calling thread into a namespace. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.setns(descriptor, CLONE_NEWNET) != 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))
    finally:
        os.close(descriptor)


def cannot() -> str | None:
    """Why this machine cannot make a namespace, or None if it can."""
    missing = [it for it in PROGRAMS if shutil.which(it) is None]
    if missing:
        return f"network namespaces need {', '.join(missing)} (util-linux, iproute2)"
    if os.geteuid() != 0:
        return "network namespaces need root"
    done = subprocess.run(["unshare", "--net", "true"], capture_output=True, text=True, check=False)
    return None if done.returncode == 0 else f"no network namespace: {done.stderr.strip()}"


@contextmanager
def own_namespace() -> Iterator[NetworkNamespace]:
    """A namespace whose only interface is its loopback, for the block."""
    holder = subprocess.Popen(
        ["setpriv", "--pdeathsig", "KILL", "unshare", "--net", "sh", "-c", HOLD],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    try:
        assert holder.stdout is not None
        if holder.stdout.readline().strip() != "up":
            raise TerminalError("the drill cannot make a network namespace")
        yield NetworkNamespace(holder.pid)
    finally:
        holder.kill()
        holder.wait()
        if holder.stdout is not None:
            holder.stdout.close()
