"""Parses and checks a CreateInferenceExperiment request."""

from collections.abc import Mapping, Sequence
from typing import Any

from hostelry.api.context import CallContext, Params
from hostelry.api.iam.execution_role import check_execution_role
from hostelry.api.sagemaker.data_capture import build_data_capture
from hostelry.api.sagemaker.kinds import MODELS
from hostelry.api.sagemaker.variant import check_shadow_model
from hostelry.base.errors import ServiceError, validation_error
from hostelry.domain.data_capture import DataCapture
from hostelry.domain.endpoint import Endpoint, EndpointStatus
from hostelry.domain.experiment_deployment import given_capture, why_unfit
from hostelry.domain.experiment_life import DEFAULT_DURATION_S, MAX_DURATION_S
from hostelry.domain.inference_experiment import (
    ExperimentStatus,
    ExperimentVariant,
    InferenceExperiment,
)
from hostelry.domain.model import Model
from hostelry.domain.status import EXPERIMENT_CHANGE_S
from hostelry.domain.validation import MAX_INSTANCES, check_limit

KIND = "inference-experiment"
PAST_S = 300.0  # a client's clock may be late by this time
DAY_S = 86_400.0


def experiment_of(
    context: CallContext, params: Params, *, is_new: bool = True
) -> InferenceExperiment:
    """The experiment of a request. A new experiment needs its endpoint in service."""
    scope, name, now = context.scope, params["Name"], context.now
    variants = variants_of(params["ModelVariants"], "ModelVariants")
    production_name, shadow_name, percent = shadow_mode_of(params["ShadowModeConfig"], variants)
    start_at, end_at = schedule_of(params.get("Schedule") or {}, now)
    check_execution_role(context, {"ExecutionRoleArn": params["RoleArn"]})
    experiment = InferenceExperiment(
        scope=scope,
        name=name,
        arn=scope.arn(KIND, name),
        created_at=now,
        modified_at=now,
        status=ExperimentStatus.CREATING,
        endpoint_name=params["EndpointName"],
        variants=variants,
        models={it.name: _find_model(context, it) for it in variants},
        production_name=production_name,
        shadow_name=shadow_name,
        percent=percent,
        start_at=start_at,
        end_at=end_at,
        capture=capture_of(params.get("DataStorageConfig")),
        expects_endpoint=context.state.endpoints.get(scope, params["EndpointName"]) is not None,
        deadline_at=now + EXPERIMENT_CHANGE_S,
        given={key: value for key, value in params.items() if key != "Tags"},
    )
    check_endpoint(context, experiment, is_new=is_new)
    return experiment


def variants_of(given: Sequence[Mapping[str, Any]], path: str) -> tuple[ExperimentVariant, ...]:
    """The variants of a list of ModelVariantConfig."""
    found = tuple(variant_of(one, f"{path}.{number}") for number, one in enumerate(given, start=1))
    names = [it.name for it in found]
    if len(set(names)) < len(names):
        raise validation_error(f'{path}: variant "{names[0]}" is named twice.')
    return found


def variant_of(given: Mapping[str, Any], path: str) -> ExperimentVariant:
    """The variant of a ModelVariantConfig."""
    real_time = given["InfrastructureConfig"]["RealTimeInferenceConfig"]
    field = f"{path}.InfrastructureConfig.RealTimeInferenceConfig.InstanceCount"
    count = real_time["InstanceCount"]
    if count < 1:
        raise validation_error(f"{field} is {count}; a variant has at least one instance.")
    check_limit(field, count, MAX_INSTANCES)
    return ExperimentVariant(
        name=given["VariantName"],
        model_name=given["ModelName"],
        instance_type=real_time["InstanceType"],
        instance_count=count,
    )


def shadow_mode_of(
    given: Mapping[str, Any], variants: Sequence[ExperimentVariant]
) -> tuple[str, str, int]:
    """The names of the production variant and the shadow, and the percentage to mirror."""
    source, shadows = given["SourceModelVariantName"], given["ShadowModelVariants"]
    if len(shadows) != 1:
        raise validation_error(
            f"ShadowModeConfig: {len(shadows)} ShadowModelVariants were given; it must be one."
        )
    (shadow,) = shadows
    name, percent = shadow["ShadowModelVariantName"], shadow["SamplingPercentage"]
    if source == name:
        raise validation_error(
            f'ShadowModeConfig: "{name}" is both the source and the shadow; two are needed.'
        )
    if not 0 <= percent <= 100:
        raise validation_error(
            f"ShadowModeConfig: SamplingPercentage is {percent}; it must be from 0 to 100."
        )
    names = {it.name for it in variants}
    if name not in names:
        raise validation_error(
            f'ShadowModeConfig: there is no shadow variant "{name}" in ModelVariants, which has'
            f" {', '.join(sorted(names))}."
        )
    if not names <= {source, name}:
        raise validation_error(
            f"ModelVariants has {', '.join(sorted(names))}; ShadowModeConfig uses"
            f' "{source}" and "{name}" only.'
        )
    return source, name, percent


def schedule_of(given: Mapping[str, Any], now: float) -> tuple[float, float]:
    """The start and the end. By default it begins now and lasts 7 days.

    Source: Schedule of CreateInferenceExperiment in the SageMaker API reference.
    """
    start_at = float(given.get("StartTime") or now)
    if start_at < now - PAST_S:
        raise validation_error("Schedule.StartTime is in the past; leave it out to start now.")
    start_at = max(start_at, now)
    end_at = float(given.get("EndTime") or start_at + DEFAULT_DURATION_S)
    check_end(start_at, end_at, now)
    return start_at, end_at


def check_end(start_at: float, end_at: float, now: float) -> None:
    """Refuse an end before the start, in the past, or too late."""
    if end_at <= max(start_at, now):
        raise validation_error("Schedule.EndTime must be after StartTime, and in the future.")
    if end_at - start_at > MAX_DURATION_S:
        raise validation_error(
            f"Schedule: the experiment would last {(end_at - start_at) / DAY_S:.1f} days; at most"
            f" {MAX_DURATION_S / DAY_S:.0f} days are possible."
        )


def capture_of(storage: Mapping[str, Any] | None) -> DataCapture | None:
    """The data capture that a DataStorageConfig describes."""
    return (
        None
        if storage is None
        else build_data_capture({"DataCaptureConfig": given_capture(storage)})
    )


def _find_model(context: CallContext, variant: ExperimentVariant) -> Model:
    """Find the variant's model, which must be able to be a shadow."""
    model = MODELS.find(context, variant.model_name).value
    check_shadow_model(model)
    return model


def check_endpoint(context: CallContext, experiment: InferenceExperiment, *, is_new: bool) -> None:
    """Refuse an endpoint that cannot have the experiment, or has another one."""
    name, endpoints = experiment.endpoint_name, context.state.endpoints
    for other in (it.value for it in context.state.inference_experiments.list(context.scope)):
        is_same = other.name == experiment.name
        if not is_same and not other.is_over and other.endpoint_name.lower() == name.lower():
            raise ServiceError(
                "ResourceInUse",
                f'Endpoint "{name}" has the inference experiment "{other.arn}", which is'
                f" {other.status.value}; stop it first.",
            )
    found = endpoints.get(context.scope, name)
    if found is not None:
        check_fit(experiment, found.value, is_new=is_new)
    elif endpoints.has_name(context.scope, name):
        raise validation_error(f'An endpoint has the name "{name}" in another case of letters.')
    elif experiment.production is None:
        raise validation_error(
            f'There is no endpoint "{name}": give its production variant'
            f' "{experiment.production_name}" among ModelVariants, so that one can be made.'
        )


def check_fit(experiment: InferenceExperiment, endpoint: Endpoint, *, is_new: bool) -> None:
    """Refuse an endpoint that does not serve, or whose requests cannot be mirrored."""
    if is_new and endpoint.status is not EndpointStatus.IN_SERVICE:
        raise validation_error(
            f'Endpoint "{endpoint.arn}" is {endpoint.status.value}; an inference experiment needs'
            " one that is InService."
        )
    problem = why_unfit(experiment, endpoint)
    if problem is not None:
        raise validation_error(f"An inference experiment is not possible: {problem}.")
