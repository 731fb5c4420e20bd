"""The calls that a worker keeps: the last ones, the last that failed, the slowest of each minute.

Each of the three has its own bounds; the oldest leave first. A call may be in all of them. What is
kept ends with the process.
"""

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import chain
from typing import Protocol

from hostelry.base.http import HttpRequest
from hostelry.dataplane.tracing.call_trace import (
    CLIENT_LEFT,
    LEFT,
    MAX_TRACEPARENT_CHARACTERS,
    CallTrace,
    read,
    written,
)
from hostelry.dataplane.tracing.slow_calls import SlowCalls, SlowLimits


@dataclass(frozen=True, slots=True, kw_only=True)
class RingLimits:
    """What one worker keeps."""

    num_calls: int = 8192
    num_failed: int = 2048
    max_bytes: int = 8 * 1024 * 1024  # of the last calls, and as many of those that failed
    slow: SlowLimits = field(default_factory=SlowLimits)


@dataclass(slots=True)
class _LastCalls:
    """The last calls, at most `num` and `max_bytes` of them."""

    num: int
    max_bytes: int
    calls: deque[bytes] = field(default_factory=deque)
    num_bytes: int = 0

    def add(self, call: bytes) -> None:
        """Keep a call, and drop the oldest beyond the bounds."""
        calls, num_bytes = self.calls, self.num_bytes + len(call)
        calls.append(call)
        while len(calls) > self.num or num_bytes > self.max_bytes:
            num_bytes -= len(calls.popleft())
        self.num_bytes = num_bytes


class CallSink(Protocol):
    """Where calls go besides, once they have ended: a collector of traces."""

    def passed_on(self, call: CallTrace) -> str:
        """The `traceparent` that the copies of a call get instead of the client's."""
        ...

    def ended(self, call: CallTrace, kept: bytes) -> None:
        """Take a call, also as bytes; never waits, never raises."""
        ...


class CallRing:
    """The calls of one worker.

    Args:
        now: seconds since the epoch.
        clock_ns: nanoseconds of a clock that never jumps.
        limits: what is kept.
        sink: gets each call besides.
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
        """Begin to note a call; `end` it."""
        trace = CallTrace(request_id, account, self._now(), self._clock_ns(), len(request.body))
        if "traceparent" in request.headers:
            trace.traceparent = request.headers["traceparent"][:MAX_TRACEPARENT_CHARACTERS]
        if self._sink is not None and isinstance(request.headers, dict):
            # Its signature was verified before: from here on headers are what copies get.
            request.headers["traceparent"] = self._sink.passed_on(trace)
        return trace

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
        if self._sink is not None:
            self._sink.ended(call, kept)
        if call.error or call.status >= 400:
            self._failed.add(kept)
        if not call.found_ns:  # of names that are not there any client can make up many
            return
        took_ns, slow = now_ns - call.arrived_ns, self._slow
        if now_ns >= slow.minute_ends_ns or took_ns > slow.floors.get(call.endpoint, -1):
            slow.add(call.endpoint, took_ns, kept, now_ns)

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
        for kept in chain(self._last.calls, self._failed.calls, self._slow):
            if id(kept) in seen or not may_be(kept):
                continue
            seen.add(id(kept))
            call = read(kept)
            if account in (None, call.account):
                yield call
