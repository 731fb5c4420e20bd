"""Keeping of the newest routes on disk, beside the requests.

The processes of a host keep one file: what one has just written counts for the others.

the last time took         newer routes are written
-------------------------  ---------------------------------------------------------------------
less than QUICK_S          at once
longer                     CPU_SHARE times its processor time, or DISK_SHARE times its whole time,
                           after the last ones, and at most LONGEST_PAUSE_S; up to twice that, so
                           that processes take turns
either, control is away    at once: this process may start again before control does
either, the process stops  at once
"""

import asyncio
import contextlib
import logging
import random
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from hostelry.base.clock import Clock, monotonic_s, thread_cpu_s
from hostelry.dataplane.route_table import RouteTable
from hostelry.domain.routes import RouteSnapshot

log = logging.getLogger(__name__)
QUICK_S = 0.005
CPU_SHARE = 500.0
DISK_SHARE = 20.0
LONGEST_PAUSE_S = 60.0
RETRY_S = 20.0  # after a failure


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptRoutes:
    """The version of the routes in a file, and when they were written, in epoch seconds."""

    version: str
    written_at: float


class SnapshotFile(Protocol):
    """A file of routes, which several processes write, each time the whole."""

    def kept(self) -> KeptRoutes | None:
        """What is in it; None where nothing is, or it cannot be read."""
        ...

    def save(self, snapshot: RouteSnapshot) -> None:
        """Keep `snapshot` for the next start; raises OSError."""
        ...


def pause_after(cpu_s: float, took_s: float) -> float:
    """The seconds until newer routes are written, after a write that took so long."""
    if took_s < QUICK_S:
        return 0.0
    return min(max(CPU_SHARE * cpu_s, DISK_SHARE * took_s), LONGEST_PAUSE_S)


def left_of(pause_s: float, kept: KeptRoutes | None, now: float) -> float:
    """What is left of a pause since the last write of any process; 0 where its time is unknown."""
    age_s = pause_s if kept is None else now - kept.written_at
    return pause_s - age_s if 0 <= age_s < pause_s else 0.0  # below 0: the clock was set back


class RouteKeeper:
    """Keeps the newest routes in `file`, at a share of the time; `draw`, from 0 to 1, spreads."""

    def __init__(
        self, file: SnapshotFile, clock: Clock, draw: Callable[[], float] = random.random
    ) -> None:
        self._file = file
        self._clock = clock
        self._draw = draw
        self._newest: RouteTable | None = None
        self._newer = asyncio.Event()
        self._is_urgent = asyncio.Event()
        self._pause_s = 0.0
        self._writing = threading.Lock()

    def note(self, newest: RouteTable) -> None:
        """Have newer routes kept."""
        self._newest = newest
        self._newer.set()

    def set_urgent(self, is_urgent: bool) -> None:
        """Keep the newest routes at once, or with pauses."""
        if is_urgent:
            self._is_urgent.set()
        else:
            self._is_urgent.clear()

    async def run(self) -> None:
        """Keep what is noted, until cancelled."""
        try:
            while True:
                await self._newer.wait()
                await self._pause()
                self._newer.clear()
                snapshot = self._not_kept()
                if snapshot is not None and not await asyncio.to_thread(self._save, snapshot):
                    self._newer.set()
                    await self._clock.sleep(RETRY_S)
        finally:
            snapshot = self._not_kept() if self._newer.is_set() else None
            if snapshot is not None:
                self._save(snapshot)

    async def _pause(self) -> None:
        """Return once no process has written for a pause."""
        pause_s = self._pause_s * (1 + self._draw())
        while not self._is_urgent.is_set():
            left_s = left_of(pause_s, self._file.kept(), self._clock.now()) if pause_s else 0.0
            if not left_s:
                return
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(left_s):
                    await self._is_urgent.wait()

    def _not_kept(self) -> RouteSnapshot | None:
        """The newest routes, unless the file has them."""
        kept = self._file.kept()
        if self._newest is None or (kept is not None and kept.version == self._newest.version):
            return None
        return self._newest.snapshot()

    def _save(self, snapshot: RouteSnapshot) -> bool:
        """Write; whether that worked."""
        with self._writing:
            started_s, cpu_s = monotonic_s(), thread_cpu_s()
            try:
                self._file.save(snapshot)
            except OSError as error:
                log.warning("the routes could not be kept on disk: %s", error)
                return False
            finally:
                self._pause_s = pause_after(thread_cpu_s() - cpu_s, monotonic_s() - started_s)
        return True
