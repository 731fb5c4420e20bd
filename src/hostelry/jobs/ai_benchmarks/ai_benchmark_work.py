"""Runs the AI benchmarks that control names, each until it is done or named no more."""

from functools import partial

from hostelry.base.concurrency import run_guarded
from hostelry.domain.ai_benchmark_job import AiBenchmarkJob, AiBenchmarkSnapshot
from hostelry.jobs.ai_benchmarks.ai_benchmark_run import (
    AiBenchmarkDeps,
    AiBenchmarkRun,
    build_end,
    report_end,
)
from hostelry.jobs.queue.work_claims import SharedWork
from hostelry.jobs.snapshot_work import DEFECT, Piece, SnapshotWork


def build_ai_benchmark_work(
    deps: AiBenchmarkDeps, shared: SharedWork
) -> SnapshotWork[AiBenchmarkSnapshot]:
    """The jobs of control's snapshots, each run by one host."""

    def list_runs(snapshot: AiBenchmarkSnapshot) -> dict[str, Piece]:
        runs = {get_key(it): partial(run_ai_benchmark, it, deps) for it in snapshot.jobs}
        return {key: partial(shared.run, key, run) for key, run in runs.items()}

    return SnapshotWork("AI benchmarks", deps.clock, deps.control.get_ai_benchmarks, list_runs)


async def run_ai_benchmark(job: AiBenchmarkJob, deps: AiBenchmarkDeps) -> None:
    """Run a job. A defect in the runner ends the job and not the process."""
    if not await run_guarded(f"AI benchmark {job.name}", AiBenchmarkRun(job, deps).carry_out):
        await report_end(deps, build_end(job, DEFECT))


def get_key(job: AiBenchmarkJob) -> str:
    """The name under which one of several hosts claims a job."""
    scope = job.scope
    return f"AI benchmark {scope.account} {scope.region} {job.name} {job.created_at}"
