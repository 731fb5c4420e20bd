"""Recommendations jobs measure step by step, and leave nothing behind, despite any kills."""

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from msgspec.structs import replace
from tests.cases import case, cases
from tests.selection import numbers
from tests.unit.recommendations.jobs import JOB, MODEL, step
from tests.unit.reconcile.recommendation_rig import LOAD, RecommendationTown, end_of
from tests.unit.reconcile.samples import IMAGE, NOW, SCOPE, deployment, endpoint, variant
from tests.unit.reconcile.test_reconcile_faults import FaultyStore, Killed

from hostelry.domain.ai_benchmark_job import AiWorkload
from hostelry.domain.copy import CopyPhase
from hostelry.domain.endpoint import EndpointStatus
from hostelry.domain.hidden_endpoint import HiddenKind, get_owner
from hostelry.domain.recommendation_job import (
    SEARCH_S,
    BenchmarkEnd,
    BenchmarkMetrics,
    LlmMeasures,
    LlmObjective,
    LlmSearch,
    RecommendationJob,
    RecommendationStatus,
)
from hostelry.domain.status import RUNNER_S, STOP_S
from hostelry.reconcile.overview import recommendation_overview
from hostelry.reconcile.plan.hidden_endpoint import HiddenFleet
from hostelry.reconcile.plan.recommendation import (
    LAST_REPORT_S,
    BenchmarkFleet,
    finish_step,
    list_tasks,
    plan_hidden_endpoints,
    plan_recommendation_job,
)
from hostelry.reconcile.record import filter_visible, load_all

PENDING, IN_PROGRESS = RecommendationStatus.PENDING, RecommendationStatus.IN_PROGRESS
COMPLETED, FAILED = RecommendationStatus.COMPLETED, RecommendationStatus.FAILED
STOPPING, STOPPED = RecommendationStatus.STOPPING, RecommendationStatus.STOPPED
FAR = NOW + 10_000
UNTIL = NOW + JOB.duration_s
NOTHING = BenchmarkFleet(fleets={}, asked_at=FAR)
BEGUN = plan_recommendation_job(JOB, NOTHING, NOW)
(MADE,) = plan_hidden_endpoints(BEGUN, NOTHING, 1, NOW)
SERVING = replace(MADE, status=EndpointStatus.IN_SERVICE)
MEASURED = replace(BEGUN, steps=(replace(BEGUN.steps[0], served_at=NOW + 9), BEGUN.steps[1]))
METRICS = BenchmarkMetrics(invocations_per_minute=600.0, latency_ms=9.5)
OF_CLIENT = replace(
    BEGUN,
    steps=(
        step(
            1, None, status=IN_PROGRESS, endpoint_name="ep", endpoint_created_at=NOW, begun_at=NOW
        ),
    ),
)


def fleet(**fields: Any) -> BenchmarkFleet:
    """What there is of the first step's endpoint."""
    given = {"endpoint": SERVING, "serves": True, "asked_at": FAR, **fields}
    return BenchmarkFleet(fleets={1: HiddenFleet(**given)}, asked_at=FAR)


@pytest.fixture
def place() -> Iterator[RecommendationTown]:
    found = RecommendationTown()
    yield found
    found.town.close()


@cases(
    "job, found, now, status, reason",
    case("the instances come up", BEGUN, fleet(endpoint=MADE, serves=False), NOW, IN_PROGRESS, ""),
    case("the load is sent", MEASURED, fleet(), NOW + 99, IN_PROGRESS, ""),
    case(
        "the instances could not come up",
        BEGUN,
        fleet(
            endpoint=replace(MADE, status=EndpointStatus.FAILED, failure_reason="no model.joblib")
        ),
        NOW,
        FAILED,
        "no model.joblib",
    ),
    case(
        "the model was deleted",
        MEASURED,
        replace(fleet(), has_model=False),
        NOW + 99,
        FAILED,
        'The model "m" was deleted.',
    ),
    case(
        "no endpoint came in the job's time",
        BEGUN,
        fleet(endpoint=MADE, serves=False),
        UNTIL,
        FAILED,
        "The 3600 s of the job were over before the step served",
    ),
    case("the last report has some time", MEASURED, fleet(), UNTIL, IN_PROGRESS, ""),
    case(
        "the last report did not come",
        MEASURED,
        fleet(),
        UNTIL + LAST_REPORT_S,
        FAILED,
        "The 3600 s of the job were over before the step was measured",
    ),
    case(
        "there is no runner",
        MEASURED,
        fleet(asked_at=NOW),
        NOW + 9 + RUNNER_S,
        FAILED,
        "No process has asked for benchmarks for 600 s",
    ),
    case(
        "no copy has served for too long",
        replace(MEASURED, duration_s=90_000.0, steps=(
            replace(MEASURED.steps[0], unserved_since=NOW), MEASURED.steps[1])),
        fleet(serves=False, problem="it crashed"),
        NOW + 5000,
        FAILED,
        "No copy has served for 5000 s: it crashed",
    ),
    case("the client's endpoint serves", OF_CLIENT, fleet(), NOW, IN_PROGRESS, ""),
    case("it was deleted", OF_CLIENT, NOTHING, NOW, FAILED, 'The endpoint "ep" was deleted.'),
    case(
        "it is being deleted",
        OF_CLIENT,
        fleet(endpoint=replace(MADE, status=EndpointStatus.DELETING)),
        NOW,
        FAILED,
        'The endpoint "ep" was deleted.',
    ),
    case(
        "another endpoint has its name",
        OF_CLIENT,
        fleet(endpoint=replace(SERVING, created_at=NOW + 1)),
        NOW,
        FAILED,
        'The endpoint "ep" was deleted.',
    ),
    case(
        "the client's endpoint needs no model",
        OF_CLIENT,
        replace(fleet(), has_model=False),
        NOW,
        IN_PROGRESS,
        "",
    ),
)  # fmt: skip
def test_what_becomes_of_a_step(
    job: RecommendationJob,
    found: BenchmarkFleet,
    now: float,
    status: RecommendationStatus,
    reason: str,
) -> None:
    after = plan_recommendation_job(job, found, now)
    assert after.steps[0].status is status
    assert reason in (after.steps[0].failure_reason or "")
    assert (after.steps[0].failure_reason is None) == (not reason)
    assert plan_recommendation_job(after, found, now) == after, "a second look changes nothing"


def test_a_step_begins_once_the_instances_of_the_step_before_are_gone() -> None:
    done = finish_step(MEASURED, end_of(1), METRICS, NOW + 60)
    waiting = plan_recommendation_job(done, fleet(), NOW + 61)
    assert [it.status for it in waiting.steps] == [COMPLETED, PENDING]
    (deleting,) = plan_hidden_endpoints(waiting, fleet(), 2, NOW + 61)
    assert deleting.status is EndpointStatus.DELETING
    assert list(plan_hidden_endpoints(waiting, fleet(endpoint=deleting), 2, NOW + 61)) == []
    begun = plan_recommendation_job(waiting, NOTHING, NOW + 70)
    assert [it.status for it in begun.steps] == [COMPLETED, IN_PROGRESS]
    (made,) = plan_hidden_endpoints(begun, NOTHING, 2, NOW + 70)
    (container,) = made.active.variants[0].model.containers  # type: ignore[union-attr] # it has one
    assert container.environment == {"A": "2", "B": "3"}


def test_parallel_steps_begin_together() -> None:
    begun = plan_recommendation_job(replace(JOB, max_parallel=2), NOTHING, NOW)
    assert [it.status for it in begun.steps] == [IN_PROGRESS, IN_PROGRESS]


@cases(
    "job, end, status, reason",
    case("measured", MEASURED, end_of(1), COMPLETED, None),
    case("failed", MEASURED, end_of(1, "it answered 500"), FAILED, "it answered 500"),
    case(
        "failed without a reason",
        MEASURED,
        BenchmarkEnd(scope=SCOPE, job_name="sizes", number=1),
        FAILED,
        "The load ended without a reason.",
    ),
)
def test_the_end_of_a_load(
    job: RecommendationJob, end: BenchmarkEnd, status: RecommendationStatus, reason: str | None
) -> None:
    after = finish_step(job, end, METRICS, NOW + 60)
    found = after.steps[0]
    assert (found.status, found.failure_reason) == (status, reason)
    assert (found.metrics == METRICS) == (status is COMPLETED)
    assert finish_step(after, end_of(1, "again"), None, NOW + 99) == after, "the first end counts"


@cases(
    "end",
    case("a step that has not begun", end_of(2)),
    case("a step that the job does not have", end_of(9)),
)
def test_an_end_of_another_step_changes_nothing(end: BenchmarkEnd) -> None:
    assert finish_step(MEASURED, end, METRICS, NOW) == MEASURED


def test_from_a_record_to_results_with_nothing_left(place: RecommendationTown) -> None:
    place.add()
    place.turn(20)
    (instance,) = place.town.instance_records()
    assert (instance.instance_type, place.running) == ("ml.small", [1])
    assert place.snapshot.tasks[0].endpoint_name == "recommendation-job/sizes/1"
    assert filter_visible(load_all(place.state)) == [], "clients do not see the endpoint"
    assert place.jobs.finish(end_of(1))
    place.turn(30)
    (instance,) = place.town.instance_records()
    assert (instance.instance_type, place.running) == ("ml.big", [2])
    assert place.jobs.finish(end_of(2, "it answered 500"))
    place.turn(30)
    assert place.job().status is COMPLETED
    assert [it.status for it in place.job().steps] == [COMPLETED, FAILED]
    assert (place.endpoints(), place.town.instances(), place.running) == ([], [], [])
    assert place.town.fleet.machines == {}
    assert place.lines == [
        "Job sizes is IN_PROGRESS, with 2 steps.",
        "Step 1 (ml.small) is IN_PROGRESS",
        "Step 1 (ml.small): endpoint recommendation-job/sizes/1 serves.",
        "Step 1 (ml.small) is COMPLETED",
        "Step 2 (ml.big, A=2, B=3) is IN_PROGRESS",
        "Step 2 (ml.big, A=2, B=3): endpoint recommendation-job/sizes/2 serves.",
        "Step 2 (ml.big, A=2, B=3) is FAILED: it answered 500",
        "Job sizes is COMPLETED",
    ]


def test_a_job_without_a_success_fails_with_the_first_reason(place: RecommendationTown) -> None:
    place.town.switches.broken_images[IMAGE] = "model.joblib is not there"
    place.add(max_parallel=2)
    place.turn(80)
    job = place.job()
    assert job.status is FAILED
    assert (job.failure_reason or "").startswith("None of 2 steps succeeded. Step 1 (ml.small): ")
    assert "model.joblib is not there" in (job.failure_reason or "")
    group = "stream sizes/1/i-001-1700000000 of group /aws/sagemaker/InferenceRecommendationsJobs."
    assert group in (job.steps[0].failure_reason or "")
    assert (place.endpoints(), place.town.instances()) == ([], [])


@pytest.mark.parametrize("turns", [0, 1, 5, 20], ids="after {} turns".format)
def test_a_stop_removes_what_was_made(place: RecommendationTown, turns: int) -> None:
    place.add(max_parallel=2)
    place.turn(turns)
    place.stop()
    place.turn()
    assert place.running == [], "the runner ends its load"
    place.turn(30)
    assert place.job().status is STOPPED
    assert {it.status for it in place.job().steps} == {STOPPED}
    assert (place.endpoints(), place.town.instances()) == ([], [])
    place.jobs.finish(end_of(1))
    assert place.step(1).status is STOPPED, "a late report changes nothing"


def test_a_stop_keeps_results(place: RecommendationTown) -> None:
    place.add()
    place.turn(20)
    place.jobs.finish(end_of(1))
    place.stop()
    place.turn(30)
    assert [it.status for it in place.job().steps] == [COMPLETED, STOPPED]
    assert place.job().status is STOPPED


def test_a_stop_that_an_agent_holds_up_ends_in_time(place: RecommendationTown) -> None:
    place.add()
    place.turn(20)
    place.stop()
    place.turn(1)
    place.town.switches.hang = True
    place.town.clock.advance(STOP_S)
    place.turn(2)
    assert place.job().status is STOPPED
    place.town.switches.hang = False
    place.turn(30)
    assert place.endpoints() == [], "its endpoint ends later"


def test_a_deleted_model_fails_the_steps(place: RecommendationTown) -> None:
    place.add()
    place.turn(20)
    stored = place.state.models.get(SCOPE, MODEL.name)
    assert stored is not None
    place.state.models.delete(SCOPE, MODEL.name, expect=stored.version)
    place.turn(30)
    assert place.job().status is FAILED
    assert 'The model "m" was deleted.' in (place.job().failure_reason or "")
    assert place.endpoints() == []


def test_the_clients_endpoint_stays(place: RecommendationTown) -> None:
    place.town.add(endpoint(deployment(variant(model="m"))))
    place.town.turn(20)
    mine = step(1, None, endpoint_name="ep", endpoint_created_at=NOW)
    place.add(model=None, steps=(mine,))
    place.turn(3)
    assert [it.endpoint_name for it in place.snapshot.tasks] == ["ep"]
    place.jobs.finish(end_of(1))
    place.turn(10)
    assert place.job().status is COMPLETED
    assert place.step(1).metrics == METRICS
    assert [it.status for it in place.endpoints()] == [EndpointStatus.IN_SERVICE]


def test_utilization_is_measured_during_the_best_load(place: RecommendationTown) -> None:
    place.add()
    place.turn(20)
    (machine,) = place.town.fleet.machines.values()
    clock = place.town.clock
    began_at = clock.now()
    for cpu_s in (10.0, 25.0):
        for copy_id, status in machine.copies.items():
            machine.copies[copy_id] = dataclasses.replace(
                status, cpu_s=cpu_s, cpu_at=clock.now(), memory_bytes=1024**3
            )
        machine.seen = None  # reports that differ only in use are equal
        place.town.step_instances()
        place.jobs.loop.one_pass()
        clock.advance(10.0)
    best = replace(LOAD, began_at=began_at, ended_at=clock.now())
    place.jobs.finish(replace(end_of(1), best=best))
    found = place.step(1).metrics
    assert found is not None
    assert (found.cpu_percent, found.memory_percent) == (150.0, 100 / 16)
    assert found.setup_s is not None
    assert 0 < found.setup_s < 5


def test_utilization_without_reports_is_unknown(place: RecommendationTown) -> None:
    place.add()
    place.turn(20)
    place.restart_control()
    place.turn()
    place.jobs.finish(end_of(1))
    found = place.step(1).metrics
    assert found is not None
    assert (found.cpu_percent, found.memory_percent) == (None, None)


def test_a_copy_that_stopped_serving_is_noticed(place: RecommendationTown) -> None:
    place.add()
    place.turn(20)
    for machine in place.town.fleet.machines.values():
        for copy_id, status in machine.copies.items():
            machine.copies[copy_id] = dataclasses.replace(
                status, phase=CopyPhase.UNHEALTHY, reason="it hangs"
            )
    place.turn(3)
    assert place.step(1).unserved_since is not None


def test_the_end_of_no_job_is_refused(place: RecommendationTown) -> None:
    assert not place.jobs.finish(replace(end_of(1), job_name="gone"))


def test_a_job_is_shown_until_it_is_over(place: RecommendationTown) -> None:
    place.add()
    place.turn(20)
    (shown,) = recommendation_overview([place.job()])
    assert (shown["name"], shown["status"], shown["until_at"]) == ("sizes", "IN_PROGRESS", UNTIL)
    assert (shown["num_over"], shown["num_steps"]) == (0, 2)
    assert shown["under_way"] == ["Step 1 (ml.small)"]
    assert recommendation_overview([replace(place.job(), status=COMPLETED)]) == []


SEARCH = LlmSearch(
    workload_name="short",
    workload=AiWorkload(prompt_tokens_mean=50.0),
    objective=LlmObjective.THROUGHPUT,
    output_uri="s3://out/results",
)
AI_JOB = replace(JOB, payload=None, search=SEARCH, duration_s=20_000.0)


def test_an_ai_recommendation_job_has_its_own_model_endpoints_and_records() -> None:
    place = RecommendationTown(kind=HiddenKind.AI_RECOMMENDATION)
    try:
        found = place.state.models.get(SCOPE, MODEL.name)
        assert found is not None
        place.state.models.delete(SCOPE, MODEL.name, expect=found.version)
        place.add(search=SEARCH, payload=None)
        place.turn(20)
        (endpoint,) = place.endpoints()
        assert endpoint.name == "ai-recommendation-job/sizes/1"
        assert get_owner(endpoint.name) == "sizes/1"
        (task,) = place.snapshot.tasks
        assert (task.search, task.results_uri) == (SEARCH, "s3://out/results/sizes/1/results.json")
        llm = LlmMeasures(
            concurrency=2, requests_per_s=10.0, tokens_per_s=30.0,
            latency_ms={}, first_token_ms={}, token_ms={},
        )  # fmt: skip
        end = replace(end_of(1), best=replace(LOAD, llm=llm), job_created_at=NOW - 1)
        place.jobs.finish(end)
        assert place.step(1).status is IN_PROGRESS, "the end of an older job of that name"
        place.jobs.finish(replace(end, job_created_at=NOW))
        metrics = place.step(1).metrics
        assert metrics is not None
        assert metrics.llm == llm
        assert [it["is_ai"] for it in recommendation_overview([place.job()])] == [True]
    finally:
        place.town.close()


def test_a_search_ends_an_hour_after_its_endpoint_served() -> None:
    steps = tuple(replace(it, status=IN_PROGRESS, served_at=NOW + 9) for it in AI_JOB.steps)
    job = replace(AI_JOB, status=IN_PROGRESS, started_at=NOW, steps=steps)
    assert {it.until_at for it in list_tasks(job)} == {NOW + 9 + SEARCH_S}
    assert {it.until_at for it in list_tasks(replace(job, duration_s=60.0))} == {NOW + 60}


def test_a_job_that_is_over_sends_no_load() -> None:
    assert [it.number for it in list_tasks(MEASURED)] == [1]
    assert list(list_tasks(replace(MEASURED, status=STOPPING))) == []


@pytest.mark.parametrize("stops", [False, True], ids=["it completes", "it is stopped"])
def test_kills_of_control_at_any_write_leave_nothing(
    pytestconfig: pytest.Config, stops: bool
) -> None:
    def end(place: RecommendationTown) -> None:
        if stops:
            place.stop()
        else:
            place.jobs.finish(end_of(1))

    def lead(fails_at: int | None) -> int:
        store = FaultyStore(Killed())
        place = RecommendationTown(store)
        place.add(steps=JOB.steps[:1])
        store.fails_at, store.armed = fails_at, True
        survive(place, lambda it: it.turn(20))
        survive(place, end)
        survive(place, lambda it: it.turn(60))
        job = place.job()
        assert job.status is (STOPPED if stops else COMPLETED), f"after a kill at write {fails_at}"
        assert (place.endpoints(), place.town.instances()) == ([], [])
        assert place.town.fleet.machines == {}
        place.town.close()
        return store.num_writes

    for fails_at in numbers(pytestconfig, lead(None), every=4):
        lead(fails_at)


def survive(place: RecommendationTown, act: Callable[[RecommendationTown], None]) -> None:
    """Do `act`. If control is killed in it, start control and do it again."""
    try:
        act(place)
    except Killed:
        place.restart_control()
        act(place)
