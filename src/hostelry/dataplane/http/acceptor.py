"""Accepts connections from a listening socket that several gateway workers share.

The kernel wakes all workers and the quickest gets the connection. In a burst, that is often the
same worker. Connections are long-lived and carry many requests. So a worker with more connections
than another one waits up to two milliseconds before it accepts, so that the other one can accept.
"""

import asyncio
import contextlib
import errno
import logging
import socket
from collections.abc import Callable
from typing import Protocol

LOG = logging.getLogger(__name__)
HOLD_BACK_STEP_S = 0.0002
MAX_HOLD_BACK_S = 0.002
SHORTAGES = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}
SHORTAGE_PAUSE_S = 1.0


class Peers(Protocol):
    """The other workers of the gateway."""

    def fewest_connections(self) -> int | None:
        """Smallest number of connections of a live peer. None without peers."""
        ...

    def publish(self, num_connections: int) -> None:
        """Publish this worker's number of connections, and that it is alive."""
        ...

    def leave(self) -> None:
        """Publish that this worker accepts no more connections."""
        ...


class NoPeers:
    """Peers of a single worker, which has no peers."""

    def fewest_connections(self) -> int | None:
        """None."""
        return None

    def publish(self, num_connections: int) -> None:
        """No-op."""

    def leave(self) -> None:
        """No-op."""


def hold_back_s(own: int, fewest: int | None) -> float:
    """Compute the seconds to wait before accepting, from the connections of all workers.

    peers              wait
    none               0
    fewest >= own      0
    fewest < own       0.2 ms for each connection of difference, at most 2 ms
    """
    if fewest is None or own <= fewest:
        return 0.0
    return min((own - fewest) * HOLD_BACK_STEP_S, MAX_HOLD_BACK_S)


class Acceptor:
    """Accepts connections from a non-blocking socket, which it owns, one at a time.

    Args:
        listening: the socket. Other processes may accept from it as well.
        serve: begins to serve an accepted connection.
        num_connections: returns the number of connections of this worker.
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
        """Accept no more connections. A second call does nothing."""
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
        self._loop.add_reader(self._listening.fileno(), self._ready)

    def _ready(self) -> None:
        """Accept now or after a wait, in which another worker may have accepted."""
        wait_s = hold_back_s(self._num_connections(), self._peers.fewest_connections())
        if wait_s:
            self._pause(wait_s, self._resume)
        else:
            self._accept()

    def _resume(self) -> None:
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
            LOG.warning("new connections wait for %g s: %s", SHORTAGE_PAUSE_S, error.strerror)
            self._pause(SHORTAGE_PAUSE_S, self._listen)
            return
        accepted.setblocking(False)
        with contextlib.suppress(OSError):  # the client may have gone
            accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._serve(accepted)

    def _pause(self, wait_s: float, then: Callable[[], None]) -> None:
        self._loop.remove_reader(self._listening.fileno())
        self._timer = self._loop.call_later(wait_s, then)
