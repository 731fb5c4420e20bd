"""A search of the highest concurrency on a local model server, and its failures."""

import asyncio
from typing import Any, cast

import pytest
from msgspec import structs
from msgspec.structs import replace
from tests.cases import case, cases
from tests.unit.jobs.ai_benchmarks.test_ai_benchmark_run import CLOCK, Bucket, Llm, Rig
from tests.unit.recommendations.jobs import SCOPE

from hostelry.domain.ai_benchmark_job import MAX_LOAD_S, AiWorkload
from hostelry.domain.recommendation_job import (
    BenchmarkEnd,
    BenchmarkTask,
    LlmObjective,
    LlmSearch,
)
from hostelry.jobs.ai_benchmarks.ai_benchmark_work import get_search_key, run_llm_search
from hostelry.jobs.ai_benchmarks.llm_search_run import STEP_S, LlmSearchRun, build_settings
from hostelry.jobs.control_client import ControlDownError
from hostelry.jobs.objects.object_store import ObjectMissingError

WORKLOAD = AiWorkload(
    prompt_tokens_mean=60.0,
    output_tokens_mean=3.0,
    concurrency=4,
    request_count=40,
    duration_s=1.0,
    warm_up_count=3,
)
TASK = BenchmarkTask(
    scope=SCOPE,
    job_name="chat",
    job_created_at=5.0,
    number=2,
    endpoint_name="ep",
    search=LlmSearch(
        workload_name="short",
        workload=WORKLOAD,
        objective=LlmObjective.THROUGHPUT,
        output_uri="s3://out/results/",
    ),
    until_at=CLOCK.now() + 3_600,
)


class SearchEnds:
    """Takes the end of a search, after a few failures."""

    def __init__(self, num_failures: int = 0) -> None:
        self.ends: list[BenchmarkEnd] = []
        self._num_failures = num_failures

    async def report_ai_recommendation_end(self, end: BenchmarkEnd) -> None:
        if self._num_failures:
            self._num_failures -= 1
            raise ControlDownError("away")
        self.ends.append(end)


def task_with(**workload: Any) -> BenchmarkTask:
    """TASK with another workload."""
    assert TASK.search is not None
    search = replace(TASK.search, workload=replace(WORKLOAD, **workload))
    return replace(TASK, search=search)


def search_on(
    llm: Llm, task: BenchmarkTask = TASK, store: Bucket | None = None, num_failures: int = 0
) -> tuple[BenchmarkEnd, Bucket, list[str]]:
    """The end of a search, the bucket, and the lines about it."""

    async def main() -> tuple[BenchmarkEnd, Bucket, list[str]]:
        rig = Rig(llm, store=store)
        ends = SearchEnds(num_failures)
        deps = structs.replace(rig.deps, control=cast(Any, ends))
        async with rig.listening():
            await run_llm_search(task, deps)
        (end,) = ends.ends
        return end, rig.store, await rig.lines()

    return asyncio.run(main())


def test_a_search_reports_the_measures_of_the_best_concurrency() -> None:
    llm = Llm()
    end, store, lines = search_on(llm, num_failures=1)
    assert (end.job_name, end.job_created_at, end.number, end.reason) == ("chat", 5.0, 2, None)
    assert end.best is not None
    found = end.best.llm
    assert found is not None
    assert found.concurrency == end.best.num_users <= 4
    assert found.tokens_per_s == pytest.approx(3 * found.requests_per_s, rel=0.2)
    assert 0 < found.first_token_ms["p50"] < found.latency_ms["p50"]
    assert found.token_ms["p50"] > 0
    assert end.load_began_at is not None
    assert end.load_ended_at is not None
    assert end.load_began_at <= end.best.began_at < end.best.ended_at <= end.load_ended_at
    ((uri, results),) = store.objects.items()
    assert uri == "s3://out/results/chat/2/results.json"
    assert results["concurrency"] == found.concurrency
    assert [it["options"]["concurrency"] for it in results["loads"]][:2] == [1, 2]
    assert lines[0].startswith("Step 2: ")
    assert any("1 concurrent user, " in it for it in lines)


def test_a_concurrency_that_breaks_a_limit_is_not_the_answer() -> None:
    end, store, _ = search_on(Llm(), task_with(token_limit_ms=0.001))
    assert end.best is None
    assert (end.reason or "").startswith("No concurrency keeps the limits. 1 concurrent user, ")
    assert "is above 0.001 ms" in (end.reason or "")
    (results,) = store.objects.values()
    assert results["loads"][0]["broken"] == ["inter-token p95"]


@cases(
    "llm, reason",
    case("no LLM", Llm(is_llm=False), "The model answers no request."),
    case("no counts of tokens", Llm(has_usage=False), "do not state their number of prompt tokens"),
    case("a model that fails under load", Llm(lifetime=5), "requests failed. The first: 500: out"),
)
def test_a_model_that_cannot_be_searched_fails_the_step(llm: Llm, reason: str) -> None:
    end, _, _ = search_on(llm)
    assert end.best is None
    assert reason in (end.reason or "")


@cases(
    "error, reason",
    case("a missing bucket", ObjectMissingError("s3://out: no such bucket"), "no such bucket"),
    case("a defect", ZeroDivisionError(), "InternalServerError"),
)
def test_results_that_cannot_be_written_fail_the_step(error: Exception, reason: str) -> None:
    end, _, _ = search_on(Llm(), store=Bucket(error))
    assert end.best is None
    assert reason in (end.reason or "")


def test_a_search_ends_with_its_time() -> None:
    end, store, _ = search_on(Llm(), replace(TASK, until_at=CLOCK.now()))
    assert end.reason == "The time was over before the first load was measured."
    (results,) = store.objects.values()
    assert results["ended_by"] == "interrupted"


def test_loads_continue_with_further_prompts() -> None:
    llm = Llm()
    search_on(llm, task_with(concurrency=1, warm_up_count=0))
    prompts = [str(it) for it in llm.bodies[2:]]
    assert len(prompts) >= 20
    assert len(set(prompts)) == len(prompts), "a prefix cache would have a repeated prompt"


def test_a_search_that_is_cancelled_leaves_no_task() -> None:
    async def main() -> None:
        rig = Rig(Llm())
        async with rig.listening():
            own = asyncio.all_tasks()
            endless = task_with(duration_s=600.0, request_count=None)
            running = asyncio.create_task(LlmSearchRun(endless, rig.deps).carry_out())
            await asyncio.sleep(0.1)
            running.cancel()
            with pytest.raises(asyncio.CancelledError):
                await running
            left = [it for it in asyncio.all_tasks() - own if "_worker" in repr(it)]
            assert left == []

    asyncio.run(main())


@cases(
    "workload, step_s",
    case("a duration of one concurrency", {"duration_s": 5.0}, 5.0),
    case("none", {"duration_s": MAX_LOAD_S}, STEP_S),
)
def test_the_settings_of_a_search(workload: dict[str, Any], step_s: float) -> None:
    settings = build_settings(replace(WORKLOAD, first_token_limit_ms=500.0, **workload))
    assert (settings.max_concurrency, settings.step_s, settings.step_requests) == (4, step_s, 40)
    assert settings.limits.first_token_ms == 500.0
    assert settings.limits.errors_percent == 0.0


def test_a_later_job_of_the_same_name_has_another_key() -> None:
    assert get_search_key(TASK) != get_search_key(replace(TASK, job_created_at=6.0))
