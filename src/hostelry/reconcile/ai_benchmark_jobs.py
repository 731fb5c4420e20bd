"""AI benchmark jobs: their load is sent while their endpoint is there."""

from collections.abc import Sequence

from hostelry.base.clock import Clock
from hostelry.domain.ai_benchmark_job import (
    AiBenchmarkEnd,
    AiBenchmarkJob,
    AiBenchmarkSnapshot,
    AiBenchmarkStatus,
)
from hostelry.domain.component import InferenceComponent
from hostelry.reconcile.job_loop import JobLoop, get_version
from hostelry.reconcile.plan.ai_benchmark import (
    BenchmarkTarget,
    finish_ai_benchmark_job,
    plan_ai_benchmark_job,
)
from hostelry.store.records import State, Versioned


class AiBenchmarkJobs:
    """The AI benchmark jobs of one control process, driven by `loop`."""

    def __init__(self, state: State, clock: Clock) -> None:
        self.loop: JobLoop[AiBenchmarkJob, AiBenchmarkSnapshot] = JobLoop(
            "AI benchmark jobs", state.ai_benchmark_jobs, clock, self._drive, build_snapshot
        )
        self._state = state
        self._clock = clock

    def _drive(self, stored: Versioned[AiBenchmarkJob], now: float) -> AiBenchmarkJob:
        state, job = self._state, stored.value
        with state.writing:
            endpoint = state.endpoints.get(job.scope, job.endpoint_name)
            target = BenchmarkTarget(
                endpoint=None if endpoint is None else endpoint.value,
                components=self._find_components(job),
                asked_at=self.loop.asked_at,
            )
            after = plan_ai_benchmark_job(job, target, now)
            if after != job:
                state.ai_benchmark_jobs.put(job.scope, job.name, after, expect=stored.version)
        return after

    def _find_components(self, job: AiBenchmarkJob) -> dict[str, InferenceComponent]:
        found = (self._state.components.get(job.scope, name) for name in job.component_names)
        return {it.value.name: it.value for it in found if it is not None}

    def finish(self, end: AiBenchmarkEnd) -> bool:
        """Record durably how a job ended. False without such a job. A repeat changes nothing."""
        records = self._state.ai_benchmark_jobs
        with self._state.writing:
            found = records.get(end.scope, end.name)
            if found is None:
                return False
            after = finish_ai_benchmark_job(found.value, end, self._clock.now())
            if after != found.value:
                records.put(end.scope, end.name, after, expect=found.version)
        return True


def build_snapshot(jobs: Sequence[AiBenchmarkJob]) -> AiBenchmarkSnapshot:
    """The jobs whose load is to be sent."""
    in_progress = [it for it in jobs if it.status is AiBenchmarkStatus.IN_PROGRESS]
    ordered = tuple(sorted(in_progress, key=lambda it: (it.created_at, it.scope.region, it.name)))
    return AiBenchmarkSnapshot(version=get_version(ordered), jobs=ordered)
