"""Keyed work queue: level-triggered, one worker per key at a time, backoff on error.

a key                                         result
-------------------------------------------   -------------------------------------------------
added, not in work                            worked on as soon as a worker is free
added while in work                           worked on once more afterwards
its work returned an instant                  added at that instant
its work failed                               added again after a backoff. Other keys go ahead
its work asked for a rest (`rest`)            rests before it is worked on again, once for all
                                              calls of `add` meanwhile
"""

import asyncio
import heapq
import itertools
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

from hostelry.base.clock import Clock
from hostelry.base.concurrency import run_guarded

K = TypeVar("K", bound=Hashable)

FIRST_BACKOFF_S = 0.05
MAX_BACKOFF_S = 15.0


def get_backoff_s(failures: int) -> float:
    """Seconds to wait after `failures` failures in a row: doubling, bounded, 0 after none."""
    if failures == 0:
        return 0.0
    return min(MAX_BACKOFF_S, FIRST_BACKOFF_S * 2.0 ** min(failures - 1, 20))


class WorkQueue(Generic[K]):
    """A queue that calls `work(key)` for each added key, at least once after its last `add`.

    `work` returns the instant at which to call it again without an `add`, or None.
    """

    def __init__(self, work: Callable[[K], Awaitable[float | None]], clock: Clock) -> None:
        self._work = work
        self._clock = clock
        self._waiting: dict[K, None] = {}
        self._busy: set[K] = set()
        self._rests: dict[K, float] = {}  # of keys in work, seconds
        self._resting: set[K] = set()
        self._failures: dict[K, int] = {}
        self._alarms: list[tuple[float, int, K]] = []
        self._due: dict[K, float] = {}
        self._order = itertools.count()
        self._added = asyncio.Event()
        self._quiet = asyncio.Event()
        self._quiet.set()

    def add(self, key: K) -> None:
        """Have `key` worked on. Further calls until then change nothing."""
        self._waiting[key] = None
        self._quiet.clear()
        self._added.set()

    def add_at(self, key: K, at: float) -> None:
        """Have `key` worked on at the instant `at`, unless an earlier one is set already."""
        if at >= self._due.get(key, float("inf")):
            return
        self._due[key] = at
        heapq.heappush(self._alarms, (at, next(self._order), key))
        self._added.set()

    def rest(self, key: K, rest_s: float) -> None:
        """Let `key`, which is in work, rest for `rest_s` seconds afterwards."""
        self._rests[key] = rest_s

    async def run(self, num_workers: int) -> None:
        """Work until cancelled, on at most `num_workers` keys at once."""
        async with asyncio.TaskGroup() as tasks:
            while True:
                self._ring()
                self._added.clear()
                for key in self._free_keys(num_workers):
                    self._busy.add(key)
                    tasks.create_task(self._work_on(key))
                await self._until_next()

    async def quiet(self) -> None:
        """Wait until no key is waiting or in work. Timers and backoffs may be pending."""
        await self._quiet.wait()

    def _free_keys(self, num_workers: int) -> list[K]:
        kept = self._busy | self._resting
        free = [key for key in self._waiting if key not in kept]
        chosen = free[: max(0, num_workers - len(self._busy))]
        for key in chosen:
            del self._waiting[key]
        return chosen

    def _ring(self) -> None:
        """Add the keys that are due."""
        now = self._clock.now()
        while self._alarms and self._alarms[0][0] <= now:
            at, _, key = heapq.heappop(self._alarms)
            if self._due.get(key) == at:
                del self._due[key]
                self.add(key)

    async def _until_next(self) -> None:
        """Wait until a key is added or comes free, or a timer is due."""
        if not self._alarms:
            await self._added.wait()
            return
        delay_s = max(0.0, self._alarms[0][0] - self._clock.now())
        added = asyncio.ensure_future(self._added.wait())
        alarm = asyncio.ensure_future(self._clock.sleep(delay_s))
        try:
            await asyncio.wait({added, alarm}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            added.cancel()
            alarm.cancel()

    async def _work_on(self, key: K) -> None:
        again_at: list[float | None] = [None]

        async def work() -> None:
            again_at[0] = await self._work(key)

        if await run_guarded(f"reconciling {key}", work):
            self._failures.pop(key, None)
        else:
            self._failures[key] = self._failures.get(key, 0) + 1
            again_at[0] = self._clock.now() + get_backoff_s(self._failures[key])
        self._busy.discard(key)
        if again_at[0] is not None:
            self.add_at(key, again_at[0])
        if not self._waiting and not self._busy:
            self._quiet.set()
        self._added.set()
        rest_s = self._rests.pop(key, 0.0)
        if rest_s:
            self._resting.add(key)
            await self._clock.sleep(rest_s)
            self._resting.discard(key)
            self._added.set()
