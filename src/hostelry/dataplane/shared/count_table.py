"""The memory-mapped table behind `SharedCounts`: a row for each copy, a column for each worker.

If other hosts have gateways, one more column has their requests. The process that receives them
writes it.

A worker writes only its own column, an aligned word at a time, so no request waits for a lock. The
lock is taken once per copy and worker, to agree on the copy's row. A row is given to another copy
once no worker holds it.
"""

import struct
from hashlib import blake2b
from pathlib import Path

from hostelry.dataplane.shared.mapped_file import HEADER_BYTES, Layout, MappedFile
from hostelry.routing.copy_choice import GatewayShare

KIND = b"hstcount"
FORMAT = 2
NUM_ROWS = 16384
WORD_BYTES = 8
KEY_BYTES = 16
NO_KEY = bytes(KEY_BYTES)
MAX_HOSTS = 1 << 16


class CountTable:
    """One process's view of the table at `path`, which is created if it is missing.

    It has a column for each of `num_workers` workers, counted from 0, then with `has_others` a
    column for other hosts. It has rows for `num_rows` copies. `bytes` and `words` are its memory.
    `row` is the offset of a copy's counts in it, from which `read` unpacks them. `alone` holds the
    table's lock.

    Raises OSError if the file cannot be made, and LockedError.
    """

    def __init__(
        self,
        path: Path,
        num_workers: int,
        num_rows: int = NUM_ROWS,
        *,
        has_others: bool = False,
    ) -> None:
        self.num_workers = num_workers
        self.num_rows = num_rows
        self._num_columns = num_workers + has_others
        self.read = struct.Struct(f"@{self._num_columns}q").unpack_from
        self._row_bytes = self._num_columns * WORD_BYTES
        self._keys_at = HEADER_BYTES + 2 * self._row_bytes  # after the workers' presences
        self._counts_at = self._keys_at + num_rows * KEY_BYTES
        self._holds_at = self._counts_at + num_rows * self._row_bytes
        layout = Layout(
            kind=KIND,
            format=FORMAT,
            sizes=(num_rows, self._num_columns),
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
        """Hold the copy's row for `worker`, and return the offset of its counts in `bytes`.

        None if every row is held for another copy. Raises LockedError.
        """
        return self.find_row(compute_row_key(copy_id), worker)

    def find_row(self, key: bytes, worker: int) -> int | None:
        """Hold the row of the copy with this key, as `row` does."""
        with self._file.alone():
            number = self._find(key)
            if number is None:
                number = self._free()
            if number is None:
                return None
            at = self._counts_at + number * self._row_bytes
            self.words[self._get_hold(at, worker)] = 1
            self._set_key(number, key)
        return at

    def release(self, row: int, worker: int) -> None:
        """End the hold of `worker` on the row. It must have no request on the copy."""
        self.words[self._get_hold(row, worker)] = 0

    def clear(self, worker: int) -> None:
        """Clear the counts, holds and presence of a dead worker."""
        self.set_presence(worker, 0, 0)
        for start in (self._counts_at, self._holds_at):
            first = start // WORD_BYTES + worker
            step = self._num_columns
            for cell in range(first, first + self.num_rows * step, step):
                if self.words[cell]:
                    self.words[cell] = 0

    def set_presence(self, worker: int, num_connections: int, at_ns: int) -> None:
        """Set the worker's connections at `at_ns`, of a clock that all processes share."""
        first = HEADER_BYTES // WORD_BYTES + worker
        self.words[first] = num_connections
        self.words[first + self._num_columns] = at_ns

    def presences(self) -> list[tuple[int, int]]:
        """`num_connections` and `at_ns` of each worker. Both are 0 without a worker."""
        connections = self.read(self.bytes, HEADER_BYTES)[: self.num_workers]
        instants = self.read(self.bytes, HEADER_BYTES + self._row_bytes)[: self.num_workers]
        return list(zip(connections, instants, strict=True))

    @property
    def share(self) -> GatewayShare | None:
        """This host among those with gateways, set by `set_share`. None if it is the only one."""
        if self._num_columns == self.num_workers:
            return None
        num, rank = divmod(self.words[self._share_word], MAX_HOSTS)
        return GatewayShare(rank, num) if num > 1 else None

    def set_share(self, share: GatewayShare) -> None:
        """Set the number of this host among the hosts with gateways. Needs a column for others."""
        self.words[self._share_word] = share.num * MAX_HOSTS + share.rank

    def own_totals(self) -> dict[bytes, int]:
        """Requests in flight by the copy's key, of all workers of this host, without zeros."""
        keys = self.bytes[self._keys_at : self._counts_at].rstrip(b"\0")
        num_used = -(-len(keys) // KEY_BYTES)
        first, step = self._counts_at // WORD_BYTES, self._num_columns
        end = first + num_used * step
        words = self.words
        columns = [words[first + it : end : step].tolist() for it in range(self.num_workers)]
        totals = map(sum, zip(*columns, strict=True))
        return {self._key(number): total for number, total in enumerate(totals) if total > 0}

    def set_others(self, row: int, total: int) -> None:
        """Set the requests of other hosts on the copy with this row."""
        self.words[row // WORD_BYTES + self.num_workers] = total

    def close(self) -> None:
        """Release the memory. The file stays."""
        self._file.close()

    @property
    def _share_word(self) -> int:
        return HEADER_BYTES // WORD_BYTES + self.num_workers

    def _key(self, number: int) -> bytes:
        at = self._keys_at + number * KEY_BYTES
        return self.bytes[at : at + KEY_BYTES]

    def _find(self, key: bytes) -> int | None:
        """Find the first row with this key."""
        at = self._keys_at
        while (at := self.bytes.find(key, at, self._counts_at)) >= 0:
            number, misplaced = divmod(at - self._keys_at, KEY_BYTES)
            if not misplaced:
                return number
            at += 1
        return None

    def _free(self) -> int | None:
        """Find a row without a key. If there is none, rows without a hold are freed first."""
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

    def _get_hold(self, row: int, worker: int) -> int:
        """Read the word of the worker's hold on the row."""
        return (row - self._counts_at + self._holds_at) // WORD_BYTES + worker


def compute_row_key(copy_id: str) -> bytes:
    """Compute the key of a copy's row, which is the same on every host."""
    return blake2b(copy_id.encode(), digest_size=KEY_BYTES).digest()
