"""Sends the loads that control names, each until it is done or control names it no more."""

import asyncio
import contextlib
import logging
from collections.abc import Coroutine, Mapping
from functools import partial
from typing import Any

from hostelry.base.concurrency import run_guarded
from hostelry.domain.recommendation_job import BenchmarkEnd, BenchmarkSnapshot, BenchmarkTask
from hostelry.jobs.control_client import ControlDownError, ControlRefusedError
from hostelry.jobs.queue.work_claims import SharedWork
from hostelry.jobs.recommendations.benchmark_run import (
    AGAIN_S,
    BenchmarkDeps,
    BenchmarkRun,
    report_end,
)

LOG = logging.getLogger(__name__)


class BenchmarkWork:
    """Runs the loads of control's snapshots."""

    def __init__(self, deps: BenchmarkDeps, shared: SharedWork) -> None:
        self._deps = deps
        self._shared = shared
        self._have: str | None = None
        self._runs: dict[str, asyncio.Task[None]] = {}

    def tasks(self) -> Mapping[str, Coroutine[Any, Any, None]]:
        """The tasks by name. Each runs until it is cancelled."""
        return {"running benchmarks": self._follow_all()}

    async def _follow_all(self) -> None:
        try:
            while True:
                if not await run_guarded("following benchmarks", self._follow):
                    await self._deps.clock.sleep(AGAIN_S)
        finally:
            for name in list(self._runs):
                await self._end(name)

    async def _follow(self) -> None:
        """Follow one snapshot."""
        try:
            snapshot = await self._deps.control.get_benchmarks(self._have)
        except (ControlDownError, ControlRefusedError):
            await self._deps.clock.sleep(AGAIN_S)
            return
        if snapshot is not None:
            await self._take(snapshot)
            self._have = snapshot.version

    async def _take(self, snapshot: BenchmarkSnapshot) -> None:
        present = {get_key(it): it for it in snapshot.tasks}
        for name in [it for it in self._runs if it not in present]:
            await self._end(name)
        for name, task in present.items():
            if name not in self._runs:
                run = partial(self._run_guarded, task)
                self._runs[name] = asyncio.create_task(self._shared.run(name, run))

    async def _run_guarded(self, task: BenchmarkTask) -> None:
        """Run a load. A defect in the runner ends the step and not the process."""
        name = f"step {task.number} of job {task.job_name}"
        if not await run_guarded(name, BenchmarkRun(task, self._deps).carry_out):
            end = BenchmarkEnd(
                scope=task.scope,
                job_name=task.job_name,
                number=task.number,
                reason="InternalServerError: The log of the jobs process has the cause.",
            )
            await report_end(self._deps, end)

    async def _end(self, name: str) -> None:
        task = self._runs.pop(name)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.gather(task, return_exceptions=True)


def get_key(task: BenchmarkTask) -> str:
    """The name under which one of several hosts claims a load."""
    scope = task.scope
    return f"benchmark {scope.account} {scope.region} {task.job_name} {task.number}"
