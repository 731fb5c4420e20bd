"""The memory-mapped table behind `SharedCounts`: a row for each copy, a column for each worker.

A worker writes its own column only, an aligned word at a time, so no request waits for a lock; a
lock is taken once for each copy and worker, to agree on its row. A row is given to another copy
once no worker holds it.
"""

import struct
from hashlib import blake2b
from pathlib import Path

from hostelry.gateway.shared.mapped_file import HEADER_BYTES, Layout, MappedFile

KIND = b"hstcount"
FORMAT = 2
NUM_ROWS = 4096
MAX_WORKERS = 64
WORD_BYTES = 8
KEY_BYTES = 16
NO_KEY = bytes(KEY_BYTES)


class CountTable:
    """One process's view of the table at `path`, which is created where it is missing.

    It has a column for each of `num_workers` workers, counted from 0, and holds `num_rows` copies.
    `bytes` and `words` are its memory; `row` is the offset of a copy's counts in it, from which
    `read` unpacks them all. `alone` holds the table's lock.

    Raises OSError where the file cannot be made, LockedError.
    """

    def __init__(self, path: Path, num_workers: int, num_rows: int = NUM_ROWS) -> None:
        self.num_workers = num_workers
        self.num_rows = num_rows
        self.read = struct.Struct(f"@{num_workers}q").unpack_from
        self._row_bytes = num_workers * WORD_BYTES
        self._keys_at = HEADER_BYTES + 2 * self._row_bytes  # after the presences
        self._counts_at = self._keys_at + num_rows * KEY_BYTES
        self._holds_at = self._counts_at + num_rows * self._row_bytes
        layout = Layout(
            kind=KIND,
            format=FORMAT,
            sizes=(num_rows, num_workers),
            body_bytes=self._holds_at + num_rows * self._row_bytes - HEADER_BYTES,
        )
        self._file = MappedFile(path, layout)
        self.bytes, self.words = self._file.bytes, self._file.words
        self.alone = self._file.alone

    @property
    def total(self) -> int:
        """The sum of all counts."""
        return sum(self.words[self._counts_at // WORD_BYTES : self._holds_at // WORD_BYTES])

    def row(self, copy_id: str, worker: int) -> int | None:
        """The offset of the copy's counts in `bytes`; the row is held for `worker` from now on.

        None where every row is held for another copy. Raises LockedError.
        """
        key = blake2b(copy_id.encode(), digest_size=KEY_BYTES).digest()
        with self._file.alone():
            number = self._find(key)
            if number is None:
                number = self._free()
            if number is None:
                return None
            at = self._counts_at + number * self._row_bytes
            self.words[self._hold_of(at, worker)] = 1
            self._set_key(number, key)
        return at

    def release(self, row: int, worker: int) -> None:
        """End the hold of `worker` on the row; it has no request on the copy."""
        self.words[self._hold_of(row, worker)] = 0

    def clear(self, worker: int) -> None:
        """Clear the counts, holds and presence of a worker that is dead."""
        self.set_presence(worker, 0, 0)
        for start in (self._counts_at, self._holds_at):
            first = start // WORD_BYTES + worker
            for cell in range(first, first + self.num_rows * self.num_workers, self.num_workers):
                if self.words[cell]:
                    self.words[cell] = 0

    def set_presence(self, worker: int, num_connections: int, at_ns: int) -> None:
        """Set the worker's connections as of `at_ns`, of a clock that all processes share."""
        first = HEADER_BYTES // WORD_BYTES + worker
        self.words[first] = num_connections
        self.words[first + self.num_workers] = at_ns

    def presences(self) -> list[tuple[int, int]]:
        """`num_connections` and `at_ns` of each worker; both 0 for one that is not there."""
        connections = self.read(self.bytes, HEADER_BYTES)
        return list(
            zip(connections, self.read(self.bytes, HEADER_BYTES + self._row_bytes), strict=True)
        )

    def close(self) -> None:
        """Release the memory; the file stays."""
        self._file.close()

    def _find(self, key: bytes) -> int | None:
        """The first row with that key."""
        at = self._keys_at
        while (at := self.bytes.find(key, at, self._counts_at)) >= 0:
            number, misplaced = divmod(at - self._keys_at, KEY_BYTES)
            if not misplaced:
                return number
            at += 1
        return None

    def _free(self) -> int | None:
        """A row without a key; where there is none, rows without a hold are freed first."""
        found = self._find(NO_KEY)
        if found is not None:
            return found
        for number in range(self.num_rows):
            if not any(self.read(self.bytes, self._holds_at + number * self._row_bytes)):
                self._set_key(number, NO_KEY)
        return self._find(NO_KEY)

    def _set_key(self, number: int, key: bytes) -> None:
        at = self._keys_at + number * KEY_BYTES
        self.bytes[at : at + KEY_BYTES] = key

    def _hold_of(self, row: int, worker: int) -> int:
        """The word of the worker's hold on the row."""
        return (row - self._counts_at + self._holds_at) // WORD_BYTES + worker
