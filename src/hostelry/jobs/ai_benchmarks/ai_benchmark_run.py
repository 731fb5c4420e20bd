"""One AI benchmark: prompts are sized, the load is sent, and the results are written to S3."""

import asyncio
import logging
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any

import msgspec

from hostelry.base.clock import Clock, monotonic_s
from hostelry.base.errors import HostelryError
from hostelry.dataplane.metering.meter import Meter
from hostelry.dataplane.route_table import Destination
from hostelry.dataplane.routes import RouteSource
from hostelry.domain.ai_benchmark_job import AiBenchmarkEnd, AiBenchmarkJob
from hostelry.domain.log_source import AI_BENCHMARK
from hostelry.http1.upstream import UpstreamPool
from hostelry.jobs.ai_benchmarks.llm_load import LlmLoad, TargetCalls
from hostelry.jobs.ai_benchmarks.prompts import (
    PROBE_WORDS,
    TokenScale,
    make_bodies,
    make_body,
    make_probe,
    measure_scale,
)
from hostelry.jobs.control_client import ControlDownError, ControlRefusedError, HttpJobsControl
from hostelry.jobs.data_log import DataLog
from hostelry.jobs.objects.object_store import (
    ObjectError,
    ObjectStore,
    ObjectStoreDownError,
    OutputSettings,
)
from hostelry.loadtest.recording import AnswerRecord
from hostelry.loadtest.requests import LoadPlan
from hostelry.loadtest.runner import LoadRun
from hostelry.loadtest.tally import LoadTally, result_document

LOG = logging.getLogger(__name__)
AGAIN_S = 1.0
TIMEOUT_S = 600.0  # of a request
PROBE_TOKENS = 1
LOAD = "hostelry"  # which program sent the load


@dataclass(frozen=True, slots=True, kw_only=True)
class AiBenchmarkDeps:
    """Dependencies of all AI benchmarks."""

    store: ObjectStore
    routes: RouteSource
    pool: UpstreamPool
    meter: Meter
    control: HttpJobsControl
    data_log: DataLog
    clock: Clock


class UnfitModelError(HostelryError):
    """The model cannot be measured. The message is the reason."""


class AiBenchmarkRun:
    """Runs one job. `carry_out` returns once control knows its end."""

    def __init__(self, job: AiBenchmarkJob, deps: AiBenchmarkDeps) -> None:
        self._job = job
        self._deps = deps
        targets = job.component_names or (None,)
        self._targets = targets
        self._calls = TargetCalls(self._find_target, len(targets), deps.pool, deps.meter, TIMEOUT_S)

    async def carry_out(self) -> None:
        """Run the job to its end."""
        reason = await self._measure()
        self._say("The job is done." if reason is None else f"The job has failed: {reason}")
        await report_end(self._deps, build_end(self._job, reason))

    async def _measure(self) -> str | None:
        """Measure, and write the results. Return why the job failed, or None."""
        try:
            scale, is_chat = await self._prepare()
            make = partial(make_bodies, self._job.workload, scale, is_chat=is_chat)
            bodies = await asyncio.to_thread(make)
            self._say(
                f"{len(bodies)} prompts of {'chats' if is_chat else 'texts'} are made:"
                f" {scale.per_word:.2f} tokens per word, {scale.base:.0f} around them."
            )
            at = format_at(self._deps.clock.now())
            tally = await self._send_load(bodies)
            await self._write(build_results(self._job, tally, at))
        except (UnfitModelError, ObjectError) as error:
            return str(error)
        return None if tally.num_ok else explain_errors(tally)

    async def _prepare(self) -> tuple[TokenScale, bool]:
        """The number of tokens of words, and whether the model has a chat template."""
        is_chat = True
        counts: list[int] = []
        for num_words in PROBE_WORDS:
            tally = await self._probe(num_words, is_chat=is_chat)
            if not tally.num_ok and is_chat and not counts:
                is_chat = False
                tally = await self._probe(num_words, is_chat=is_chat)
            if not tally.num_ok:
                raise UnfitModelError(f"The model answers no request. {explain_errors(tally)}")
            counts.append(tally.num_prompt_tokens)
        scale = measure_scale(*counts)
        if scale is None:
            raise UnfitModelError(
                "The model's answers do not state their number of prompt tokens (`usage`), so that"
                " prompts of a number of tokens cannot be made."
            )
        return scale, is_chat

    async def _probe(self, num_words: int, *, is_chat: bool) -> LoadTally:
        tally = LoadTally()
        answer = AnswerRecord(lambda: tally, monotonic_s(), streams_text=True)
        body = make_body(make_probe(num_words), PROBE_TOKENS, is_chat=is_chat)
        try:
            await self._calls.send(0, body, answer)
        except TimeoutError:
            answer.fail("timeout", f"no whole answer within {TIMEOUT_S:g} s")
        except OSError as error:
            answer.fail("connection", str(error))
        return tally

    async def _send_load(self, bodies: list[bytes]) -> LoadTally:
        """Send the warm-up, then the load. Return the measures of the load."""
        workload = self._job.workload
        if workload.warm_up_count:
            await self._send_requests(bodies, workload.warm_up_count)
        # From the other end: the model's prefix cache has the prompts of the warm-up.
        tally = await self._send_requests(bodies[::-1], workload.request_count)
        self._say(describe_tally(tally))
        return tally

    async def _send_requests(self, bodies: list[bytes], num_requests: int | None) -> LoadTally:
        """Send requests until they are all answered, or the duration of the load is over."""
        workload = self._job.workload
        plan = LoadPlan(
            concurrency=workload.concurrency,
            duration_s=workload.duration_s,
            rate_per_s=workload.request_rate_per_s,
            timeout_s=TIMEOUT_S,
        )
        load = LoadRun(plan, LlmLoad(self._calls, bodies, num_requests), show_nothing)

        def is_over(num_done: int, open_s: float) -> bool:
            has_all = num_requests is not None and num_done >= num_requests
            return has_all or open_s >= workload.duration_s

        async with load.load():
            await load.wait_until(is_over)
            tally = load.take_window()
            load.interrupt()
            load.interrupt()  # requests under way are not counted
        return tally

    async def _write(self, results: dict[str, Any]) -> None:
        job = self._job
        settings = OutputSettings(content_type="application/json", chain_length=job.chain_length)
        body = msgspec.json.format(msgspec.json.encode(results), indent=2)
        while True:
            try:
                await self._deps.store.put(job.results_uri, body, settings)
            except ObjectStoreDownError as error:
                LOG.warning("AI benchmark %s waits: %s", job.name, error)
                await self._deps.clock.sleep(AGAIN_S)
            else:
                return self._say(f"The results are in {job.results_uri}.")

    def _find_target(self, number: int) -> Destination | None:
        table, job, name = self._deps.routes.table, self._job, self._targets[number]
        if name is not None:
            return table.component(job.scope, name)
        endpoint = table.endpoint(job.scope, job.endpoint_name)
        if endpoint is None or not endpoint.variants:
            return None
        return table.variant(endpoint, endpoint.variants[0])

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


def explain_errors(tally: LoadTally) -> str:
    """A sentence about the requests that failed."""
    num_failed = sum(tally.errors.values())
    if not num_failed:
        return "No request was answered before the load ended."
    code, text = next(iter(tally.error_texts.items()))
    first = ": ".join(filter(None, (code, text)))
    return f"{num_failed} of {tally.num_requests} requests failed. The first: {first}"


def format_at(now: float) -> str:
    """An instant as text."""
    return datetime.fromtimestamp(now, UTC).isoformat(timespec="seconds")


def show_nothing(tally: LoadTally, elapsed_s: float, in_flight: int) -> None:
    """Show no progress: the log stream does."""
    del tally, elapsed_s, in_flight


async def report_end(deps: AiBenchmarkDeps, end: AiBenchmarkEnd) -> None:
    """Report to control how a job ended, and repeat until it has taken the report."""
    while True:
        try:
            return await deps.control.report_ai_benchmark_end(end)
        except (ControlDownError, ControlRefusedError) as error:
            LOG.warning("the end of AI benchmark %s is not taken yet: %s", end.name, error)
            await deps.clock.sleep(AGAIN_S)
