"""Requests in flight on each copy, exchanged between hosts with gateways. Pure.

Each host sends its totals by copy to the others: changes every `INTERVAL_S` while it is busy, and
nothing while it is idle. A message without changes every `REFRESH_S` keeps the totals of long
requests. The totals of a host without a message for `EXPIRES_S` do not count.

received                                      then
-------------------------------------------   -------------------------------------------------
all totals of a host                          they replace the earlier totals
changes, right after the message before       they are added
changes after a gap, or of another process    the message is ignored, the sender must send all
a message older than a received message       the message is ignored
"""

import struct
from collections.abc import Collection, Mapping

import msgspec

from hostelry.base.errors import HostelryError
from hostelry.dataplane.shared.count_table import KEY_BYTES, NUM_ROWS
from hostelry.routing.copy_choice import GatewayShare

INTERVAL_S = 0.05
REFRESH_S = 0.5
EXPIRES_S = 2.0
MAX_HOST_ID_BYTES = 64
# Sender's process, message number, all totals or changes, length of the host's id.
HEAD = struct.Struct("!QQ?B")
TOTAL = struct.Struct(f"!{KEY_BYTES}sI")
MAX_MESSAGE_BYTES = HEAD.size + MAX_HOST_ID_BYTES + NUM_ROWS * TOTAL.size
MAX_TOTAL = (1 << 32) - 1


class HostCountsError(HostelryError):
    """The bytes are not a message of counts."""


class HostCounts(msgspec.Struct, frozen=True, kw_only=True):
    """One message: requests in flight by the copy's key.

    `process` is the number of the sending process, `number` the number of the message, from 1. With
    `is_all`, a missing copy has no request. Otherwise its number has not changed.
    """

    host_id: str
    process: int
    number: int
    is_all: bool
    totals: Mapping[bytes, int]

    def encode(self) -> bytes:
        """Encode the message."""
        name = self.host_id.encode()
        parts = [HEAD.pack(self.process, self.number, self.is_all, len(name)), name]
        parts += [TOTAL.pack(key, min(num, MAX_TOTAL)) for key, num in self.totals.items()]
        return b"".join(parts)


def decode_host_counts(body: bytes) -> HostCounts:
    """Decode a message. Raises HostCountsError."""
    try:
        process, number, is_all, num_name = HEAD.unpack_from(body)
        totals_at = HEAD.size + num_name
        host_id = body[HEAD.size : totals_at].decode()
        is_whole = totals_at <= len(body) <= MAX_MESSAGE_BYTES
        if not is_whole or not 0 < num_name <= MAX_HOST_ID_BYTES:
            raise HostCountsError(f"{len(body)} bytes with a host id of {num_name} are no counts")
        totals = dict(TOTAL.iter_unpack(body[totals_at:]))
    except (struct.error, UnicodeDecodeError) as error:
        raise HostCountsError(f"no message of counts: {error}") from None
    return HostCounts(host_id=host_id, process=process, number=number, is_all=is_all, totals=totals)


class _Peer(msgspec.Struct):
    """The totals that one peer has. If `changed` is None, it must be sent all."""

    changed: set[bytes] | None = None
    sent_at: float = float("-inf")
    under_way: bool = False
    number: int = 0


class SentCounts:
    """The messages to each peer.

    Args:
        host_id: the id of this host.
        process: the number of this process.
    """

    def __init__(self, host_id: str, process: int) -> None:
        self._host_id = host_id
        self._process = process
        self._totals: Mapping[bytes, int] = {}
        self._peers: dict[str, _Peer] = {}

    def set_peers(self, addresses: Collection[str]) -> None:
        """Set the addresses of the peers."""
        self._peers = {it: self._peers.get(it) or _Peer() for it in addresses}

    def count(self, totals: Mapping[bytes, int]) -> None:
        """Set the totals of this host. A missing copy has no request."""
        before, self._totals = self._totals, totals
        changed = {key for key, num in totals.items() if before.get(key) != num}
        changed |= before.keys() - totals.keys()
        for peer in self._peers.values():
            if peer.changed is not None:
                peer.changed |= changed

    def due(self, now: float) -> list[tuple[str, HostCounts]]:
        """Return the messages to send now, by address. A peer has one message in flight."""
        found = []
        for address, peer in self._peers.items():
            if not peer.under_way and self._is_due(peer, now):
                found.append((address, self._message(peer)))
                peer.under_way, peer.sent_at, peer.changed = True, now, set()
        return found

    def note_result(self, address: str, *, is_taken: bool) -> None:
        """Note if a message was taken. Otherwise the peer is sent all at the next refresh."""
        peer = self._peers.get(address)
        if peer is not None:
            peer.under_way = False
            if not is_taken:
                peer.changed = None

    def _is_due(self, peer: _Peer, now: float) -> bool:
        if peer.changed:
            return True
        refresh = bool(self._totals) or (peer.changed is None and peer.number > 0)
        return refresh and now - peer.sent_at >= REFRESH_S

    def _message(self, peer: _Peer) -> HostCounts:
        totals, changed = self._totals, peer.changed
        peer.number += 1
        return HostCounts(
            host_id=self._host_id,
            process=self._process,
            number=peer.number,
            is_all=changed is None,
            totals=totals if changed is None else {it: totals.get(it, 0) for it in changed},
        )


class _Known(msgspec.Struct):
    process: int
    number: int
    at: float
    totals: dict[bytes, int] = msgspec.field(default_factory=dict)


class OtherHosts:
    """The requests of all other hosts, as far as they are known."""

    def __init__(self) -> None:
        self._hosts: dict[str, _Known] = {}
        self._sums: dict[bytes, int] = {}

    @property
    def sums(self) -> Mapping[bytes, int]:
        """Requests in flight of all other hosts, by the copy's key, without zeros."""
        return self._sums

    def take(self, message: HostCounts, now: float) -> set[bytes] | None:
        """Return the copies with a new sum. None if the sender must send all."""
        known = self._hosts.get(message.host_id)
        is_same = known is not None and known.process == message.process
        if known is not None and is_same and message.number <= known.number:
            return set()
        follows = known is not None and is_same and message.number == known.number + 1
        if not message.is_all and not follows:
            return None
        if known is None or not is_same:
            known = self._hosts[message.host_id] = _Known(
                message.process, message.number, now, {} if known is None else known.totals
            )
        known.number, known.at = message.number, now
        gone = known.totals.keys() - message.totals.keys() if message.is_all else ()
        changes = {**dict.fromkeys(gone, 0), **message.totals}
        return {key for key, num in changes.items() if self._set(known, key, num)}

    def expire(self, now: float) -> set[bytes]:
        """Drop hosts without a message for `EXPIRES_S`. Returns the copies with a new sum."""
        changed: set[bytes] = set()
        for host_id, known in tuple(self._hosts.items()):
            if now - known.at > EXPIRES_S:
                changed |= {key for key in tuple(known.totals) if self._set(known, key, 0)}
                del self._hosts[host_id]
        return changed

    def _set(self, known: _Known, key: bytes, num: int) -> bool:
        before = known.totals.pop(key, 0)
        if num:
            known.totals[key] = num
        total = self._sums.pop(key, 0) + num - before
        if total:
            self._sums[key] = total
        return num != before


def compute_share(host_id: str, hosts: set[str]) -> GatewayShare:
    """This host among `hosts`, in the order of their ids. Every host gets the same result."""
    ordered = sorted(hosts | {host_id})
    return GatewayShare(ordered.index(host_id), len(ordered))
