"""CreateInferenceExperiment, StartInferenceExperiment, Describe, List and Delete.

Only the experiment is written: a reconciler changes its endpoint.
"""

from typing import Any

from hostelry.api.context import CallContext, Params, Result
from hostelry.api.page import list_answer, passes
from hostelry.api.refusals import echo_members, short_reason
from hostelry.api.sagemaker.experiment_spec import KIND, experiment_of
from hostelry.api.sagemaker.kinds import EXPERIMENTS, has_name
from hostelry.api.tags import parse_tags, write_tags
from hostelry.base.errors import ServiceError
from hostelry.domain.endpoint import Endpoint, EndpointStatus
from hostelry.domain.experiment_life import start_experiment
from hostelry.domain.inference_experiment import (
    ExperimentStatus,
    ExperimentVariant,
    InferenceExperiment,
    VariantAction,
)
from hostelry.domain.status import Event, can

TYPE = "ShadowMode"
ECHOED = ("Description", "RoleArn", "DataStorageConfig", "ShadowModeConfig", "KmsKey")


def create_inference_experiment(context: CallContext, params: Params) -> Result:
    """CreateInferenceExperiment: the experiment takes its own copies of the models."""
    scope, name = context.scope, params["Name"]
    tags = parse_tags(params.get("Tags"))
    if has_name(context, KIND, name):
        raise ServiceError(
            "ResourceInUse",
            f'Cannot create already existing inference experiment "{scope.arn(KIND, name)}".',
        )
    experiment = experiment_of(context, params)
    EXPERIMENTS.put(context, experiment)
    write_tags(context, experiment.arn, tags)
    return build_answer(experiment)


def start_inference_experiment(context: CallContext, params: Params) -> Result:
    """StartInferenceExperiment: before its StartTime."""
    found = EXPERIMENTS.find(context, params["Name"])
    check_event(found.value, Event.START, "started")
    EXPERIMENTS.put(context, start_experiment(found.value, context.now), found)
    return build_answer(found.value)


def describe_inference_experiment(context: CallContext, params: Params) -> Result:
    """DescribeInferenceExperiment."""
    experiment = EXPERIMENTS.find(context, params["Name"]).value
    found = context.state.endpoints.get(context.scope, experiment.endpoint_name)
    endpoint = None if found is None else found.value
    return {
        "Arn": experiment.arn,
        **_summarize(experiment),
        **echo_members(experiment.given, ECHOED),
        "EndpointMetadata": endpoint_metadata(experiment, endpoint),
        "ModelVariants": [
            {**shown_variant(one), "Status": variant_status(experiment, one.name, endpoint)}
            for one in experiment.variants
        ],
    }


def list_inference_experiments(context: CallContext, params: Params) -> Result:
    """ListInferenceExperiments, which all have the same Type."""
    experiments = [it for it in EXPERIMENTS.values(context) if passes(it, params)]
    operation, member = "ListInferenceExperiments", "InferenceExperiments"
    return list_answer(context, operation, params, member, experiments, _summarize)


def delete_inference_experiment(context: CallContext, params: Params) -> Result:
    """DeleteInferenceExperiment, once it is over. Its endpoint and configurations stay."""
    found = EXPERIMENTS.find(context, params["Name"])
    experiment = found.value
    if not experiment.is_over:
        raise wrong_status(experiment, "deleted")
    EXPERIMENTS.delete(context, found)
    write_tags(context, experiment.arn, {})
    return build_answer(experiment)


def build_answer(experiment: InferenceExperiment) -> Result:
    """The answer of every operation that changes an experiment."""
    return {"InferenceExperimentArn": experiment.arn}


def check_event(experiment: InferenceExperiment, event: Event, done: str) -> None:
    """Refuse a call that the experiment's status does not allow."""
    if not can(experiment.status, event):
        raise wrong_status(experiment, done)


def wrong_status(experiment: InferenceExperiment, done: str) -> ServiceError:
    """The error for a call that the experiment's status does not allow."""
    return conflict(
        f'Inference experiment "{experiment.arn}" is {experiment.status.value}, and cannot be'
        f" {done} now."
    )


def conflict(message: str) -> ServiceError:
    """The error for a call in the wrong status. Source: the operations' errors in the model."""
    return ServiceError("ConflictException", message)


def _summarize(experiment: InferenceExperiment) -> Result:
    """The experiment's entry in a list."""
    result: Result = {
        "Name": experiment.name,
        "Type": TYPE,
        "Schedule": {
            "StartTime": experiment.start_at,
            "EndTime": experiment.completed_at or experiment.end_at,
        },
        "Status": experiment.status.value,
        "CreationTime": experiment.created_at,
        "LastModifiedTime": experiment.modified_at,
        **echo_members(experiment.given, ("Description", "RoleArn")),
    }
    if experiment.status_reason:
        result["StatusReason"] = short_reason(experiment.status_reason)
    if experiment.completed_at is not None:
        result["CompletionTime"] = experiment.completed_at
    return result


def endpoint_metadata(experiment: InferenceExperiment, endpoint: Endpoint | None) -> Result:
    """The endpoint as it is now, or only its name if it is missing."""
    result: Result = {"EndpointName": experiment.endpoint_name}
    if endpoint is None:
        return result
    result["EndpointConfigName"] = endpoint.active.config.name
    result["EndpointStatus"] = endpoint.status.value
    if endpoint.failure_reason:
        result["FailureReason"] = short_reason(endpoint.failure_reason)
    return result


def shown_variant(variant: ExperimentVariant) -> dict[str, Any]:
    """A variant as a ModelVariantConfig."""
    return {
        "ModelName": variant.model_name,
        "VariantName": variant.name,
        "InfrastructureConfig": {
            "InfrastructureType": "RealTimeInference",
            "RealTimeInferenceConfig": {
                "InstanceType": variant.instance_type,
                "InstanceCount": variant.instance_count,
            },
        },
    }


def variant_status(experiment: InferenceExperiment, name: str, endpoint: Endpoint | None) -> str:
    """ModelVariantStatus of a variant.

    The first row that applies decides.

    experiment                    variant                              result
    ---------------------------   ----------------------------------   ------------------
    over                          stays                                InService
    over                          leaves                               Deleting
    over                          does not exist                       Deleted
    Stopping                      to be removed                        Deleting
    Stopping                      promoted                             Updating
    Updating, once started        the shadow                           Updating
    Starting                      the shadow, or of a new endpoint     Creating
    any                           of an endpoint being updated         Updating
    any other                     exists                               InService
    any other                     does not exist                       Creating
    """
    is_there, stays = presence(name, endpoint)
    is_shadow = name == experiment.shadow_name
    if experiment.is_over:
        return "InService" if stays else ("Deleting" if is_there else "Deleted")
    if experiment.stop is not None:
        action = experiment.stop.shadow if is_shadow else experiment.stop.production
        if action is not VariantAction.RETAIN:
            return "Deleting" if action is VariantAction.REMOVE else "Updating"
    if endpoint is None or not is_there or endpoint.status is EndpointStatus.CREATING:
        return "Creating"
    if is_shadow and experiment.status is ExperimentStatus.STARTING:
        return "Creating"
    if is_shadow and experiment.status is ExperimentStatus.UPDATING:
        return "Updating"
    return "Updating" if endpoint.pending is not None else "InService"


def presence(name: str, endpoint: Endpoint | None) -> tuple[bool, bool]:
    """Return whether the endpoint has a variant of that name, and whether the variant will stay."""
    if endpoint is None or endpoint.status is EndpointStatus.FAILED:
        return False, False
    is_there = any(it.variant.name == name for one in endpoint.deployments for it in one.variants)
    wanted = endpoint.pending or endpoint.active
    stays = endpoint.status is not EndpointStatus.DELETING
    return is_there, stays and any(it.variant.name == name for it in wanted.variants)
