"""Log events in control: the store, and the tasks that collect and remove events.

A failure of either is logged, and never ends control: the output of copies waits in their files.
"""

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator

from hostelry.base.clock import Clock
from hostelry.base.recurring import run_periodically
from hostelry.home.home import Home, UpConfig
from hostelry.home.home_paths import shown_paths
from hostelry.logs.collector import Collector
from hostelry.logs.files import LogFiles
from hostelry.logs.retention import Retention, RetentionLimits
from hostelry.logs.store import LogStore

LOOK_EVERY_S = 1.0
SWEEP_EVERY_S = 5.0


class LogCollection:
    """The store of log events, and what is done to it; `run` until cancelled, then `close`."""

    def __init__(self, home: Home, config: UpConfig, clock: Clock) -> None:
        self._clock = clock
        self.store = LogStore(home.log_events)
        shown = shown_paths(home, os.environ).text
        self._collector = Collector(self.store, LogFiles(home.instances).find, shown)
        limits = RetentionLimits(days=config.logs_days, max_bytes=config.logs_bytes)
        self._retention = Retention(self.store, limits)

    async def run(self) -> None:
        """Collect and remove until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for name, step, pause_s in (
                ("collecting output of copies", self._look, LOOK_EVERY_S),
                ("removing old log events", self._sweep, SWEEP_EVERY_S),
            ):
                tasks.create_task(run_periodically(name, step, pause_s), name=name)

    def close(self) -> None:
        """Close the file."""
        self.store.close()

    async def _look(self) -> None:
        await asyncio.to_thread(self._collector.look, self._clock.now())

    async def _sweep(self) -> None:
        await asyncio.to_thread(self._retention.sweep, int(self._clock.now() * 1000))


@contextlib.asynccontextmanager
async def collecting(logs: LogCollection) -> AsyncIterator[LogCollection]:
    """Run `logs` for the block, and close it."""
    task = asyncio.create_task(logs.run())
    try:
        yield logs
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        logs.close()
