"""GetScalingConfigurationRecommendation: a scaling policy from the results of a job."""

from collections.abc import Mapping
from typing import Any

from hostelry.api.context import CallContext, Params, Result
from hostelry.api.refusals import echo_members
from hostelry.api.sagemaker.kinds import RECOMMENDATION_JOBS
from hostelry.api.sagemaker.recommendation_job import describe_endpoint_metrics
from hostelry.base.errors import ServiceError, validation_error
from hostelry.domain.recommendation_job import BenchmarkStep, RecommendationJob
from hostelry.recommendations.results import get_recommendation_id
from hostelry.recommendations.scaling import (
    COOLDOWN_S,
    DEFAULT_TARGET_PERCENT,
    ScalingAdvice,
    advise_scaling,
)

PREDEFINED = "SageMakerVariantInvocationsPerInstance"
ECHOED = ("InferenceRecommendationsJobName", "RecommendationId", "EndpointName")


def get_scaling_configuration_recommendation(context: CallContext, params: Params) -> Result:
    """GetScalingConfigurationRecommendation."""
    name = params["InferenceRecommendationsJobName"]
    job = RECOMMENDATION_JOBS.find(context, name).value
    step = _find_step(job, params)
    metrics = step.metrics
    assert metrics is not None, "only measured steps are found"
    objective = params.get("ScalingPolicyObjective") or {}
    least, most = _get_objective(objective)
    percent = params.get("TargetCpuUtilizationPerCore", DEFAULT_TARGET_PERCENT)
    advice = advise_scaling(metrics, _count_cpus(context, step), percent, least, most)
    return {
        **echo_members(params, ECHOED),
        "TargetCpuUtilizationPerCore": percent,
        "ScalingPolicyObjective": dict(objective),
        "Metric": {
            "InvocationsPerInstance": advice.invocations_per_instance,
            "ModelLatency": describe_endpoint_metrics(metrics)["ModelLatency"],
        },
        "DynamicScalingConfiguration": _describe_scaling(advice),
    }


def _find_step(job: RecommendationJob, params: Params) -> BenchmarkStep:
    """The measured step of a RecommendationId or an EndpointName."""
    wanted, endpoint_name = params.get("RecommendationId"), params.get("EndpointName")
    if (wanted is None) == (endpoint_name is None):
        raise validation_error("Exactly one of RecommendationId and EndpointName is required.")
    for step in job.steps:
        if step.metrics is None:
            continue
        if wanted is None and step.endpoint_name == endpoint_name:
            return step
        if step.instance_type is not None and get_recommendation_id(job, step) == wanted:
            return step
    what = f'endpoint "{endpoint_name}"' if wanted is None else f'recommendation "{wanted}"'
    raise ServiceError("ResourceNotFound", f"Job {job.name} has no result for {what}.")


def _get_objective(given: Mapping[str, Any]) -> tuple[int | None, int | None]:
    path = "ScalingPolicyObjective"
    least, most = given.get("MinInvocationsPerMinute"), given.get("MaxInvocationsPerMinute")
    for member, value in (("MinInvocationsPerMinute", least), ("MaxInvocationsPerMinute", most)):
        if value is not None and value < 0:
            raise validation_error(f"{path}.{member} is {value}; give 0 or more.")
    if least is not None and most is not None and least > most:
        raise validation_error(
            f"{path}: MinInvocationsPerMinute {least} exceeds MaxInvocationsPerMinute {most}."
        )
    return least, most


def _count_cpus(context: CallContext, step: BenchmarkStep) -> float | None:
    """CPUs that an instance of the step's type really has on this machine."""
    if step.instance_type is None:
        return None
    declared = context.get_shape(step.instance_type).cpus
    return min(declared, context.machine.cpus) if context.machine.cpus else declared


def _describe_scaling(advice: ScalingAdvice) -> Result:
    bounds = {"MinCapacity": advice.min_capacity, "MaxCapacity": advice.max_capacity}
    policy = {
        "TargetTracking": {
            "MetricSpecification": {"Predefined": {"PredefinedMetricType": PREDEFINED}},
            "TargetValue": float(advice.invocations_per_instance),
        }
    }
    return {
        **{name: value for name, value in bounds.items() if value is not None},
        "ScaleInCooldown": COOLDOWN_S,
        "ScaleOutCooldown": COOLDOWN_S,
        "ScalingPolicies": [policy],
    }
