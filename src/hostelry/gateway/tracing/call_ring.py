"""The calls that a worker keeps: the last ones, the last that failed, the slowest of each minute.

Each of the three has its own bounds; the oldest leave first. A call may be in all of them. What is
kept ends with the process.
"""

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from heapq import heappush, heapreplace
from itertools import chain

from hostelry.gateway.tracing.call_trace import (
    CLIENT_LEFT,
    LEFT,
    MAX_TRACEPARENT_CHARACTERS,
    CallTrace,
    read,
    written,
)

MINUTE_NS = 60 * 1_000_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class RingLimits:
    """What one worker keeps; `num_slow` is for all `slow_minutes` and endpoints together."""

    num_calls: int = 8192
    num_failed: int = 2048
    max_bytes: int = 8 * 1024 * 1024  # of the last calls, and as many of those that failed
    slow_minutes: int = 15
    slow_each: int = 8  # of an endpoint in a minute
    num_slow: int = 2048


@dataclass(slots=True)
class _LastCalls:
    """The last calls, at most `num` and `max_bytes` of them."""

    num: int
    max_bytes: int
    calls: deque[bytes] = field(default_factory=deque)
    num_bytes: int = 0

    def add(self, call: bytes) -> None:
        calls, num_bytes = self.calls, self.num_bytes + len(call)
        calls.append(call)
        while len(calls) > self.num or num_bytes > self.max_bytes:
            num_bytes -= len(calls.popleft())
        self.num_bytes = num_bytes


@dataclass(slots=True)
class _SlowMinute:
    """The slowest calls of a minute, of each endpoint's name: heaps, the fastest first."""

    number: int
    heaps: dict[str, list[tuple[int, int, bytes]]] = field(default_factory=dict)
    num: int = 0


class CallRing:
    """The calls of one worker.

    Args:
        now: seconds since the epoch.
        clock_ns: nanoseconds of a clock that never jumps.
        limits: what is kept.
    """

    def __init__(
        self,
        now: Callable[[], float],
        clock_ns: Callable[[], int],
        limits: RingLimits | None = None,
    ) -> None:
        self.limits = limits = limits or RingLimits()
        self.began_at = now()
        self._now = now
        self._clock_ns = clock_ns
        self._last = _LastCalls(limits.num_calls, limits.max_bytes)
        self._failed = _LastCalls(limits.num_failed, limits.max_bytes)
        self._slow: deque[_SlowMinute] = deque()
        self._num_slow = self._minute_ends_ns = 0
        self._num_slow_ever = 0
        # Of the present minute's endpoints that have all their slow calls, the fastest of these.
        self._floors: dict[str, int] = {}

    def begin(
        self, request_id: str, account: str, bytes_in: int, traceparent: str | None = None
    ) -> CallTrace:
        """Begin to note a call; `end` it."""
        now_ns = self._clock_ns()
        if traceparent is not None:
            traceparent = traceparent[:MAX_TRACEPARENT_CHARACTERS]
        return CallTrace(request_id, account, self._now(), now_ns, bytes_in, traceparent)

    def end(self, call: CallTrace, *, is_whole: bool) -> None:
        """Keep a call that is over; not `is_whole`: its client has not got all of an answer."""
        now_ns = self._clock_ns()
        if not is_whole and not call.error:
            call.failed(CLIENT_LEFT, "ClientLeft", LEFT)
        elif not call.status:
            call.status = 200
        call.ended_ns = now_ns
        try:
            kept = written(call)
        except UnicodeEncodeError:  # half a character, in the name that a client made up
            return
        self._last.add(kept)
        if call.error or call.status >= 400:
            self._failed.add(kept)
        if not call.found_ns:  # of names that are not there any client can make up many
            return
        took_ns, floors = now_ns - call.arrived_ns, self._floors
        if now_ns >= self._minute_ends_ns or took_ns > floors.get(call.endpoint, -1):
            self._add_slow(call.endpoint, took_ns, kept, now_ns)

    def found(
        self,
        *,
        account: str | None = None,
        ids: frozenset[str] = frozenset(),
        parents: frozenset[str] = frozenset(),
    ) -> list[CallTrace]:
        """The calls with one of these ids, or made by one of the calls `parents`, each once."""
        wanted = [it.encode() for it in (*ids, *parents)]
        return [
            call
            for call in self._kept(account, lambda kept: any(it in kept for it in wanted))
            if call.request_id in ids or (call.parent_id is not None and call.parent_id in parents)
        ]

    def slowest(
        self, *, account: str | None, endpoint: str | None, since_s: float, limit: int
    ) -> list[CallTrace]:
        """The calls that ended in the last `since_s` seconds, the slowest first."""
        calls = self._recent(account, endpoint, since_s)
        return sorted(calls, key=lambda it: -it.took_ns)[:limit]

    def failed(
        self, *, account: str | None, endpoint: str | None, since_s: float, limit: int
    ) -> list[CallTrace]:
        """The calls of the last `since_s` seconds that failed, the newest first."""
        calls = [it for it in self._recent(account, endpoint, since_s) if it.is_failed]
        return sorted(calls, key=lambda it: -it.ended_ns)[:limit]

    @property
    def oldest_at(self) -> float | None:
        """Since when every call is kept, in seconds since the epoch; None without any."""
        return read(self._last.calls[0]).arrived_at if self._last.calls else None

    @property
    def num_last(self) -> int:
        """How many of the last calls are kept."""
        return len(self._last.calls)

    def _recent(
        self, account: str | None, endpoint: str | None, since_s: float
    ) -> Iterable[CallTrace]:
        since_ns = self._clock_ns() - int(since_s * 1e9)
        for call in self._kept(account):
            if call.ended_ns >= since_ns and endpoint in (None, call.endpoint):
                yield call

    def _kept(
        self, account: str | None, may_be: Callable[[bytes], bool] = lambda _: True
    ) -> Iterable[CallTrace]:
        """Every call that is kept and `may_be`, once; of that account alone, None: of all."""
        seen: set[int] = set()
        slow = (it[2] for minute in self._slow for heap in minute.heaps.values() for it in heap)
        for kept in chain(self._last.calls, self._failed.calls, slow):
            if id(kept) in seen or not may_be(kept):
                continue
            seen.add(id(kept))
            call = read(kept)
            if account in (None, call.account):
                yield call

    def _add_slow(self, endpoint: str, took_ns: int, kept: bytes, now_ns: int) -> None:
        """Keep a call that is slower than the fastest of the slow ones; there is room, or none."""
        if now_ns >= self._minute_ends_ns:
            self._next_minute(now_ns // MINUTE_NS)
        minute, each = self._slow[-1], self.limits.slow_each
        heap = minute.heaps.get(endpoint)
        self._num_slow_ever += 1  # of two that took as long the first one leaves first
        if heap is not None and len(heap) >= each:
            heapreplace(heap, (took_ns, self._num_slow_ever, kept))
            self._floors[endpoint] = heap[0][0]
            return
        while self._num_slow >= self.limits.num_slow and len(self._slow) > 1:
            self._num_slow -= self._slow.popleft().num
        if self._num_slow < self.limits.num_slow:
            if heap is None:
                heap = minute.heaps[endpoint] = []
            heappush(heap, (took_ns, self._num_slow_ever, kept))
            minute.num += 1
            self._num_slow += 1
            if len(heap) == each:
                self._floors[endpoint] = heap[0][0]

    def _next_minute(self, number: int) -> None:
        self._slow.append(_SlowMinute(number))
        self._minute_ends_ns = (number + 1) * MINUTE_NS
        self._floors = {}
        while self._slow[0].number <= number - self.limits.slow_minutes:
            self._num_slow -= self._slow.popleft().num
