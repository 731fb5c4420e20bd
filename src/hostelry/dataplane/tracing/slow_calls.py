"""The slowest calls of each endpoint in each of the last minutes, within bounds of all together."""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from heapq import heappush, heapreplace

MINUTE_NS = 60 * 1_000_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class SlowLimits:
    """Minutes that are kept, calls `each` of an endpoint in one, and the bounds of all together."""

    num_minutes: int = 15
    each: int = 8
    num_calls: int = 2048
    max_bytes: int = 8 * 1024 * 1024


@dataclass(slots=True)
class _Minute:
    """The slowest calls of a minute, of each endpoint's name: heaps, the fastest first."""

    number: int
    heaps: dict[str, list[tuple[int, int, bytes]]] = field(default_factory=dict)
    num_calls: int = 0
    num_bytes: int = 0


class SlowCalls:
    """The slow calls of a worker, each with its time. The oldest minutes make room for the newest.

    `floors` has the least time that a call of an endpoint is kept with, until `minute_ends_ns`; it
    lacks endpoints of which there is room for any.
    """

    def __init__(self, limits: SlowLimits) -> None:
        self.floors: dict[str, int] = {}
        self.minute_ends_ns = 0
        self._limits = limits
        self._minutes: deque[_Minute] = deque()
        self._num_calls = self._num_bytes = self._num_added = 0

    def __iter__(self) -> Iterator[bytes]:
        """Every call that is kept."""
        for minute in self._minutes:
            for heap in minute.heaps.values():
                for _, _, kept in heap:
                    yield kept

    def add(self, endpoint: str, took_ns: int, kept: bytes, now_ns: int) -> None:
        """Keep a call that took longer than its endpoint's floor, where the bounds allow it."""
        limits = self._limits
        if now_ns >= self.minute_ends_ns:
            self._begin_minute(now_ns // MINUTE_NS)
        minute = self._minutes[-1]
        heap = minute.heaps.get(endpoint, [])
        is_full = len(heap) >= limits.each
        more_bytes = len(kept) - (len(heap[0][2]) if is_full else 0)
        while len(self._minutes) > 1 and not self._has_room(is_full, more_bytes):
            self._drop_minute()
        if not self._has_room(is_full, more_bytes):
            return
        self._num_added += 1  # of two that took as long the first one leaves first
        if is_full:
            heapreplace(heap, (took_ns, self._num_added, kept))
        else:
            heappush(heap, (took_ns, self._num_added, kept))
            minute.heaps[endpoint] = heap
            minute.num_calls += 1
            self._num_calls += 1
        minute.num_bytes += more_bytes
        self._num_bytes += more_bytes
        if len(heap) >= limits.each:
            self.floors[endpoint] = heap[0][0]

    def _has_room(self, replaces: bool, more_bytes: int) -> bool:
        has_place = replaces or self._num_calls < self._limits.num_calls
        return has_place and self._num_bytes + more_bytes <= self._limits.max_bytes

    def _begin_minute(self, number: int) -> None:
        self._minutes.append(_Minute(number))
        self.minute_ends_ns = (number + 1) * MINUTE_NS
        self.floors = {}
        while self._minutes[0].number <= number - self._limits.num_minutes:
            self._drop_minute()

    def _drop_minute(self) -> None:
        dropped = self._minutes.popleft()
        self._num_calls -= dropped.num_calls
        self._num_bytes -= dropped.num_bytes
