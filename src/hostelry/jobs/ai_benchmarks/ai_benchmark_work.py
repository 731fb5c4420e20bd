"""Runs the AI benchmarks and searches that control names, each until it is named no more."""

from collections.abc import Callable
from functools import partial

from hostelry.base.concurrency import run_guarded
from hostelry.domain.ai_benchmark_job import AiBenchmarkJob, AiBenchmarkSnapshot
from hostelry.domain.recommendation_job import BenchmarkSnapshot, BenchmarkTask
from hostelry.jobs.ai_benchmarks.ai_benchmark_run import (
    AiBenchmarkRun,
    build_end,
    report_end,
)
from hostelry.jobs.ai_benchmarks.aiperf_load import Aiperf
from hostelry.jobs.ai_benchmarks.llm_search_run import (
    LlmSearchRun,
    build_search_end,
    report_search_end,
)
from hostelry.jobs.queue.work_claims import SharedWork
from hostelry.jobs.snapshot_work import DEFECT, Piece, SnapshotDeps, SnapshotWork

FindAiperf = Callable[[], Aiperf | None]


def build_ai_benchmark_work(
    deps: SnapshotDeps, shared: SharedWork, find_aiperf: FindAiperf
) -> SnapshotWork[AiBenchmarkSnapshot]:
    """The jobs of control's snapshots, each run by one host."""

    def list_runs(snapshot: AiBenchmarkSnapshot) -> dict[str, Piece]:
        runs = {
            get_key(job): partial(run_ai_benchmark, job, deps, find_aiperf) for job in snapshot.jobs
        }
        return {key: partial(shared.run, key, run) for key, run in runs.items()}

    return SnapshotWork("AI benchmarks", deps.clock, deps.control.get_ai_benchmarks, list_runs)


async def run_ai_benchmark(
    job: AiBenchmarkJob, deps: SnapshotDeps, find_aiperf: FindAiperf
) -> None:
    """Run a job. A defect in the runner ends the job and not the process."""
    run = AiBenchmarkRun(job, deps, find_aiperf())
    if not await run_guarded(f"AI benchmark {job.name}", run.carry_out):
        await report_end(deps, build_end(job, DEFECT))


def get_key(job: AiBenchmarkJob) -> str:
    """The name under which one of several hosts claims a job."""
    scope = job.scope
    return f"AI benchmark {scope.account} {scope.region} {job.name} {job.created_at}"


def build_llm_search_work(
    deps: SnapshotDeps, shared: SharedWork
) -> SnapshotWork[BenchmarkSnapshot]:
    """The searches of control's snapshots, each run by one host."""

    def list_runs(snapshot: BenchmarkSnapshot) -> dict[str, Piece]:
        runs = {get_search_key(it): partial(run_llm_search, it, deps) for it in snapshot.tasks}
        return {key: partial(shared.run, key, run) for key, run in runs.items()}

    get_snapshot = deps.control.get_ai_recommendations
    return SnapshotWork("AI recommendation jobs", deps.clock, get_snapshot, list_runs)


async def run_llm_search(task: BenchmarkTask, deps: SnapshotDeps) -> None:
    """Run a search. A defect in the runner ends the step and not the process."""
    name = f"step {task.number} of AI recommendation job {task.job_name}"
    if not await run_guarded(name, LlmSearchRun(task, deps).carry_out):
        await report_search_end(deps, build_search_end(task, DEFECT))


def get_search_key(task: BenchmarkTask) -> str:
    """The name under which one of several hosts claims a search."""
    scope = task.scope
    job = f"{task.job_name} {task.job_created_at} {task.number}"
    return f"AI recommendation {scope.account} {scope.region} {job}"
