"""Peer gateway workers, from the table that all workers share."""

from collections.abc import Callable

from hostelry.dataplane.shared.count_table import CountTable

# A worker publishes its presence each second; one that did not for this long hangs.
PRESENT_FOR_NS = 2_500_000_000


class PeerWorkers:
    """The workers of `table` beside number `worker`.

    `now_ns` is a clock that all processes of the machine share.
    """

    def __init__(self, table: CountTable, worker: int, now_ns: Callable[[], int]) -> None:
        self._table = table
        self._worker = worker
        self._now_ns = now_ns

    def fewest_connections(self) -> int | None:
        """The least connections that a live peer has; None without peers."""
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
