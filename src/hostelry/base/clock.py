"""Clocks, the only source of time. Decisions take `now` as an argument instead."""

import time
from typing import Protocol


class Clock(Protocol):
    """Seconds, since the epoch unless stated otherwise, and waiting."""

    def now(self) -> float:
        """Seconds since the epoch."""
        ...

    async def sleep(self, delay_s: float) -> None:
        """Return after `delay_s` seconds of this clock."""
        ...


class SystemClock:
    """The machine's clock."""

    def now(self) -> float:
        """Seconds since the epoch."""
        return time.time()

    async def sleep(self, delay_s: float) -> None:
        """Return after `delay_s` real seconds."""
        await sleep(delay_s)


class MonotonicClock:
    """Seconds since an arbitrary instant that never jump, for durations."""

    def now(self) -> float:
        """Seconds since an arbitrary instant."""
        return monotonic_s()

    async def sleep(self, delay_s: float) -> None:
        """Return after `delay_s` real seconds."""
        await sleep(delay_s)


def worked_s() -> float:
    """Seconds that this thread has computed so far."""
    return time.thread_time()


class ManualClock:
    """A clock that moves only by `advance` and `sleep`. `sleep` yields once."""

    def __init__(self, now: float = 1_700_000_000.0) -> None:
        self._now = now

    def now(self) -> float:
        """Seconds since the epoch, as last set."""
        return self._now

    def advance(self, delta_s: float) -> None:
        """Move the clock forward by `delta_s` seconds."""
        self._now += delta_s

    async def sleep(self, delay_s: float) -> None:
        """Advance by `delay_s` and let other tasks run once."""
        self.advance(delay_s)
        await sleep(0)


async def sleep(delay_s: float) -> None:
    """Return after `delay_s` real seconds."""
    import asyncio  # which commands that only measure a time do without

    await asyncio.sleep(delay_s)


# Work of every second is done together, this long after its end: one wake-up, not one for each.
AFTER_THE_SECOND_S = 0.002


def until_next_s(now: float, every_s: float) -> float:
    """Seconds from `now` until just after the next multiple of `every_s`."""
    return every_s - (now - AFTER_THE_SECOND_S) % every_s


# Seconds of a clock that never goes back, for durations.
monotonic_s = time.monotonic
# Its nanoseconds, the same for all processes of the machine.
monotonic_ns = time.monotonic_ns
# Seconds for which the calling thread has used a processor.
thread_cpu_s = time.thread_time
