"""AI recommendation jobs: created, described, listed, stopped and deleted.

Only the job is written: a reconciler makes the endpoints of its steps, and ends them.
"""

from collections.abc import Iterator, Mapping

import msgspec

from hostelry.api.context import CallContext, Operation, Params, Result
from hostelry.api.page import list_answer, passes
from hostelry.api.refusals import echo_members, short_reason
from hostelry.api.sagemaker.ai_recommendation_spec import KIND, build_ai_job
from hostelry.api.sagemaker.kinds import (
    AI_RECOMMENDATION_JOBS,
    KIND_WORDS,
    create_job,
    stop_job,
)
from hostelry.api.tags import parse_tags, read_tags, tag_list, write_tags
from hostelry.base.errors import validation_error
from hostelry.domain.ai_benchmark_job import AiBenchmarkStatus
from hostelry.domain.model import Model
from hostelry.domain.recommendation_job import (
    BenchmarkMetrics,
    BenchmarkStep,
    LlmMeasures,
    RecommendationJob,
    RecommendationStatus,
)
from hostelry.recommendations.llm_results import get_cost_per_million_tokens, list_llm_recommended
from hostelry.recommendations.traffic import name_users

# AIRecommendationJobStatus has the values of AIBenchmarkJobStatus.
SHOWN_STATUS: Mapping[RecommendationStatus, AiBenchmarkStatus] = {
    RecommendationStatus.PENDING: AiBenchmarkStatus.IN_PROGRESS,
    RecommendationStatus.IN_PROGRESS: AiBenchmarkStatus.IN_PROGRESS,
    RecommendationStatus.COMPLETED: AiBenchmarkStatus.COMPLETED,
    RecommendationStatus.FAILED: AiBenchmarkStatus.FAILED,
    RecommendationStatus.STOPPING: AiBenchmarkStatus.STOPPING,
    RecommendationStatus.STOPPED: AiBenchmarkStatus.STOPPED,
}
ECHOED = (
    "ModelSource",
    "OutputConfig",
    "InferenceSpecification",
    "AIWorkloadConfigIdentifier",
    "OptimizeModel",
    "PerformanceTarget",
    "RoleArn",
    "ComputeSpec",
)
STATISTICS = ("p50", "p90", "p99", "mean", "max")
MILLISECONDS, PER_SECOND = "Milliseconds", "Count/Second"


class ListedJob(msgspec.Struct, frozen=True):
    """A job in a list: its status is AWS's."""

    job: RecommendationJob

    @property
    def name(self) -> str:
        """The name."""
        return self.job.name

    @property
    def created_at(self) -> float:
        """When it was created."""
        return self.job.created_at

    @property
    def status(self) -> AiBenchmarkStatus:
        """The status that clients see."""
        return SHOWN_STATUS[self.job.status]


def create_ai_recommendation_job(context: CallContext, params: Params) -> Result:
    """CreateAIRecommendationJob: the job takes its own copy of the workload."""
    tags = parse_tags(params.get("Tags"))
    job = build_ai_job(context, params)
    create_job(context, KIND, job, tags)
    return {"AIRecommendationJobArn": job.arn}


def describe_ai_recommendation_job(context: CallContext, params: Params) -> Result:
    """DescribeAIRecommendationJob: the request, and the results so far, the best first."""
    job = AI_RECOMMENDATION_JOBS.find(context, params["AIRecommendationJobName"]).value
    result: Result = {
        **_summarize(ListedJob(job)),
        **echo_members(job.given, ECHOED),
        "Tags": tag_list(read_tags(context, job.arn)),
    }
    if job.started_at is not None:
        result["StartTime"] = job.started_at
    reason = job.failure_reason or _explain_missing(job)
    if reason:
        result["FailureReason"] = short_reason(reason)
    types = [step.instance_type or "" for step in job.steps]
    prices = {name: context.find_price(name) for name in types}
    recommended = [
        _recommend(job, step, measures, prices.get(step.instance_type or ""))
        for step, measures in list_llm_recommended(job, prices)
    ]
    if recommended:
        result["Recommendations"] = recommended
    return result


def list_ai_recommendation_jobs(context: CallContext, params: Params) -> Result:
    """ListAIRecommendationJobs."""
    listed = map(ListedJob, AI_RECOMMENDATION_JOBS.values(context))
    jobs = [it for it in listed if passes(it, params)]
    operation, member = "ListAIRecommendationJobs", "AIRecommendationJobs"
    return list_answer(context, operation, params, member, jobs, _summarize)


def stop_ai_recommendation_job(context: CallContext, params: Params) -> Result:
    """StopAIRecommendationJob. May be repeated. Results so far stay."""
    job = stop_job(context, KIND, params["AIRecommendationJobName"], SHOWN_STATUS)
    return {"AIRecommendationJobArn": job.arn}


def delete_ai_recommendation_job(context: CallContext, params: Params) -> Result:
    """DeleteAIRecommendationJob. Results in S3 stay. Refused while an endpoint of it exists."""
    found = AI_RECOMMENDATION_JOBS.find(context, params["AIRecommendationJobName"])
    job = found.value
    endpoints = context.state.endpoints
    has_endpoint = any(endpoints.get(job.scope, job.hidden_name(it)) for it in job.steps)
    if not job.is_over or has_endpoint:
        what = "is in status" if not job.is_over else "still has an endpoint in status"
        raise validation_error(
            f"The request was rejected because the {KIND_WORDS[KIND]} {what}"
            f" {SHOWN_STATUS[job.status].value}: {job.arn}. Stop it, and wait for its end."
        )
    AI_RECOMMENDATION_JOBS.delete(context, found)
    write_tags(context, job.arn, {})
    return {"AIRecommendationJobArn": job.arn}


def _summarize(listed: ListedJob) -> Result:
    job = listed.job
    summary: Result = {
        "AIRecommendationJobName": job.name,
        "AIRecommendationJobArn": job.arn,
        "AIRecommendationJobStatus": listed.status.value,
        "CreationTime": job.created_at,
    }
    if job.ended_at is not None:
        summary["EndTime"] = job.ended_at
    return summary


def _explain_missing(job: RecommendationJob) -> str:
    """Why some instance types have no result. Empty without a failure."""
    failed = [it for it in job.steps if it.failure_reason]
    return " ".join(f"{it.instance_type}: {it.failure_reason}" for it in failed)


def _recommend(
    job: RecommendationJob, step: BenchmarkStep, measures: LlmMeasures, price: float | None
) -> Result:
    assert job.model is not None, "an AI recommendation job has a model"
    assert step.metrics is not None, "a measured step has metrics"
    instances = {"InstanceType": step.instance_type, "InstanceCount": 1, "CopyCountPerInstance": 1}
    return {
        "RecommendationDescription": (
            f"{step.instance_type} with one copy serves {name_users(measures.concurrency)}:"
            f" {measures.tokens_per_s:.1f} tokens per second."
        ),
        "ModelDetails": {"InstanceDetails": [instances]},
        "DeploymentConfiguration": {**instances, **_describe_container(job.model)},
        "ExpectedPerformance": list(_list_performance(step.metrics, measures, price)),
    }


def _describe_container(model: Model) -> Result:
    (container,) = model.containers
    assert container.source is not None, "the model is from S3"
    return {
        "S3": [{"ChannelName": "model", "Uri": container.source.uri}],
        "ImageUri": container.image,
        "EnvironmentVariables": dict(container.environment),
    }


def _list_performance(
    metrics: BenchmarkMetrics, measures: LlmMeasures, price: float | None
) -> Iterator[Result]:
    """The rows of ExpectedPerformance. Unknown values are left out."""
    yield _build_row("concurrency", measures.concurrency, "Count")
    yield _build_row("request-throughput", measures.requests_per_s, PER_SECOND, "mean")
    yield _build_row("throughput", measures.tokens_per_s, PER_SECOND, "mean")
    for name, spread in (
        ("ttft-ms", measures.first_token_ms),
        ("inter-token-ms", measures.token_ms),
        ("request-latency-ms", measures.latency_ms),
    ):
        for statistic in STATISTICS:
            if statistic in spread:
                yield _build_row(name, spread[statistic], MILLISECONDS, statistic)
    cost = None if price is None else get_cost_per_million_tokens(measures, price)
    for name, value, unit in (
        ("model-setup-time", metrics.setup_s, "Seconds"),
        ("cost-per-hour", price, "USD"),
        ("cost", cost, "USD/1M tokens"),
    ):
        if value is not None:
            yield _build_row(name, value, unit)


def _build_row(name: str, value: float, unit: str, statistic: str | None = None) -> Result:
    row: Result = {"Metric": name, "Value": f"{value:.6g}", "Unit": unit}
    return row if statistic is None else {**row, "Stat": statistic}


OPERATIONS: Mapping[str, Operation] = {
    "CreateAIRecommendationJob": create_ai_recommendation_job,
    "DescribeAIRecommendationJob": describe_ai_recommendation_job,
    "ListAIRecommendationJobs": list_ai_recommendation_jobs,
    "StopAIRecommendationJob": stop_ai_recommendation_job,
    "DeleteAIRecommendationJob": delete_ai_recommendation_job,
}
"""The operations by name."""
