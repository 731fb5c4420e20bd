"""An AI benchmark job: its next state. Pure.

job          its endpoint and components            becomes
----------   ------------------------------------   --------------------------
InProgress   one was deleted, or made again         Failed, for the reason
InProgress   present, but no runner asks            Failed
InProgress   present, but the job takes too long    Failed
InProgress   present                                stays. A runner sends load
Stopping     any                                    Stopped
"""

from collections.abc import Mapping

import msgspec
from msgspec.structs import replace

from hostelry.domain.ai_benchmark_job import AiBenchmarkEnd, AiBenchmarkJob, AiBenchmarkStatus
from hostelry.domain.component import ComponentStatus, InferenceComponent
from hostelry.domain.endpoint import Endpoint, EndpointStatus
from hostelry.domain.status import RUNNER_S, Event, next_status
from hostelry.reconcile.plan.status import build_failure_reason

NO_RUNNER = (
    "No process has asked for AI benchmarks for {:.0f} s, so that none sends load; `hostelry"
    " status` shows the platform's processes."
)
TOO_LATE = "The job did not end within {:.0f} s. Its log stream shows its last step."


class BenchmarkTarget(msgspec.Struct, frozen=True, kw_only=True):
    """What there is of a job's target: the endpoint, and its components by name.

    `asked_at` is when a process last asked for the jobs to be run, or began to be able to.
    """

    endpoint: Endpoint | None
    components: Mapping[str, InferenceComponent]
    asked_at: float


def plan_ai_benchmark_job(
    job: AiBenchmarkJob, target: BenchmarkTarget, now: float
) -> AiBenchmarkJob:
    """The job after its target's state and the time have been taken into account."""
    if job.is_over:
        return job
    if job.status is AiBenchmarkStatus.STOPPING:
        return _end(job, Event.STOPPED, now)
    reason = _find_problem(job, target, now)
    if reason is not None:
        return _end(job, Event.FAIL, now, reason)
    if job.started_at is None:
        return replace(job, started_at=now, modified_at=now)
    return job


def finish_ai_benchmark_job(job: AiBenchmarkJob, end: AiBenchmarkEnd, now: float) -> AiBenchmarkJob:
    """The job after its runner is done with it. The first end counts."""
    is_same = job.created_at == end.created_at
    if not is_same or job.status is not AiBenchmarkStatus.IN_PROGRESS:
        return job
    return _end(job, Event.COMPLETE if end.reason is None else Event.FAIL, now, end.reason)


def _find_problem(job: AiBenchmarkJob, target: BenchmarkTarget, now: float) -> str | None:
    endpoint = target.endpoint
    is_present = endpoint is not None and endpoint.created_at == job.endpoint_created_at
    if endpoint is None or not is_present or endpoint.status is EndpointStatus.DELETING:
        return f'Endpoint "{job.endpoint_name}" was deleted before the benchmark ended.'
    for name in job.component_names:
        component = target.components.get(name)
        if component is None or component.endpoint_name != job.endpoint_name:
            return f'Inference component "{name}" was deleted before the benchmark ended.'
        if component.status is ComponentStatus.DELETING:
            return f'Inference component "{name}" was deleted before the benchmark ended.'
    if now >= target.asked_at + RUNNER_S:
        return NO_RUNNER.format(RUNNER_S)
    if job.deadline_at is not None and now >= job.deadline_at:
        return TOO_LATE.format(job.deadline_at - job.created_at)
    return None


def _end(
    job: AiBenchmarkJob, event: Event, now: float, reason: str | None = None
) -> AiBenchmarkJob:
    return replace(
        job,
        status=next_status(job.status, event),
        modified_at=now,
        ended_at=now,
        deadline_at=None,
        failure_reason=None if reason is None else build_failure_reason(reason),
    )
