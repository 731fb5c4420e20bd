"""Heartbeats of a service over a Unix socket next to its run file.

The service echoes each line, which shows only that its event loop runs, because a slow store does
not justify killing a process. A gateway worker or node proxy that receives `LISTENER_REQUEST`
passes its listening socket, so that the successor of a killed supervisor loses no connection. A
worker that receives a line that begins with `CALLS_REQUEST` answers with the calls it has recorded.

The socket needs neither port nor key, because only the home's owner can reach it (run/ has mode
0700). The service binds it, so that it outlives a supervisor.
"""

import asyncio
import contextlib
import logging
import os
import select
import signal
import socket
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType

import msgspec

from hostelry.home.home import SERVICE_VARIABLE

LOG = logging.getLogger(__name__)
LISTENER_REQUEST = b"door"
CALLS_REQUEST = b"calls "
RETRY_S = 1.0
LINE_BYTES = 4096
PEER_CREDENTIALS = struct.Struct("3i")  # pid, uid, gid
MAX_ANSWER_BYTES = 64 * 1024 * 1024
AnswerLine = Callable[[bytes], bytes]


def line_path(service: Path) -> Path:
    """The socket of the service whose files begin with `service`."""
    return service.with_name(f"{service.name}.sock")


class Heartbeat:
    """The supervisor's end of the socket of process `pid`. `ping` connects if necessary.

    Another process that listens at `path`, such as a predecessor, gets no line.
    """

    def __init__(self, path: Path, pid: int) -> None:
        self._path = path
        self._pid = pid
        self._line: socket.socket | None = None
        self._sent = 0

    def __enter__(self) -> "Heartbeat":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._disconnect()

    async def ping(self, timeout_s: float) -> bool:
        """Send one line. False unless the same line comes back in time."""
        self._sent += 1
        line_sent = b"%d" % self._sent
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(timeout_s):
                line = self._line = self._line or connect(self._path)
                if listening_pid(line) != self._pid:
                    self._disconnect()
                    return False
                await loop.sock_sendall(line, line_sent + b"\n")
                unread = b""
                while True:
                    received = await loop.sock_recv(line, LINE_BYTES)
                    if not received:
                        self._disconnect()
                        return False
                    *lines, unread = (unread + received).split(b"\n")
                    if line_sent in lines:
                        return True
        except TimeoutError:
            return False
        except OSError:
            self._disconnect()
            return False

    def _disconnect(self) -> None:
        if self._line is not None:
            self._line.close()
            self._line = None


def take_listener(path: Path, timeout_s: float) -> socket.socket | None:
    """Get the listening socket of the worker whose socket is at `path`, or None."""
    try:
        with connect(path) as line:
            line.settimeout(timeout_s)
            line.sendall(LISTENER_REQUEST + b"\n")
            _, descriptors, _, _ = socket.recv_fds(line, LINE_BYTES, 1)
    except OSError:
        return None
    return socket.socket(fileno=descriptors[0]) if descriptors else None


async def ask_line(path: Path, line: bytes, timeout_s: float) -> bytes:
    """Get the line that the service at `path` answers. Raises OSError or TimeoutError."""
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(timeout_s):
        with connect(path) as asked:
            await loop.sock_sendall(asked, line + b"\n")
            received = bytearray()
            while not received.endswith(b"\n"):
                piece = await loop.sock_recv(asked, 64 * LINE_BYTES)
                if not piece or len(received) > MAX_ANSWER_BYTES:
                    raise ConnectionError("the service ended before its answer did")
                received += piece
    return bytes(received)


class SupervisorLines(msgspec.Struct, frozen=True, kw_only=True):
    """The socket for this process's supervisors, and their connections."""

    listening: socket.socket
    connected: list[socket.socket] = msgspec.field(default_factory=list)


def wait_for_client(listener: socket.socket) -> SupervisorLines | None:
    """Block until a client connects to `listener`, and answer supervisors meanwhile.

    An event loop and its server would copy 8 MB of the memory that this process shares with the
    others of its interpreter. Returns None without a wait for a process without a supervisor, and
    if the socket for supervisors cannot be made.
    """
    service = os.environ.get(SERVICE_VARIABLE)
    if service is None:
        return None
    try:
        lines = SupervisorLines(listening=listen(line_path(Path(service))))
    except OSError as error:  # `answer_heartbeats` tries again
        LOG.warning("%s cannot be listened on: %s", line_path(Path(service)), error)
        return None
    polled = select.poll()
    for each in (listener, lines.listening):
        polled.register(each, select.POLLIN)
    ended_by = {it: signal.signal(it, signal.SIG_DFL) for it in (signal.SIGTERM, signal.SIGINT)}
    while listener.fileno() not in (ready := [fd for fd, _ in polled.poll()]):
        if lines.listening.fileno() in ready:
            line, _ = lines.listening.accept()
            lines.connected.append(line)
            polled.register(line, select.POLLIN)
        for line in [it for it in lines.connected if it.fileno() in ready]:
            if not _echo(line):
                polled.unregister(line)
                lines.connected.remove(line)
                line.close()
    for number, handler in ended_by.items():
        signal.signal(number, handler)
    return lines


def _echo(line: socket.socket) -> bool:
    """Send a supervisor's bytes back. False if the supervisor has disconnected."""
    with contextlib.suppress(OSError):
        if received := line.recv(LINE_BYTES, socket.MSG_DONTWAIT):
            line.sendall(received)
            return True
    return False


async def answer_heartbeats(
    listener: socket.socket | None = None,
    calls: AnswerLine | None = None,
    lines: SupervisorLines | None = None,
) -> None:
    """Echo the lines of this process's supervisors until cancelled. No-op without a supervisor.

    `calls` answers the lines that begin with `CALLS_REQUEST`. `lines` come from `wait_for_client`.
    """
    service = os.environ.pop(SERVICE_VARIABLE, None)
    if service is None:
        return
    path = line_path(Path(service))
    loop = asyncio.get_running_loop()
    answering: set[asyncio.Task[None]] = set()

    def answer(line: socket.socket) -> None:
        task = loop.create_task(_answer(line, listener, calls))
        answering.add(task)
        task.add_done_callback(answering.discard)

    with contextlib.ExitStack() as stack:
        listening = stack.enter_context(lines.listening) if lines else None
        stack.callback(lambda: [task.cancel() for task in answering])
        for line in lines.connected if lines else ():
            answer(line)
        while True:
            try:
                listening = listening or stack.enter_context(listen(path))
                line, _ = await loop.sock_accept(listening)
            except OSError as error:  # a full disk, or no free descriptors: both may pass
                LOG.warning("%s cannot be listened on: %s", path, error)
                await asyncio.sleep(RETRY_S)
                continue
            answer(line)


async def _answer(
    line: socket.socket, listener: socket.socket | None, calls: AnswerLine | None
) -> None:
    """Answer one supervisor, or another worker, until it disconnects."""
    loop = asyncio.get_running_loop()
    unread = b""
    line.setblocking(False)
    with line, contextlib.suppress(OSError, ValueError):  # an invalid line ends the connection
        while received := await loop.sock_recv(line, LINE_BYTES):
            *lines, unread = (unread + received).split(b"\n")
            for text in lines:
                if text == LISTENER_REQUEST:
                    socket.send_fds(
                        line, [LISTENER_REQUEST], [] if listener is None else [listener.fileno()]
                    )
                elif calls is not None and text.startswith(CALLS_REQUEST):
                    await loop.sock_sendall(line, calls(text) + b"\n")
                else:
                    await loop.sock_sendall(line, text + b"\n")


def connect(path: Path) -> socket.socket:
    """Connect to a Unix socket. Raises OSError if no process listens."""
    made = socket.socket(socket.AF_UNIX)
    made.setblocking(False)
    try:
        with short_name(path) as name:
            made.connect(name)
    except OSError:
        made.close()
        raise
    return made


def is_listening(path: Path, pid: int) -> bool:
    """Whether process `pid` listens on the Unix socket."""
    try:
        with connect(path) as line:
            return listening_pid(line) == pid
    except OSError:
        return False


def listening_pid(line: socket.socket) -> int:
    """The process that listens at the other end of a connected Unix socket, unix(7)."""
    credentials = line.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, PEER_CREDENTIALS.size)
    pid: int = PEER_CREDENTIALS.unpack(credentials)[0]
    return pid


def listen(path: Path) -> socket.socket:
    """Create a listening Unix socket, which replaces a stale socket."""
    path.unlink(missing_ok=True)
    made = socket.socket(socket.AF_UNIX)
    made.setblocking(False)
    try:
        with short_name(path) as name:
            made.bind(name)
        path.chmod(0o600)
        made.listen()
    except OSError:
        made.close()
        raise
    return made


@contextlib.contextmanager
def short_name(path: Path) -> Iterator[str]:
    """A name of `path` within the 107 bytes that a Unix socket allows, however long it is."""
    folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)
