"""What clients hold before it is proven who they are: connections and bytes; who gives way.

A signature proves its sender once its request is whole, so until then anybody can hold a connection
and memory. A connection over which a request was proven keeps its place. Of the others the oldest
gives way to a new one, and where bytes are short, the one whose request comes in slowest.
"""

import ipaddress
from typing import Generic, Protocol, TypeVar

from hostelry.base.errors import HostelryError

NETWORK_BITS = 64  # of an IPv6 address: whoever has one has all that share them
ROOM_AFTER = 7 / 8  # of the budget is left held once somebody had to give way


class CrowdedError(HostelryError):
    """No connection is to be had: those that are there have all proven who they are."""


class Guest(Protocol):
    """A client's connection.

    `held_bytes` are of requests that nobody has proven yet, `may_give_way` while one of them is not
    whole, `waits_since_s` when that began.
    """

    address: str
    is_proven: bool
    held_bytes: int

    @property
    def may_give_way(self) -> bool:
        """Whether a request that is not whole is held."""
        ...

    @property
    def waits_since_s(self) -> float:
        """When the part of a request began to come in that is not whole."""
        ...


G = TypeVar("G", bound=Guest)


def client_of(peer: str) -> str:
    """Who counts as one client behind the address `peer`."""
    if ":" not in peer:
        return peer
    try:
        address = ipaddress.IPv6Address(peer.partition("%")[0])
    except ValueError:
        return peer
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.IPv6Network((address, NETWORK_BITS), strict=False))


class Strangers(Generic[G]):
    """The connections of one worker, and the bytes they hold unproven.

    Args:
        max_connections: at once.
        max_connections_each: of one client.
        max_bytes: of requests that nobody has proven yet.
    """

    def __init__(self, max_connections: int, max_connections_each: int, max_bytes: int) -> None:
        self.held_bytes = 0
        self._max_connections = max_connections
        self._max_connections_each = max_connections_each
        self._max_bytes = max_bytes
        self._guests: set[G] = set()
        self._num_each: dict[str, int] = {}
        self._unproven: dict[G, None] = {}  # the oldest first
        self._unproven_each: dict[str, dict[G, None]] = {}
        self._holders: set[G] = set()

    @property
    def num_connections(self) -> int:
        """Connections that have a place."""
        return len(self._guests)

    @property
    def is_full(self) -> bool:
        """Whether more bytes are held than may be."""
        return self.held_bytes > self._max_bytes

    def enter(self, guest: G) -> G | None:
        """Give `guest` a place; the connection that loses its own for it. Raises CrowdedError."""
        displaced = None
        if self._num_each.get(guest.address, 0) >= self._max_connections_each:
            displaced = next(iter(self._unproven_each.get(guest.address, ())), None)
            if displaced is None:
                raise CrowdedError(
                    f"Your address has {self._max_connections_each} connections, the limit."
                )
        elif len(self._guests) >= self._max_connections:
            displaced = next(iter(self._unproven), None)
            if displaced is None:
                raise CrowdedError(f"The door has {self._max_connections} connections, its limit.")
        if displaced is not None:
            self.leave(displaced)
        self._guests.add(guest)
        self._num_each[guest.address] = self._num_each.get(guest.address, 0) + 1
        self._unproven[guest] = None
        self._unproven_each.setdefault(guest.address, {})[guest] = None
        return displaced

    def proven(self, guest: G) -> None:
        """The sender of a request over `guest` is known: the connection keeps its place."""
        guest.is_proven = True
        self._unproven.pop(guest, None)
        unproven = self._unproven_each.get(guest.address)
        if unproven is not None:
            unproven.pop(guest, None)
            if not unproven:
                del self._unproven_each[guest.address]

    def leave(self, guest: G) -> None:
        """`guest` has ended, or lost its place; a second call does nothing."""
        self.hold(guest, 0)
        if guest not in self._guests:
            return
        is_proven = guest.is_proven
        self.proven(guest)
        guest.is_proven = is_proven
        self._guests.remove(guest)
        self._num_each[guest.address] -= 1
        if not self._num_each[guest.address]:
            del self._num_each[guest.address]

    def hold(self, guest: G, num_bytes: int) -> None:
        """`guest` holds `num_bytes` now, that nobody has proven."""
        self.held_bytes += num_bytes - guest.held_bytes
        guest.held_bytes = num_bytes
        if num_bytes:
            self._holders.add(guest)
        else:
            self._holders.discard(guest)

    def give_way(self, now_s: float) -> list[G]:
        """Who must let go of their requests for the others: strangers first, then the slowest."""

        def standing(guest: G) -> tuple[bool, float]:
            return guest.is_proven, guest.held_bytes / max(now_s - guest.waits_since_s, 0.001)

        leaving: list[G] = []
        excess_bytes = self.held_bytes - int(self._max_bytes * ROOM_AFTER)
        for guest in sorted((it for it in self._holders if it.may_give_way), key=standing):
            if excess_bytes <= 0:
                break
            excess_bytes -= guest.held_bytes
            leaving.append(guest)
        return leaving
