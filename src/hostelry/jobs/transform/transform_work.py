"""Runs the transform jobs that control names, and forgets the ended ones."""

import asyncio
import contextlib
import logging
from collections.abc import Coroutine, Mapping
from functools import partial
from typing import Any

from hostelry.base.concurrency import run_guarded
from hostelry.domain.transform_job import (
    TransformEnd,
    TransformJob,
    TransformJobStatus,
    TransformSnapshot,
)
from hostelry.jobs.control_client import ControlDownError, ControlRefusedError
from hostelry.jobs.queue.work_claims import SharedWork
from hostelry.jobs.transform.job_run import AGAIN_S, JobRun, RunDeps, report_end
from hostelry.jobs.transform.object_rows import row_key

LOG = logging.getLogger(__name__)


class TransformWork:
    """Runs the jobs of control's snapshots."""

    def __init__(self, deps: RunDeps, shared: SharedWork) -> None:
        self._deps = deps
        self._shared = shared
        self._have: str | None = None
        self._runs: dict[str, asyncio.Task[None]] = {}
        self._stops: dict[str, asyncio.Task[None]] = {}

    def tasks(self) -> Mapping[str, Coroutine[Any, Any, None]]:
        """The tasks by name. Each runs until it is cancelled."""
        return {"running transform jobs": self._run()}

    async def _run(self) -> None:
        try:
            while True:
                if not await run_guarded("following transform jobs", self._follow):
                    await self._deps.clock.sleep(AGAIN_S)
        finally:
            for task in (*self._runs.values(), *self._stops.values()):
                task.cancel()
            await asyncio.gather(
                *self._runs.values(), *self._stops.values(), return_exceptions=True
            )

    async def _follow(self) -> None:
        """Follow one snapshot."""
        try:
            snapshot = await self._deps.control.get_transform_jobs(self._have)
        except (ControlDownError, ControlRefusedError):
            await self._deps.clock.sleep(AGAIN_S)
            return
        if snapshot is not None:
            await self._take(snapshot)
            self._have = snapshot.version

    async def _take(self, snapshot: TransformSnapshot) -> None:
        present = {row_key(it): it for it in snapshot.jobs}
        for key, job in present.items():
            if job.status is TransformJobStatus.STOPPING:
                if key not in self._stops:
                    self._stops[key] = asyncio.create_task(self._stop(key, job))
            elif key not in self._runs:
                self._runs[key] = asyncio.create_task(
                    self._shared.run(key, partial(self._run_guarded, job))
                )
        gone = [key for key in (*self._runs, *self._stops) if key not in present]
        for key in gone:
            await self._end(self._runs.pop(key, None))
            await self._end(self._stops.pop(key, None))
        if gone or self._have is None:
            await asyncio.to_thread(self._forget, present)

    async def _run_guarded(self, job: TransformJob) -> None:
        """Run a job. A defect in the runner ends the job and not the process."""
        if not await run_guarded(f"transform job {job.name}", JobRun(job, self._deps).run):
            end = TransformEnd(
                scope=job.scope,
                name=job.name,
                status=TransformJobStatus.FAILED,
                reason="InternalServerError: The log of the jobs process has the cause.",
            )
            await report_end(self._deps, end)

    async def _stop(self, key: str, job: TransformJob) -> None:
        """Stop a job. Complete outputs are kept."""
        await self._end(self._runs.get(key))
        status = TransformJobStatus.STOPPED
        await report_end(self._deps, TransformEnd(scope=job.scope, name=job.name, status=status))

    @staticmethod
    async def _end(task: "asyncio.Task[None] | None") -> None:
        if task is not None:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.gather(task, return_exceptions=True)

    def _forget(self, present: Mapping[str, TransformJob]) -> None:
        """Drop the rows of ended jobs."""
        for key in self._deps.rows.list_jobs():
            if key not in present:
                self._deps.rows.forget(key)
