"""A service's line: a Unix socket beside its run file, at which whoever supervises it asks.

Each line sent comes back, which is the service's pulse: it says that the event loop turns, and
nothing of what the service can do, since a store that is slow is no reason to kill anybody. A
gateway worker that is sent `DOOR` hands over the listening socket, so that the successor of a
killed supervisor has it without a connection being lost.

It costs no port and no key: only the home's owner can reach it (run/ has mode 0700). It is bound
by the service and outlives the supervisor, as the service does.
"""

import asyncio
import contextlib
import logging
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType

log = logging.getLogger(__name__)
# The service's run file without its suffix: `/home/run/gateway-1`.
SERVICE_VARIABLE = "HOSTELRY_SERVICE"
DOOR = b"door"
AGAIN_S = 1.0
LINE_BYTES = 4096


def line_path(service: Path) -> Path:
    """Where the service that is named so listens."""
    return service.with_name(f"{service.name}.sock")


class Heartbeat:
    """The supervisor's end of a service's line; `answered` opens it, and opens it again."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._line: socket.socket | None = None
        self._asked = 0

    def __enter__(self) -> "Heartbeat":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._hang_up()

    async def answered(self, timeout_s: float) -> bool:
        """Ask once; whether this very question came back in time."""
        self._asked += 1
        question = b"%d" % self._asked
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(timeout_s):
                line = self._line = self._line or connected(self._path)
                await loop.sock_sendall(line, question + b"\n")
                unread = b""
                while True:
                    received = await loop.sock_recv(line, LINE_BYTES)
                    if not received:
                        self._hang_up()
                        return False
                    *lines, unread = (unread + received).split(b"\n")
                    if question in lines:
                        return True
        except TimeoutError:
            return False
        except OSError:
            self._hang_up()
            return False

    def _hang_up(self) -> None:
        if self._line is not None:
            self._line.close()
            self._line = None


def take_door(path: Path, timeout_s: float) -> socket.socket | None:
    """The listening socket of the worker whose line is at `path`; None where it gives none."""
    try:
        with connected(path) as line:
            line.settimeout(timeout_s)
            line.sendall(DOOR + b"\n")
            _, descriptors, _, _ = socket.recv_fds(line, LINE_BYTES, 1)
    except OSError:
        return None
    return socket.socket(fileno=descriptors[0]) if descriptors else None


async def answer_pulse(door: socket.socket | None = None) -> None:
    """Answer whoever supervises this process, until cancelled; no-op without a supervisor."""
    given = os.environ.pop(SERVICE_VARIABLE, None)
    if given is None:
        return
    path = line_path(Path(given))
    loop = asyncio.get_running_loop()
    answering: set[asyncio.Task[None]] = set()
    with contextlib.ExitStack() as stack:
        listening: socket.socket | None = None
        stack.callback(lambda: [task.cancel() for task in answering])
        while True:
            try:
                listening = listening or stack.enter_context(listened(path))
                line, _ = await loop.sock_accept(listening)
            except OSError as error:  # a full disk, or no descriptors: what ends may come again
                log.warning("%s cannot be answered at now: %s", path, error)
                await asyncio.sleep(AGAIN_S)
                continue
            task = loop.create_task(_answer(line, door))
            answering.add(task)
            task.add_done_callback(answering.discard)


async def _answer(line: socket.socket, door: socket.socket | None) -> None:
    """Answer one supervisor until it hangs up."""
    loop = asyncio.get_running_loop()
    unread = b""
    line.setblocking(False)
    with line, contextlib.suppress(OSError):
        while received := await loop.sock_recv(line, LINE_BYTES):
            *lines, unread = (unread + received).split(b"\n")
            for text in lines:
                if text == DOOR:
                    socket.send_fds(line, [DOOR], [] if door is None else [door.fileno()])
                else:
                    await loop.sock_sendall(line, text + b"\n")


def connected(path: Path) -> socket.socket:
    """A connection to a Unix socket; raises OSError where nobody listens."""
    made = socket.socket(socket.AF_UNIX)
    made.setblocking(False)
    try:
        with short_name(path) as name:
            made.connect(name)
    except OSError:
        made.close()
        raise
    return made


def listened(path: Path) -> socket.socket:
    """A listening Unix socket in the place of a dead one."""
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
    """A name of `path` that is short enough for a Unix socket (107 bytes) however long it is."""
    folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)
