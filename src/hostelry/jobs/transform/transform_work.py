"""Runs the transform jobs that control names, and forgets the ended ones."""

from functools import partial

from hostelry.base.concurrency import run_guarded
from hostelry.domain.transform_job import (
    TransformEnd,
    TransformJob,
    TransformJobStatus,
    TransformSnapshot,
)
from hostelry.jobs.queue.work_claims import SharedWork
from hostelry.jobs.snapshot_work import DEFECT, Piece, SnapshotWork
from hostelry.jobs.transform.job_run import JobRun, RunDeps, report_end
from hostelry.jobs.transform.object_rows import row_key


def build_transform_work(deps: RunDeps, shared: SharedWork) -> SnapshotWork[TransformSnapshot]:
    """The jobs of control's snapshots, each run by one host, and stopped on all."""

    def list_runs(snapshot: TransformSnapshot) -> dict[str, Piece]:
        found: dict[str, Piece] = {}
        for job in snapshot.jobs:
            key = row_key(job)
            if job.status is TransformJobStatus.STOPPING:
                # Another key than the run, which ends first. Complete outputs are kept.
                end = TransformEnd(
                    scope=job.scope, name=job.name, status=TransformJobStatus.STOPPED
                )
                found[f"stop {key}"] = partial(report_end, deps, end)
            else:
                found[key] = partial(shared.run, key, partial(run_job, job, deps))
        return found

    def forget(snapshot: TransformSnapshot) -> None:
        present = {row_key(it) for it in snapshot.jobs}
        for key in deps.rows.list_jobs():
            if key not in present:
                deps.rows.forget(key)

    control, name = deps.control, "transform jobs"
    return SnapshotWork(name, deps.clock, control.get_transform_jobs, list_runs, forget)


async def run_job(job: TransformJob, deps: RunDeps) -> None:
    """Run a job. A defect in the runner ends the job and not the process."""
    if not await run_guarded(f"transform job {job.name}", JobRun(job, deps).run):
        status = TransformJobStatus.FAILED
        end = TransformEnd(scope=job.scope, name=job.name, status=status, reason=DEFECT)
        await report_end(deps, end)
