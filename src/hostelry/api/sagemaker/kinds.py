"""SageMaker's kinds of resources, and the errors for their names and states.

The waiters and the SageMaker SDK look for "Could not find" and "Cannot create already existing" in
the text of a ValidationException.
"""

from collections.abc import Callable, Mapping
from enum import Enum
from types import MappingProxyType
from typing import Any, TypeVar

from msgspec.structs import replace

from hostelry.api.context import CallContext
from hostelry.api.record_kind import RecordKind
from hostelry.api.tags import write_tags
from hostelry.base.errors import ServiceError, validation_error
from hostelry.domain.ai_benchmark_job import AiBenchmarkJob, AiWorkloadConfig
from hostelry.domain.component import InferenceComponent
from hostelry.domain.endpoint import Endpoint, EndpointPolicy
from hostelry.domain.endpoint_config import EndpointConfig
from hostelry.domain.inference_experiment import InferenceExperiment
from hostelry.domain.model import Model
from hostelry.domain.recommendation_job import RecommendationJob
from hostelry.domain.scope import Scope
from hostelry.domain.status import STOP_S, Event, can, next_status
from hostelry.domain.transform_job import TransformJob
from hostelry.store.records import Records, State

T = TypeVar("T")
NO_OTHER_NAMES: Mapping[Any, Enum] = MappingProxyType({})
# The resource's kind in ARNs, and the words for it in messages.
KIND_WORDS: Mapping[str, str] = {
    "model": "model",
    "endpoint-config": "endpoint configuration",
    "endpoint": "endpoint",
    "inference-component": "inference component",
    "transform-job": "transform job",
    "inference-experiment": "inference experiment",
    "inference-recommendations-job": "inference recommendations job",
    "ai-workload-config": "AI workload configuration",
    "ai-benchmark-job": "AI benchmark job",
    "ai-recommendation-job": "AI recommendation job",
}


def not_found(
    scope: Scope, kind: str, name: str, code: str = "ValidationException"
) -> ServiceError:
    """The error for a missing resource."""
    return ServiceError(code, f'Could not find {KIND_WORDS[kind]} "{scope.arn(kind, name)}".')


def _build_kind(
    kind: str, records: Callable[[State], Records[T]], code: str = "ValidationException"
) -> RecordKind[T]:
    return RecordKind(
        records=records,
        not_found=lambda context, name: not_found(context.scope, kind, name, code),
    )


MODELS: RecordKind[Model] = _build_kind("model", lambda state: state.models)
ENDPOINT_CONFIGS: RecordKind[EndpointConfig] = _build_kind(
    "endpoint-config", lambda state: state.endpoint_configs
)
ENDPOINTS: RecordKind[Endpoint] = _build_kind("endpoint", lambda state: state.endpoints)
ENDPOINT_POLICIES = RecordKind[EndpointPolicy](
    records=lambda state: state.endpoint_policies,
    not_found=lambda context, name: validation_error(
        f'Endpoint "{context.scope.arn("endpoint", name)}" has no resource policy.'
    ),
    record_name=lambda policy: policy.endpoint_name.lower(),
)
COMPONENTS: RecordKind[InferenceComponent] = _build_kind(
    "inference-component", lambda state: state.components
)
# The reference names ResourceNotFound for transform jobs. The service's waiter expects
# ValidationException.
TRANSFORM_JOBS: RecordKind[TransformJob] = _build_kind(
    "transform-job", lambda state: state.transform_jobs
)
EXPERIMENTS: RecordKind[InferenceExperiment] = _build_kind(
    "inference-experiment", lambda state: state.inference_experiments, "ResourceNotFound"
)
RECOMMENDATION_JOBS: RecordKind[RecommendationJob] = _build_kind(
    "inference-recommendations-job", lambda state: state.recommendation_jobs, "ResourceNotFound"
)
AI_WORKLOAD_CONFIGS: RecordKind[AiWorkloadConfig] = _build_kind(
    "ai-workload-config", lambda state: state.ai_workload_configs, "ResourceNotFound"
)
AI_BENCHMARK_JOBS: RecordKind[AiBenchmarkJob] = _build_kind(
    "ai-benchmark-job", lambda state: state.ai_benchmark_jobs, "ResourceNotFound"
)
AI_RECOMMENDATION_JOBS: RecordKind[RecommendationJob] = _build_kind(
    "ai-recommendation-job", lambda state: state.ai_recommendation_jobs, "ResourceNotFound"
)
KINDS: Mapping[str, RecordKind[Any]] = {
    "model": MODELS,
    "endpoint-config": ENDPOINT_CONFIGS,
    "endpoint": ENDPOINTS,
    "inference-component": COMPONENTS,
    "transform-job": TRANSFORM_JOBS,
    "inference-experiment": EXPERIMENTS,
    "inference-recommendations-job": RECOMMENDATION_JOBS,
    "ai-workload-config": AI_WORKLOAD_CONFIGS,
    "ai-benchmark-job": AI_BENCHMARK_JOBS,
    "ai-recommendation-job": AI_RECOMMENDATION_JOBS,
}


def has_name(context: CallContext, kind: str, name: str) -> bool:
    """True if a resource has the name in any case. Names that differ only in case share an ARN."""
    return KINDS[kind].records(context.state).has_name(context.scope, name)


def check_new(context: CallContext, kind: str, name: str) -> None:
    """Raise ValidationException if a resource of the kind has the name."""
    if has_name(context, kind, name):
        arn = context.scope.arn(kind, name)
        raise validation_error(f'Cannot create already existing {KIND_WORDS[kind]} "{arn}".')


def create_job(context: CallContext, kind: str, job: Any, tags: Mapping[str, str]) -> None:
    """Record a job with its tags. Raises ResourceInUse if a job of the kind has its name."""
    if has_name(context, kind, job.name):
        raise ServiceError(
            "ResourceInUse",
            "Job name must be unique within an AWS account and region, and a job with this name"
            f" already exists ({context.scope.arn(kind, job.name)}).",
        )
    KINDS[kind].put(context, job)
    write_tags(context, job.arn, tags)


def stop_job(
    context: CallContext, kind: str, name: str, shown: Mapping[Any, Enum] = NO_OTHER_NAMES
) -> Any:
    """Make a job Stopping, within `STOP_S`, and return it. May be repeated.

    `shown` has the statuses that clients see, if the record has others.
    """
    found = KINDS[kind].find(context, name)
    job = found.value
    if job.status.name == "STOPPING":
        return job
    if not can(job.status, Event.STOP):
        raise validation_error(
            f"The request was rejected because the {KIND_WORDS[kind]} is in status"
            f" {shown.get(job.status, job.status).value}: {job.arn}."
        )
    stopping = replace(
        job,
        status=next_status(job.status, Event.STOP),
        modified_at=context.now,
        deadline_at=context.now + STOP_S,
    )
    return KINDS[kind].put(context, stopping, found)


def in_progress(kind: str, arn: str) -> ServiceError:
    """The error for an update while another change is in progress."""
    return validation_error(f'Cannot update in-progress {KIND_WORDS[kind]} "{arn}".')
