"""Transform jobs: their endpoints come up, and end with them."""

from collections.abc import Sequence
from functools import partial

from msgspec.structs import replace

from hostelry.base.clock import Clock
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
from hostelry.reconcile.job_loop import JobKey, JobLoop, get_version
from hostelry.reconcile.plan.hidden_endpoint import HiddenFleet, any_serves, find_problem
from hostelry.reconcile.plan.transform import (
    finish_job,
    plan_hidden_endpoint,
    plan_transform_job,
)
from hostelry.reconcile.record import list_hidden_jobs
from hostelry.store.records import State, Versioned


class TransformJobs:
    """The transform jobs of one control process, driven by `loop`.

    The progress of a job that runs is kept in memory, since the runner reports it again. It is
    written once the job is over.
    """

    def __init__(self, state: State, clock: Clock) -> None:
        self.loop: JobLoop[TransformJob, TransformSnapshot] = JobLoop(
            "transform jobs",
            state.transform_jobs,
            clock,
            self._drive,
            self._build_snapshot,
            partial(list_hidden_jobs, state, HiddenKind.TRANSFORM),
        )
        self._state = state
        self._clock = clock
        self._progress: dict[JobKey, TransformProgress] = {}

    def _build_snapshot(self, jobs: Sequence[TransformJob]) -> TransformSnapshot:
        """The jobs to be run. Forgets the progress of jobs that are not driven any more."""
        driven = {(it.scope, it.name) for it in jobs}
        for key in [it for it in list(self._progress) if it not in driven]:
            del self._progress[key]
        running = [it for it in jobs if not it.is_over]
        ordered = tuple(sorted(running, key=lambda it: (it.created_at, it.scope.region, it.name)))
        return TransformSnapshot(version=get_version(ordered), jobs=ordered)

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
                asked_at=self.loop.asked_at,
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
