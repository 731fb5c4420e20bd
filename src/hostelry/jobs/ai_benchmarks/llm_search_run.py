"""One step of an AI recommendation job: the search of the highest concurrency within the limits."""

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Any

import msgspec
from msgspec.structs import replace

from hostelry.base.printable import plain_number
from hostelry.dataplane.route_table import Destination
from hostelry.domain.ai_benchmark_job import MAX_LOAD_S, AiWorkload
from hostelry.domain.recommendation_job import (
    BenchmarkEnd,
    BenchmarkLoad,
    BenchmarkTask,
    LlmMeasures,
    LlmSearch,
)
from hostelry.jobs.ai_benchmarks.ai_benchmark_run import (
    LOAD,
    format_at,
    write_results,
)
from hostelry.jobs.ai_benchmarks.llm_load import (
    TIMEOUT_S,
    LlmLoad,
    TargetCalls,
    find_only_variant,
    send_requests,
    show_nothing,
)
from hostelry.jobs.ai_benchmarks.prompt_form import UnfitModelError, explain_errors, measure_form
from hostelry.jobs.objects.object_store import ObjectError
from hostelry.jobs.snapshot_work import SnapshotDeps, report_until_taken
from hostelry.loadtest.requests import LoadPlan
from hostelry.loadtest.runner import LoadSearch, Show
from hostelry.loadtest.search import (
    SearchLimits,
    SearchOutcome,
    SearchSettings,
    SearchStep,
    find_percentile_ms,
)
from hostelry.loadtest.tally import result_document, spread_ms
from hostelry.recommendations.traffic import name_users

STEP_S = 60.0  # of one concurrency, unless the workload has a duration
PERCENTILE = 95.0  # of the times that have a limit
SECONDS_PER_MINUTE = 60.0


class TimedStep(msgspec.Struct, frozen=True):
    """A step of the search, and when it ended."""

    step: SearchStep
    ended_at: float


class LlmSearchRun:
    """Runs one search. `carry_out` returns once control knows its end."""

    def __init__(self, task: BenchmarkTask, deps: SnapshotDeps) -> None:
        assert task.search is not None, "only searches are run here"
        self._task = task
        self._search: LlmSearch = task.search
        self._deps = deps
        self._calls = TargetCalls(self._find_target, 1, deps.pool, deps.meter)
        self._timed: list[TimedStep] = []

    async def carry_out(self) -> None:
        """Run the search to its end."""
        began_at = self._deps.clock.now()
        end = await self._measure()
        await report_search_end(
            self._deps,
            replace(end, load_began_at=began_at, load_ended_at=self._deps.clock.now()),
        )

    async def _measure(self) -> BenchmarkEnd:
        task, workload, deps = self._task, self._search.workload, self._deps
        try:
            form = await measure_form(self._calls)
            bodies = await asyncio.to_thread(
                form.make_bodies, replace(workload, request_count=None)
            )
            self._say(form.describe(bodies))
            at = format_at(deps.clock.now())
            steps, outcome = await self._send_loads(bodies)
            uri, results = task.results_uri, build_search_results(task, steps, outcome, at)
            account = self._task.scope.account
            await write_results(deps, account, uri, results, self._search.chain_length)
            self._say(f"The results are in {uri}.")
        except (UnfitModelError, ObjectError) as error:
            return build_search_end(task, str(error))
        if outcome.best is None:
            return build_search_end(task, explain_no_best(steps, outcome))
        ended_at = next(it.ended_at for it in self._timed if it.step == outcome.best)
        return replace(build_search_end(task), best=build_load(outcome.best, ended_at))

    async def _send_loads(
        self, bodies: Sequence[bytes]
    ) -> tuple[Sequence[SearchStep], SearchOutcome]:
        """Send the warm-up, then the load of each concurrency, until the time is over."""
        workload = self._search.workload
        if workload.warm_up_count:
            # From the other end: a prefix cache keeps the prompts of the warm-up.
            await send_requests(self._calls, workload, bodies[::-1], workload.warm_up_count)
        settings = build_settings(workload)
        plan = LoadPlan(
            concurrency=1, duration_s=settings.step_s, rate_per_s=None, timeout_s=TIMEOUT_S
        )
        # One source for all: a prefix cache has the prompts of earlier loads.
        source = LlmLoad(self._calls, bodies)
        search = LoadSearch(plan, source, settings, show_no_load, self._note_step)
        left_s = max(0.0, self._task.until_at - self._deps.clock.now())
        timer = asyncio.get_running_loop().call_later(left_s, search.interrupt)
        try:
            steps, outcome = await search.measure()
        finally:
            timer.cancel()
        self._say(f"The search has ended: {outcome.cause.value}.")
        return steps, outcome

    def _note_step(self, step: SearchStep) -> None:
        self._timed.append(TimedStep(step, self._deps.clock.now()))
        self._say(describe_search_step(step))

    def _find_target(self, _: int) -> Destination | None:
        task = self._task
        return find_only_variant(self._deps.routes.table, task.scope, task.endpoint_name)

    def _say(self, text: str) -> None:
        task = self._task
        line = f"Step {task.number}: {text}"
        self._deps.data_log.note(task.scope, task.endpoint_name, "", line)


def build_settings(workload: AiWorkload) -> SearchSettings:
    """The search up to the concurrency of a workload."""
    return SearchSettings(
        limits=SearchLimits(
            latency_ms=workload.latency_limit_ms,
            first_token_ms=workload.first_token_limit_ms,
            token_ms=workload.token_limit_ms,
            percentile=PERCENTILE,
        ),
        max_concurrency=workload.concurrency,
        step_s=workload.duration_s if workload.duration_s < MAX_LOAD_S else STEP_S,
        step_requests=workload.request_count,
    )


def build_load(step: SearchStep, ended_at: float) -> BenchmarkLoad:
    """The result of a search whose best step is `step`."""
    tally, seconds = step.measured, step.measured.measured_s or 1.0
    return BenchmarkLoad(
        began_at=ended_at - seconds,
        ended_at=ended_at,
        invocations_per_minute=SECONDS_PER_MINUTE * step.throughput,
        latency_ms=find_percentile_ms(tally.latencies, PERCENTILE / 100) or 0.0,
        num_users=step.concurrency,
        llm=LlmMeasures(
            concurrency=step.concurrency,
            requests_per_s=step.throughput,
            tokens_per_s=tally.num_tokens / seconds,
            latency_ms=spread_ms(tally.latencies) or {},
            first_token_ms=spread_ms(tally.first) or {},
            token_ms=spread_ms(tally.gaps) or {},
        ),
    )


def build_search_end(task: BenchmarkTask, reason: str | None = None) -> BenchmarkEnd:
    """The report of a search's end."""
    return BenchmarkEnd(
        scope=task.scope,
        job_name=task.job_name,
        job_created_at=task.job_created_at,
        number=task.number,
        reason=reason,
    )


def build_search_results(
    task: BenchmarkTask, steps: Sequence[SearchStep], outcome: SearchOutcome, at: str
) -> dict[str, Any]:
    """The results as JSON values. `at` is when the search began."""
    search, best = task.search, outcome.best
    assert search is not None, "only searches are run here"
    return {
        "job": task.job_name,
        "step": task.number,
        "load": LOAD,
        "workload_config": search.workload_name,
        "workload": msgspec.to_builtins(search.workload),
        "objective": search.objective.value,
        "at": at,
        "concurrency": None if best is None else best.concurrency,
        "ended_by": outcome.cause.value,
        "loads": [
            {
                "holds": step.holds,
                "is_stable": step.is_stable,
                "broken": [it.name for it in step.broken],
                **result_document(
                    step.measured, task.endpoint_name, {"concurrency": step.concurrency}, at
                ),
            }
            for step in steps
        ],
    }


def explain_no_best(steps: Sequence[SearchStep], outcome: SearchOutcome) -> str:
    """Say why no concurrency keeps the limits."""
    step = outcome.broken or (steps[-1] if steps else None)
    if step is None:
        return "The time was over before the first load was measured."
    if step.measured.errors or not step.measured.num_ok:
        return explain_errors(step.measured)
    return f"No concurrency keeps the limits. {describe_search_step(step)}"


def describe_search_step(step: SearchStep) -> str:
    """A line about one concurrency."""
    tally, seconds = step.measured, step.measured.measured_s or 1.0
    broken = "; ".join(
        f"{one.name} {'unknown' if one.value is None else f'{one.value:.1f} {one.unit}'} is above"
        f" {plain_number(one.limit)} {one.unit}"
        for one in step.broken
    )
    limits = f": {broken}" if broken else ""
    return (
        f"{name_users(step.concurrency)}, {step.throughput:.2f} requests/s,"
        f" {tally.num_tokens / seconds:.1f} tokens/s{limits}."
    )


def show_no_load(concurrency: int) -> Show:
    """Show no progress: the log stream does."""
    del concurrency
    return show_nothing


async def report_search_end(deps: SnapshotDeps, end: BenchmarkEnd) -> None:
    """Report to control how a search ended, and repeat until it has taken the report."""
    report = partial(deps.control.report_ai_recommendation_end, end)
    await report_until_taken(f"step {end.number} of {end.job_name}", report, deps.clock)
