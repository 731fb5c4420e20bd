"""AI benchmark jobs run while their target is there, and end with a reason."""

from typing import Any

import pytest
from msgspec.structs import replace
from tests.cases import case, cases
from tests.unit.reconcile.samples import NOW, SCOPE, component, deployment, endpoint, variant

from hostelry.base.clock import ManualClock
from hostelry.domain.ai_benchmark_job import (
    AiBenchmarkEnd,
    AiBenchmarkJob,
    AiBenchmarkStatus,
    AiWorkload,
)
from hostelry.domain.component import ComponentStatus
from hostelry.domain.endpoint import EndpointStatus
from hostelry.domain.status import RUNNER_S
from hostelry.reconcile.ai_benchmark_jobs import AiBenchmarkJobs
from hostelry.reconcile.overview import ai_benchmark_overview
from hostelry.reconcile.plan.ai_benchmark import (
    BenchmarkTarget,
    finish_ai_benchmark_job,
    plan_ai_benchmark_job,
)
from hostelry.store.memory import MemoryStore
from hostelry.store.records import State, open_state

IN_PROGRESS, STOPPING = AiBenchmarkStatus.IN_PROGRESS, AiBenchmarkStatus.STOPPING
COMPLETED, FAILED = AiBenchmarkStatus.COMPLETED, AiBenchmarkStatus.FAILED
JOB = AiBenchmarkJob(
    scope=SCOPE,
    name="chat",
    arn=SCOPE.arn("ai-benchmark-job", "chat"),
    created_at=NOW,
    modified_at=NOW,
    status=IN_PROGRESS,
    workload_name="short",
    workload=AiWorkload(prompt_tokens_mean=20.0, request_count=10),
    endpoint_name="ep",
    endpoint_created_at=NOW,
    output_uri="s3://out/",
    started_at=NOW,
    deadline_at=NOW + 1_000,
    given={},
)
ENDPOINT = endpoint(deployment(variant(model="m")), EndpointStatus.IN_SERVICE)
BASE = component(status=ComponentStatus.IN_SERVICE)
ON_BASE = replace(JOB, component_names=("base",))
END = AiBenchmarkEnd(scope=SCOPE, name="chat", created_at=NOW)
GONE = 'Endpoint "ep" was deleted before the benchmark ended.'
BASE_GONE = 'Inference component "base" was deleted before the benchmark ended.'


def target(**fields: Any) -> BenchmarkTarget:
    given = {"endpoint": ENDPOINT, "components": {"base": BASE}, "asked_at": NOW, **fields}
    return BenchmarkTarget(**given)


@cases(
    "job, there, now, status, reason",
    case("a job runs while its endpoint is there", JOB, target(), NOW, "InProgress", None),
    case("no endpoint", JOB, target(endpoint=None), NOW, "Failed", GONE),
    case(
        "another endpoint with the same name",
        JOB,
        target(endpoint=replace(ENDPOINT, created_at=NOW + 1)),
        NOW,
        "Failed",
        GONE,
    ),
    case(
        "an endpoint on its way out",
        JOB,
        target(endpoint=replace(ENDPOINT, status=EndpointStatus.DELETING)),
        NOW,
        "Failed",
        GONE,
    ),
    case(
        "an endpoint that is updated serves on",
        JOB,
        target(endpoint=replace(ENDPOINT, status=EndpointStatus.UPDATING)),
        NOW,
        "InProgress",
        None,
    ),
    case("a component is there", ON_BASE, target(), NOW, "InProgress", None),
    case("no component", ON_BASE, target(components={}), NOW, "Failed", BASE_GONE),
    case(
        "a component on its way out",
        ON_BASE,
        target(components={"base": replace(BASE, status=ComponentStatus.DELETING)}),
        NOW,
        "Failed",
        BASE_GONE,
    ),
    case(
        "a component that was made again elsewhere",
        ON_BASE,
        target(components={"base": replace(BASE, endpoint_name="other")}),
        NOW,
        "Failed",
        BASE_GONE,
    ),
    case(
        "no process sends load",
        replace(JOB, deadline_at=NOW + 10 * RUNNER_S),
        target(),
        NOW + RUNNER_S,
        "Failed",
        "No process has asked for AI benchmarks for 600 s",
    ),
    case(
        "too late",
        JOB,
        target(asked_at=NOW + 1_000),
        NOW + 1_000,
        "Failed",
        "The job did not end within 1000 s.",
    ),
    case("a stopped job", replace(JOB, status=STOPPING), target(), NOW, "Stopped", None),
    case(
        "a stopped job without an endpoint",
        replace(JOB, status=STOPPING),
        target(endpoint=None),
        NOW,
        "Stopped",
        None,
    ),
)
def test_the_next_state_of_a_job(
    job: AiBenchmarkJob, there: BenchmarkTarget, now: float, status: str, reason: str | None
) -> None:
    after = plan_ai_benchmark_job(job, there, now)
    assert after.status.value == status
    assert after.is_over is (status != "InProgress")
    assert (after.failure_reason or "").startswith(reason or "")
    assert (after.failure_reason is None) is (reason is None)
    assert plan_ai_benchmark_job(after, there, now) == after, "a pass may be repeated"


@cases(
    "job, end, status, reason",
    case("a success", JOB, END, COMPLETED, None),
    case("a failure", JOB, replace(END, reason="no answer"), FAILED, "no answer"),
    case("an end of an earlier job", JOB, replace(END, created_at=NOW - 1), IN_PROGRESS, None),
    case("an end after a stop", replace(JOB, status=STOPPING), END, STOPPING, None),
    case(
        "a second end",
        finish_ai_benchmark_job(JOB, END, NOW),
        replace(END, reason="late"),
        COMPLETED,
        None,
    ),
)
def test_the_end_of_a_job(
    job: AiBenchmarkJob, end: AiBenchmarkEnd, status: AiBenchmarkStatus, reason: str | None
) -> None:
    after = finish_ai_benchmark_job(job, end, NOW + 5)
    assert (after.status, after.failure_reason) == (status, reason)


@pytest.fixture
def state() -> State:
    """A state with a new job and its endpoint."""
    found = open_state(MemoryStore())
    found.endpoints.put(SCOPE, "ep", ENDPOINT, expect=None)
    found.ai_benchmark_jobs.put(SCOPE, "chat", replace(JOB, started_at=None), expect=None)
    return found


def stored(state: State) -> AiBenchmarkJob:
    found = state.ai_benchmark_jobs.get(SCOPE, "chat")
    assert found is not None
    return found.value


def named(jobs: AiBenchmarkJobs) -> tuple[AiBenchmarkJob, ...]:
    """The jobs for the runner after a pass."""
    jobs.loop.one_pass()
    assert jobs.loop.snapshot is not None
    return jobs.loop.snapshot.jobs


def test_a_job_is_named_to_the_runner_until_it_ends(state: State) -> None:
    jobs = AiBenchmarkJobs(state, ManualClock(NOW))
    for _ in range(3):
        assert named(jobs) == (stored(state),)
    assert stored(state).started_at == NOW
    assert jobs.finish(END)
    assert jobs.finish(END), "a repeated report is taken"
    assert named(jobs) == ()
    assert stored(state).status is COMPLETED
    assert not jobs.finish(replace(END, name="other"))


def test_a_job_whose_endpoint_is_deleted_half_way_fails(state: State) -> None:
    jobs = AiBenchmarkJobs(state, ManualClock(NOW))
    jobs.loop.one_pass()
    found = state.endpoints.get(SCOPE, "ep")
    assert found is not None
    state.endpoints.delete(SCOPE, "ep", expect=found.version)
    assert named(jobs) == ()
    assert (stored(state).status, stored(state).failure_reason) == (FAILED, GONE)
    jobs.finish(END)
    assert stored(state).status is FAILED, "the runner's end comes too late"


def test_a_thousand_jobs_are_driven_in_the_order_of_their_creation(state: State) -> None:
    names = [f"job-{number}" for number in range(1_000)]
    for number, name in enumerate(names, start=1):
        job = replace(JOB, name=name, created_at=NOW + number)
        state.ai_benchmark_jobs.put(SCOPE, name, job, expect=None)
    jobs = AiBenchmarkJobs(state, ManualClock(NOW))
    assert [it.name for it in named(jobs)] == ["chat", *names]


def test_status_shows_the_jobs_that_are_not_over() -> None:
    newer = replace(JOB, name="newer", created_at=NOW + 1)
    over = replace(JOB, name="over", status=COMPLETED, ended_at=NOW)
    shown = ai_benchmark_overview([JOB, over, newer])
    assert [it["name"] for it in shown] == ["newer", "chat"]
    assert (shown[1]["endpoint"], shown[1]["deadline_at"]) == ("ep", NOW + 1_000)
