"""One AI benchmark: prompts are sized, the load is sent, and the results are written to S3."""

import asyncio
import logging
from datetime import UTC, datetime
from functools import partial
from typing import Any

import msgspec

from hostelry.dataplane.route_table import Destination
from hostelry.domain.ai_benchmark_job import AiBenchmarkEnd, AiBenchmarkJob
from hostelry.domain.log_source import AI_BENCHMARK
from hostelry.jobs.ai_benchmarks.llm_load import TargetCalls, find_only_variant, send_requests
from hostelry.jobs.ai_benchmarks.prompt_form import UnfitModelError, explain_errors, measure_form
from hostelry.jobs.objects.object_store import (
    ObjectError,
    ObjectStoreDownError,
    OutputSettings,
)
from hostelry.jobs.snapshot_work import SnapshotDeps, report_until_taken
from hostelry.loadtest.tally import LoadTally, result_document

LOG = logging.getLogger(__name__)
AGAIN_S = 1.0
LOAD = "hostelry"  # which program sent the load


class AiBenchmarkRun:
    """Runs one job. `carry_out` returns once control knows its end."""

    def __init__(self, job: AiBenchmarkJob, deps: SnapshotDeps) -> None:
        self._job = job
        self._deps = deps
        targets = job.component_names or (None,)
        self._targets = targets
        self._calls = TargetCalls(self._find_target, len(targets), deps.pool, deps.meter)

    async def carry_out(self) -> None:
        """Run the job to its end."""
        reason = await self._measure()
        self._say("The job is done." if reason is None else f"The job has failed: {reason}")
        await report_end(self._deps, build_end(self._job, reason))

    async def _measure(self) -> str | None:
        """Measure, and write the results. Return why the job failed, or None."""
        try:
            form = await measure_form(self._calls)
            bodies = await asyncio.to_thread(form.make_bodies, self._job.workload)
            self._say(form.describe(bodies))
            at = format_at(self._deps.clock.now())
            tally = await self._send_load(bodies)
            results = build_results(self._job, tally, at)
            uri = self._job.results_uri
            await write_results(self._deps, uri, results, self._job.chain_length)
            self._say(f"The results are in {uri}.")
        except (UnfitModelError, ObjectError) as error:
            return str(error)
        return None if tally.num_ok else explain_errors(tally)

    async def _send_load(self, bodies: list[bytes]) -> LoadTally:
        """Send the warm-up, then the load. Return the measures of the load."""
        workload = self._job.workload
        if workload.warm_up_count:
            await send_requests(self._calls, workload, bodies, workload.warm_up_count)
        # From the other end: the model's prefix cache has the prompts of the warm-up.
        count = workload.request_count
        tally = await send_requests(self._calls, workload, bodies[::-1], count)
        self._say(describe_tally(tally))
        return tally

    def _find_target(self, number: int) -> Destination | None:
        table, job, name = self._deps.routes.table, self._job, self._targets[number]
        if name is not None:
            return table.component(job.scope, name)
        return find_only_variant(table, job.scope, job.endpoint_name)

    def _say(self, text: str) -> None:
        self._deps.data_log.note(self._job.scope, AI_BENCHMARK + self._job.name, "", text)


def build_end(job: AiBenchmarkJob, reason: str | None) -> AiBenchmarkEnd:
    """The report of a job's end."""
    return AiBenchmarkEnd(scope=job.scope, name=job.name, created_at=job.created_at, reason=reason)


def build_results(job: AiBenchmarkJob, tally: LoadTally, at: str) -> dict[str, Any]:
    """The results as JSON values. `at` is when the load began."""
    seconds = tally.measured_s or 1.0
    targets = list(job.component_names) or [job.endpoint_name]
    return {
        "job": job.name,
        "load": LOAD,
        "endpoint": job.endpoint_name,
        "workload_config": job.workload_name,
        **result_document(tally, ", ".join(targets), msgspec.to_builtins(job.workload), at),
        "prompt_tokens": tally.num_prompt_tokens,
        "prompt_tokens_per_s": round(tally.num_prompt_tokens / seconds, 3),
        "prompt_tokens_per_request": divide(tally.num_prompt_tokens, tally.num_ok),
        "tokens_per_request": divide(tally.num_tokens, tally.num_ok),
    }


def divide(total: int, count: int) -> float | None:
    """The mean, or None without a count."""
    return round(total / count, 3) if count else None


def describe_tally(tally: LoadTally) -> str:
    """A line about the load for the job's log stream."""
    seconds = tally.measured_s or 1.0
    num_failed = sum(tally.errors.values())
    errors = f", {num_failed} errors: {explain_errors(tally)}" if num_failed else "."
    return (
        f"{tally.num_ok} answers in {tally.measured_s:.1f} s,"
        f" {tally.num_tokens / seconds:.1f} tokens/s{errors}"
    )


def format_at(now: float) -> str:
    """An instant as text."""
    return datetime.fromtimestamp(now, UTC).isoformat(timespec="seconds")


async def write_results(
    deps: SnapshotDeps, uri: str, results: dict[str, Any], chain_length: int
) -> None:
    """Write results to S3. Waits while the object store is away. Raises ObjectError."""
    settings = OutputSettings(content_type="application/json", chain_length=chain_length)
    body = msgspec.json.format(msgspec.json.encode(results), indent=2)
    while True:
        try:
            return await deps.store.put(uri, body, settings)
        except ObjectStoreDownError as error:
            LOG.warning("%s is not written yet: %s", uri, error)
            await deps.clock.sleep(AGAIN_S)


async def report_end(deps: SnapshotDeps, end: AiBenchmarkEnd) -> None:
    """Report to control how a job ended, and repeat until it has taken the report."""
    report = partial(deps.control.report_ai_benchmark_end, end)
    await report_until_taken(f"AI benchmark {end.name}", report, deps.clock)
