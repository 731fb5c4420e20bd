"""The engine process's end of the socket: blocking, and woken by other threads."""

import os
import socket

from hostelry.base.readable import readable
from hostelry.containers.lmi.engine.messages import TO_ENGINE, FromEngine, ToEngine, Unframer, frame

RECEIVE_BYTES = 1 << 20


class ParentGoneError(Exception):
    """The HTTP process closed its end."""


class EngineChannel:
    """Messages from and to the HTTP process; only `wake` is safe from other threads."""

    def __init__(self, stream: socket.socket) -> None:
        self._stream = stream
        self._unframer = Unframer()
        self._woken = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)

    def wake(self) -> None:
        """Wake a waiting `receive`."""
        os.eventfd_write(self._woken, 1)

    def receive(self, *, wait: bool) -> list[ToEngine]:
        """The messages that arrived; with `wait`, blocks until one does or `wake` is called.

        Raises ParentGoneError.
        """
        source = self._stream.fileno()
        ready = readable(source, self._woken, within_s=None if wait else 0.0)
        if self._woken in ready:
            os.eventfd_read(self._woken)
        messages: list[ToEngine] = []
        while source in ready:
            data = self._stream.recv(RECEIVE_BYTES)
            if not data:
                raise ParentGoneError
            messages += [TO_ENGINE.decode(body) for body in self._unframer.feed(data)]
            ready = readable(source, within_s=0.0)
        return messages

    def send(self, message: FromEngine) -> None:
        """Write `message` whole. Raises ParentGoneError."""
        try:
            self._stream.sendall(frame(message))
        except (BrokenPipeError, ConnectionResetError) as error:
            raise ParentGoneError from error
