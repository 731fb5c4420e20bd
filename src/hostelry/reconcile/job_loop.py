"""Drives the jobs or experiments of one kind, and publishes the work of their runner.

Level-triggered: every pass looks at all jobs that are not over, and at all their hidden endpoints.
A job is written before its endpoints, so that a control which is killed in between leaves a job
that the next pass takes up.
"""

import asyncio
import contextlib
import hashlib
from collections.abc import Callable, Collection, Sequence
from typing import Generic, Protocol, TypeVar

import msgspec

from hostelry.base.clock import Clock
from hostelry.base.concurrency import run_woken
from hostelry.base.errors import Conflict
from hostelry.domain.scope import Scope
from hostelry.reconcile.route_board import Snapshot, SnapshotBoard
from hostelry.store.records import Records, Versioned

WATCH_S = 1.0  # from one look at jobs to the next
IDLE_S = 60.0  # without a job
REST_S = 0.1  # what changes meanwhile is looked at together
JobKey = tuple[Scope, str]


class DrivenJob(Protocol):
    """A job of any kind."""

    @property
    def scope(self) -> Scope:
        """The account and region."""
        ...

    @property
    def name(self) -> str:
        """The name."""
        ...

    @property
    def is_over(self) -> bool:
        """Whether the job has ended."""
        ...


J = TypeVar("J", bound=DrivenJob)
S = TypeVar("S", bound=Snapshot)


class JobLoop(Generic[J, S]):
    """The loop over the jobs of one kind. `run` drives them until it is cancelled.

    Args:
        name: the jobs, for the log.
        records: the jobs' records.
        drive: takes one step of a job at an instant, and returns the job after it.
        build_snapshot: builds the snapshot for the runner from the driven jobs. None for jobs
            that no other process runs.
        list_leftovers: returns jobs that are driven although they are over, as they still have
            hidden endpoints.

    `board` has the work of the runner, `snapshot` the same after the last pass. `asked_at` is
    when a runner last asked for it.
    """

    def __init__(
        self,
        name: str,
        records: Records[J],
        clock: Clock,
        drive: Callable[[Versioned[J], float], J],
        build_snapshot: Callable[[Sequence[J]], S] | None = None,
        list_leftovers: Callable[[], Collection[JobKey]] = tuple,
    ) -> None:
        self.board: SnapshotBoard[S] = SnapshotBoard()
        self.snapshot: S | None = None
        self.woken = asyncio.Event()
        self.asked_at = clock.now()
        self._name = name
        self._records = records
        self._clock = clock
        self._drive = drive
        self._build_snapshot = build_snapshot
        self._list_leftovers = list_leftovers
        self._is_driving = False

    async def run(self) -> None:
        """Drive until cancelled: what changed once `woken` is set, and jobs each second."""

        def longest_s() -> float:
            return WATCH_S if self._is_driving else IDLE_S

        name = f"driving {self._name}"
        await run_woken(name, self._pass, self.woken, longest_s, REST_S, self._clock)

    async def _pass(self) -> None:
        self._is_driving = True  # unless the pass ends well, and finds nothing to drive
        try:
            await asyncio.to_thread(self.one_pass)
        finally:
            if self.snapshot is not None:
                self.board.publish(self.snapshot)

    def one_pass(self) -> None:
        """Drive every job by one step. `snapshot` then has the work of the runner.

        A job that changed meanwhile is left for the next pass. If some fail, the others are driven
        all the same, and one of the errors is raised.
        """
        now, leftovers = self._clock.now(), self._list_leftovers()
        after: list[J] = []
        with contextlib.ExitStack() as each:
            each.callback(self._note_driven, after)  # last, whatever fails
            for stored in reversed(self._records.list()):
                job = stored.value
                if not job.is_over or (job.scope, job.name) in leftovers:
                    each.callback(self._drive_unless_changed, stored, now, after)

    def _drive_unless_changed(self, stored: Versioned[J], now: float, after: list[J]) -> None:
        """Drive the job. Add it to `after` as changed, or unchanged."""
        job = stored.value
        try:
            with contextlib.suppress(Conflict):
                job = self._drive(stored, now)
        finally:
            after.append(job)

    def _note_driven(self, jobs: Sequence[J]) -> None:
        self._is_driving = bool(jobs)
        if self._build_snapshot is not None:
            self.snapshot = self._build_snapshot(jobs)

    async def newer_than(self, have: str | None, timeout_s: float) -> S | None:
        """The snapshot for the runner. Waits as `SnapshotBoard.newer_than`."""
        self.asked_at = self._clock.now()
        return await self.board.newer_than(have, timeout_s)


def get_version(content: object) -> str:
    """The version of a snapshot: the same for the same content."""
    body = msgspec.json.encode(content, order="deterministic")
    return hashlib.sha256(body).hexdigest()[:32]
