"""A service's pulse: a line that the supervisor sends over a socket of theirs, and gets back.

It costs no port and no key, since nobody else holds an end of it. An answer says that the service's
event loop turns, and nothing of what the service can do: a store that is slow is no reason to kill
anybody.
"""

import asyncio
import contextlib
import os
import socket
from types import TracebackType

PULSE_VARIABLE = "HOSTELRY_PULSE_FD"


class Pulse:
    """The supervisor's end, and that which the service inherits; closed with the service's life."""

    def __init__(self) -> None:
        self._own, self._theirs = socket.socketpair()
        self._own.setblocking(False)
        self._asked = 0
        self._unread = b""

    def __enter__(self) -> "Pulse":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._own.close()
        self._theirs.close()

    @property
    def inherited_fd(self) -> int:
        """The descriptor that the service must inherit and find in `PULSE_VARIABLE`."""
        return self._theirs.fileno()

    def handed_over(self) -> None:
        """Close the service's end here, once it runs."""
        self._theirs.close()

    async def answered(self, timeout_s: float) -> bool:
        """Ask once; whether this very question came back in time."""
        self._asked += 1
        question = b"%d\n" % self._asked
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(timeout_s):
                await loop.sock_sendall(self._own, question)
                while True:
                    *lines, self._unread = self._unread.split(b"\n")
                    if question.strip() in lines:
                        return True
                    received = await loop.sock_recv(self._own, 4096)
                    if not received:
                        return False
                    self._unread += received
        except (TimeoutError, OSError):
            return False


async def answer_pulse() -> None:
    """Send back what the supervisor sends, for as long as it does; no-op without a supervisor."""
    given = os.environ.pop(PULSE_VARIABLE, None)
    if given is None:
        return
    with contextlib.suppress(OSError, ValueError):
        reader, writer = await asyncio.open_connection(sock=socket.socket(fileno=int(given)))
        try:
            while line := await reader.readline():
                writer.write(line)
                await writer.drain()
        finally:
            writer.close()
