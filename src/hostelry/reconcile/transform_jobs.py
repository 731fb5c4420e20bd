"""Transform jobs: their endpoints come up, and end with them.

Level-triggered: every pass looks at all jobs that are not over, and at all hidden endpoints, and
writes at most one change of each. The job is written before its endpoint, so that a control which
is killed in between leaves a job that the next pass takes up.
"""

import asyncio
import contextlib
import hashlib
from collections.abc import Iterable
from dataclasses import replace

import msgspec

from hostelry.base.clock import Clock
from hostelry.base.concurrency import run_woken
from hostelry.base.errors import Conflict
from hostelry.domain.copy import Copy
from hostelry.domain.hidden_endpoint import HiddenKind
from hostelry.domain.scope import Scope
from hostelry.domain.transform_job import (
    TransformEnd,
    TransformJob,
    TransformProgress,
    TransformProgressReport,
    TransformSnapshot,
)
from hostelry.reconcile.plan.hidden_endpoint import HiddenFleet, any_serves, find_problem
from hostelry.reconcile.plan.transform import (
    finish_job,
    plan_hidden_endpoint,
    plan_transform_job,
)
from hostelry.reconcile.record import list_hidden_jobs
from hostelry.reconcile.route_board import SnapshotBoard
from hostelry.store.records import State, Versioned

WATCH_S = 1.0  # from one look at jobs to the next
IDLE_S = 60.0  # without a job
REST_S = 0.1  # what changes meanwhile is looked at together
JobKey = tuple[Scope, str]


class TransformJobs:
    """The transform jobs of one control process. `run` drives them until it is cancelled.

    `board` has the jobs that the runner works on, `snapshot` the jobs of the last pass. The
    progress of a job that runs is kept in memory, since the runner reports it again. It is written
    once the job is over.
    """

    def __init__(self, state: State, clock: Clock) -> None:
        self.board: SnapshotBoard[TransformSnapshot] = SnapshotBoard()
        self.snapshot: TransformSnapshot | None = None
        self._state = state
        self._clock = clock
        self.woken = asyncio.Event()
        self._is_driving = False
        self._asked_at = clock.now()
        self._progress: dict[JobKey, TransformProgress] = {}

    async def run(self) -> None:
        """Drive until cancelled: what changed once `woken` is set, and jobs each second."""

        def longest_s() -> float:
            return WATCH_S if self._is_driving else IDLE_S

        name, clock = "driving transform jobs", self._clock
        await run_woken(name, self._pass, self.woken, longest_s, REST_S, clock)

    async def _pass(self) -> None:
        self._is_driving = True  # unless the pass ends well, and finds nothing to drive
        try:
            await asyncio.to_thread(self.one_pass)
        finally:
            if self.snapshot is not None:
                self.board.publish(self.snapshot)

    def one_pass(self) -> None:
        """Drive every job by one step. `snapshot` then has the jobs to be run.

        A job that changed meanwhile is left for the next pass. If some fail, the others are driven
        all the same, and one of the errors is raised.
        """
        now, hidden = self._clock.now(), list_hidden_jobs(self._state, HiddenKind.TRANSFORM)
        after: list[TransformJob] = []
        with contextlib.ExitStack() as each:
            each.callback(self._note_running, after)  # last, whatever fails
            for stored in reversed(self._state.transform_jobs.list()):
                job = stored.value
                if job.is_over and (job.scope, job.name) not in hidden:
                    self._progress.pop((job.scope, job.name), None)
                else:
                    each.callback(self._drive_unless_changed, stored, now, after)

    def _drive_unless_changed(
        self, stored: Versioned[TransformJob], now: float, after: list[TransformJob]
    ) -> None:
        """Drive the job. Add it to `after` as changed, or unchanged."""
        job = stored.value
        try:
            with contextlib.suppress(Conflict):
                job = self._drive(stored, now)
        finally:
            after.append(job)

    def _note_running(self, jobs: Iterable[TransformJob]) -> None:
        driven = tuple(jobs)
        self._is_driving = bool(driven)
        self.snapshot = build_snapshot(it for it in driven if not it.is_over)

    def _drive(self, stored: Versioned[TransformJob], now: float) -> TransformJob:
        state, job = self._state, stored.value
        with state.writing:
            found = state.endpoints.get(job.scope, job.endpoint_name)
            endpoint = None if found is None else found.value
            copies = self._get_copies(job)
            fleet = HiddenFleet(
                endpoint=endpoint,
                serves=any_serves(job.model, copies),
                problem=find_problem(copies),
                asked_at=self._asked_at,
            )
            after = plan_transform_job(job, fleet, now)
            if after != job:
                progress = self._progress.get((job.scope, job.name), after.progress)
                after = replace(after, progress=progress) if after.is_over else after
                state.transform_jobs.put(job.scope, job.name, after, expect=stored.version)
            generation = state.store.revision() + 1
            wanted = plan_hidden_endpoint(after, endpoint, generation, now)
            if wanted is not None:
                expect = None if found is None else found.version
                state.endpoints.put(job.scope, wanted.name, wanted, expect=expect)
        return after

    def _get_copies(self, job: TransformJob) -> list[Copy]:
        copies = (it.value for it in self._state.copies.list(job.scope))
        return [it for it in copies if it.endpoint_name == job.endpoint_name]

    async def newer_than(self, have: str | None, timeout_s: float) -> TransformSnapshot | None:
        """The jobs for the process that runs them. Waits as `SnapshotBoard.newer_than`."""
        self._asked_at = self._clock.now()
        return await self.board.newer_than(have, timeout_s)

    def note(self, report: TransformProgressReport) -> None:
        """Keep the runner's report about a job."""
        self._note(report.scope, report.name, report.progress)

    def _note(self, scope: Scope, name: str, progress: TransformProgress) -> None:
        self._progress[scope, name] = replace(progress, at=self._clock.now())

    def get_progress(self, job: TransformJob) -> TransformProgress:
        """The job's progress, as it was said last."""
        return self._progress.get((job.scope, job.name), job.progress)

    def finish(self, end: TransformEnd) -> bool:
        """Record durably how a job ended. False without such a job. A repeat changes nothing."""
        scope, name = end.scope, end.name
        with self._state.writing:
            found = self._state.transform_jobs.get(scope, name)
            if found is None:
                return False
            job, now = found.value, self._clock.now()
            progress = end.progress or self.get_progress(job)
            after = finish_job(job, end.status, end.reason, replace(progress, at=now), now)
            if after != job:
                self._state.transform_jobs.put(scope, name, after, expect=found.version)
        return True


def build_snapshot(jobs: Iterable[TransformJob]) -> TransformSnapshot:
    """The jobs, with a version that is the same for the same jobs."""
    ordered = tuple(sorted(jobs, key=lambda it: (it.created_at, it.scope.region, it.name)))
    content = msgspec.json.encode(ordered, order="deterministic")
    return TransformSnapshot(version=hashlib.sha256(content).hexdigest()[:32], jobs=ordered)
