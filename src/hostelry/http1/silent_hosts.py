"""Finds connections to hosts that fell silent: power, a link or the kernel failed.

state of the connection                                        found by
------------------------------------------------------------   -----------------------------------
all sent bytes are acknowledged, an answer is awaited          keep-alive of the kernel, after 10 s
sent bytes are sent again and again, and nothing returns       `SilentHosts`, after 8 to 10 s
the peer's kernel acknowledges, but its program reads nothing  nothing: the copy is busy

The kernel's own limit for the second state (TCP_USER_TIMEOUT) would end the third too.
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
# In Linux's struct tcp_info: tcpi_retransmits, tcpi_unacked, tcpi_last_ack_recv, tcpi_bytes_acked.
_RESENT_AT, _UNACKED_AT, _LAST_ACK_AT, _ACKED_BYTES_AT = 2, 24, 56, 120


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


def never_read(loss: Exception | None, acked_bytes: int | None, sent_before_bytes: int) -> bool:
    """True if a connection that ended by `loss` proves that its last request was never read.

    loss                      acknowledged of the request  never read
    an end, or a broken pipe  nothing                      yes: it closed before the first byte
    an end, or a broken pipe  some, or unknown             no
    a reset                   any                          no: it may have read all

    Linux reports a reset that follows the copy's end as a broken pipe.
    """
    came_to_an_end = loss is None or isinstance(loss, BrokenPipeError)
    return came_to_an_end and acked_bytes is not None and acked_bytes <= sent_before_bytes


def acked_bytes(connected: socket.socket | None) -> int | None:
    """Number of sent bytes that the peer's kernel has acknowledged. None if unknown."""
    info = b"" if connected is None else tcp_info(connected)
    if len(info) < _ACKED_BYTES_AT + 8:
        return None
    acked: int = struct.unpack_from("Q", info, _ACKED_BYTES_AT)[0]
    return acked - 1  # the count has the SYN
