"""All batches of one process: starts, resumes, cancels and removes them.

A single host runs all batches of its database. Hosts that share a database claim each batch before
they run it. Any host can cancel a batch in its row. The host that runs the batch looks at the row.
"""

import asyncio
import contextlib
import functools
import logging
from collections.abc import Coroutine, Mapping
from typing import Any

import msgspec

from hostelry.base.concurrency import run_guarded
from hostelry.base.errors import HostelryError, RetryableError, ServiceError
from hostelry.domain.llm_batch import BatchStatus, LlmBatch
from hostelry.jobs.batches.batch_run import BatchDeps, BatchRun
from hostelry.jobs.batches.openai_objects import build_refusal
from hostelry.jobs.batches.rows import BatchClaim, BatchClaimLostError, BatchClaims, BatchRows
from hostelry.jobs.queue.tables import COMPLETED, EXPIRED, FAILED, RUNNING, WAITING

LOG = logging.getLogger(__name__)

MAX_RUNNING = 32  # at once, each of which has an index of its lines in memory
MAX_UNFINISHED = 1000
KEPT_S = 90 * 24 * 3600.0  # how long an ended batch is listed
MAX_EXPIRED = 100  # files in one go
LOOK_S = 1.0  # between looks at other hosts' changes
DEFECT = "An internal error ended the batch; the log of the jobs process has its cause."


class BatchWork:
    """Runs all batches of the rows or, with `claims`, the batches that it claims."""

    def __init__(self, deps: BatchDeps, claims: BatchClaims | None = None) -> None:
        self._deps = deps
        self._claims = claims
        self._asked = asyncio.Event()  # a batch was submitted here
        self._runs: dict[str, BatchRun] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._slots = asyncio.Semaphore(MAX_RUNNING)
        deps.routes.listen(self.wake)

    def tasks(self) -> Mapping[str, Coroutine[Any, Any, None]]:
        """The tasks by name. Each runs until it is cancelled."""
        return {"running batches": self._run()}

    def wake(self) -> None:
        """Called when routes or copy limits change."""
        for run in self._runs.values():
            run.wake()

    def present(self, batch: LlmBatch) -> tuple[LlmBatch, str | None]:
        """Return a batch with its current counts, and the cause that holds it up, if any."""
        run = self._runs.get(batch.id)
        return (batch, batch.trouble) if run is None else (run.batch, run.trouble)

    async def submit(self, batch: LlmBatch) -> None:
        """Add a new batch, durably, and begin it. Raises ServiceError 429 above the limit."""
        if await asyncio.to_thread(self._deps.rows.count_unfinished) >= MAX_UNFINISHED:
            raise ServiceError(
                "rate_limit_exceeded",
                f"{MAX_UNFINISHED} batches have not ended, the limit; wait for one, or cancel it.",
                429,
            )
        if not await asyncio.to_thread(self._deps.rows.add_batch, batch):
            raise build_refusal(f"No such File object: {batch.input_file_id:.100}", "input_file_id")
        if self._claims is None:
            self._begin(batch)
        self._asked.set()

    async def cancel(self, batch: LlmBatch) -> LlmBatch:
        """Cancel a batch. Raises StatusOrderError if it has ended.

        Raises RetryableError if no run has the batch, because it ends or is about to be resumed.
        """
        run = self._runs.get(batch.id)
        if self._claims is not None:
            return await self._cancel_shared(batch, run, self._claims)
        if run is None:
            batch.went(BatchStatus.CANCELLING, self._deps.clock.now())
            raise RetryableError(f"batch {batch.id} begins or ends; try again")
        cancelled = await run.cancel()
        if not run.has_begun:
            self._start(self._run_once(run))  # without a slot, because it sends nothing
        return cancelled

    async def sweep(self) -> None:
        """Remove expired files, and batches that ended long ago."""
        now, rows = self._deps.clock.now(), self._deps.rows
        for stored in await asyncio.to_thread(rows.list_expired_files, now, MAX_EXPIRED):
            account = stored.scope.account
            if await asyncio.to_thread(rows.delete_file, account, stored.id) is None:
                await asyncio.to_thread(self._deps.files.delete, stored.id)
        await asyncio.to_thread(rows.forget_ended, now - KEPT_S)

    async def _run(self) -> None:
        """Resume the batches of an earlier process, and run until cancelled."""
        try:
            if self._claims is not None:
                await self._share(self._claims)
            for batch in await asyncio.to_thread(self._deps.rows.list_unfinished):
                self._begin(batch)
            await asyncio.Event().wait()
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            if self._claims is not None:
                with contextlib.suppress(HostelryError):
                    await asyncio.to_thread(self._claims.give_back)

    async def _share(self, claims: BatchClaims) -> None:
        """Follow other hosts' changes, and claim free batches, until cancelled."""
        look, is_failing = functools.partial(self._look, claims), False
        while True:
            is_failing = not await run_guarded("sharing batches", look, quiet=is_failing)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LOOK_S):
                    await self._asked.wait()
            self._asked.clear()

    async def _look(self, claims: BatchClaims) -> None:
        now, pools, runs = self._deps.clock.now(), self._deps.pools, dict(self._runs)
        held = {
            id: (run.claim, pools.get_pools(id))
            for id, run in runs.items()
            if run.claim is not None
        }
        seen = await asyncio.to_thread(claims.look, held, now)
        pools.set_elsewhere(pool for used in seen.elsewhere.values() for pool in used)
        for id, run in runs.items():
            if id not in seen.kept:
                run.give_up()
                continue
            if seen.kept[id].status is BatchStatus.CANCELLING:
                await run.follow_cancellation(seen.kept[id])
            with contextlib.suppress(BatchClaimLostError):  # the next look sees it
                await run.save_progress()
        free = MAX_RUNNING - len(self._runs)
        for batch, claim in await asyncio.to_thread(claims.take, tuple(self._runs), free, now):
            self._begin(batch, claim)

    async def _cancel_shared(
        self, batch: LlmBatch, run: BatchRun | None, claims: BatchClaims
    ) -> LlmBatch:
        """Cancel a batch of any host. If no host runs the batch, it ends here."""
        if run is not None:
            with contextlib.suppress(BatchClaimLostError):
                return await run.cancel()
        now = self._deps.clock.now()
        cancelled = await asyncio.to_thread(self._deps.rows.cancel, batch.id, now)
        running = tuple(self._runs)
        for taken, claim in await asyncio.to_thread(claims.take, running, 1, now, batch.id):
            self._begin(taken, claim)
        return cancelled

    def _begin(self, batch: LlmBatch, claim: BatchClaim | None = None) -> None:
        if batch.id not in self._runs:
            run = self._runs[batch.id] = BatchRun(batch, self._deps, claim)
            self._start(self._run_in_slot(run) if claim is None else self._run_once(run))

    def _start(self, step: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(step)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _run_in_slot(self, run: BatchRun) -> None:
        async with self._slots:
            await self._run_once(run)

    async def _run_once(self, run: BatchRun) -> None:
        """Run a batch that has not begun. A defect ends the batch and not the process."""
        if run.has_begun:
            return
        run.has_begun = True
        name = f"batch {run.batch.id}"
        if not await run_guarded(name, run.run):
            await run_guarded(f"the end of {name}", lambda: run.fail("server_error", DEFECT))
        if self._runs.get(run.batch.id) is run:
            del self._runs[run.batch.id]
        self.wake()  # the batch's share of the copies is free


STATES = {
    BatchStatus.VALIDATING: WAITING,
    BatchStatus.IN_PROGRESS: RUNNING,
    BatchStatus.FINALIZING: RUNNING,
    BatchStatus.CANCELLING: RUNNING,
    BatchStatus.COMPLETED: COMPLETED,
    BatchStatus.FAILED: FAILED,
    BatchStatus.EXPIRED: EXPIRED,
}
"""The states of asynchronous requests that stand for the statuses of batches."""


class BatchOverview(msgspec.Struct, frozen=True):
    """Batches of all accounts, for operators: finds and cancels them."""

    rows: BatchRows
    work: BatchWork

    async def list_newest(self, state: str | None, limit: int) -> list[dict[str, Any]]:
        """List the newest `limit` batches, and of these only batches in `state`, if given."""
        found = await asyncio.to_thread(self.rows.list_newest, limit)
        shown = [self._build_row(it) for it in found]
        return [it for it in shown if state in (None, it["state"])]

    async def find(self, id: str) -> dict[str, Any] | None:
        """Find the batch with this id."""
        found = await asyncio.to_thread(self.rows.get_batch, None, id)
        return None if found is None else self._build_row(found)

    async def cancel(self, id: str) -> bool:
        """Cancel a batch. False if the batch is missing. Raises as `BatchWork.cancel` does."""
        found = await asyncio.to_thread(self.rows.get_batch, None, id)
        if found is not None:
            await self.work.cancel(found)
        return found is not None

    def _build_row(self, kept: LlmBatch) -> dict[str, Any]:
        batch, trouble = self.work.present(kept)
        return {
            "id": batch.id,
            "account": batch.scope.account,
            "region": batch.scope.region,
            "url": batch.endpoint,
            "state": STATES.get(batch.status),
            "status": batch.status.value,
            "total": batch.counts.total,
            "completed": batch.counts.completed,
            "failed": batch.counts.failed,
            "input_tokens": batch.usage.input,
            "output_tokens": batch.usage.output,
            "created_at": batch.created_at,
            "begun_at": batch.since.get(BatchStatus.IN_PROGRESS.value),
            "ended_at": batch.ended_at,
            "expires_at": batch.expires_at,
            "input_file_id": batch.input_file_id,
            "output_file_id": batch.output_file_id if batch.has_output else None,
            "error_file_id": batch.error_file_id if batch.has_errors else None,
            "faults": msgspec.to_builtins(batch.faults),
            "trouble": trouble,
        }
