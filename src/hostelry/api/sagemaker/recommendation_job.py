"""Inference recommendations jobs: created, described, listed and stopped.

Only the job is written: a reconciler makes the endpoints of its steps, and ends them.
"""

import math
from collections.abc import Mapping
from typing import Any

from hostelry.api.context import CallContext, Operation, Params, Result
from hostelry.api.page import ListPaging, list_answer, passes
from hostelry.api.refusals import echo_members, short_reason
from hostelry.api.sagemaker.kinds import RECOMMENDATION_JOBS, create_job, stop_job
from hostelry.api.sagemaker.recommendation_spec import KIND, build_job
from hostelry.api.tags import parse_tags
from hostelry.domain.recommendation_job import (
    VARIANT_NAME,
    BenchmarkMetrics,
    BenchmarkStep,
    RecommendationJob,
)
from hostelry.domain.validation import check_environment
from hostelry.recommendations.results import (
    get_cost_per_inference,
    get_recommendation_id,
    list_recommended,
)

ECHOED = ("JobDescription", "JobType", "RoleArn", "InputConfig", "StoppingConditions")
STEPS = ListPaging(page_size=10)
BENCHMARK = "BENCHMARK"


def create_inference_recommendations_job(context: CallContext, params: Params) -> Result:
    """CreateInferenceRecommendationsJob: the job takes its own copy of the model."""
    tags = parse_tags(params.get("Tags"))
    job = build_job(context, params)
    _check_variables(job)
    create_job(context, KIND, job, tags)
    return {"JobArn": job.arn}


def describe_inference_recommendations_job(context: CallContext, params: Params) -> Result:
    """DescribeInferenceRecommendationsJob: the request, and the results so far, the best first."""
    job = RECOMMENDATION_JOBS.find(context, params["JobName"]).value
    result: Result = {
        "JobName": job.name,
        "JobArn": job.arn,
        "Status": job.status.value,
        "CreationTime": job.created_at,
        "LastModifiedTime": job.modified_at,
        **echo_members(job.given, ECHOED),
        **_describe_end(job),
    }
    prices = _find_prices(context, job)
    recommended = [_recommend(job, it, prices) for it in list_recommended(job, prices)]
    if recommended:
        result["InferenceRecommendations"] = recommended
    performances = [
        {
            "Metrics": describe_endpoint_metrics(step.metrics),
            "EndpointInfo": {"EndpointName": step.endpoint_name},
        }
        for step in job.steps
        if step.endpoint_name is not None and step.metrics is not None
    ]
    if performances:
        result["EndpointPerformances"] = performances
    return result


def list_inference_recommendations_jobs(context: CallContext, params: Params) -> Result:
    """ListInferenceRecommendationsJobs."""
    name = params.get("ModelNameEquals")
    jobs = [
        job
        for job in RECOMMENDATION_JOBS.values(context)
        if passes(job, params)
        and (name is None or (job.model is not None and job.model.name == name))
        and params.get("ModelPackageVersionArnEquals") is None  # no job has a model package
    ]
    operation, member = "ListInferenceRecommendationsJobs", "InferenceRecommendationsJobs"
    return list_answer(context, operation, params, member, jobs, _summarize)


def list_inference_recommendations_job_steps(context: CallContext, params: Params) -> Result:
    """ListInferenceRecommendationsJobSteps: the steps in their order."""
    job = RECOMMENDATION_JOBS.find(context, params["JobName"]).value
    prices, status = _find_prices(context, job), params.get("Status")
    rows = [
        ((step.number, ""), _describe_step(job, step, prices))
        for step in job.steps
        if status in (None, step.status.value)
    ]
    operation = "ListInferenceRecommendationsJobSteps"
    return STEPS.answer(context, operation, params, "Steps", rows)


def stop_inference_recommendations_job(context: CallContext, params: Params) -> Result:
    """StopInferenceRecommendationsJob. May be repeated. Results so far stay."""
    stop_job(context, KIND, params["JobName"])
    return {}


def _check_variables(job: RecommendationJob) -> None:
    for step in job.steps:
        if job.model is not None:
            check_environment(job.model.add_environment(step.environment).containers)


def _find_prices(context: CallContext, job: RecommendationJob) -> dict[str, float | None]:
    """The price per hour of each measured instance type. None if it is not known."""
    types = {it.instance_type for it in job.steps if it.instance_type is not None}
    return {it: context.find_price(it) for it in types}


def _describe_end(job: RecommendationJob) -> Result:
    result: Result = {}
    if job.ended_at is not None:
        result["CompletionTime"] = job.ended_at
    if job.failure_reason:
        result["FailureReason"] = short_reason(job.failure_reason)
    return result


def _summarize(job: RecommendationJob) -> Result:
    summary: Result = {
        "JobName": job.name,
        "JobDescription": job.given.get("JobDescription") or "",
        "JobType": job.kind.value,
        "JobArn": job.arn,
        "Status": job.status.value,
        "CreationTime": job.created_at,
        "LastModifiedTime": job.modified_at,
        "RoleArn": job.given["RoleArn"],
        **({} if job.payload is None else {"SamplePayloadUrl": job.payload.uri}),
        **_describe_end(job),
    }
    if job.model is not None:
        summary["ModelName"] = job.model.name
    return summary


def _recommend(
    job: RecommendationJob, step: BenchmarkStep, prices: Mapping[str, float | None]
) -> Result:
    return {
        "RecommendationId": get_recommendation_id(job, step),
        "Metrics": _describe_metrics(step, prices),
        "EndpointConfiguration": _describe_configuration(job, step),
        "ModelConfiguration": _describe_model_configuration(step),
        **_describe_times(step),
    }


def _describe_step(
    job: RecommendationJob, step: BenchmarkStep, prices: Mapping[str, float | None]
) -> Result:
    benchmark: Result = {
        "ModelConfiguration": _describe_model_configuration(step),
        **_describe_times(step),
    }
    if step.instance_type is not None:
        benchmark["EndpointConfiguration"] = _describe_configuration(job, step)
    if step.metrics is not None and step.instance_type is not None:
        benchmark["Metrics"] = _describe_metrics(step, prices)
    elif step.metrics is not None:
        benchmark["EndpointMetrics"] = describe_endpoint_metrics(step.metrics)
    if step.failure_reason:
        benchmark["FailureReason"] = short_reason(step.failure_reason)
    return {
        "StepType": BENCHMARK,
        "JobName": job.name,
        "Status": step.status.value,
        "InferenceBenchmark": benchmark,
    }


def _describe_configuration(job: RecommendationJob, step: BenchmarkStep) -> Result:
    return {
        "EndpointName": job.measured_endpoint(step),
        "VariantName": VARIANT_NAME,
        "InstanceType": step.instance_type,
        "InitialInstanceCount": 1,
    }


def _describe_model_configuration(step: BenchmarkStep) -> Result:
    variables = [
        {"Key": name, "ValueType": "String", "Value": value}
        for name, value in sorted(step.environment.items())
    ]
    return {"EnvironmentParameters": variables} if variables else {}


def _describe_times(step: BenchmarkStep) -> Result:
    times = {
        "InvocationStartTime": step.load_began_at,
        "InvocationEndTime": step.load_ended_at,
    }
    return {name: value for name, value in times.items() if value is not None}


def _describe_metrics(step: BenchmarkStep, prices: Mapping[str, float | None]) -> Result:
    """The measures of a step on an instance type. Unknown values are left out."""
    metrics = step.metrics
    assert metrics is not None, "only called for measured steps"
    price = prices.get(step.instance_type or "")
    found: dict[str, Any] = {
        **describe_endpoint_metrics(metrics),
        "CostPerHour": price,
        "CostPerInference": None if price is None else get_cost_per_inference(metrics, price),
        "CpuUtilization": metrics.cpu_percent,
        "MemoryUtilization": metrics.memory_percent,
        "ModelSetupTime": None if metrics.setup_s is None else math.ceil(metrics.setup_s),
    }
    return {name: value for name, value in found.items() if value is not None}


def describe_endpoint_metrics(metrics: BenchmarkMetrics) -> Result:
    """InferenceMetrics: whole invocations per minute, and milliseconds rounded up."""
    return {
        "MaxInvocations": math.floor(metrics.invocations_per_minute),
        "ModelLatency": math.ceil(metrics.latency_ms),
    }


OPERATIONS: Mapping[str, Operation] = {
    "CreateInferenceRecommendationsJob": create_inference_recommendations_job,
    "DescribeInferenceRecommendationsJob": describe_inference_recommendations_job,
    "ListInferenceRecommendationsJobs": list_inference_recommendations_jobs,
    "ListInferenceRecommendationsJobSteps": list_inference_recommendations_job_steps,
    "StopInferenceRecommendationsJob": stop_inference_recommendations_job,
}
"""The operations by name."""
