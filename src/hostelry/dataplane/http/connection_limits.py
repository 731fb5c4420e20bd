"""Limits of connections, and of the bytes of requests whose sender is not verified.

A signature verifies its sender once the request is whole. Until then, any client can hold a
connection and memory. A connection keeps its slot once one of its requests was verified. If slots
are short, the oldest other connection is shed for a new one. If bytes are short, the slowest
requests are shed.

limit reached                 shed                                         nothing to shed
connections of one address    its oldest unverified connection             ConnectionLimitError
connections in all            the oldest unverified connection             ConnectionLimitError
unverified bytes              requests not yet whole, until 7/8 is left,   the bytes stay
                              of unverified connections first, then the
                              slowest
"""

import ipaddress
from typing import Generic, Protocol, TypeVar

from hostelry.base.errors import HostelryError

NETWORK_BITS = 64  # of an IPv6 address: a client has all addresses that share them
LEFT_SHARE = 7 / 8  # the part of the budget that is in use after requests were shed


class ConnectionLimitError(HostelryError):
    """No slot for another connection, because all slots belong to verified ones."""


class LimitedConnection(Protocol):
    """A client's connection.

    `held_bytes` counts the bytes of unverified requests.
    """

    address: str
    is_verified: bool
    held_bytes: int

    @property
    def can_be_shed(self) -> bool:
        """True if the connection holds a request that is not whole."""
        ...

    @property
    def reading_since_s(self) -> float:
        """The time at which the current part of an unfinished request began to arrive."""
        ...


C = TypeVar("C", bound=LimitedConnection)


def find_client(peer: str) -> str:
    """Find the address or IPv6 network that counts as one client for `peer`."""
    if ":" not in peer:
        return peer
    try:
        address = ipaddress.IPv6Address(peer.partition("%")[0])
    except ValueError:
        return peer
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.IPv6Network((address, NETWORK_BITS), strict=False))


class ConnectionLimits(Generic[C]):
    """The connections of one worker, and the unverified bytes that they hold.

    Args:
        max_connections: limit of open connections.
        max_connections_each: limit of open connections per client.
        max_bytes: limit of the bytes of unverified requests.
    """

    def __init__(self, max_connections: int, max_connections_each: int, max_bytes: int) -> None:
        self.held_bytes = 0
        self._max_connections = max_connections
        self._max_connections_each = max_connections_each
        self._max_bytes = max_bytes
        self._connections: set[C] = set()
        self._num_each: dict[str, int] = {}
        self._unverified: dict[C, None] = {}  # the oldest first
        self._unverified_each: dict[str, dict[C, None]] = {}
        self._holders: set[C] = set()

    @property
    def num_connections(self) -> int:
        """Number of connections that have a slot."""
        return len(self._connections)

    @property
    def is_full(self) -> bool:
        """True if more unverified bytes are held than the limit."""
        return self.held_bytes > self._max_bytes

    def add(self, connection: C) -> C | None:
        """Give `connection` a slot. Returns the connection to shed for it, or None.

        Raises ConnectionLimitError.
        """
        shed = None
        if self._num_each.get(connection.address, 0) >= self._max_connections_each:
            shed = next(iter(self._unverified_each.get(connection.address, ())), None)
            if shed is None:
                raise ConnectionLimitError(
                    f"Your address has {self._max_connections_each} connections, the limit."
                )
        elif len(self._connections) >= self._max_connections:
            shed = next(iter(self._unverified), None)
            if shed is None:
                raise ConnectionLimitError(
                    f"There are {self._max_connections} connections, the limit."
                )
        if shed is not None:
            self.remove(shed)
        self._connections.add(connection)
        self._num_each[connection.address] = self._num_each.get(connection.address, 0) + 1
        self._unverified[connection] = None
        self._unverified_each.setdefault(connection.address, {})[connection] = None
        return shed

    def note_verified(self, connection: C) -> None:
        """Keep the slot of `connection`, because the sender of one of its requests is verified."""
        connection.is_verified = True
        self._unverified.pop(connection, None)
        unverified = self._unverified_each.get(connection.address)
        if unverified is not None:
            unverified.pop(connection, None)
            if not unverified:
                del self._unverified_each[connection.address]

    def remove(self, connection: C) -> None:
        """Free the slot and the bytes of `connection`. A second call does nothing."""
        self.hold(connection, 0)
        if connection not in self._connections:
            return
        is_verified = connection.is_verified
        self.note_verified(connection)
        connection.is_verified = is_verified
        self._connections.remove(connection)
        self._num_each[connection.address] -= 1
        if not self._num_each[connection.address]:
            del self._num_each[connection.address]

    def hold(self, connection: C, num_bytes: int) -> None:
        """Set the unverified bytes that `connection` holds."""
        self.held_bytes += num_bytes - connection.held_bytes
        connection.held_bytes = num_bytes
        if num_bytes:
            self._holders.add(connection)
        else:
            self._holders.discard(connection)

    def to_shed(self, now_s: float) -> list[C]:
        """Choose the connections whose requests are shed, as the table above says."""

        def standing(connection: C) -> tuple[bool, float]:
            reading_s = max(now_s - connection.reading_since_s, 0.001)
            return connection.is_verified, connection.held_bytes / reading_s

        shed: list[C] = []
        excess_bytes = self.held_bytes - int(self._max_bytes * LEFT_SHARE)
        for connection in sorted((it for it in self._holders if it.can_be_shed), key=standing):
            if excess_bytes <= 0:
                break
            excess_bytes -= connection.held_bytes
            shed.append(connection)
        return shed
