"""The process that copies and services are forked from. An agent or `up` starts and owns it.

    python -m hostelry.fleet.launch.warm_process --socket-fd N --parent PID --idle-s S MODULE...

It imports the modules once, calls ``warm_up()`` of each module that has it, and forks a process for
each order, which runs ``main()`` of the order's module. Its parent may lend the right to order to
another process, by a socket. It refuses to fork while it has several threads, because that is not
safe. It ends with its parent, or after a while without orders and children.
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

import msgspec

from hostelry.base.json import decode
from hostelry.base.proc import process_stat
from hostelry.base.system import fill_gaps, return_freed_memory
from hostelry.containers.predictive.worker.copy_process import (
    redirect,
    show_command,
    switch_user,
    take_environment,
    write_marker,
)
from hostelry.fleet.launch.warm_messages import (
    ForkOrder,
    FromParent,
    ToParent,
    encode_line,
    extract_arguments,
)
from hostelry.fleet.rules.interpreter import PYTHON

RECEIVE_BYTES = 1 << 18
MAX_FDS = 8  # of one order
MAX_LENT_BYTES = 4 << 20  # of an order on a lent stream
FREE_FDS = 64  # above the numbers of descriptors that an interpreter opens
PR_SET_PDEATHSIG = 1
PR_SET_NO_NEW_PRIVS = 38
EXIT_ABANDONED = 0


class OrderStream(msgspec.Struct, eq=False, kw_only=True):
    """A stream of orders, with its descriptors, and its forks that wait for `go`."""

    connection: socket.socket
    is_lent: bool
    received: bytes = b""
    given_fds: list[int] = msgspec.field(default_factory=list)
    next_fds: list[int] = msgspec.field(default_factory=list)
    gates: dict[int, int] = msgspec.field(default_factory=dict)

    def fileno(self) -> int:
        """The descriptor to select."""
        return self.connection.fileno()

    def receive(self) -> list[bytes]:
        """The messages that are complete now. Raises EOFError at the end, OSError, ValueError."""
        data, fds, _, _ = socket.recv_fds(self.connection, RECEIVE_BYTES, MAX_FDS)
        *messages, self.received = (self.received + data).split(b"\n")
        # Descriptors come with the first byte of a line, which is the last byte received.
        self.given_fds, self.next_fds = self.given_fds + self.next_fds, fds
        if not data:
            raise EOFError
        if self.is_lent and len(self.received) > MAX_LENT_BYTES:
            raise ValueError("an order is too long")
        return messages

    def send(self, message: FromParent) -> None:
        """Send a message. Raises OSError if a lent stream ended or is not read."""
        if self.is_lent:
            self.connection.sendall(encode_line(message), socket.MSG_DONTWAIT)
            return
        with suppress(BrokenPipeError, ConnectionResetError):
            self.connection.sendall(encode_line(message))

    def take_fds(self) -> list[int]:
        """The descriptors that came with a complete message. The caller closes them."""
        fds, self.given_fds = self.given_fds, []
        return fds

    def close_gates(self) -> None:
        """End copies that never got their `go`, because their start was cancelled."""
        for gate in self.gates.values():
            os.close(gate)
        self.gates.clear()

    def close(self) -> None:
        """Close the connection, descriptors and gates."""
        self.close_gates()
        for fd in (*self.take_fds(), *self.next_fds):
            os.close(fd)
        self.connection.close()


class WarmProcess:
    """The event loop: orders in, pids and exit codes out.

    A fork belongs to the stream that ordered it, and outlives it. The end of a lent stream, or an
    invalid message on it, ends that stream alone.
    """

    def __init__(self, owner: socket.socket, woken: int, idle_s: float) -> None:
        self._owner = OrderStream(connection=owner, is_lent=False)
        self._streams = [self._owner]
        self._woken = woken
        self._idle_s = idle_s
        self._children: dict[int, OrderStream] = {}

    def run(self) -> "ForkedChild | None":
        """Serve. Returns None in this process at its end, and the child in each forked copy."""
        self._owner.send(FromParent(ready=True))
        limit_s = self._idle_s if self._idle_s < math.inf else None
        while True:
            asked: list[int | OrderStream] = [self._woken, *self._streams]
            ready, _, _ = select.select(asked, [], [], limit_s)
            if self._woken in ready:
                os.read(self._woken, 4096)
                self._reap()
            for stream in [it for it in self._streams if it in ready]:
                child = self._serve(stream)
                if child is not None:
                    for each in self._streams:
                        each.close()
                    os.close(self._woken)
                if child is not None or not self._streams:
                    return child
            if not ready and not self._children:
                return None

    def _serve(self, stream: OrderStream) -> "ForkedChild | None":
        try:
            for message in stream.receive():
                child = self._take(stream, decode(message, ToParent))
                if child is not None:
                    return child
        except (EOFError, ConnectionResetError):
            self._end(stream)
        except (OSError, ValueError, RecursionError, msgspec.DecodeError):
            if not stream.is_lent:
                raise
            self._end(stream)
        return None

    def _end(self, stream: OrderStream) -> None:
        """Close a stream. If it is the owner's, this process ends."""
        stream.close()
        self._streams = [] if stream is self._owner else [s for s in self._streams if s != stream]

    def _take(self, stream: OrderStream, message: ToParent) -> "ForkedChild | None":
        if message.go is not None and (gate := stream.gates.pop(message.go, None)) is not None:
            with suppress(OSError):
                os.write(gate, b"!")
            os.close(gate)
        if message.lend:
            self._lend(stream)
        return self._fork(stream, message.fork) if message.fork is not None else None

    def _lend(self, stream: OrderStream) -> None:
        """Read orders from a socket that came with the message, too."""
        if stream.is_lent:
            raise ValueError("only the owner lends streams")
        (fd,) = stream.take_fds()
        lent = OrderStream(connection=socket.socket(fileno=fd), is_lent=True)
        self._streams.append(lent)
        try:
            lent.send(FromParent(ready=True))
        except OSError:
            self._end(lent)

    def _fork(self, stream: OrderStream, order: ForkOrder) -> "ForkedChild | None":
        """Fork. Returns the child in the new process, None in this process."""
        stream.close_gates()
        fds = stream.take_fds()
        try:
            if not is_alone():
                raise ChildProcessError("the warm interpreter runs more than one thread")
            forked = fork_child(order, fds)
        except OSError as error:
            answer = FromParent(number=order.number, refused=str(error))
        else:
            if isinstance(forked, ForkedChild):
                return forked
            pid, gate = forked
            stream.gates[pid] = gate
            self._children[pid] = stream
            answer = FromParent(number=order.number, forked=pid)
        for fd in fds:
            os.close(fd)
        stream.send(answer)
        return None

    def _reap(self) -> None:
        while self._children:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            stream = self._children.pop(pid, None)
            if stream is None or stream not in self._streams:
                continue
            try:
                stream.send(FromParent(ended=pid, exit_code=os.waitstatus_to_exitcode(status)))
            except OSError:
                self._end(stream)


class ForkedChild(msgspec.Struct, frozen=True, kw_only=True):
    """A process that was just forked: its order, and the pipe on which it waits for its owner."""

    order: ForkOrder
    gate: int
    fds: Sequence[int]

    def complete(self) -> None:
        """Set up the process, then wait until its owner has set its limits.

        Ends the process if the owner does not release it.
        """
        above = max((FREE_FDS, *self.order.fds)) + 1
        kept = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, above) for fd in self.fds]
        for fd in self.fds:
            os.close(fd)
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.chdir(self.order.folder)
        if self.order.umask is not None:
            os.umask(self.order.umask)
        redirect(self.order.log)
        take_environment(self.order.environment)
        write_marker(self.order.marker, self.order.environment.get(self.order.marker, ""))
        show_command(self.order.argv)
        word = os.read(self.gate, 1)
        os.close(self.gate)
        if not word:
            os._exit(EXIT_ABANDONED)
        # After the limits, because limits of another user's process need one more privilege.
        if self.order.uid is not None and self.order.gid is not None:
            switch_user(self.order.uid, self.order.gid)
        for fd, number in zip(kept, self.order.fds, strict=True):
            os.dup2(fd, number)
            os.close(fd)


def fork_child(order: ForkOrder, fds: Sequence[int]) -> ForkedChild | tuple[int, int]:
    """Fork. Returns the child in the new process, or in this process its pid and its gate.

    Raises OSError.
    """
    opened, gate = os.pipe()
    begun, leading = os.pipe()
    try:
        pid = os.fork()
    except OSError:
        for each in (opened, gate, begun, leading):
            os.close(each)
        raise
    if pid == 0:
        os.setsid()
        for each in (begun, leading, gate):
            os.close(each)
        return ForkedChild(order=order, gate=opened, fds=fds)
    os.close(opened)
    os.close(leading)
    os.read(begun, 1)  # until it leads its own group, which may then be signalled
    os.close(begun)
    return pid, gate


def is_alone() -> bool:
    """Whether this process has one thread, both for the kernel and for Python."""
    stat = process_stat(os.getpid())
    return threading.active_count() == 1 and stat is not None and stat.num_threads == 1


def warm_up(modules: Sequence[str]) -> None:
    """Import the modules and call `warm_up()` of each module that has it.

    Garbage is collected once at the end, because collections during the imports take a quarter of
    the time. The objects are frozen, so that a collection in a forked process does not write to
    shared pages. Free memory is returned, because forks would copy shared pages to use their gaps.
    """
    gc.disable()
    for name in modules:
        getattr(importlib.import_module(name), "warm_up", lambda: None)()
    gc.collect()
    gc.freeze()
    return_freed_memory()
    gc.enable()


def main() -> int:
    """Parse the arguments and serve."""
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
    with socket.socket(fileno=given.socket_fd) as owner:
        return serve(owner, given.modules, given.idle_s)


def serve_fork(owner: socket.socket, parent: int, log: str) -> int:
    """Serve in a fork of the process `parent`, which sends the modules to import."""
    os.setsid()
    for name in os.listdir("/proc/self/fd"):  # not each possible number: the limit may be 10**9
        if int(name) > 2 and int(name) != owner.fileno():
            with suppress(OSError):  # the listing's own is closed already
                os.close(int(name))
    redirect(log)
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        return 0
    show_command([*PYTHON, "-m", __name__])
    with owner:
        text = b""
        while not text.endswith(b"\n"):
            received = owner.recv(1)  # an order may follow
            if not received:
                return 0
            text += received
        return serve(owner, decode(text, list[str]), math.inf)


def serve(owner: socket.socket, modules: Sequence[str], idle_s: float) -> int:
    """Import and serve. In each forked process, run its module."""
    warm_up(modules)
    _fillers = fill_gaps()
    woken, waker = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(waker, warn_on_full_buffer=False)
    child = WarmProcess(owner, woken, idle_s).run()
    if child is None:
        return 0
    os.close(waker)
    child.complete()
    entry = importlib.import_module(child.order.module)
    sys.argv = [str(entry.__file__), *extract_arguments(child.order.argv)]
    code: int = entry.main()
    return code


if __name__ == "__main__":
    raise SystemExit(main())
