"""A recommendations job, its steps and their endpoints: the next state of each. Pure.

step          its endpoint                         step                      hidden endpoint
-----------   ----------------------------------   -----------------------   ---------------
PENDING       room for one more                    IN_PROGRESS               stays
IN_PROGRESS   none, or on the way out              stays                     made once it is gone
IN_PROGRESS   Failed, or the client deleted it     FAILED, for the reason    stays
IN_PROGRESS   InService, for the first time        the runner sends load     stays
IN_PROGRESS   InService, no copy for too long      FAILED, for the reason    stays
IN_PROGRESS   InService, but no runner asks        FAILED                    stays
unfinished    the job's model was deleted          FAILED                    stays
unfinished    the job's duration is over           FAILED                    stays
unfinished    the job is STOPPING                  STOPPED                   stays
over          present                              stays                     Deleting

A job is over once all its steps are over and their endpoints are gone. It is COMPLETED if one step
is, and else FAILED.
"""

from collections.abc import Iterator, Mapping

import msgspec
from msgspec.structs import replace

from hostelry.domain.endpoint import Endpoint, EndpointStatus
from hostelry.domain.recommendation_job import (
    SEARCH_S,
    VARIANT_NAME,
    BenchmarkEnd,
    BenchmarkMetrics,
    BenchmarkStep,
    BenchmarkTask,
    RecommendationJob,
    RecommendationStatus,
)
from hostelry.domain.status import RECOMMENDATION_SLACK_S, RUNNER_S, Event, next_status
from hostelry.reconcile.plan.endpoint_state import SERVING_ENDPOINT
from hostelry.reconcile.plan.hidden_endpoint import (
    HiddenFleet,
    HiddenSpec,
    build_hidden_endpoint,
    delete_hidden_endpoint,
    explain_silence,
)
from hostelry.reconcile.plan.status import build_failure_reason

LAST_REPORT_S = 120.0  # after the job's duration, for the runner's report
NO_RUNNER = (
    "No process has asked for benchmarks for {:.0f} s, so that none sends load; `hostelry status`"
    " shows the platform's processes."
)
NO_REASON = "The instances failed without a reason."
TOO_LATE = "The {:g} s of the job were over before the step {}."
IN_PROGRESS = RecommendationStatus.IN_PROGRESS


class BenchmarkFleet(msgspec.Struct, frozen=True, kw_only=True):
    """What there is of a job: the endpoint of each step by its number, and whether it has a model.

    `asked_at` is when a process last asked for the loads to be sent, or began to be able to.
    """

    fleets: Mapping[int, HiddenFleet]
    has_model: bool = True
    asked_at: float

    def get_fleet(self, step: BenchmarkStep) -> HiddenFleet:
        """What there is of a step's endpoint."""
        return self.fleets.get(step.number) or HiddenFleet(asked_at=self.asked_at)


def plan_recommendation_job(
    job: RecommendationJob, fleet: BenchmarkFleet, now: float
) -> RecommendationJob:
    """The job after its endpoints' states and the time have been taken into account."""
    if job.is_over:
        return job
    if job.status is RecommendationStatus.PENDING:
        job = replace(
            job,
            status=next_status(job.status, Event.START),
            started_at=now,
            modified_at=now,
            deadline_at=now + job.duration_s + RECOMMENDATION_SLACK_S,
        )
    steps = tuple(_plan_step(job, it, fleet, now) for it in job.steps)
    if job.status is IN_PROGRESS:
        steps = _start_steps(job, steps, fleet, now)
    if steps != job.steps:
        job = replace(job, steps=steps, modified_at=now)
    return _finish(job, fleet, now)


def plan_hidden_endpoints(
    job: RecommendationJob, fleet: BenchmarkFleet, generation: int, now: float
) -> Iterator[Endpoint]:
    """The endpoints to record for the steps on instances of the job."""
    for step in job.steps:
        if step.endpoint_name is not None:
            continue
        endpoint = fleet.get_fleet(step).endpoint
        if step.status is IN_PROGRESS and endpoint is None:
            yield build_hidden_endpoint(_get_spec(job, step), generation, now)
        elif step.status.is_over:
            changed = delete_hidden_endpoint(endpoint, now)
            if changed is not None:
                yield changed


def finish_step(
    job: RecommendationJob, end: BenchmarkEnd, metrics: BenchmarkMetrics | None, now: float
) -> RecommendationJob:
    """The job after its runner is done with a step, and says how it ended. The first end counts.

    `metrics` has the measures of a step that succeeded.
    """
    if end.job_created_at not in (None, job.created_at):
        return job
    steps = tuple(
        _end_measured(step, end, metrics)
        if step.number == end.number and step.status is IN_PROGRESS
        else step
        for step in job.steps
    )
    return job if job.is_over or steps == job.steps else replace(job, steps=steps, modified_at=now)


def list_tasks(job: RecommendationJob) -> Iterator[BenchmarkTask]:
    """The loads to be sent now."""
    until_at = job.until_at
    if job.status is not IN_PROGRESS or until_at is None:
        return
    for step in job.steps:
        if step.status is IN_PROGRESS and step.served_at is not None:
            search_until_at = min(until_at, step.served_at + SEARCH_S)
            yield BenchmarkTask(
                scope=job.scope,
                job_name=job.name,
                job_created_at=job.created_at,
                number=step.number,
                endpoint_name=job.measured_endpoint(step),
                payload=job.payload,
                traffic=job.traffic,
                stopping=job.stopping,
                search=job.search,
                until_at=until_at if job.search is None else search_until_at,
            )


def describe_changes(before: RecommendationJob, after: RecommendationJob) -> Iterator[str]:
    """Lines about the changes of a job, for its log stream."""
    if before.status is not after.status and not after.is_over:
        yield f"Job {after.name} is {after.status.value}, with {len(after.steps)} steps."
    for old, step in zip(before.steps, after.steps, strict=True):
        if old.status is not step.status:
            reason = f": {step.failure_reason}" if step.failure_reason else ""
            yield f"{name_step(step)} is {step.status.value}{reason}"
        elif old.served_at is None and step.served_at is not None:
            yield f"{name_step(step)}: endpoint {after.measured_endpoint(step)} serves."
    if before.status is not after.status and after.is_over:
        reason = f": {after.failure_reason}" if after.failure_reason else ""
        yield f"Job {after.name} is {after.status.value}{reason}"


def name_step(step: BenchmarkStep) -> str:
    """A step's number, and its endpoint or instance type."""
    what = step.endpoint_name or step.instance_type
    variables = ", ".join(f"{name}={value}" for name, value in sorted(step.environment.items()))
    return f"Step {step.number} ({what}{', ' + variables if variables else ''})"


def _get_spec(job: RecommendationJob, step: BenchmarkStep) -> HiddenSpec:
    assert job.model is not None, "a step on an instance type has a model"
    assert step.instance_type is not None, "a step without an endpoint has an instance type"
    return HiddenSpec(
        scope=job.scope,
        name=job.hidden_name(step),
        variant_name=VARIANT_NAME,
        model=job.model.add_environment(step.environment),
        instance_type=step.instance_type,
    )


def _start_steps(
    job: RecommendationJob, steps: tuple[BenchmarkStep, ...], fleet: BenchmarkFleet, now: float
) -> tuple[BenchmarkStep, ...]:
    """Start waiting steps, as many as may have instances at once.

    A step holds its instances until its endpoint is gone.
    """
    num_free = job.max_parallel - sum(1 for it in steps if _holds_instances(it, fleet))
    found = []
    for step in steps:
        if step.status is RecommendationStatus.PENDING and num_free > 0:
            num_free -= 1
            step = replace(step, status=next_status(step.status, Event.START), begun_at=now)
        found.append(step)
    return tuple(found)


def _holds_instances(step: BenchmarkStep, fleet: BenchmarkFleet) -> bool:
    is_left = step.endpoint_name is None and fleet.get_fleet(step).endpoint is not None
    return step.status is IN_PROGRESS or is_left


def _plan_step(
    job: RecommendationJob, step: BenchmarkStep, fleet: BenchmarkFleet, now: float
) -> BenchmarkStep:
    if step.status.is_over:
        return step
    if job.status is RecommendationStatus.STOPPING:
        return _end_step(step, Event.STOPPED)
    until_at = job.until_at
    assert until_at is not None, "a job in progress has begun"
    if job.model is not None and step.endpoint_name is None and not fleet.has_model:
        return _end_step(step, Event.FAIL, f'The model "{job.model.name}" was deleted.')
    if step.status is RecommendationStatus.PENDING:
        late = TOO_LATE.format(job.duration_s, "began")
        return step if now < until_at else _end_step(step, Event.FAIL, late)
    if now >= until_at + (0.0 if step.served_at is None else LAST_REPORT_S):
        what = "served" if step.served_at is None else "was measured"
        return _end_step(step, Event.FAIL, TOO_LATE.format(job.duration_s, what))
    return _watch(step, fleet.get_fleet(step), now)


def _watch(step: BenchmarkStep, fleet: HiddenFleet, now: float) -> BenchmarkStep:
    """A step in progress after its endpoint was looked at."""
    endpoint = fleet.endpoint
    if step.endpoint_name is not None and _is_gone(step, endpoint):
        return _end_step(step, Event.FAIL, f'The endpoint "{step.endpoint_name}" was deleted.')
    if endpoint is None:
        return step
    if endpoint.status is EndpointStatus.FAILED:
        return _end_step(step, Event.FAIL, endpoint.failure_reason or NO_REASON)
    if endpoint.status not in SERVING_ENDPOINT:
        return step
    if step.served_at is None:
        step = replace(step, served_at=now)
    silent_s = now - max(fleet.asked_at, step.served_at or now)
    if silent_s >= RUNNER_S:
        return _end_step(step, Event.FAIL, NO_RUNNER.format(silent_s))
    if fleet.serves:
        return step if step.unserved_since is None else replace(step, unserved_since=None)
    if step.unserved_since is None:
        return replace(step, unserved_since=now)
    silence = explain_silence(endpoint, fleet, step.unserved_since, now)
    return step if silence is None else _end_step(step, Event.FAIL, silence)


def _is_gone(step: BenchmarkStep, endpoint: Endpoint | None) -> bool:
    """Whether the client's endpoint was deleted. Another endpoint may have its name since."""
    return (
        endpoint is None
        or endpoint.created_at != step.endpoint_created_at
        or endpoint.status is EndpointStatus.DELETING
    )


def _end_step(step: BenchmarkStep, event: Event, reason: str | None = None) -> BenchmarkStep:
    status = step.status
    if event is Event.STOPPED:
        status = next_status(status, Event.STOP)
    return replace(
        step,
        status=next_status(status, event),
        unserved_since=None,
        failure_reason=None if reason is None else build_failure_reason(reason),
    )


def _end_measured(
    step: BenchmarkStep, end: BenchmarkEnd, metrics: BenchmarkMetrics | None
) -> BenchmarkStep:
    step = replace(step, load_began_at=end.load_began_at, load_ended_at=end.load_ended_at)
    if end.best is None or metrics is None:
        return _end_step(step, Event.FAIL, end.reason or "The load ended without a reason.")
    return replace(_end_step(step, Event.COMPLETE), metrics=metrics)


def _finish(job: RecommendationJob, fleet: BenchmarkFleet, now: float) -> RecommendationJob:
    """The job, over once its steps are over and nothing of them is left."""
    late = job.deadline_at is not None and now >= job.deadline_at
    is_done = all(it.status.is_over for it in job.steps)
    if not is_done or (any(_holds_instances(it, fleet) for it in job.steps) and not late):
        return job
    if job.status is RecommendationStatus.STOPPING:
        event, reason = Event.STOPPED, None
    elif any(it.status is RecommendationStatus.COMPLETED for it in job.steps):
        event, reason = Event.COMPLETE, None
    else:
        first = job.steps[0]
        event = Event.FAIL
        reason = build_failure_reason(
            f"None of {len(job.steps)} steps succeeded. {name_step(first)}: {first.failure_reason}"
        )
    return replace(
        job,
        status=next_status(job.status, event),
        modified_at=now,
        ended_at=now,
        deadline_at=None,
        failure_reason=reason,
    )
