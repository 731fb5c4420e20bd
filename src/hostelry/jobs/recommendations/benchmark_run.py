"""One step of an inference recommendations job: its load, measured window by window."""

import asyncio
import logging
from collections.abc import Sequence
from functools import partial

from hostelry.domain.hidden_endpoint import HiddenKind
from hostelry.domain.load import LoadKey
from hostelry.domain.recommendation_job import (
    BenchmarkEnd,
    BenchmarkTask,
    SamplePayload,
    StoppingRules,
)
from hostelry.domain.routes import CopyRoute, VariantRoute
from hostelry.jobs.copy_requests import CopyRequests
from hostelry.jobs.objects.object_store import ObjectError, ObjectStoreDownError
from hostelry.jobs.recommendations.copy_load import CopyLoad
from hostelry.jobs.recommendations.sample_requests import (
    MAX_ARCHIVE_BYTES,
    SampleError,
    SampleRequest,
    read_samples,
)
from hostelry.jobs.snapshot_work import SnapshotDeps, report_until_taken
from hostelry.loadtest.requests import LoadPlan
from hostelry.loadtest.runner import LoadRun
from hostelry.loadtest.tally import LoadTally, percentile
from hostelry.recommendations.stopping import (
    LoadWindow,
    choose_best,
    explain_failure,
    find_stop,
    name_percentile,
)
from hostelry.recommendations.traffic import count_users, is_window_over, name_users

LOG = logging.getLogger(__name__)
AGAIN_S = 1.0
LOOK_S = 0.2
TIMEOUT_S = 60.0  # of an invocation
OVER = "the traffic is over"
TOO_LATE = "the job's duration is over"


class BenchmarkRun:
    """Runs one load. `carry_out` returns once control knows its end."""

    def __init__(self, task: BenchmarkTask, deps: SnapshotDeps) -> None:
        self._task = task
        self._deps = deps
        self._windows: list[LoadWindow] = []

    @property
    def _payload(self) -> SamplePayload:
        payload = self._task.payload
        assert payload is not None, "only an AI recommendation job has none"
        return payload

    async def carry_out(self) -> None:
        """Send the load to its end."""
        end = await self._measure()
        await report_end(self._deps, end)

    async def _measure(self) -> BenchmarkEnd:
        try:
            samples = await self._read_samples()
        except (ObjectError, SampleError) as error:
            return self._end(f"The sample payload cannot be used: {error}")
        variant = await self._wait_for_variant()
        began_at = self._deps.clock.now()
        stop = await self._send_load(samples, variant)
        ended_at = self._deps.clock.now()
        self._say(f"The load has ended: {stop}.")
        best = choose_best(self._windows, self._task.stopping)
        reason = explain_failure(self._windows, self._task.stopping) if best is None else None
        return BenchmarkEnd(
            scope=self._task.scope,
            job_name=self._task.job_name,
            number=self._task.number,
            load_began_at=began_at,
            load_ended_at=ended_at,
            best=best,
            reason=reason,
        )

    async def _read_samples(self) -> tuple[SampleRequest, ...]:
        payload = self._payload
        while True:
            try:
                store = self._deps.store.acting_for(self._task.scope.account)
                stored = await store.open(payload.uri)
                try:
                    if stored.size_bytes > MAX_ARCHIVE_BYTES:
                        raise SampleError(
                            f"{payload.uri} has {stored.size_bytes} bytes; the limit is"
                            f" {MAX_ARCHIVE_BYTES}."
                        )
                    archive = await stored.whole()
                finally:
                    stored.close()
                return await asyncio.to_thread(read_samples, archive, payload)
            except ObjectStoreDownError as error:
                LOG.warning("job %s waits: %s", self._task.job_name, error)
                await self._deps.clock.sleep(AGAIN_S)

    async def _wait_for_variant(self) -> VariantRoute:
        """Wait for the endpoint's copies. Control ends the wait by naming the load no more."""
        while True:
            for variant in self._list_variants():
                if variant.copies:
                    return variant
            await self._deps.clock.sleep(LOOK_S)

    def _list_variants(self) -> Sequence[VariantRoute]:
        endpoint = self._deps.routes.table.endpoint(self._task.scope, self._task.endpoint_name)
        return () if endpoint is None else endpoint.variants

    def _list_copies(self) -> Sequence[CopyRoute]:
        return [copy for it in self._list_variants() for copy in it.copies]

    async def _send_load(self, samples: Sequence[SampleRequest], variant: VariantRoute) -> str:
        """Send the load, and return why it stopped."""
        task, deps = self._task, self._deps
        key = LoadKey(scope=task.scope, endpoint_name=task.endpoint_name, variant_name=variant.name)
        requests = CopyRequests(key, self._payload.accept, TIMEOUT_S, deps.pool, deps.meter)
        plan = LoadPlan(
            concurrency=count_users(task.traffic, 0.0),
            duration_s=max(0.0, task.until_at - deps.clock.now()),
            rate_per_s=None,
            timeout_s=TIMEOUT_S,
        )
        load = LoadRun(plan, CopyLoad(samples, requests, self._list_copies), show_nothing)
        async with load.load():
            while True:
                stop = await self._measure_window(load, plan.duration_s)
                if stop is not None:
                    load.interrupt()
                    load.interrupt()  # requests under way are not counted
                    return stop

    async def _measure_window(self, load: LoadRun, duration_s: float) -> str | None:
        """Measure one window. Return why the load stops after it, or None."""
        task, began_s, began_at = self._task, load.elapsed_s, self._deps.clock.now()
        num_users = count_users(task.traffic, began_s)
        if not num_users:
            return OVER
        if began_s >= duration_s:
            return TOO_LATE
        load.set_users(num_users)

        def is_over(num_answers: int, age_s: float) -> bool:
            elapsed_s = began_s + age_s
            is_full = is_window_over(task.traffic, began_s, elapsed_s, num_answers)
            return is_full or elapsed_s >= duration_s

        await load.wait_until(is_over)
        window = build_window(load.take_window(), num_users, began_at, task.stopping)
        if window.num_ok or window.num_failed:
            self._windows.append(window)
            self._say(describe_window(window, task.stopping))
        return find_stop(self._windows, task.stopping)

    def _say(self, text: str) -> None:
        task = self._task
        # The lines of a client's endpoint, too, belong to the job.
        name = f"{HiddenKind.RECOMMENDATION.value}{task.job_name}/{task.number}"
        self._deps.data_log.note(task.scope, name, "", f"Step {task.number}: {text}")

    def _end(self, reason: str) -> BenchmarkEnd:
        task = self._task
        return BenchmarkEnd(
            scope=task.scope, job_name=task.job_name, number=task.number, reason=reason
        )


def build_window(
    tally: LoadTally, num_users: int, began_at: float, rules: StoppingRules
) -> LoadWindow:
    """The window of a tally. `began_at` is in seconds since the epoch."""
    ordered = sorted(tally.latencies)
    error = next(iter(tally.error_texts.items()), None)
    return LoadWindow(
        num_users=num_users,
        began_at=began_at,
        ended_at=began_at + tally.measured_s,
        num_ok=tally.num_ok,
        num_failed=sum(tally.errors.values()),
        latency_ms=1000 * percentile(ordered, rules.percentile) if tally.num_ok else None,
        first_error=None if error is None else ": ".join(filter(None, error)),
    )


def describe_window(window: LoadWindow, rules: StoppingRules) -> str:
    """A line about a window for the job's log stream."""
    latency = (
        "no answer"
        if window.latency_ms is None
        else f"{name_percentile(rules)} {window.latency_ms:.1f} ms"
    )
    errors = f", {window.num_failed} errors ({window.first_error})" if window.num_failed else ""
    return (
        f"{name_users(window.num_users)}, {window.invocations_per_minute:.0f} invocations/minute,"
        f" {latency}{errors}"
    )


def show_nothing(tally: LoadTally, elapsed_s: float, in_flight: int) -> None:
    """Show no progress: the lines of windows do."""
    del tally, elapsed_s, in_flight


async def report_end(deps: SnapshotDeps, end: BenchmarkEnd) -> None:
    """Report to control how a step ended, and repeat until it has taken the report."""
    report = partial(deps.control.report_benchmark_end, end)
    await report_until_taken(f"a step of {end.job_name}", report, deps.clock)
