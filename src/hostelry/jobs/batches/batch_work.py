"""All batches of one process: begun, found again after a kill, cancelled, forgotten in time."""

import asyncio
import logging
from collections.abc import Coroutine, Mapping
from typing import Any

from hostelry.base.errors import RetryableError, ServiceError
from hostelry.base.recurring import run_guarded
from hostelry.domain.llm_batch import BatchStatus, LlmBatch
from hostelry.jobs.batches.batch_run import BatchDeps, BatchRun

log = logging.getLogger(__name__)
MAX_RUNNING = 32  # at once, each of which has an index of its lines in memory
MAX_UNFINISHED = 1000
KEPT_S = 90 * 24 * 3600.0  # an ended batch is listed for so long
MAX_EXPIRED = 100  # files in one go
DEFECT = "An internal error ended the batch; the log of the jobs process has its cause."


class BatchWork:
    """Runs the batches of the rows."""

    def __init__(self, deps: BatchDeps) -> None:
        self._deps = deps
        self._runs: dict[str, BatchRun] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._slots = asyncio.Semaphore(MAX_RUNNING)
        deps.routes.listen(self.wake)

    def tasks(self) -> Mapping[str, Coroutine[Any, Any, None]]:
        """What runs until it is cancelled, by name."""
        return {"running batches": self._run()}

    def tidy(self) -> None:
        """Remove the bytes that no row has; before anything is uploaded or run."""
        self._deps.folder.retain(self._deps.rows.file_ids())

    def wake(self) -> None:
        """Copies have come, or said what they want."""
        for run in self._runs.values():
            run.wake()

    def present(self, batch: LlmBatch) -> tuple[LlmBatch, str | None]:
        """A batch of the rows as it is now, and what holds it up, if anything."""
        run = self._runs.get(batch.id)
        return (batch, None) if run is None else (run.batch, run.trouble)

    async def submit(self, batch: LlmBatch) -> None:
        """Keep a new batch, durably, and begin it; raises ServiceError 429 where too many wait."""
        if len(self._runs) >= MAX_UNFINISHED:
            raise ServiceError(
                "rate_limit_exceeded",
                f"{MAX_UNFINISHED} batches have not ended, the limit; wait for one, or cancel it.",
                429,
            )
        await asyncio.to_thread(self._deps.rows.add_batch, batch)
        self._begin(batch)

    async def cancel(self, batch: LlmBatch) -> LlmBatch:
        """Cancel a batch; raises StatusOrderError where it has ended.

        Raises RetryableError where its row is not that of a run: it ended meanwhile, or this
        process is about to resume it.
        """
        run = self._runs.get(batch.id)
        if run is None:
            batch.went(BatchStatus.CANCELLING, self._deps.clock.now())
            raise RetryableError(f"batch {batch.id} begins or ends; try again")
        cancelled = await run.cancel()
        if not run.has_begun:
            self._start(self._run_once(run))  # it sends nothing, so it needs no slot
        return cancelled

    async def sweep(self) -> None:
        """Forget files whose time is over, and batches that ended long ago."""
        now, rows = self._deps.clock.now(), self._deps.rows
        for stored in await asyncio.to_thread(rows.files_past, now, MAX_EXPIRED):
            if await asyncio.to_thread(rows.reader_of, stored.id) is None:
                await asyncio.to_thread(rows.delete_file, stored.scope.account, stored.id)
                await asyncio.to_thread(self._deps.folder.delete, stored.id)
        await asyncio.to_thread(rows.forget_ended, now - KEPT_S)

    async def _run(self) -> None:
        """Resume the batches of an earlier process, and keep those of this one."""
        try:
            for batch in await asyncio.to_thread(self._deps.rows.unfinished):
                self._begin(batch)
            await asyncio.Event().wait()
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    def _begin(self, batch: LlmBatch) -> None:
        if batch.id not in self._runs:
            run = self._runs[batch.id] = BatchRun(batch, self._deps)
            self._start(self._run_in_slot(run))

    def _start(self, step: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(step)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _run_in_slot(self, run: BatchRun) -> None:
        async with self._slots:
            await self._run_once(run)

    async def _run_once(self, run: BatchRun) -> None:
        """Run a batch, unless that has begun; a defect ends it, not the process."""
        if run.has_begun:
            return
        run.has_begun = True
        name = f"batch {run.batch.id}"
        if not await run_guarded(name, run.run):
            await run_guarded(f"the end of {name}", lambda: run.fail("server_error", DEFECT))
        del self._runs[run.batch.id]
        self.wake()  # its share of the copies is free
