"""Sends the loads that control names, each until it is done or control names it no more."""

from functools import partial

from hostelry.base.concurrency import run_guarded
from hostelry.domain.recommendation_job import BenchmarkEnd, BenchmarkSnapshot, BenchmarkTask
from hostelry.jobs.queue.work_claims import SharedWork
from hostelry.jobs.recommendations.benchmark_run import BenchmarkRun, report_end
from hostelry.jobs.snapshot_work import DEFECT, Piece, SnapshotDeps, SnapshotWork


def build_benchmark_work(deps: SnapshotDeps, shared: SharedWork) -> SnapshotWork[BenchmarkSnapshot]:
    """The loads of control's snapshots, each sent by one host."""

    def list_loads(snapshot: BenchmarkSnapshot) -> dict[str, Piece]:
        runs = {get_key(it): partial(run_load, it, deps) for it in snapshot.tasks}
        return {key: partial(shared.run, key, run) for key, run in runs.items()}

    return SnapshotWork("benchmarks", deps.clock, deps.control.get_benchmarks, list_loads)


async def run_load(task: BenchmarkTask, deps: SnapshotDeps) -> None:
    """Run a load. A defect in the runner ends the step and not the process."""
    name = f"step {task.number} of job {task.job_name}"
    if not await run_guarded(name, BenchmarkRun(task, deps).carry_out):
        end = BenchmarkEnd(
            scope=task.scope, job_name=task.job_name, number=task.number, reason=DEFECT
        )
        await report_end(deps, end)


def get_key(task: BenchmarkTask) -> str:
    """The name under which one of several hosts claims a load."""
    scope = task.scope
    return f"benchmark {scope.account} {scope.region} {task.job_name} {task.number}"
