"""The process of an author's code: its messages, its start as a child, and errors of the code."""

import argparse
import ctypes
import faulthandler
import os
import signal
import socket
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import msgspec

from hostelry.containers.code.messages import (
    LENGTH,
    MAX_REPLY_BYTES,
    TO_CODE,
    FromCode,
    Raised,
    Replied,
    ToCode,
    framed_message,
)

MAX_ERROR_CHARACTERS = 2000
PR_SET_PDEATHSIG = 1
NICENESS = 5  # the engine's steps and the server have priority


class AuthorModule(msgspec.Struct, frozen=True):
    """The loaded module of a folder, and its hooks by name."""

    folder: str
    hooks: dict[str, Callable[..., Any]] = msgspec.field(default_factory=dict)

    def place(self, frames: Iterator[tuple[FrameType, int]]) -> str | None:
        """Describe the innermost of `frames` (outermost first) that is in the folder."""
        place = None
        for frame, line in frames:
            path = Path(frame.f_code.co_filename)
            if path.is_relative_to(self.folder):
                name = path.relative_to(self.folder)
                place = f"{name} line {line} in {frame.f_code.co_name}"
        return place

    def describe(self, error: BaseException) -> str:
        """Describe an error of the code: its type, its message and its line."""
        kind = type(error).__name__
        text = "".join(traceback.format_exception_only(error)).strip()
        if not isinstance(error, SyntaxError):
            text = f"{kind}: {error}" if str(error) else kind
        text = text.replace(f"{self.folder}/", "")  # a path of the host
        place = self.place(traceback.walk_tb(error.__traceback__))
        return text[:MAX_ERROR_CHARACTERS] + (f" ({place})" if place else "")

    def main_thread_place(self) -> str | None:
        """The line that the main thread executes. None outside the author's code."""
        frame = sys._current_frames().get(threading.main_thread().ident or 0)
        stack = [] if frame is None else list(traceback.walk_stack(frame))
        return self.place(iter(reversed(stack)))

    def coroutine_place(self, coroutine: Any) -> str | None:
        """The line at which a coroutine or generator waits."""
        frames = []
        while coroutine is not None:
            frame = getattr(coroutine, "cr_frame", None) or getattr(coroutine, "ag_frame", None)
            if frame is not None:
                frames.append((frame, frame.f_lineno))
            coroutine = getattr(coroutine, "cr_await", None) or getattr(coroutine, "ag_await", None)
        return self.place(iter(frames))


class ServerGoneError(Exception):
    """The server closed its end."""


class CodeChannel:
    """Messages from and to the server. `send` may be called from every thread."""

    def __init__(self, stream: socket.socket) -> None:
        self._stream = stream
        self._sending = threading.Lock()

    def receive(self) -> ToCode:
        """The next message. Raises ServerGoneError."""
        (size,) = LENGTH.unpack(self._exactly(LENGTH.size))
        return TO_CODE.decode(self._exactly(size))

    def send(self, message: FromCode) -> None:
        """Send a message. A reply that is too large becomes an error."""
        data = framed_message(message)
        if len(data) > MAX_REPLY_BYTES and isinstance(message, Replied):
            error = f"the result has {len(data)} bytes; at most {MAX_REPLY_BYTES}"
            data = framed_message(Raised(message.id, error))
        with self._sending:
            self._stream.sendall(data)

    def _exactly(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            part = self._stream.recv(size - len(data))
            if not part:
                raise ServerGoneError
            data += part
        return bytes(data)


def run_as_child(run: Callable[[CodeChannel], int]) -> int:
    """Call `run` with the socket that the command line names. Returns the exit status."""
    parser = argparse.ArgumentParser(description="The process of an author's code.")
    parser.add_argument("--socket-fd", type=int, required=True)
    parser.add_argument("--parent", type=int, required=True)
    arguments = parser.parse_args()
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != arguments.parent:
        return 0
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    os.nice(NICENESS)
    with socket.socket(fileno=arguments.socket_fd) as stream:
        return run(CodeChannel(stream))
