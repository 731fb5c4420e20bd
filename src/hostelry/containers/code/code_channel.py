"""The end of an author's process: its messages, and its life as the child of a server."""

import argparse
import ctypes
import faulthandler
import os
import signal
import socket
import threading
from collections.abc import Callable

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

PR_SET_PDEATHSIG = 1
NICENESS = 5  # the engine's steps and the server come first


class ServerGoneError(Exception):
    """The server closed its end."""


class CodeChannel:
    """Messages from and to the server; `send` is safe from every thread."""

    def __init__(self, stream: socket.socket) -> None:
        self._stream = stream
        self._sending = threading.Lock()

    def receive(self) -> ToCode:
        """The next message. Raises ServerGoneError."""
        (size,) = LENGTH.unpack(self._exactly(LENGTH.size))
        return TO_CODE.decode(self._exactly(size))

    def send(self, message: FromCode) -> None:
        """Write `message` whole; too large a reply becomes an error."""
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
    """Run with the socket to the server that the command line names; the exit status."""
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
