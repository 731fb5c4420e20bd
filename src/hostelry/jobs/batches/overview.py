"""Batches of all accounts as commands show them: how far they are, what holds them up."""

import asyncio
from dataclasses import dataclass
from typing import Any

import msgspec

from hostelry.domain.llm_batch import BatchStatus, LlmBatch
from hostelry.jobs.batches.batch_work import BatchWork
from hostelry.jobs.batches.rows import BatchRows
from hostelry.jobs.queue.tables import COMPLETED, EXPIRED, FAILED, RUNNING, WAITING

STATES = {
    BatchStatus.VALIDATING: WAITING,
    BatchStatus.IN_PROGRESS: RUNNING,
    BatchStatus.FINALIZING: RUNNING,
    BatchStatus.CANCELLING: RUNNING,
    BatchStatus.COMPLETED: COMPLETED,
    BatchStatus.FAILED: FAILED,
    BatchStatus.EXPIRED: EXPIRED,
}
"""The states of asynchronous requests, by which both are chosen."""


@dataclass(frozen=True, slots=True)
class BatchOverview:
    """Finds batches, and cancels them."""

    rows: BatchRows
    work: BatchWork

    async def newest(self, state: str | None, limit: int) -> list[dict[str, Any]]:
        """Those of the newest `limit` batches that are in `state`; None is any."""
        found = await asyncio.to_thread(self.rows.newest, limit)
        shown = [self._build_row(it) for it in found]
        return [it for it in shown if state in (None, it["state"])]

    async def one(self, id: str) -> dict[str, Any] | None:
        """One batch; None where there is none of that id."""
        found = await asyncio.to_thread(self.rows.batch, None, id)
        return None if found is None else self._build_row(found)

    async def cancel(self, id: str) -> bool:
        """Whether there is such a batch, which is cancelled; raises as `BatchWork.cancel` does."""
        found = await asyncio.to_thread(self.rows.batch, None, id)
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
