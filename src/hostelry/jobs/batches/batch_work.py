"""All batches of one process: begun, found again after a kill, cancelled, forgotten in time.

On one machine they are those of its file. Hosts that share a database claim each batch that one of
them is to run; any of them cancels it, by its row, which the host that runs it looks at.
"""

import asyncio
import contextlib
import functools
import logging
from collections.abc import Coroutine, Mapping
from typing import Any

from hostelry.base.concurrency import run_guarded
from hostelry.base.errors import HostelryError, RetryableError, ServiceError
from hostelry.domain.llm_batch import BatchStatus, LlmBatch
from hostelry.jobs.batches.batch_claims import BatchClaim, BatchClaimLostError, BatchClaims
from hostelry.jobs.batches.batch_run import BatchDeps, BatchRun
from hostelry.jobs.batches.openai_objects import build_refusal

LOG = logging.getLogger(__name__)
MAX_RUNNING = 32  # at once, each of which has an index of its lines in memory
MAX_UNFINISHED = 1000
KEPT_S = 90 * 24 * 3600.0  # an ended batch is listed for so long
MAX_EXPIRED = 100  # files in one go
LOOK_S = 1.0  # between looks at what other hosts did
DEFECT = "An internal error ended the batch; the log of the jobs process has its cause."


class BatchWork:
    """Runs the batches of the rows: all, or those that it claims where there are `claims`."""

    def __init__(self, deps: BatchDeps, claims: BatchClaims | None = None) -> None:
        self._deps = deps
        self._claims = claims
        self._asked = asyncio.Event()  # a batch was submitted here
        self._runs: dict[str, BatchRun] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._slots = asyncio.Semaphore(MAX_RUNNING)
        deps.routes.listen(self.wake)

    def tasks(self) -> Mapping[str, Coroutine[Any, Any, None]]:
        """What runs until it is cancelled, by name."""
        return {"running batches": self._run()}

    def wake(self) -> None:
        """Copies have come, or said what they want."""
        for run in self._runs.values():
            run.wake()

    def present(self, batch: LlmBatch) -> tuple[LlmBatch, str | None]:
        """A batch of the rows as it is now, and what holds it up, if anything."""
        run = self._runs.get(batch.id)
        return (batch, batch.trouble) if run is None else (run.batch, run.trouble)

    async def submit(self, batch: LlmBatch) -> None:
        """Keep a new batch, durably, and begin it; raises ServiceError 429 where too many wait."""
        if await asyncio.to_thread(self._deps.rows.num_unfinished) >= MAX_UNFINISHED:
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
        """Cancel a batch; raises StatusOrderError where it has ended.

        Raises RetryableError where its row is not that of a run: it ended meanwhile, or this
        process is about to resume it.
        """
        run = self._runs.get(batch.id)
        if self._claims is not None:
            return await self._cancel_shared(batch, run, self._claims)
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
            account = stored.scope.account
            if await asyncio.to_thread(rows.delete_file, account, stored.id) is None:
                await asyncio.to_thread(self._deps.files.delete, stored.id)
        await asyncio.to_thread(rows.forget_ended, now - KEPT_S)

    async def _run(self) -> None:
        """Resume the batches of an earlier process, and keep those of this one."""
        try:
            if self._claims is not None:
                await self._share(self._claims)
            for batch in await asyncio.to_thread(self._deps.rows.unfinished):
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
        """Look at what other hosts did, and claim what none runs, until cancelled."""
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
            id: (run.claim, pools.used_by(id)) for id, run in runs.items() if run.claim is not None
        }
        seen = await asyncio.to_thread(claims.look, held, now)
        pools.used_elsewhere(pool for used in seen.elsewhere.values() for pool in used)
        for id, run in runs.items():
            if id not in seen.kept:
                run.lost()
                continue
            if seen.kept[id].status is BatchStatus.CANCELLING:
                await run.cancelled(seen.kept[id])
            with contextlib.suppress(BatchClaimLostError):  # the next look sees it
                await run.say_progress()
        free = MAX_RUNNING - len(self._runs)
        for batch, claim in await asyncio.to_thread(claims.take, tuple(self._runs), free, now):
            self._begin(batch, claim)

    async def _cancel_shared(
        self, batch: LlmBatch, run: BatchRun | None, claims: BatchClaims
    ) -> LlmBatch:
        """As `cancel`, whichever host runs the batch; where none does it is ended here."""
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
        """Run a batch, unless that has begun; a defect ends it, not the process."""
        if run.has_begun:
            return
        run.has_begun = True
        name = f"batch {run.batch.id}"
        if not await run_guarded(name, run.run):
            await run_guarded(f"the end of {name}", lambda: run.fail("server_error", DEFECT))
        if self._runs.get(run.batch.id) is run:
            del self._runs[run.batch.id]
        self.wake()  # its share of the copies is free
