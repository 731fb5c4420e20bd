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

from dataclasses import dataclass, replace

from hostelry.domain.endpoint import Deployment, Endpoint, EndpointStatus, EndpointVariant
from hostelry.domain.endpoint_config import EndpointConfig, RoutingStrategy, Variant
from hostelry.domain.model import Model
from hostelry.domain.resize import deployment_deadline
from hostelry.domain.status import RUNNER_S, TRANSFORM_S, Event, can, delete_deadline, next_status
from hostelry.domain.transform_job import (
    VARIANT_NAME,
    TransformJob,
    TransformJobStatus,
    TransformProgress,
)
from hostelry.reconcile.plan.endpoint_state import SERVING_ENDPOINT
from hostelry.reconcile.plan.status import build_failure_reason

NO_RUNNER = (
    "InternalServerError: no process has asked for transform jobs for {:.0f} s, so that none runs"
    " them; `hostelry status` shows the platform's processes."
)
NO_REASON = "The instances failed without a reason."


@dataclass(frozen=True, slots=True, kw_only=True)
class TransformFleet:
    """What there is of a job's endpoint: its record, whether a copy serves, and why none does.

    `asked_at` is when a process last asked for the jobs to be run, or began to be able to.
    """

    endpoint: Endpoint | None = None
    serves: bool = False
    problem: str | None = None
    asked_at: float


def plan_transform_job(job: TransformJob, fleet: TransformFleet, now: float) -> TransformJob:
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


def _may_work(job: TransformJob, fleet: TransformFleet) -> bool:
    """Whether requests of the job may be under way."""
    return job.started_at is not None and fleet.endpoint is not None


def _watch(
    job: TransformJob, endpoint: Endpoint, fleet: TransformFleet, now: float
) -> TransformJob:
    """The job, Failed if no copy has served for as long as a copy may take to come up."""
    if fleet.serves:
        return job if job.unserved_since is None else replace(job, unserved_since=None)
    if job.unserved_since is None:
        return replace(job, unserved_since=now)
    if now < deployment_deadline(endpoint.active, job.unserved_since):
        return job
    why = fleet.problem or "no copy became ready"
    waited_s = now - job.unserved_since
    return end_job(job, Event.FAIL, now, f"No copy has served for {waited_s:.0f} s: {why}")


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
    if endpoint is None or endpoint.status is EndpointStatus.DELETING:
        return None
    assert can(endpoint.status, Event.DELETE), "an endpoint can be deleted from every status"
    return replace(
        endpoint,
        status=next_status(endpoint.status, Event.DELETE),
        modified_at=now,
        deadline_at=delete_deadline(now),
    )


def hidden_endpoint(job: TransformJob, generation: int, now: float) -> Endpoint:
    """The endpoint with the job's instances, each with a copy of its model."""
    name = job.endpoint_name
    variant = Variant(
        name=VARIANT_NAME,
        model_name=job.model.name,
        instance_type=job.instance_type,
        initial_instance_count=job.instance_count,
        routing=RoutingStrategy.LEAST_OUTSTANDING_REQUESTS,
    )
    config = EndpointConfig(
        scope=job.scope,
        name=name,
        arn=job.scope.arn("endpoint-config", name),
        created_at=now,
        variants=(variant,),
        given={},
    )
    desired = EndpointVariant(
        variant=variant,
        model=batch_model(job),
        desired_instance_count=job.instance_count,
        desired_weight=1.0,
    )
    active = Deployment(generation=generation, config=config, variants=(desired,), started_at=now)
    return Endpoint(
        scope=job.scope,
        name=name,
        # Not the job's: the tags of an endpoint's ARN go with it.
        arn=job.scope.arn("endpoint", name),
        created_at=now,
        modified_at=now,
        status=EndpointStatus.CREATING,
        active=active,
        deadline_at=deployment_deadline(active, now),
        given={},
    )


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
    containers = tuple(
        replace(container, environment={**container.environment, **variables})
        for container in job.model.containers
    )
    return replace(job.model, containers=containers)
