"""Follows control's snapshots of work, and runs each piece until control names it no more."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any, Generic, Protocol, TypeVar

import msgspec

from hostelry.base.clock import Clock
from hostelry.base.concurrency import run_guarded
from hostelry.dataplane.metering.meter import Meter
from hostelry.dataplane.routes import RouteSource
from hostelry.http1.upstream import UpstreamPool
from hostelry.jobs.control_client import ControlDownError, ControlRefusedError, HttpJobsControl
from hostelry.jobs.data_log import DataLog
from hostelry.jobs.objects.object_store import ObjectStore

LOG = logging.getLogger(__name__)
AGAIN_S = 1.0
DEFECT = "InternalServerError: The log of the jobs process has the cause."
Piece = Callable[[], Coroutine[Any, Any, None]]


class SnapshotDeps(msgspec.Struct, frozen=True, kw_only=True):
    """What the runs of all pieces use."""

    store: ObjectStore
    routes: RouteSource
    pool: UpstreamPool
    meter: Meter
    control: HttpJobsControl
    data_log: DataLog
    clock: Clock


class WorkSnapshot(Protocol):
    """What control wants to be done now. `version` is a digest of it."""

    @property
    def version(self) -> str:
        """The same for equal work."""
        ...


S = TypeVar("S", bound=WorkSnapshot)


class SnapshotWork(Generic[S]):
    """Runs the pieces of work of control's snapshots.

    Args:
        name: the work, for the log.
        get_snapshot: asks control for another snapshot than a version. None if the wait ended.
        list_pieces: returns the pieces of work of a snapshot by their keys.
        forget: called in a thread with the first snapshot, and once pieces have been ended.
    """

    def __init__(
        self,
        name: str,
        clock: Clock,
        get_snapshot: Callable[[str | None], Awaitable[S | None]],
        list_pieces: Callable[[S], Mapping[str, Piece]],
        forget: Callable[[S], None] = lambda _: None,
    ) -> None:
        self._name = name
        self._clock = clock
        self._get_snapshot = get_snapshot
        self._list_pieces = list_pieces
        self._forget = forget
        self._have: str | None = None
        self._runs: dict[str, asyncio.Task[None]] = {}

    def tasks(self) -> Mapping[str, Coroutine[Any, Any, None]]:
        """The task by its name. It runs until it is cancelled."""
        return {f"running {self._name}": self._follow_all()}

    async def _follow_all(self) -> None:
        try:
            while True:
                if not await run_guarded(f"following {self._name}", self._follow):
                    await self._clock.sleep(AGAIN_S)
        finally:
            await self._end(list(self._runs))

    async def _follow(self) -> None:
        """Follow one snapshot."""
        try:
            snapshot = await self._get_snapshot(self._have)
        except (ControlDownError, ControlRefusedError):
            await self._clock.sleep(AGAIN_S)
            return
        if snapshot is not None:
            await self._take(snapshot)
            self._have = snapshot.version

    async def _take(self, snapshot: S) -> None:
        pieces = self._list_pieces(snapshot)
        gone = [key for key in self._runs if key not in pieces]
        await self._end(gone)
        for key, piece in pieces.items():
            if key not in self._runs:
                self._runs[key] = asyncio.create_task(piece())
        if gone or self._have is None:
            await asyncio.to_thread(self._forget, snapshot)

    async def _end(self, keys: list[str]) -> None:
        ended = [self._runs.pop(key) for key in keys]
        for task in ended:
            task.cancel()
        await asyncio.gather(*ended, return_exceptions=True)


async def report_until_taken(
    what: str, report: Callable[[], Awaitable[None]], clock: Clock
) -> None:
    """Report to control how work ended, and repeat until it has taken the report."""
    while True:
        try:
            return await report()
        except (ControlDownError, ControlRefusedError) as error:
            LOG.warning("the end of %s is not taken yet: %s", what, error)
            await clock.sleep(AGAIN_S)
