"""A transform job and its hidden endpoint: the next state of each, from the present one. Pure.

job          its endpoint                        job                        endpoint
----------   ---------------------------------   ------------------------   --------
InProgress   none, or on the way out             stays                      made once it is gone
InProgress   Failed                              Failed, for its reason     stays
InProgress   InService, for the first time       its TransformStartTime     stays
InProgress   InService, no copy for too long     Failed, for the reason     stays
InProgress   InService, but no runner asks       Failed                     stays
InProgress   past the job's deadline             Failed                     stays
Stopping     past the job's deadline             Stopped                    stays
Stopping     missing, or never served            Stopped                    stays
Stopping     serves                              until the runner is done   stays
over         present                             stays                      Deleting
"""

from msgspec.structs import replace

from hostelry.domain.endpoint import Endpoint, EndpointStatus
from hostelry.domain.model import Model
from hostelry.domain.status import RUNNER_S, TRANSFORM_S, Event, next_status
from hostelry.domain.transform_job import (
    VARIANT_NAME,
    TransformJob,
    TransformJobStatus,
    TransformProgress,
)
from hostelry.reconcile.plan.endpoint_state import SERVING_ENDPOINT
from hostelry.reconcile.plan.hidden_endpoint import (
    HiddenFleet,
    HiddenSpec,
    build_hidden_endpoint,
    delete_hidden_endpoint,
    explain_silence,
)
from hostelry.reconcile.plan.status import build_failure_reason

NO_RUNNER = (
    "InternalServerError: no process has asked for transform jobs for {:.0f} s, so that none runs"
    " them; `hostelry status` shows the platform's processes."
)
NO_REASON = "The instances failed without a reason."


def plan_transform_job(job: TransformJob, fleet: HiddenFleet, now: float) -> TransformJob:
    """The job after its endpoint's state and the time have been taken into account."""
    if job.is_over:
        return job
    late = job.deadline_at is not None and now >= job.deadline_at
    if job.status is TransformJobStatus.STOPPING:
        return end_job(job, Event.STOPPED, now) if late or not _may_work(job, fleet) else job
    if late:
        return end_job(
            job,
            Event.FAIL,
            now,
            f"The job was not done after {TRANSFORM_S / 86_400:.0f} days, the longest that a"
            " transform job may take.",
        )
    endpoint = fleet.endpoint
    if endpoint is not None and endpoint.status is EndpointStatus.FAILED:
        return end_job(job, Event.FAIL, now, endpoint.failure_reason or NO_REASON)
    if endpoint is None or endpoint.status not in SERVING_ENDPOINT:
        return job
    if job.started_at is None:
        job = replace(job, started_at=now, modified_at=now)
    silent_s = now - max(fleet.asked_at, job.started_at or now)
    if silent_s >= RUNNER_S:
        return end_job(job, Event.FAIL, now, NO_RUNNER.format(silent_s))
    return _watch(job, endpoint, fleet, now)


def _may_work(job: TransformJob, fleet: HiddenFleet) -> bool:
    """Whether requests of the job may be under way."""
    return job.started_at is not None and fleet.endpoint is not None


def _watch(job: TransformJob, endpoint: Endpoint, fleet: HiddenFleet, now: float) -> TransformJob:
    """The job, Failed if no copy has served for as long as a copy may take to come up."""
    if fleet.serves:
        return job if job.unserved_since is None else replace(job, unserved_since=None)
    if job.unserved_since is None:
        return replace(job, unserved_since=now)
    silence = explain_silence(endpoint, fleet, job.unserved_since, now)
    return job if silence is None else end_job(job, Event.FAIL, now, silence)


def end_job(
    job: TransformJob,
    event: Event,
    now: float,
    reason: str | None = None,
    progress: TransformProgress | None = None,
) -> TransformJob:
    """The job over, by `event`. `reason` is why it failed."""
    return replace(
        job,
        status=next_status(job.status, event),
        modified_at=now,
        ended_at=now,
        deadline_at=None,
        unserved_since=None,
        failure_reason=None if reason is None else build_failure_reason(reason),
        progress=progress or job.progress,
    )


def finish_job(
    job: TransformJob,
    status: TransformJobStatus,
    reason: str | None,
    progress: TransformProgress | None,
    now: float,
) -> TransformJob:
    """The job after its runner is done with it, and says how it ended.

    | the job | said | result |
    | --- | --- | --- |
    | over | anything | unchanged: the first end counts |
    | Stopping | anything | Stopped |
    | InProgress | Completed, Failed | that |
    | InProgress | Stopped | Failed: no client asked for a stop |
    """
    if job.is_over:
        return job
    if job.status is TransformJobStatus.STOPPING:
        return end_job(job, Event.STOPPED, now, progress=progress)
    if status is TransformJobStatus.COMPLETED:
        return end_job(job, Event.COMPLETE, now, progress=progress)
    return end_job(job, Event.FAIL, now, reason or "The job ended without a reason.", progress)


def plan_hidden_endpoint(
    job: TransformJob, endpoint: Endpoint | None, generation: int, now: float
) -> Endpoint | None:
    """The endpoint to record for the job. None if the recorded one needs no change."""
    if not job.is_over:
        in_progress = job.status is TransformJobStatus.IN_PROGRESS
        return hidden_endpoint(job, generation, now) if endpoint is None and in_progress else None
    return delete_hidden_endpoint(endpoint, now)


def hidden_endpoint(job: TransformJob, generation: int, now: float) -> Endpoint:
    """The endpoint with the job's instances, each with a copy of its model."""
    spec = HiddenSpec(
        scope=job.scope,
        name=job.endpoint_name,
        variant_name=VARIANT_NAME,
        model=batch_model(job),
        instance_type=job.instance_type,
        instance_count=job.instance_count,
    )
    return build_hidden_endpoint(spec, generation, now)


def batch_model(job: TransformJob) -> Model:
    """The job's model with the job's variables, and those that say it is a job.

    Source: CreateTransformJob, "Environment" and the container contract of batch transform.
    """
    variables = {**job.environment, "SAGEMAKER_BATCH": "true"}
    if job.max_payload_mb is not None:
        variables["SAGEMAKER_MAX_PAYLOAD_IN_MB"] = str(job.max_payload_mb)
    if job.strategy is not None:
        variables["SAGEMAKER_BATCH_STRATEGY"] = job.strategy.variable
    if job.max_concurrent is not None:
        variables["SAGEMAKER_MAX_CONCURRENT_TRANSFORMS"] = str(job.max_concurrent)
    return job.model.add_environment(variables)
