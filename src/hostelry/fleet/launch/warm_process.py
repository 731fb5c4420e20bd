"""The process that copies and services are forked from; an agent or `up` starts and owns it.

    python -m hostelry.fleet.launch.warm_process --socket-fd N --parent PID --idle-s S MODULE...

It imports the modules once, calls ``warm_up()`` of those that have one, and forks a process for
each order, which runs ``main()`` of the order's module. Forking is safe only with a single thread
and an unused GPU: it refuses to fork otherwise. It ends with its parent, or after a while without
orders and children.
"""

import argparse
import ctypes
import fcntl
import gc
import importlib
import math
import os
import select
import signal
import socket
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from hostelry.base.json import decode
from hostelry.base.proc import process_stat
from hostelry.containers.predictive.worker.copy_process import (
    become,
    mark,
    redirect,
    show_command,
    take_environment,
)
from hostelry.fleet.launch.warm_messages import (
    ForkOrder,
    FromParent,
    ToParent,
    arguments_of,
    line,
)

RECEIVE_BYTES = 1 << 18
MAX_FDS = 8  # of one order
FREE_FDS = 64  # above the numbers of descriptors that an interpreter opens
PR_SET_PDEATHSIG = 1
PR_SET_NO_NEW_PRIVS = 38
EXIT_ABANDONED = 0


@dataclass(slots=True)
class WarmProcess:
    """The event loop: orders in, pids and exit codes out."""

    stream: socket.socket
    woken: int
    idle_s: float
    gates: dict[int, int] = field(default_factory=dict)
    children: set[int] = field(default_factory=set)
    received: bytes = b""
    given_fds: list[int] = field(default_factory=list)

    def run(self) -> "ForkedChild | None":
        """Serve; return None in this process at its end, and the child in each forked copy."""
        self._send(FromParent(ready=True))
        while True:
            asked = self.stream.fileno()
            limit_s = self.idle_s if self.idle_s < math.inf else None
            ready, _, _ = select.select([asked, self.woken], [], [], limit_s)
            if self.woken in ready:
                os.read(self.woken, 4096)
                self._reap()
            if asked in ready:
                data, fds, _, _ = socket.recv_fds(self.stream, RECEIVE_BYTES, MAX_FDS)
                self.given_fds += fds
                if not data:
                    return None
                *messages, self.received = (self.received + data).split(b"\n")
                for message in messages:
                    child = self._take(decode(message, ToParent))
                    if child is not None:
                        return child
            if not ready and not self.children:
                return None

    def _take(self, message: ToParent) -> "ForkedChild | None":
        if message.go is not None and (gate := self.gates.pop(message.go, None)) is not None:
            with suppress(OSError):
                os.write(gate, b"!")
            os.close(gate)
        return self._fork(message.fork) if message.fork is not None else None

    def _fork(self, order: ForkOrder) -> "ForkedChild | None":
        """Fork; return the child in the new process, None in this one."""
        self._close_gates()
        fds, self.given_fds = self.given_fds, []
        try:
            return self._fork_with(order, fds)
        finally:
            for fd in fds:
                os.close(fd)

    def _fork_with(self, order: ForkOrder, fds: list[int]) -> "ForkedChild | None":
        if not is_alone():
            refusal = "the warm interpreter runs more than one thread"
            self._send(FromParent(number=order.number, refused=refusal))
            return None
        opened, gate = os.pipe()
        begun, leading = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.setsid()
            for each in (begun, leading, gate, self.woken):
                os.close(each)
            self.stream.close()
            above = max((FREE_FDS, *order.fds)) + 1
            kept = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, above) for fd in fds]
            return ForkedChild(order=order, gate=opened, fds=kept)
        os.close(opened)
        os.close(leading)
        os.read(begun, 1)  # until it leads its own group, which may be signalled from now on
        os.close(begun)
        self.gates[pid] = gate
        self.children.add(pid)
        self._send(FromParent(number=order.number, forked=pid))
        return None

    def _close_gates(self) -> None:
        """End copies that never got their `go`: their start was cancelled."""
        for gate in self.gates.values():
            os.close(gate)
        self.gates.clear()

    def _reap(self) -> None:
        while self.children:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            self.children.discard(pid)
            code = os.waitstatus_to_exitcode(status)
            self._send(FromParent(ended=pid, exit_code=code))

    def _send(self, message: FromParent) -> None:
        with suppress(BrokenPipeError, ConnectionResetError):
            self.stream.sendall(line(message))


@dataclass(frozen=True, slots=True, kw_only=True)
class ForkedChild:
    """A process that was just forked: its order, and the pipe on which it waits for its owner."""

    order: ForkOrder
    gate: int
    fds: Sequence[int]

    def complete(self) -> None:
        """Set up the process, then wait until its owner has set its limits.

        Ends the process if the owner does not release it.
        """
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.chdir(self.order.folder)
        if self.order.umask is not None:
            os.umask(self.order.umask)
        redirect(self.order.log)
        take_environment(self.order.environment)
        mark(self.order.marker, self.order.environment[self.order.marker])
        show_command(self.order.argv)
        word = os.read(self.gate, 1)
        os.close(self.gate)
        if not word:
            os._exit(EXIT_ABANDONED)
        # After the limits: setting those of another user's process takes one more privilege.
        if self.order.uid is not None and self.order.gid is not None:
            become(self.order.uid, self.order.gid)
        for fd, number in zip(self.fds, self.order.fds, strict=True):
            os.dup2(fd, number)
            os.close(fd)


def is_alone() -> bool:
    """Whether this process has one thread, both for the kernel and for Python."""
    stat = process_stat(os.getpid())
    return threading.active_count() == 1 and stat is not None and stat.num_threads == 1


def warm_up(modules: Sequence[str]) -> None:
    """Import the modules and call `warm_up()` of those that have one.

    Garbage is collected once at the end: collections while thousands of modules' objects are made
    take a quarter of the time. The objects are frozen, so that a collection in a forked process
    does not write to shared pages. Free memory is returned: forks would copy shared pages to use
    the gaps in them.
    """
    gc.disable()
    for name in modules:
        getattr(importlib.import_module(name), "warm_up", lambda: None)()
    gc.collect()
    gc.freeze()
    with suppress(AttributeError):  # a libc without it
        ctypes.CDLL(None).malloc_trim(0)
    gc.enable()


def main() -> int:
    """Import and serve; in each forked process, run its module."""
    parser = argparse.ArgumentParser(prog="python -m hostelry.fleet.launch.warm_process")
    parser.add_argument("--socket-fd", type=int, required=True)
    parser.add_argument("--parent", type=int, required=True)
    parser.add_argument("--idle-s", type=float, required=True)
    parser.add_argument("--no-new-privileges", action="store_true")
    parser.add_argument("modules", nargs="+")
    parser.add_argument("--room", default="", help="room for the command lines that forks show")
    given = parser.parse_args()
    libc = ctypes.CDLL(None)
    if given.no_new_privileges:
        libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != given.parent:
        return 0
    show_command([it for it in sys.orig_argv if not it.startswith("--room=")])
    warm_up(given.modules)
    woken, waker = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(waker, warn_on_full_buffer=False)
    with socket.socket(fileno=given.socket_fd) as stream:
        child = WarmProcess(stream, woken, given.idle_s).run()
    if child is None:
        return 0
    os.close(waker)
    child.complete()
    entry = importlib.import_module(child.order.module)
    sys.argv = [str(entry.__file__), *arguments_of(child.order.argv)]
    code: int = entry.main()
    return code


if __name__ == "__main__":
    raise SystemExit(main())
