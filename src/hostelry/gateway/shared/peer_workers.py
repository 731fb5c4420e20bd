"""The other gateway workers of one door, as the table that they share tells of them."""

from collections.abc import Callable

from hostelry.gateway.shared.count_table import CountTable

# A worker says that it lives once a second; one that did not for this long hangs.
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
        """Of the others that live, the lowest number of connections; None where there are none."""
        since_ns = self._now_ns() - PRESENT_FOR_NS
        present = [
            num_connections
            for number, (num_connections, at_ns) in enumerate(self._table.presences())
            if number != self._worker and at_ns > since_ns
        ]
        return min(present, default=None)

    def tell(self, num_connections: int) -> None:
        """Let the others know how many this worker has, and that it lives."""
        self._table.set_presence(self._worker, num_connections, self._now_ns())

    def leave(self) -> None:
        """Let the others know that this worker takes no more connections."""
        self._table.set_presence(self._worker, 0, 0)
