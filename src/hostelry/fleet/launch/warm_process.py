"""The process that copies are forked from; an agent starts and owns it.

    python -m hostelry.fleet.launch.warm_process --socket-fd N --parent PID --idle-s S MODULE...

Imports the modules once and forks a copy on request, which runs ``main()`` of the first module.
Forking is safe only with a single thread and an unused GPU: it refuses to fork otherwise. It ends
with its agent, or after a while without orders and children.
"""

import argparse
import ctypes
import gc
import importlib
import os
import select
import signal
import socket
import sys
import threading
from contextlib import suppress
from dataclasses import dataclass, field

from hostelry.base.json import decode
from hostelry.base.proc import process_stat
from hostelry.containers.predictive.worker.copy_process import (
    become,
    mark,
    redirect,
    take_environment,
)
from hostelry.fleet.host.processes import MARKER_VARIABLE
from hostelry.fleet.launch.warm_messages import ForkOrder, FromParent, ToParent, line

RECEIVE_BYTES = 1 << 18
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

    def run(self) -> "ForkedChild | None":
        """Serve; return None in this process at its end, and the child in each forked copy."""
        self._send(FromParent(ready=True))
        while True:
            asked = self.stream.fileno()
            ready, _, _ = select.select([asked, self.woken], [], [], self.idle_s)
            if self.woken in ready:
                os.read(self.woken, 4096)
                self._reap()
            if asked in ready:
                data = self.stream.recv(RECEIVE_BYTES)
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
        """Fork; return the child in the copy, None in this process."""
        self._close_gates()
        if not is_alone():
            refusal = "the warm interpreter runs more than one thread"
            self._send(FromParent(number=order.number, refused=refusal))
            return None
        opened, gate = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(gate)
            os.close(self.woken)
            self.stream.close()
            return ForkedChild(order=order, gate=opened)
        os.close(opened)
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
    """A copy that was just forked: its order, and the pipe on which it waits for the agent."""

    order: ForkOrder
    gate: int

    def complete(self) -> None:
        """Set up the process, then wait until the agent has set its limits.

        Ends the process if the agent does not release it.
        """
        os.setsid()
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.chdir(self.order.folder)
        redirect(self.order.log)
        take_environment(self.order.environment)
        mark(MARKER_VARIABLE, self.order.environment[MARKER_VARIABLE])
        word = os.read(self.gate, 1)
        os.close(self.gate)
        if not word:
            os._exit(EXIT_ABANDONED)
        # After the limits: setting those of another user's process takes one more privilege.
        if self.order.uid is not None and self.order.gid is not None:
            become(self.order.uid, self.order.gid)


def is_alone() -> bool:
    """Whether this process has one thread, both for the kernel and for Python."""
    stat = process_stat(os.getpid())
    return threading.active_count() == 1 and stat is not None and stat.num_threads == 1


def main() -> int:
    """Import and serve; in each forked copy, run it."""
    parser = argparse.ArgumentParser(prog="python -m hostelry.fleet.launch.warm_process")
    parser.add_argument("--socket-fd", type=int, required=True)
    parser.add_argument("--parent", type=int, required=True)
    parser.add_argument("--idle-s", type=float, required=True)
    parser.add_argument("modules", nargs="+")
    given = parser.parse_args()
    libc = ctypes.CDLL(None)
    libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != given.parent:
        return 0
    entry, *_ = [importlib.import_module(name) for name in given.modules]
    gc.collect()
    gc.freeze()  # so that a collection in a copy does not write to shared pages
    woken, waker = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(waker, warn_on_full_buffer=False)
    with socket.socket(fileno=given.socket_fd) as stream:
        child = WarmProcess(stream, woken, given.idle_s).run()
    if child is None:
        return 0
    os.close(waker)
    child.complete()
    sys.argv = [str(entry.__file__), *child.order.arguments]
    code: int = entry.main()
    return code


if __name__ == "__main__":
    raise SystemExit(main())
