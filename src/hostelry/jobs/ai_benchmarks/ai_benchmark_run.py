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
from hostelry.jobs.ai_benchmarks.aiperf_files import SUMMARY
from hostelry.jobs.ai_benchmarks.aiperf_load import Aiperf, AiperfError, run_aiperf
from hostelry.jobs.ai_benchmarks.llm_load import TargetCalls, find_only_variant, send_requests
from hostelry.jobs.ai_benchmarks.prompt_form import (
    PromptForm,
    UnfitModelError,
    explain_errors,
    measure_form,
)
from hostelry.jobs.objects.object_store import (
    ObjectError,
    ObjectStoreDownError,
    OutputSettings,
)
from hostelry.jobs.snapshot_work import SnapshotDeps, report_until_taken
from hostelry.loadtest.tally import LoadTally, result_document

LOG = logging.getLogger(__name__)
AGAIN_S = 1.0
LOAD = "hostelry"  # the program that sent the load, if it is not AIPerf
NO_AIPERF = (
    "Hostelry's own load generator sends the load, because AIPerf is not installed"
    " (hostelry runtimes install aiperf)."
)


class AiBenchmarkRun:
    """Runs one job. `carry_out` returns once control knows its end. `aiperf` sends the load."""

    def __init__(self, job: AiBenchmarkJob, deps: SnapshotDeps, aiperf: Aiperf | None) -> None:
        self._job = job
        self._deps = deps
        self._aiperf = aiperf
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
            tally = await self._send_load(form, bodies)
            load = LOAD if self._aiperf is None else f"aiperf {self._aiperf.version}"
            results = build_results(self._job, tally, at, load)
            uri = self._job.results_uri
            account = self._job.scope.account
            await write_results(self._deps, account, uri, results, self._job.chain_length)
            self._say(f"The results are in {uri}.")
        except (UnfitModelError, ObjectError, AiperfError) as error:
            return str(error)
        return None if tally.num_ok else explain_errors(tally)

    async def _send_load(self, form: PromptForm, bodies: list[bytes]) -> LoadTally:
        """Send the warm-up, then the load. Return the measures of the load."""
        workload = self._job.workload
        if workload.warm_up_count:
            await send_requests(self._calls, workload, bodies, workload.warm_up_count)
        # From the other end: the model's prefix cache has the prompts of the warm-up.
        bodies = bodies[::-1]
        if self._aiperf is None:
            self._say(NO_AIPERF)
            tally = await send_requests(self._calls, workload, bodies, workload.request_count)
        else:
            tally = await self._send_by_aiperf(self._aiperf, form, bodies)
        self._say(describe_tally(tally))
        return tally

    async def _send_by_aiperf(
        self, aiperf: Aiperf, form: PromptForm, bodies: list[bytes]
    ) -> LoadTally:
        """Send the load with AIPerf, and keep its summary."""
        job, deps = self._job, self._deps
        self._say(f"AIPerf {aiperf.version} sends the load.")
        result = await run_aiperf(
            aiperf, self._calls, job.workload, bodies, deps.clock, is_chat=form.is_chat
        )
        if result.summary is not None:
            uri = f"{job.results_uri.rpartition('/')[0]}/{SUMMARY}"
            await write_results(deps, job.scope.account, uri, result.summary, job.chain_length)
            self._say(f"AIPerf's summary is in {uri}.")
        return result.tally

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


def build_results(job: AiBenchmarkJob, tally: LoadTally, at: str, load: str) -> dict[str, Any]:
    """The results as JSON values. `at` is when the load began, `load` the program that sent it."""
    seconds = tally.measured_s or 1.0
    targets = list(job.component_names) or [job.endpoint_name]
    # AIPerf's records have neither bytes nor its own delays.
    unknown = {} if load == LOAD else {"bytes_per_s": None, "client": None}
    return {
        "job": job.name,
        "load": load,
        "endpoint": job.endpoint_name,
        "workload_config": job.workload_name,
        **result_document(tally, ", ".join(targets), msgspec.to_builtins(job.workload), at),
        **unknown,
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
    deps: SnapshotDeps,
    account: str,
    uri: str,
    results: dict[str, Any] | bytes,
    chain_length: int,
) -> None:
    """Write an account's results to S3. Waits while the store is away. Raises ObjectError."""
    settings = OutputSettings(content_type="application/json", chain_length=chain_length)
    as_json = results if isinstance(results, bytes) else msgspec.json.encode(results)
    body = msgspec.json.format(as_json, indent=2)
    while True:
        try:
            return await deps.store.acting_for(account).put(uri, body, settings)
        except ObjectStoreDownError as error:
            LOG.warning("%s is not written yet: %s", uri, error)
            await deps.clock.sleep(AGAIN_S)


async def report_end(deps: SnapshotDeps, end: AiBenchmarkEnd) -> None:
    """Report to control how a job ended, and repeat until it has taken the report."""
    report = partial(deps.control.report_ai_benchmark_end, end)
    await report_until_taken(f"AI benchmark {end.name}", report, deps.clock)
