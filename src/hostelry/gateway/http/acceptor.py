"""Takes new connections off a listening socket that several gateway workers share.

The kernel wakes all of them and whoever is quickest gets the connection, which in a burst is the
same one again and again. Since connections stay, and requests with them, a worker that has more of
them than another leaves a new one to that one for some milliseconds first.
"""

import asyncio
import contextlib
import errno
import logging
import socket
from collections.abc import Callable
from typing import Protocol

log = logging.getLogger(__name__)
HOLD_BACK_STEP_S = 0.0002
MAX_HOLD_BACK_S = 0.002
SHORTAGES = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}
SHORTAGE_PAUSE_S = 1.0


class Peers(Protocol):
    """The other workers of one door."""

    def fewest_connections(self) -> int | None:
        """Of the others that live, the lowest number of connections; None where there are none."""
        ...

    def tell(self, num_connections: int) -> None:
        """Let the others know how many this worker has, and that it lives."""
        ...

    def leave(self) -> None:
        """Let the others know that this worker takes no more connections."""
        ...


class NoPeers:
    """A worker that is alone."""

    def fewest_connections(self) -> int | None:
        """There are no others."""
        return None

    def tell(self, num_connections: int) -> None:
        """Nobody wants to know."""

    def leave(self) -> None:
        """Nobody wants to know."""


def hold_back_s(own: int, fewest: int | None) -> float:
    """How long to leave a new connection to others; 0 where nobody has fewer than `own`."""
    if fewest is None or own <= fewest:
        return 0.0
    return min((own - fewest) * HOLD_BACK_STEP_S, MAX_HOLD_BACK_S)


class Acceptor:
    """Accepts from `listening`, a non-blocking socket which it takes over, one at a time.

    Args:
        listening: the socket; other processes may accept from it as well.
        serve: begins to serve an accepted connection.
        num_connections: how many this worker serves now.
        peers: the workers that share the socket.
    """

    def __init__(
        self,
        listening: socket.socket,
        serve: Callable[[socket.socket], None],
        num_connections: Callable[[], int],
        peers: Peers,
    ) -> None:
        self._listening = listening
        self._serve = serve
        self._num_connections = num_connections
        self._peers = peers
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._is_closed = False
        self._listen()

    def close(self) -> None:
        """Accept no more; a second call does nothing."""
        if self._is_closed:
            return
        self._is_closed = True
        if self._timer is None:
            self._loop.remove_reader(self._listening.fileno())
        else:
            self._timer.cancel()
        self._listening.close()

    def _listen(self) -> None:
        self._timer = None
        self._loop.add_reader(self._listening.fileno(), self._came)

    def _came(self) -> None:
        """A connection waits, unless another worker has taken it by now."""
        wait_s = hold_back_s(self._num_connections(), self._peers.fewest_connections())
        if wait_s:
            self._pause(wait_s, self._leave_no_longer)
        else:
            self._accept()

    def _leave_no_longer(self) -> None:
        self._listen()
        self._accept()

    def _accept(self) -> None:
        try:
            accepted, _ = self._listening.accept()
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            return
        except OSError as error:
            if error.errno not in SHORTAGES:
                raise
            log.warning("new connections wait for %g s: %s", SHORTAGE_PAUSE_S, error.strerror)
            self._pause(SHORTAGE_PAUSE_S, self._listen)
            return
        accepted.setblocking(False)
        with contextlib.suppress(OSError):  # the client may have gone
            accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._serve(accepted)

    def _pause(self, wait_s: float, then: Callable[[], None]) -> None:
        self._loop.remove_reader(self._listening.fileno())
        self._timer = self._loop.call_later(wait_s, then)
