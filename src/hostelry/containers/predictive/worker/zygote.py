"""The process that imports the framework once and is forked for each worker.

It has one thread and runs no code of a model. Each order on its socket brings the socket of a new
worker. The zygote of an agent (--idle-s) forks zygotes of copies instead. Such an order brings the
socket of the copy's server and a socket at which the fork waits. The fork becomes a process of the
copy, takes the variables that the server sends first, and serves the server as its zygote.
Messages from a zygote:

    {"ready": true, "versions": {...}, "pid": P}  the framework is imported
    {"failed": "..."}                           the import failed, and the process ends
    {"number": N, "forked": PID}                the answer to the order with the number N
    {"ended": PID, "code": C}                   a worker ended: its status, or minus its signal
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import importlib
import os
import select
import signal
import socket
import sys
from typing import Any

from hostelry.containers.predictive.worker import copy_process, serving

PR_SET_PDEATHSIG, PR_SET_NO_NEW_PRIVS = 1, 38
LATER_AFTER_S = 2.0  # a new copy gets the CPUs first
IMPORT_ERRORS = (ImportError, OSError, ValueError, AttributeError, RuntimeError, SystemError)


def main(argv: list[str] | None = None) -> int:
    """Import the framework, and fork until the front is gone. Returns the exit status."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--socket-fd", type=int, required=True)
    parser.add_argument("--parent", type=int, required=True)
    parser.add_argument("--also", action="append", default=[], help="a module to import, if any")
    parser.add_argument("--later", action="append", default=[], help="the same, while idle")
    parser.add_argument("--idle-s", type=float, help="end after this time with one child at most")
    parser.add_argument("modules", nargs="*")
    given = parser.parse_args(argv)
    die_with_parent(given.parent)
    stream = socket.socket(fileno=given.socket_fd)
    try:
        modules = {name: importlib.import_module(name) for name in given.modules}
    except IMPORT_ERRORS as error:
        text = f"{type(error).__name__}: {error}"
        serving.send(stream, {"failed": text[:1000]})
        return 1
    versions = {name: str(getattr(it, "__version__", "")) for name, it in modules.items()}
    for name in given.also:
        import_if_present(name)
    return Zygote(versions, given.later, given.idle_s).serve(stream)


class Zygote:
    """The process with the imported framework. `later` are modules to import while idle."""

    def __init__(self, versions: dict[str, str], later: list[str], idle_s: float | None) -> None:
        self._versions = versions
        self._later = list(later)
        self._idle_s = idle_s
        self._children: set[int] = set()
        self._pause_s = LATER_AFTER_S

    def import_all(self) -> None:
        """Import the remaining modules."""
        while self._later:
            import_if_present(self._later.pop(0))
        freeze()

    def serve(self, stream: socket.socket) -> int:
        """Serve the front or the agent until it is gone. A fork serves as its worker or zygote."""
        freeze()
        woken, waker = os.pipe()
        for descriptor in (woken, waker):
            os.set_blocking(descriptor, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(waker)
        python = sys.version.split()[0]
        ready = {"ready": True, "versions": self._versions, "python": python, "pid": os.getpid()}
        with stream:
            serving.send(stream, ready)
            forked = self._run_orders(stream, woken)
        if forked is None:
            return 0
        os.close(woken)
        os.close(waker)
        order, sockets = forked
        if "copy" not in order:
            return serving.serve(sockets[0])
        return self._serve_copy(order, *sockets)

    def _serve_copy(self, order: dict[str, Any], front: socket.socket, gate: socket.socket) -> int:
        """Serve a copy's front as its zygote. Returns the exit status."""
        if not copy_process.become_copy(order["copy"], gate):
            return 0
        try:
            copy_process.take_environment(serving.receive(front)[0]["environment"])
        except (serving.ClosedError, ConnectionError):  # the front starts another zygote
            return 0
        return Zygote(self._versions, [], None).serve(front)

    def _run_orders(
        self, stream: socket.socket, woken: int
    ) -> tuple[dict[str, Any], list[socket.socket]] | None:
        """Serve orders until the front is gone. Returns None here, order and sockets in a fork."""
        while True:
            ready, _, _ = select.select([stream.fileno(), woken], [], [], self._wait_s())
            if woken in ready:
                os.read(woken, 4096)
                for message in reap(self._children):
                    serving.send(stream, message)
            if stream.fileno() not in ready:
                if not ready and not self._do_idle_work():
                    return None
                continue
            try:
                order, sockets = serving.receive_with_sockets(stream)
            except (serving.ClosedError, ConnectionError):
                return None
            if len(sockets) != (2 if "copy" in order else 1):
                return None
            if "whole" in order:
                self.import_all()
            if self._fork(stream, order, sockets):
                return order, sockets

    def _fork(
        self, stream: socket.socket, order: dict[str, Any], sockets: list[socket.socket]
    ) -> bool:
        """Fork for an order. True in the fork."""
        zygote = os.getpid()
        sys.stdout.flush()
        sys.stderr.flush()
        pid = os.fork()
        if pid == 0:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            if "copy" not in order:  # a copy outlives the agent and its zygote
                die_with_parent(zygote)
            return True
        for each in sockets:
            each.close()
        self._children.add(pid)
        serving.send(stream, {"number": order["number"], "forked": pid})
        return False

    def _wait_s(self) -> float | None:
        """Seconds until idle work is due. None if no work is left."""
        if self._idle_s is None:
            return None
        return self._pause_s if self._later else self._idle_s

    def _do_idle_work(self) -> bool:
        """Import a module, or return False if the process shall end."""
        if not self._later:
            return len(self._children) > 1  # a single child shares no pages
        self._pause_s = 0.0
        import_if_present(self._later.pop(0))
        freeze()
        return True


def import_if_present(name: str) -> None:
    """Import a module that models may use. Another version may lack it."""
    try:
        importlib.import_module(name)
    except IMPORT_ERRORS:
        return


def freeze() -> None:
    """Keep garbage collections in forks from writing to shared pages."""
    gc.collect()
    gc.freeze()


def die_with_parent(parent: int) -> None:
    """Have the kernel kill this process when its parent ends, and never raise its rights."""
    libc = ctypes.CDLL(None)
    libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(0)


def reap(children: set[int]) -> list[dict[str, int]]:
    """A message for each worker that has ended."""
    messages = []
    for pid in sorted(children):
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            children.discard(pid)
            code = -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
            messages.append({"ended": pid, "code": code})
    return messages
