"""First-in, first-out queues of requests, one for each name, bounded in number, bytes and time.

No clock is read. Instants are arguments, in seconds of a monotonic clock.
"""

import heapq
import itertools
from bisect import insort
from collections.abc import Iterator
from enum import Enum

import msgspec

from hostelry.base.errors import HostelryError
from hostelry.domain.load import LoadKey


class QueueLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of waiting requests, in all and for each name.

    Without `limit_s`, each request brings its own time limit. A request of any size may wait if no
    other waits. Raises ValueError for limits that let no request wait.
    """

    max_requests: int = 4096
    max_requests_each: int = 1024
    max_bytes: int = 256 * 1024 * 1024
    limit_s: float | None = None

    def __post_init__(self) -> None:
        if min(self.max_requests, self.max_requests_each, self.max_bytes) < 1:
            raise ValueError(f"{self} lets nothing wait; each limit must be at least 1")

    def share(self, num_workers: int) -> "QueueLimits":
        """Divide the limits among `num_workers` processes, rounded up."""
        return QueueLimits(
            max_requests=-(-self.max_requests // num_workers),
            max_requests_each=-(-self.max_requests_each // num_workers),
            max_bytes=-(-self.max_bytes // num_workers),
            limit_s=self.limit_s,
        )


SPARE_DEADLINES = 64  # deadlines of requests that no longer wait, kept before a sweep


class QueueFullError(HostelryError):
    """No more requests may wait. The message says which limit is reached."""


class WaitOutcome(Enum):
    """How the wait of a queued request ended."""

    RELEASED = "released"
    EXPIRED = "expired"


class QueuedRequest:
    """One request's place in its queue. It expires at `until_s`."""

    __slots__ = ("is_waiting", "key", "num_bytes", "since_s", "ticket", "until_s")

    def __init__(
        self, ticket: int, key: LoadKey, num_bytes: int, times_s: tuple[float, float]
    ) -> None:
        self.ticket = ticket
        self.key = key
        self.num_bytes = num_bytes
        self.since_s, self.until_s = times_s
        self.is_waiting = False

    def __lt__(self, other: "QueuedRequest") -> bool:
        return self.ticket < other.ticket


class RequestQueues:
    """The queues. The first request to arrive is the first to be released."""

    def __init__(self, limits: QueueLimits) -> None:
        self.limits = limits
        self.num_bytes = 0
        self.num_held = 0
        self._queues: dict[LoadKey, list[QueuedRequest]] = {}
        self._deadlines: list[tuple[float, int, QueuedRequest]] = []
        self._tickets = itertools.count()

    def __bool__(self) -> bool:
        return bool(self._queues)

    @property
    def num_deadlines(self) -> int:
        """Number of remembered deadlines: slightly more than the number of waiting requests."""
        return len(self._deadlines)

    def join(self, key: LoadKey, num_bytes: int, times_s: tuple[float, float]) -> QueuedRequest:
        """Add a request at the end of the queue for `key`. Raises QueueFullError.

        Args:
            key: the name that the request waits for.
            num_bytes: size of the request, which stays in memory meanwhile.
            times_s: when its wait began, and when it expires.
        """
        self._check_room(key, num_bytes)
        queued = QueuedRequest(next(self._tickets), key, num_bytes, times_s)
        self._enter(queued)
        return queued

    def rejoin(self, queued: QueuedRequest) -> None:
        """Put a request that was released in vain back in its place."""
        self._enter(queued)

    def leave(self, queued: QueuedRequest) -> None:
        """Remove a request. Does nothing if it no longer waits."""
        if queued.is_waiting:
            self._take_out(queued)

    def release(self, key: LoadKey, count: int) -> list[QueuedRequest]:
        """Remove and return at most `count` requests from the front of a queue, in order."""
        released = self._queues.get(key, [])[:count]
        for queued in released:
            self._take_out(queued)
        return released

    def expire(self, now_s: float) -> list[QueuedRequest]:
        """Remove and return the expired requests, the longest overdue first."""
        expired = []
        while self._deadlines and self._deadlines[0][0] <= now_s:
            _, _, queued = heapq.heappop(self._deadlines)
            if queued.is_waiting:
                self._take_out(queued)
                expired.append(queued)
        return expired

    def first(self, key: LoadKey) -> QueuedRequest | None:
        """Return the next request to release for `key`."""
        queue = self._queues.get(key)
        return queue[0] if queue else None

    def num_waiting(self, key: LoadKey) -> int:
        """Count the requests that wait for `key`."""
        return len(self._queues.get(key, ()))

    def names(self) -> Iterator[LoadKey]:
        """Iterate over the names that requests wait for."""
        return iter(tuple(self._queues))

    def _check_room(self, key: LoadKey, num_bytes: int) -> None:
        limits, waiting = self.limits, self.num_waiting(key)
        if waiting >= limits.max_requests_each:
            raise QueueFullError(f"{waiting} requests wait for it already, and no more may")
        if self.num_held >= limits.max_requests:
            raise QueueFullError(
                f"{self.num_held} requests wait for copies already, and no more may"
            )
        if self.num_bytes and self.num_bytes + num_bytes > limits.max_bytes:
            raise QueueFullError(
                f"requests of {self.num_bytes} bytes wait for copies already; with this one of "
                f"{num_bytes} bytes they would be more than {limits.max_bytes}"
            )

    def _enter(self, queued: QueuedRequest) -> None:
        queued.is_waiting = True
        if len(self._deadlines) > 2 * self.num_held + SPARE_DEADLINES:
            self._deadlines = [it for it in self._deadlines if it[2].is_waiting]
            heapq.heapify(self._deadlines)
        heapq.heappush(self._deadlines, (queued.until_s, queued.ticket, queued))
        insort(self._queues.setdefault(queued.key, []), queued)
        self.num_bytes += queued.num_bytes
        self.num_held += 1

    def _take_out(self, queued: QueuedRequest) -> None:
        queue = self._queues[queued.key]
        queue.remove(queued)
        if not queue:
            del self._queues[queued.key]
            if not self._queues:
                self._deadlines.clear()
        queued.is_waiting = False
        self.num_bytes -= queued.num_bytes
        self.num_held -= 1
