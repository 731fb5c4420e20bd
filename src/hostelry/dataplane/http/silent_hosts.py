"""Finds connections to hosts that fell silent: power, a link or the kernel failed.

state of the connection                                        found by
------------------------------------------------------------   -----------------------------------
all that was sent is acknowledged, an answer is awaited        keep-alive of the kernel, after 10 s
what was sent is sent again and again, and nothing returns     `SilentHosts`, after 8 to 10 s
the peer's kernel acknowledges, but its program reads nothing  none: that is a busy copy

The kernel's own limit for the second (TCP_USER_TIMEOUT) would end the third too.
"""

import asyncio
import socket
import struct
from collections.abc import Callable
from typing import Any

LOOK_S = 2.0
SILENT_MS = 8000
MIN_RESENT = 3
KEEPALIVE_IDLE_S, KEEPALIVE_EVERY_S, KEEPALIVE_TIMES = 4, 2, 3
# In Linux's struct tcp_info: tcpi_retransmits, tcpi_unacked, tcpi_last_ack_recv.
_RESENT_AT, _UNACKED_AT, _LAST_ACK_AT = 2, 24, 56


class SilentHosts:
    """Watches connections, and calls a function once the host of a connection is silent."""

    def __init__(self) -> None:
        self._watched: dict[object, tuple[socket.socket, Callable[[], None]]] = {}
        self._timer: asyncio.TimerHandle | None = None

    def watch(self, connection: object, connected: Any, gone: Callable[[], None]) -> None:
        """Watch `connection`, whose socket is `connected`, until `forget`."""
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in (
            (socket.TCP_KEEPIDLE, KEEPALIVE_IDLE_S),
            (socket.TCP_KEEPINTVL, KEEPALIVE_EVERY_S),
            (socket.TCP_KEEPCNT, KEEPALIVE_TIMES),
        ):
            connected.setsockopt(socket.IPPROTO_TCP, option, value)
        self._watched[connection] = connected, gone
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(LOOK_S, self._look)

    def forget(self, connection: object) -> None:
        """Stop watching a closed connection."""
        self._watched.pop(connection, None)

    def close(self) -> None:
        """Stop watching all connections."""
        self._watched.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        for connected, gone in tuple(self._watched.values()):
            if is_silent(tcp_info(connected)):
                gone()
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(LOOK_S, self._look) if self._watched else None


def tcp_info(connected: socket.socket) -> bytes:
    """Read the kernel's information about a connection. Empty if it is closed."""
    try:
        return connected.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)
    except (OSError, ValueError):
        return b""


def is_silent(info: bytes) -> bool:
    """True if the peer's kernel does not acknowledge repeatedly sent bytes."""
    if len(info) < _LAST_ACK_AT + 4:
        return False
    unacked: int = struct.unpack_from("I", info, _UNACKED_AT)[0]
    last_ack_ms: int = struct.unpack_from("I", info, _LAST_ACK_AT)[0]
    return unacked > 0 and info[_RESENT_AT] >= MIN_RESENT and last_ack_ms >= SILENT_MS
