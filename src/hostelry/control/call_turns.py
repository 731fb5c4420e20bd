"""Turns of AWS calls at control's threads: which caller's call runs next. Pure.

Every caller has a queue. A thread that is free takes the oldest call of a caller that has the
fewest calls running; of several such callers, of the one whose last turn was the longest ago.

| the caller has | decision on one more call |
| --- | --- |
| fewer than `running` calls on threads, and fewer than `running_in_all` are in use | it runs |
| as many, or no thread is free, and fewer than `waiting` calls wait | it waits |
| `waiting` calls that wait | CallsFull: it is refused |
| a call that waits, and `waiting_in_all` of all callers wait | CallsFull: it is refused |
"""

from collections import Counter, deque
from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnLimits:
    """How many calls run and wait, of one caller and of all.

    Threads that compute take turns at one interpreter with the event loop: the more there are, the
    longer the loop waits each time.
    """

    running: int = 8
    running_in_all: int = 16
    waiting: int = 500
    waiting_in_all: int = 2000


class CallsFull(Exception):  # noqa: N818 - reads as what it says
    """No more calls may wait; the text says which limit is reached."""


class CallTurns(Generic[T]):
    """The calls that run and wait at present."""

    def __init__(self, limits: TurnLimits) -> None:
        self._limits = limits
        self._running: Counter[str] = Counter()
        # In the order of turns: a caller that had one goes to the end.
        self._waiting: dict[str, deque[T]] = {}

    def add(self, caller: str, call: T, *, is_promised: bool = False) -> None:
        """Let a call wait for its turn; raises CallsFull unless its place `is_promised`."""
        waiting = self._waiting.get(caller, ())
        if not is_promised:
            self._check(len(waiting))
        self._waiting.setdefault(caller, deque()).append(call)

    def take(self) -> tuple[str, T] | None:
        """The call whose turn it is, and its caller, counted as running; None if none can run."""
        may = [it for it in self._waiting if self._running[it] < self._limits.running]
        if not may or self._running.total() >= self._limits.running_in_all:
            return None
        caller = min(may, key=lambda it: self._running[it])
        calls = self._waiting.pop(caller)
        call = calls.popleft()
        if calls:
            self._waiting[caller] = calls
        self._running[caller] += 1
        return caller, call

    def end(self, caller: str) -> None:
        """A running call of the caller has ended."""
        self._running[caller] -= 1
        if not self._running[caller]:
            del self._running[caller]

    def _check(self, num_waiting: int) -> None:
        limits = self._limits
        if num_waiting >= limits.waiting:
            raise CallsFull(
                f"{limits.waiting} calls of this caller wait already, and {limits.running} run"
            )
        # A caller's first call has a place in any case: others cannot shut it out.
        if num_waiting and sum(map(len, self._waiting.values())) >= limits.waiting_in_all:
            raise CallsFull(f"{limits.waiting_in_all} calls of all callers wait already")
