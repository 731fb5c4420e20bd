"""The calls that a worker keeps: the last, the last that failed, and the slowest."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from heapq import heappush, heapreplace
from itertools import chain
from typing import Protocol

import msgspec

from hostelry.base.http import HttpRequest
from hostelry.dataplane.tracing.call_trace import (
    CLIENT_LEFT,
    LEFT,
    MAX_TENANT_CHARACTERS,
    MAX_TRACEPARENT_CHARACTERS,
    TENANT,
    CallTrace,
    read,
    written,
)

MINUTE_NS = 60 * 1_000_000_000


class SlowLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of slow calls: minutes, calls `each` of an endpoint in a minute, and the total."""

    num_minutes: int = 15
    each: int = 8
    num_calls: int = 2048
    max_bytes: int = 8 * 1024 * 1024


class _Minute(msgspec.Struct):
    """The slowest calls of a minute, by endpoint: heaps, the fastest call first."""

    number: int
    heaps: dict[str, list[tuple[int, int, bytes]]] = msgspec.field(default_factory=dict)
    num_calls: int = 0
    num_bytes: int = 0


class SlowCalls:
    """The slow calls of a worker. The oldest minutes make room for the newest.

    `floors` has the least time of a call that is kept, by endpoint, until `minute_ends_ns`. It
    lacks endpoints with room for any call.
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
        """Keep a call that took longer than its endpoint's floor, if the limits allow it."""
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
        self._num_added += 1  # of two calls that took as long, the first leaves first
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


# A worker keeps the last calls, the last failed calls, and the slowest of each minute. Each has its
# own limits, and the oldest calls leave first. A call may be in all of them. They end with the
# process.


class RingLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of the calls of one worker."""

    num_calls: int = 8192
    num_failed: int = 2048
    max_bytes: int = 8 * 1024 * 1024  # of the last calls, and the same for failed calls
    slow: SlowLimits = msgspec.field(default_factory=SlowLimits)


class _LastCalls(msgspec.Struct):
    """The last calls, at most `num` and `max_bytes`."""

    num: int
    max_bytes: int
    calls: deque[bytes] = msgspec.field(default_factory=deque)
    num_bytes: int = 0

    def add(self, call: bytes) -> None:
        """Keep a call, and drop the oldest calls above the limits."""
        calls, num_bytes = self.calls, self.num_bytes + len(call)
        calls.append(call)
        while len(calls) > self.num or num_bytes > self.max_bytes:
            num_bytes -= len(calls.popleft())
        self.num_bytes = num_bytes


class CallSink(Protocol):
    """Receives finished calls, for example a collector of traces."""

    def build_traceparent(self, call: CallTrace) -> str:
        """Build the `traceparent` for the copies of a call, in place of the client's."""
        ...

    def take(self, call: CallTrace, kept: bytes) -> None:
        """Take a finished call, also as bytes. Never waits, never raises."""
        ...


class CallRing:
    """The calls of one worker.

    Args:
        now: seconds since the epoch.
        clock_ns: nanoseconds of a clock that never jumps.
        limits: the limits of the calls.
        sink: also gets each call.
    """

    def __init__(
        self,
        now: Callable[[], float],
        clock_ns: Callable[[], int],
        limits: RingLimits | None = None,
        sink: CallSink | None = None,
    ) -> None:
        limits = limits or RingLimits()
        self.began_at = now()
        self._now = now
        self._sink = sink
        self._clock_ns = clock_ns
        self._last = _LastCalls(limits.num_calls, limits.max_bytes)
        self._failed = _LastCalls(limits.num_failed, limits.max_bytes)
        self._slow = SlowCalls(limits.slow)

    def begin(self, request_id: str, account: str, request: HttpRequest) -> CallTrace:
        """Begin to trace a call. The caller ends it."""
        trace = CallTrace(request_id, account, self._now(), self._clock_ns(), len(request.body))
        if "traceparent" in request.headers:
            trace.traceparent = request.headers["traceparent"][:MAX_TRACEPARENT_CHARACTERS]
        tenant = request.headers.get(TENANT)
        if tenant is not None:
            trace.tenant = tenant[:MAX_TENANT_CHARACTERS]
        if self._sink is not None and isinstance(request.headers, dict):
            # Its signature was verified before. From here on, the headers are those for copies.
            request.headers["traceparent"] = self._sink.build_traceparent(trace)
        return trace

    def end(self, call: CallTrace, *, is_whole: bool) -> None:
        """Keep a finished call. `is_whole` is False if its client did not get the whole answer."""
        now_ns = self._clock_ns()
        if not is_whole and not call.error:
            call.fail(CLIENT_LEFT, "ClientLeft", LEFT)
        elif not call.status:
            call.status = 200
        call.ended_ns = now_ns
        try:
            kept = written(call)
        except UnicodeEncodeError:  # half a character, in a name that a client made up
            return
        self._last.add(kept)
        if self._sink is not None:
            self._sink.take(call, kept)
        if call.error or call.status >= 400:
            self._failed.add(kept)
        if not call.found_ns:  # a client can make up many names that do not exist
            return
        took_ns, slow = now_ns - call.arrived_ns, self._slow
        if now_ns >= slow.minute_ends_ns or took_ns > slow.floors.get(call.endpoint, -1):
            slow.add(call.endpoint, took_ns, kept, now_ns)

    def find(
        self,
        *,
        account: str | None = None,
        ids: frozenset[str] = frozenset(),
        parents: frozenset[str] = frozenset(),
    ) -> list[CallTrace]:
        """Find the calls with these ids, and the calls that the calls `parents` made, each once."""
        wanted = [it.encode() for it in (*ids, *parents)]
        return [
            call
            for call in self._iterate_kept(account, lambda kept: any(it in kept for it in wanted))
            if call.request_id in ids or (call.parent_id is not None and call.parent_id in parents)
        ]

    def find_slowest(
        self, *, account: str | None, endpoint: str | None, since_s: float, limit: int
    ) -> list[CallTrace]:
        """Find the slowest calls of the last `since_s` seconds, the slowest first."""
        calls = self._recent(account, endpoint, since_s)
        return sorted(calls, key=lambda it: -it.took_ns)[:limit]

    def find_failed(
        self, *, account: str | None, endpoint: str | None, since_s: float, limit: int
    ) -> list[CallTrace]:
        """Find the failed calls of the last `since_s` seconds, the newest first."""
        calls = [it for it in self._recent(account, endpoint, since_s) if it.is_failed]
        return sorted(calls, key=lambda it: -it.ended_ns)[:limit]

    @property
    def oldest_at(self) -> float | None:
        """All calls since this time (seconds since the epoch) are kept. None without calls."""
        return read(self._last.calls[0]).arrived_at if self._last.calls else None

    @property
    def num_last(self) -> int:
        """Number of last calls that are kept."""
        return len(self._last.calls)

    def _recent(
        self, account: str | None, endpoint: str | None, since_s: float
    ) -> Iterable[CallTrace]:
        since_ns = self._clock_ns() - int(since_s * 1e9)
        for call in self._iterate_kept(account):
            if call.ended_ns >= since_ns and endpoint in (None, call.endpoint):
                yield call

    def _iterate_kept(
        self, account: str | None, may_be: Callable[[bytes], bool] = lambda _: True
    ) -> Iterable[CallTrace]:
        """Yield every kept call that `may_be` once, of `account`, or of all accounts if None."""
        seen: set[int] = set()
        for kept in chain(self._last.calls, self._failed.calls, self._slow):
            if id(kept) in seen or not may_be(kept):
                continue
            seen.add(id(kept))
            call = read(kept)
            if account in (None, call.account):
                yield call
