"""The process that imports the framework once and is forked for each worker.

It has one thread and runs no code of a model. Orders come over its socket, each with the socket of
the worker to be. An agent's own (--idle-s) is forked for copies: with the order comes the socket of
the copy's server and one at which the fork waits; it becomes the copy's, takes the variables that
the server sends first, and serves it as if it had imported the framework itself. What it says:

    {"ready": true, "versions": {...}, "pid": P}  the framework is imported
    {"failed": "..."}                           it cannot be; the process ends
    {"number": N, "forked": PID}                the order with the number N
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

from hostelry.containers.predictive.worker import copy_process, frames, serving

PR_SET_PDEATHSIG, PR_SET_NO_NEW_PRIVS = 1, 38
LATER_AFTER_S = 2.0  # a copy that was just forked has the CPUs first
KIND_ERRORS = (ImportError, OSError, ValueError, AttributeError, RuntimeError, SystemError)


def main(argv: list[str] | None = None) -> int:
    """Import and fork until the front goes away."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--socket-fd", type=int, required=True)
    parser.add_argument("--parent", type=int, required=True)
    parser.add_argument("--also", action="append", default=[], help="imported where it is there")
    parser.add_argument("--later", action="append", default=[], help="the same, while it waits")
    parser.add_argument("--idle-s", type=float, help="ends after so long with one child at most")
    parser.add_argument("modules", nargs="*")
    given = parser.parse_args(argv)
    die_with_parent(given.parent)
    stream = socket.socket(fileno=given.socket_fd)
    try:
        versions = {name: version_of(importlib.import_module(name)) for name in given.modules}
    except KIND_ERRORS as error:
        text = f"{type(error).__name__}: {error}"
        frames.send(stream, {"failed": text[:1000]})
        return 1
    for name in given.also:
        import_if_there(name)
    return Zygote(versions, given.later, given.idle_s).serve(stream)


class Zygote:
    """The imported framework: `serve` its orders.

    `later` are modules that are still to be imported, where they are there.
    """

    def __init__(self, versions: dict[str, str], later: list[str], idle_s: float | None) -> None:
        self._versions = versions
        self._later = list(later)
        self._idle_s = idle_s
        self._children: set[int] = set()
        self._pause_s = LATER_AFTER_S

    def import_all(self) -> None:
        """Import what is left to import."""
        while self._later:
            self._import_next()
        freeze()

    def serve(self, stream: socket.socket) -> int:
        """Serve the front or the agent until it goes away; in each fork, what it is for."""
        freeze()
        woken, waker = os.pipe()
        for descriptor in (woken, waker):
            os.set_blocking(descriptor, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(waker)
        python = sys.version.split()[0]
        ready = {"ready": True, "versions": self._versions, "python": python, "pid": os.getpid()}
        with stream:
            frames.send(stream, ready)
            forked = self._forks(stream, woken)
        if forked is None:
            return 0
        os.close(woken)
        os.close(waker)
        order, sockets = forked
        if "copy" not in order:
            return serving.serve(sockets[0])
        return self._serve_copy(order, *sockets)

    def _serve_copy(self, order: dict[str, Any], front: socket.socket, gate: socket.socket) -> int:
        """Serve a copy's front as its own zygote; the exit status."""
        if not copy_process.become_copy(order["copy"], gate):
            return 0
        try:
            copy_process.take_environment(frames.receive(front)[0]["environment"])
        except (frames.ClosedError, ConnectionError):  # the front needs another one
            return 0
        return Zygote(self._versions, [], None).serve(front)

    def _forks(
        self, stream: socket.socket, woken: int
    ) -> tuple[dict[str, Any], list[socket.socket]] | None:
        """Serve orders; None here once the front is gone, and order and sockets in each fork."""
        while True:
            ready, _, _ = select.select([stream.fileno(), woken], [], [], self._wait_s())
            if woken in ready:
                os.read(woken, 4096)
                for message in reaped(self._children):
                    frames.send(stream, message)
            if stream.fileno() not in ready:
                if not ready and not self._waited():
                    return None
                continue
            try:
                order, sockets = frames.receive_with_sockets(stream)
            except (frames.ClosedError, ConnectionError):
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
        """Fork for an order; True in the fork."""
        zygote = os.getpid()
        sys.stdout.flush()
        sys.stderr.flush()
        pid = os.fork()
        if pid == 0:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            if "copy" not in order:  # a copy lives on without the agent and its zygote
                die_with_parent(zygote)
            return True
        for each in sockets:
            each.close()
        self._children.add(pid)
        frames.send(stream, {"number": order["number"], "forked": pid})
        return False

    def _wait_s(self) -> float | None:
        """Seconds until something is due besides orders; None where nothing is."""
        if self._idle_s is None:
            return None
        return self._pause_s if self._later else self._idle_s

    def _waited(self) -> bool:
        """Do what is due while nothing is asked for; False where it is to end."""
        if not self._later:
            return len(self._children) > 1  # with one alone no pages are shared
        self._pause_s = 0.0
        self._import_next()
        freeze()
        return True

    def _import_next(self) -> None:
        import_if_there(self._later.pop(0))


def import_if_there(name: str) -> None:
    """Import a module for the models that will use it; another version may not have it."""
    try:
        importlib.import_module(name)
    except KIND_ERRORS:
        return


def freeze() -> None:
    """Keep collections in forks from writing to the pages that they share."""
    gc.collect()
    gc.freeze()


def version_of(module: Any) -> str:
    """The version that a module says it has."""
    return str(getattr(module, "__version__", ""))


def die_with_parent(parent: int) -> None:
    """Have the kernel kill this process when its parent ends, and never give it more rights."""
    libc = ctypes.CDLL(None)
    libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(0)


def reaped(children: set[int]) -> list[dict[str, int]]:
    """The message of each worker that has ended."""
    found = []
    for pid in sorted(children):
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            children.discard(pid)
            code = -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
            found.append({"ended": pid, "code": code})
    return found
