"""Slots of words in a mapped file, found by keys, which several processes share.

A slot has a key, a label of a few hundred bytes, and words. All changes need the file's lock. A
slot is given to another key once its owner calls it free.
"""

import contextlib
import mmap
from collections.abc import Callable, Iterator
from pathlib import Path

from hostelry.dataplane.shared.mapped_file import HEADER_BYTES, Layout, MappedFile

WORD_BYTES = 8
KEY_BYTES = 16
NO_KEY = bytes(KEY_BYTES)
LABEL_BYTES = 384


class PrivateMemory:
    """Memory of one process, in place of a file that cannot be made."""

    def __init__(self, num_bytes: int) -> None:
        self.bytes = mmap.mmap(-1, num_bytes)
        self.words = memoryview(self.bytes).cast("q")

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """No other process uses it."""
        yield

    def sync(self) -> None:
        """No-op: it is lost at the end of the process."""

    def close(self) -> None:
        """Release the memory."""
        self.words.release()
        self.bytes.close()


class KeyedSlots:
    """One process's view of the slots at `path`, which are created if they are missing.

    `path` None is memory of this process alone. `words` is the memory. `find` and `add` return the
    index of a slot's first word.

    Raises OSError if the file cannot be made, and LockedError.
    """

    def __init__(
        self, path: Path | None, kind: bytes, num_slots: int, num_words: int, version: int = 1
    ) -> None:
        self.num_slots = num_slots
        self.num_words = num_words
        self._labels_at = HEADER_BYTES + num_slots * KEY_BYTES
        self._words_at = (self._labels_at + num_slots * LABEL_BYTES) // WORD_BYTES
        end = (self._words_at + num_slots * num_words) * WORD_BYTES
        self._file: MappedFile | PrivateMemory
        if path is None:
            self._file = PrivateMemory(end)
        else:
            layout = Layout(
                kind=kind,
                format=version,
                sizes=(num_slots, num_words),
                body_bytes=end - HEADER_BYTES,
            )
            self._file = MappedFile(path, layout)
        self.words = self._file.words
        self._bytes = self._file.bytes
        self.alone = self._file.alone
        self.sync = self._file.sync

    def has(self, at: int, key: bytes) -> bool:
        """True if the slot still belongs to the key."""
        begin = HEADER_BYTES + self._number(at) * KEY_BYTES
        return self._bytes[begin : begin + KEY_BYTES] == key

    def find(self, key: bytes) -> int | None:
        """Find the slot of a key."""
        at = HEADER_BYTES
        while (at := self._bytes.find(key, at, self._labels_at)) >= 0:
            number, misplaced = divmod(at - HEADER_BYTES, KEY_BYTES)
            if not misplaced:
                return self._words_at + number * self.num_words
            at += 1
        return None

    def add(self, key: bytes, label: bytes, is_free: Callable[[int], bool]) -> int | None:
        """Give a slot to a new key, with all words 0. The caller holds the lock.

        `is_free` is asked about slots of other keys if no slot is without a key. None if none is
        free.
        """
        at = self.find(NO_KEY)
        if at is None:
            free = [it for it in self._all() if is_free(it)]
            for slot in free:
                self._set_key(slot, NO_KEY)
            if not free:
                return None
            at = free[0]
        number = self._number(at)
        for word in range(at, at + self.num_words):
            self.words[word] = 0
        begin = self._labels_at + number * LABEL_BYTES
        self._bytes[begin : begin + LABEL_BYTES] = label[:LABEL_BYTES].ljust(LABEL_BYTES, b"\0")
        self._set_key(at, key)  # last: a process that dies before has taken nothing
        return at

    def each(self) -> Iterator[tuple[int, bytes, bytes]]:
        """Yield the first word, key and label of each slot that has a key."""
        keys = self._bytes[HEADER_BYTES : self._labels_at].rstrip(b"\0")
        for begin in range(0, len(keys), KEY_BYTES):
            key = keys[begin : begin + KEY_BYTES].ljust(KEY_BYTES, b"\0")
            if key != NO_KEY:
                number = begin // KEY_BYTES
                label_at = self._labels_at + number * LABEL_BYTES
                label = self._bytes[label_at : label_at + LABEL_BYTES].rstrip(b"\0")
                yield self._words_at + number * self.num_words, key, label

    def close(self) -> None:
        """Release the memory. The file stays."""
        self._file.close()

    def _all(self) -> range:
        end = self._words_at + self.num_slots * self.num_words
        return range(self._words_at, end, self.num_words)

    def _number(self, at: int) -> int:
        return (at - self._words_at) // self.num_words

    def _set_key(self, at: int, key: bytes) -> None:
        begin = HEADER_BYTES + self._number(at) * KEY_BYTES
        self._bytes[begin : begin + KEY_BYTES] = key
