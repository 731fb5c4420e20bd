"""A map of fixed capacity that several processes share in memory and that outlives them.

A key's hash names two buckets of 16 slots, so a look-up reads two kilobytes and follows no chain.
The first four bytes of a key name its owner. If the buckets are full, the owner with the most
entries in them loses an entry, so no owner can push out another's.

A slot is written in three steps: mark it as empty, fill it, mark it with its checksum. A changed
entry is written to another slot before its old slot is emptied. So a process that is killed between
two steps loses nothing. Readers take no lock. A half-written entry does not match its checksum and
is read again. A look-up that found nothing during a write is repeated.
"""

import logging
import struct
from collections.abc import Callable, Iterator
from hashlib import blake2b
from itertools import chain
from pathlib import Path
from typing import NamedTuple
from zlib import crc32

from hostelry.dataplane.shared.mapped_file import HEADER_BYTES, Layout, LockedError, MappedFile

LOG = logging.getLogger(__name__)
KIND = b"hstrymap"
FORMAT = 2
SLOT_BYTES = 64
BUCKET_SLOTS = 16
BUCKET_BYTES = BUCKET_SLOTS * SLOT_BYTES
DIGEST_BYTES = 16  # the owner, then a hash of the key
OWNER_BYTES = 4
WORD_BYTES = 8
DEFAULT_CAPACITY = 16384
# A slot: its mark (0 if it is empty, else a checksum of the rest), then the entry.
ENTRY = struct.Struct("@Q16sqd")  # stamp, the key's digest, value, expires_at
ENTRY_AT = WORD_BYTES
DIGEST_AT = ENTRY_AT + WORD_BYTES
EXPIRY_WORD = (ENTRY_AT + ENTRY.size) // WORD_BYTES - 1
STAMP_WORD = HEADER_BYTES // WORD_BYTES - 1  # the header's last word: odd during a write
READ_TRIES = 8
WARN_EACH = 1000


class MapEntry(NamedTuple):
    """The entry in a slot. Of two entries with one key, the higher `stamp` is the newer."""

    stamp: int
    digest: bytes
    value: int
    expires_at: float
    slot: int


class SharedMap:
    """One process's view of the map at `path`, which is created if it is missing.

    Args:
        path: the map's file. A damaged file is replaced by an empty one.
        now: seconds since the epoch, for expiry.
        capacity: number of entries, rounded up to a multiple of 16.

    One thread of a process uses it. Raises OSError if the file cannot be made, and LockedError.
    """

    def __init__(
        self, path: Path, now: Callable[[], float], capacity: int = DEFAULT_CAPACITY
    ) -> None:
        self._num_buckets = max(1, -(-capacity // BUCKET_SLOTS))
        self._now = now
        layout = Layout(
            kind=KIND,
            format=FORMAT,
            sizes=(self._num_buckets, SLOT_BYTES),
            body_bytes=self._num_buckets * BUCKET_BYTES,
        )
        self._file = MappedFile(path, layout)
        self._bytes, self._words = self._file.bytes, self._file.words
        self._instants = memoryview(self._bytes).cast("d")
        self._num_evicted = 0

    @property
    def capacity(self) -> int:
        """Maximum number of entries."""
        return self._num_buckets * BUCKET_SLOTS

    def get(self, key: bytes) -> tuple[int, float] | None:
        """Return the value under `key` and its expiry. None if it is missing or has expired."""
        digest = compute_digest(key)
        found = self._newest(digest)
        if found is None or found.expires_at <= self._now():
            return None
        return found.value, found.expires_at

    def put(self, key: bytes, value: int, expires_at: float) -> bool:
        """Keep `value` (64 bits, signed) until `expires_at`. False if the lock hangs.

        If both buckets are full, the owner with the most entries in them loses the entry that
        expires first.
        """
        digest = compute_digest(key)
        try:
            with self._file.alone():
                self._put(digest, value, expires_at)
        except LockedError as error:
            LOG.warning("an entry of %s is not kept: %s", self._file.path.name, error)
            return False
        return True

    def remove(self, key: bytes) -> bool:
        """Remove `key`, if it is there. False if the lock hangs."""
        digest = compute_digest(key)
        try:
            with self._file.alone():
                for entry in self._find_entries(digest):
                    self._empty(entry.slot)
        except LockedError as error:
            LOG.warning("an entry of %s is not removed: %s", self._file.path.name, error)
            return False
        return True

    def num_live(self) -> int:
        """Count the entries that have not expired. Looks at every slot."""
        now = self._now()
        live = (it for it in map(self._entry, range(self.capacity)) if it is not None)
        return len({it.digest for it in live if it.expires_at > now})

    def close(self) -> None:
        """Release the memory. The file stays."""
        self._instants.release()
        self._file.close()

    def _put(self, digest: bytes, value: int, expires_at: float) -> None:
        old = list(self._find_entries(digest))
        slot = self._slot_for(digest)
        stamp = (self._words[STAMP_WORD] | 1) + (self._words[STAMP_WORD] & 1) * 2  # odd, and newer
        self._words[STAMP_WORD] = stamp
        entry = ENTRY.pack(stamp, digest, value, expires_at)
        self._empty(slot)
        start = self._at(slot) + ENTRY_AT
        self._bytes[start : start + ENTRY.size] = entry
        self._words[self._at(slot) // WORD_BYTES] = compute_mark(entry)
        for replaced in old:
            if replaced.slot != slot:
                self._empty(replaced.slot)
        self._words[STAMP_WORD] = stamp + 1

    def _slot_for(self, digest: bytes) -> int:
        """Find a free slot for the key, in the emptier of its buckets."""
        now = self._now()
        rooms = [self._room(bucket, now) for bucket in self._buckets(digest)]
        best = max(rooms, key=len)
        return best[0] if best else self._choose_slot(digest)

    def _room(self, bucket: int, now: float) -> list[int]:
        """Find the slots of a bucket that are empty or have expired."""
        words, instants, room = self._words, self._instants, []
        for slot in range(bucket * BUCKET_SLOTS, (bucket + 1) * BUCKET_SLOTS):
            word = (HEADER_BYTES + slot * SLOT_BYTES) // WORD_BYTES
            if not words[word] or instants[word + EXPIRY_WORD] <= now:
                room.append(slot)
        return room

    def _choose_slot(self, digest: bytes) -> int:
        """Choose the slot of the key, of a damaged entry, or of an entry that must leave."""
        held: dict[bytes, list[MapEntry]] = {digest[:OWNER_BYTES]: []}
        for bucket in self._buckets(digest):
            for slot in range(bucket * BUCKET_SLOTS, (bucket + 1) * BUCKET_SLOTS):
                entry = self._entry(slot)
                if entry is None or entry.digest == digest:
                    return slot
                held.setdefault(entry.digest[:OWNER_BYTES], []).append(entry)
        most, own = max(map(len, held.values())), held[digest[:OWNER_BYTES]]
        largest = [own] if len(own) == most else [it for it in held.values() if len(it) == most]
        first = min(chain.from_iterable(largest), key=lambda entry: entry.expires_at)
        if self._num_evicted % WARN_EACH == 0:
            LOG.warning(
                "%s is full (%d entries): the largest owners' that expire first are evicted",
                self._file.path.name,
                self.capacity,
            )
        self._num_evicted += 1
        return first.slot

    def _newest(self, digest: bytes) -> MapEntry | None:
        """Find the key's newest entry, as it is at one time during this call."""
        for _ in range(READ_TRIES):
            before = self._words[STAMP_WORD]
            found = max(self._find_entries(digest), key=lambda entry: entry.stamp, default=None)
            if found is not None or (self._words[STAMP_WORD] == before and not before & 1):
                return found
        return None

    def _find_entries(self, digest: bytes) -> Iterator[MapEntry]:
        for bucket in self._buckets(digest):
            start = HEADER_BYTES + bucket * BUCKET_BYTES
            seen = self._bytes[start : start + BUCKET_BYTES]
            at = -1
            while (at := seen.find(digest, at + 1)) >= 0:
                slot, place = divmod(at, SLOT_BYTES)
                if place == DIGEST_AT:
                    entry = self._entry(bucket * BUCKET_SLOTS + slot)
                    if entry is not None and entry.digest == digest:
                        yield entry

    def _buckets(self, digest: bytes) -> tuple[int, ...]:
        """Find the one or two buckets that may hold the key."""
        first = int.from_bytes(digest[4:10], "little") % self._num_buckets
        second = int.from_bytes(digest[10:], "little") % self._num_buckets
        return (first,) if first == second else (first, second)

    def _entry(self, slot: int) -> MapEntry | None:
        """Read the entry in the slot. None if it is empty or half written."""
        word, start = self._at(slot) // WORD_BYTES, self._at(slot) + ENTRY_AT
        for _ in range(READ_TRIES):
            mark = self._words[word]
            if not mark:
                return None
            entry = self._bytes[start : start + ENTRY.size]
            if self._words[word] == mark == compute_mark(entry):
                stamp, digest, value, expires_at = ENTRY.unpack(entry)
                return MapEntry(stamp, digest, value, expires_at, slot)
        return None

    def _empty(self, slot: int) -> None:
        self._words[self._at(slot) // WORD_BYTES] = 0

    def _at(self, slot: int) -> int:
        return HEADER_BYTES + slot * SLOT_BYTES


def compute_digest(key: bytes) -> bytes:
    """Compute the key of a slot. It begins with the owner, so that owners can be compared."""
    hashed = blake2b(key, digest_size=DIGEST_BYTES - OWNER_BYTES).digest()
    return key[:OWNER_BYTES].ljust(OWNER_BYTES, b"\0") + hashed


def compute_mark(entry: bytes) -> int:
    """Compute the checksum that marks a slot as whole. It is never 0."""
    return crc32(entry) | 1 << 32
