"""The process that imports the framework once and is forked for each worker.

It has one thread and runs no code of a model. Orders come over its socket, each with the socket of
the worker to be; what it says:

    {"ready": true, "versions": {...}}          the framework is imported
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

from hostelry.containers.predictive.worker import frames, serving

PR_SET_PDEATHSIG, PR_SET_NO_NEW_PRIVS = 1, 38
KIND_ERRORS = (ImportError, OSError, ValueError, AttributeError, RuntimeError, SystemError)


def main(argv: list[str] | None = None) -> int:
    """Import and fork until the front goes away."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--socket-fd", type=int, required=True)
    parser.add_argument("--parent", type=int, required=True)
    parser.add_argument("--also", action="append", default=[], help="imported where it is there")
    parser.add_argument("modules", nargs="*")
    given = parser.parse_args(argv)
    die_with_parent(given.parent)
    with socket.socket(fileno=given.socket_fd) as stream:
        try:
            versions = {name: version_of(importlib.import_module(name)) for name in given.modules}
        except KIND_ERRORS as error:
            text = f"{type(error).__name__}: {error}"
            frames.send(stream, {"failed": text[:1000]})
            return 1
        for name in given.also:
            import_if_there(name)
        gc.collect()
        gc.freeze()  # a collection in a worker must not write to shared pages
        woken, waker = os.pipe()
        for descriptor in (woken, waker):
            os.set_blocking(descriptor, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(waker)
        frames.send(stream, {"ready": True, "versions": versions, "python": sys.version.split()[0]})
        worker = forks(stream, woken)
        if worker is None:
            return 0
        os.close(woken)
        os.close(waker)
    return serving.serve(worker)


def import_if_there(name: str) -> None:
    """Import a module for the models that will use it; another version may not have it."""
    try:
        importlib.import_module(name)
    except KIND_ERRORS:
        return


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


def forks(stream: socket.socket, woken: int) -> socket.socket | None:
    """Serve orders; None here once the front is gone, and the worker's socket in each worker."""
    children: set[int] = set()
    while True:
        ready, _, _ = select.select([stream.fileno(), woken], [], [])
        if woken in ready:
            os.read(woken, 4096)
            for message in reaped(children):
                frames.send(stream, message)
        if stream.fileno() not in ready:
            continue
        try:
            order, worker = frames.receive_with_socket(stream)
        except (frames.ClosedError, ConnectionError):
            return None
        if worker is None:
            continue
        zygote = os.getpid()
        sys.stdout.flush()
        sys.stderr.flush()
        pid = os.fork()
        if pid == 0:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            die_with_parent(zygote)
            return worker
        worker.close()
        children.add(pid)
        frames.send(stream, {"number": order["number"], "forked": pid})


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
