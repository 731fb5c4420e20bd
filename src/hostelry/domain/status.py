"""State machines of endpoints, components, jobs and experiments, one table each.

A record begins in Creating, a transform job or an AI benchmark job in InProgress, and a
recommendations job in PENDING.
`next_status` gives every later status. One difference from AWS is deliberate: an endpoint or
component can be deleted in every status, which cancels a create or an update under way.

Source: DescribeEndpoint, DescribeInferenceComponent, DescribeTransformJob,
DescribeInferenceExperiment, DescribeInferenceRecommendationsJob and DescribeAIBenchmarkJob
(EndpointStatus, InferenceComponentStatus, TransformJobStatus, InferenceExperimentStatus,
RecommendationJobStatus, AIBenchmarkJobStatus) in the SageMaker API reference.
"""

import functools
from collections.abc import Mapping
from enum import Enum
from typing import Any, TypeVar

from hostelry.base.errors import HostelryError
from hostelry.domain.ai_benchmark_job import AiBenchmarkStatus
from hostelry.domain.component import ComponentStatus
from hostelry.domain.endpoint import EndpointStatus
from hostelry.domain.inference_experiment import OVER, ExperimentStatus
from hostelry.domain.recommendation_job import RecommendationStatus
from hostelry.domain.transform_job import TransformJobStatus

# Time for starting agents and waiting for free resources, added to the model's timeouts. It is
# replaced by VariantInstanceProvisionTimeoutInSeconds.
PROVISION_S = 600.0
DELETE_S = 120.0
TRANSFORM_S = 28 * 86_400.0  # the maximum duration of a transform job
STOP_S = 60.0  # for the requests of a stopped transform job to end
AI_BENCHMARK_SLACK_S = 900.0  # on top of an AI benchmark's load, for its warm-up and its report
RECOMMENDATION_SLACK_S = 900.0  # after a recommendations job's duration, for its last report
EXPERIMENT_SLACK_S = 120.0  # on top of its endpoint's deadline, whose failure reason is better
EXPERIMENT_CHANGE_S = 600.0  # for an experiment's endpoint to apply another weight, or an update
RUNNER_S = 600.0  # for the jobs process to ask for new transform jobs


def start_deadline(
    now: float,
    download_timeout_s: float,
    startup_timeout_s: float,
    provision_timeout_s: float = PROVISION_S,
) -> float:
    """The deadline for instances to run, downloads to end and model servers to be ready."""
    return now + provision_timeout_s + download_timeout_s + startup_timeout_s


def delete_deadline(now: float) -> float:
    """The deadline for all parts of a deleted resource to stop."""
    return now + DELETE_S


Status = TypeVar(
    "Status",
    bound=EndpointStatus
    | ComponentStatus
    | TransformJobStatus
    | ExperimentStatus
    | RecommendationStatus
    | AiBenchmarkStatus,
)


class Event(Enum):
    """Events of an endpoint, a component, a job or an experiment."""

    UPDATE = "update"  # a client requests another configuration, specification or count
    READY = "ready"  # everything desired has proven ready
    FAIL = "fail"  # the desired state is impossible, and no earlier state can be restored
    ROLLED_BACK = "rolled back"  # the update failed, and the earlier state serves
    DELETE = "delete"  # a client requests it
    COMPLETE = "complete"  # a job has done all its work
    STOP = "stop"  # a client requests it
    STOPPED = "stopped"  # a job has nothing under way any more
    SCHEDULED = "scheduled"  # an experiment waits for its start time
    START = "start"  # a client requests it, or the start time has come, or there is room


class IllegalTransition(HostelryError):  # noqa: N818 - named after the table
    """The status has no row for the event."""


ENDPOINT_TRANSITIONS: Mapping[tuple[EndpointStatus, Event], EndpointStatus] = {
    (EndpointStatus.CREATING, Event.READY): EndpointStatus.IN_SERVICE,
    (EndpointStatus.CREATING, Event.FAIL): EndpointStatus.FAILED,
    (EndpointStatus.IN_SERVICE, Event.UPDATE): EndpointStatus.UPDATING,
    (EndpointStatus.UPDATING, Event.READY): EndpointStatus.IN_SERVICE,
    (EndpointStatus.UPDATING, Event.ROLLED_BACK): EndpointStatus.IN_SERVICE,
    (EndpointStatus.DELETING, Event.FAIL): EndpointStatus.FAILED,
    **{(status, Event.DELETE): EndpointStatus.DELETING for status in EndpointStatus},
}

COMPONENT_TRANSITIONS: Mapping[tuple[ComponentStatus, Event], ComponentStatus] = {
    (ComponentStatus.CREATING, Event.READY): ComponentStatus.IN_SERVICE,
    (ComponentStatus.CREATING, Event.FAIL): ComponentStatus.FAILED,
    (ComponentStatus.IN_SERVICE, Event.UPDATE): ComponentStatus.UPDATING,
    (ComponentStatus.UPDATING, Event.READY): ComponentStatus.IN_SERVICE,
    (ComponentStatus.UPDATING, Event.ROLLED_BACK): ComponentStatus.IN_SERVICE,
    (ComponentStatus.DELETING, Event.FAIL): ComponentStatus.FAILED,
    **{(status, Event.DELETE): ComponentStatus.DELETING for status in ComponentStatus},
}

TRANSFORM_TRANSITIONS: Mapping[tuple[TransformJobStatus, Event], TransformJobStatus] = {
    (TransformJobStatus.IN_PROGRESS, Event.COMPLETE): TransformJobStatus.COMPLETED,
    (TransformJobStatus.IN_PROGRESS, Event.FAIL): TransformJobStatus.FAILED,
    (TransformJobStatus.IN_PROGRESS, Event.STOP): TransformJobStatus.STOPPING,
    (TransformJobStatus.STOPPING, Event.STOPPED): TransformJobStatus.STOPPED,
}

EXPERIMENT_TRANSITIONS: Mapping[tuple[ExperimentStatus, Event], ExperimentStatus] = {
    (ExperimentStatus.CREATING, Event.SCHEDULED): ExperimentStatus.CREATED,
    (ExperimentStatus.UPDATING, Event.SCHEDULED): ExperimentStatus.CREATED,
    (ExperimentStatus.CREATED, Event.UPDATE): ExperimentStatus.UPDATING,
    (ExperimentStatus.RUNNING, Event.UPDATE): ExperimentStatus.UPDATING,
    (ExperimentStatus.CREATED, Event.START): ExperimentStatus.STARTING,
    (ExperimentStatus.STARTING, Event.READY): ExperimentStatus.RUNNING,
    (ExperimentStatus.UPDATING, Event.READY): ExperimentStatus.RUNNING,
    (ExperimentStatus.STARTING, Event.STOP): ExperimentStatus.STOPPING,
    (ExperimentStatus.RUNNING, Event.STOP): ExperimentStatus.STOPPING,
    (ExperimentStatus.UPDATING, Event.STOP): ExperimentStatus.STOPPING,
    (ExperimentStatus.STOPPING, Event.COMPLETE): ExperimentStatus.COMPLETED,
    (ExperimentStatus.CREATED, Event.COMPLETE): ExperimentStatus.COMPLETED,
    (ExperimentStatus.STOPPING, Event.STOPPED): ExperimentStatus.CANCELLED,
    (ExperimentStatus.CREATED, Event.STOPPED): ExperimentStatus.CANCELLED,
    **{
        (status, Event.FAIL): ExperimentStatus.CANCELLED
        for status in ExperimentStatus
        if status not in OVER
    },
}

# Of a recommendations job, and of its steps.
RECOMMENDATION_TRANSITIONS: Mapping[tuple[RecommendationStatus, Event], RecommendationStatus] = {
    (RecommendationStatus.PENDING, Event.START): RecommendationStatus.IN_PROGRESS,
    (RecommendationStatus.PENDING, Event.FAIL): RecommendationStatus.FAILED,
    (RecommendationStatus.PENDING, Event.STOP): RecommendationStatus.STOPPING,
    (RecommendationStatus.IN_PROGRESS, Event.COMPLETE): RecommendationStatus.COMPLETED,
    (RecommendationStatus.IN_PROGRESS, Event.FAIL): RecommendationStatus.FAILED,
    (RecommendationStatus.IN_PROGRESS, Event.STOP): RecommendationStatus.STOPPING,
    (RecommendationStatus.STOPPING, Event.STOPPED): RecommendationStatus.STOPPED,
}

AI_BENCHMARK_TRANSITIONS: Mapping[tuple[AiBenchmarkStatus, Event], AiBenchmarkStatus] = {
    (AiBenchmarkStatus.IN_PROGRESS, Event.COMPLETE): AiBenchmarkStatus.COMPLETED,
    (AiBenchmarkStatus.IN_PROGRESS, Event.FAIL): AiBenchmarkStatus.FAILED,
    (AiBenchmarkStatus.IN_PROGRESS, Event.STOP): AiBenchmarkStatus.STOPPING,
    (AiBenchmarkStatus.STOPPING, Event.STOPPED): AiBenchmarkStatus.STOPPED,
}

# Events that only clients cause.
ASKED = frozenset({Event.UPDATE, Event.DELETE, Event.STOP})

# Keys of the tables never collide, because members of different enums differ with equal values.
TRANSITIONS: Mapping[Any, Any] = {
    **ENDPOINT_TRANSITIONS,
    **COMPONENT_TRANSITIONS,
    **TRANSFORM_TRANSITIONS,
    **EXPERIMENT_TRANSITIONS,
    **RECOMMENDATION_TRANSITIONS,
    **AI_BENCHMARK_TRANSITIONS,
}


def next_status(status: Status, event: Event) -> Status:
    """The status after `event`. Raises IllegalTransition if the table has no row."""
    if not can(status, event):
        raise IllegalTransition(f"{status.value} cannot take the event {event.value!r}")
    following: Status = TRANSITIONS[status, event]
    return following


def can(status: Enum, event: Event) -> bool:
    """Whether the table has a row for `event` in `status`."""
    return (status, event) in TRANSITIONS


@functools.cache
def is_final(status: Enum) -> bool:
    """True if only a client's call can end the status. Any other status has a deadline."""
    return all(event in ASKED for event in Event if can(status, event))
