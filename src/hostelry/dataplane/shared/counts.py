"""Requests in flight on each copy, counted exactly over all gateway workers."""

import logging
from collections.abc import Callable, Container

from hostelry.dataplane.balancing.outstanding import Outstanding
from hostelry.dataplane.shared.count_table import WORD_BYTES, CountTable
from hostelry.dataplane.shared.mapped_file import LockedError
from hostelry.routing.copy_choice import GatewayShare

LOG = logging.getLogger(__name__)
# A worker publishes its presence each second. A worker that did not for this long hangs.
PRESENT_FOR_NS = 2_500_000_000


class PeerWorkers:
    """The workers of `table` other than number `worker`.

    `now_ns` is a clock that all processes of the machine share.
    """

    def __init__(self, table: CountTable, worker: int, now_ns: Callable[[], int]) -> None:
        self._table = table
        self._worker = worker
        self._now_ns = now_ns

    def fewest_connections(self) -> int | None:
        """Smallest number of connections of a live peer. None without peers."""
        since_ns = self._now_ns() - PRESENT_FOR_NS
        present = [
            num_connections
            for number, (num_connections, at_ns) in enumerate(self._table.presences())
            if number != self._worker and at_ns > since_ns
        ]
        return min(present, default=None)

    def publish(self, num_connections: int) -> None:
        """Publish this worker's number of connections, and that it is alive."""
        self._table.set_presence(self._worker, num_connections, self._now_ns())

    def leave(self) -> None:
        """Publish that this worker accepts no more connections."""
        self._table.set_presence(self._worker, 0, 0)


class SharedCounts:
    """The counts of all workers. Worker number `worker` (from 0) of `table` changes them.

    In a table with a column for other hosts, their last known requests are included. The column of
    this worker is cleared at first. If the table is full or its lock hangs, a copy gets no row.
    Then this worker counts the copy alone until the routes change. Raises ValueError if the table
    has no such column.
    """

    def __init__(self, table: CountTable, worker: int) -> None:
        if not 0 <= worker < table.num_workers:
            raise ValueError(f"worker {worker}: the table has columns 0 to {table.num_workers - 1}")
        self._table = table
        self._worker = worker
        self._bytes, self._words, self._read = table.bytes, table.words, table.read
        self._rows: dict[str, int] = {}
        self._alone = Outstanding()
        self._without_row: set[str] = set()
        table.clear(worker)

    @property
    def share(self) -> GatewayShare | None:
        """The column of this host, if several hosts have gateways. None otherwise."""
        return self._table.share

    @property
    def total(self) -> int:
        """Requests in flight on all copies, of all workers."""
        return self._table.total + self._alone.total

    def of(self, copy_id: str) -> int:
        """Requests in flight on a copy, of all workers."""
        row = self._rows.get(copy_id) or self._row(copy_id)
        return sum(self._read(self._bytes, row)) if row else self._alone.of(copy_id)

    def reserve(self, copy_id: str) -> Callable[[], None]:
        """Count one more request. Returns the function that ends the count, at most once."""
        row = self._rows.get(copy_id) or self._row(copy_id)
        return self._reserve(row) if row else self._alone.reserve(copy_id)

    def claim(self, copy_id: str, limit: int) -> Callable[[], None] | None:
        """Count one more request unless all workers together count `limit`. None in that case.

        If the table's lock hangs, two workers may claim the last place at once.
        """
        row = self._rows.get(copy_id) or self._row(copy_id)
        if not row:
            return self._alone.claim(copy_id, limit)
        if sum(self._read(self._bytes, row)) >= limit:
            return None
        try:
            with self._table.alone():
                is_free = sum(self._read(self._bytes, row)) < limit
                return self._reserve(row) if is_free else None
        except LockedError as error:
            LOG.warning("a place of %s is claimed without the lock: %s", copy_id, error)
            return self._reserve(row)

    def _reserve(self, row: int) -> Callable[[], None]:
        words, cell = self._words, row // WORD_BYTES + self._worker
        words[cell] += 1
        given_back = False

        def give_back() -> None:
            nonlocal given_back
            if not given_back:
                given_back = True
                words[cell] -= 1

        return give_back

    def retain(self, copy_ids: Container[str]) -> None:
        """Release the rows of all other copies without a request of this worker."""
        self._without_row.clear()
        for copy_id in [it for it in self._rows if it not in copy_ids]:
            if not self._words[self._rows[copy_id] // WORD_BYTES + self._worker]:
                self._table.release(self._rows.pop(copy_id), self._worker)

    def _row(self, copy_id: str) -> int:
        """The offset of the copy's row. 0 if it has none."""
        if copy_id in self._without_row:
            return 0
        reason = f"all {self._table.num_rows} rows are taken"
        try:
            row = self._table.row(copy_id, self._worker)
        except LockedError as error:
            row, reason = None, str(error)
        if row is None:
            self._without_row.add(copy_id)
            LOG.warning("copy %s is counted by this worker alone: %s", copy_id, reason)
            return 0
        self._rows[copy_id] = row
        return row
