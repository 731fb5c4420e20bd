"""AI benchmark jobs: created, described, listed, stopped and deleted.

Only the job is written. The jobs process sends its load to the endpoint.
"""

from collections.abc import Mapping
from typing import Any

from hostelry.api.context import CallContext, Operation, Params, Result
from hostelry.api.iam.execution_role import check_execution_role
from hostelry.api.page import list_answer, passes
from hostelry.api.refusals import echo_members, refuse_fields, short_reason
from hostelry.api.sagemaker.kinds import (
    AI_BENCHMARK_JOBS,
    KIND_WORDS,
    KINDS,
    create_job,
    stop_job,
)
from hostelry.api.sagemaker.model import parse_s3_uri
from hostelry.api.sagemaker.recommendation_spec import explain_unfit
from hostelry.api.tags import parse_tags, read_tags, tag_list, write_tags
from hostelry.base.errors import validation_error
from hostelry.domain.ai_benchmark_job import (
    AiBenchmarkJob,
    AiBenchmarkStatus,
    AiWorkload,
    AiWorkloadConfig,
)
from hostelry.domain.component import ComponentStatus, InferenceComponent
from hostelry.domain.endpoint import Endpoint, EndpointStatus
from hostelry.domain.hidden_endpoint import is_hidden
from hostelry.domain.log_source import AI_BENCHMARK_GROUP, execution_stream
from hostelry.domain.model import Model
from hostelry.domain.status import AI_BENCHMARK_SLACK_S

KIND = "ai-benchmark-job"
TARGET = "BenchmarkTarget.Endpoint"
ECHOED = ("BenchmarkTarget", "AIWorkloadConfigIdentifier", "RoleArn", "NetworkConfig")
MAX_COMPONENTS = 100


def create_ai_benchmark_job(context: CallContext, params: Params) -> Result:
    """CreateAIBenchmarkJob: the job takes its own copy of the workload."""
    tags = parse_tags(params.get("Tags"))
    job = _build_job(context, params)
    create_job(context, KIND, job, tags)
    return {"AIBenchmarkJobArn": job.arn}


def describe_ai_benchmark_job(context: CallContext, params: Params) -> Result:
    """DescribeAIBenchmarkJob: the request, the status, and where the results and the log are."""
    job = AI_BENCHMARK_JOBS.find(context, params["AIBenchmarkJobName"]).value
    scope = job.scope
    group = f"arn:aws:logs:{scope.region}:{scope.account}:log-group:{AI_BENCHMARK_GROUP}"
    result: Result = {
        **_summarize(job),
        **echo_members(job.given, ECHOED),
        "OutputConfig": {
            "S3OutputLocation": job.given["OutputConfig"]["S3OutputLocation"],
            "CloudWatchLogs": [{"LogGroupArn": group, "LogStreamName": execution_stream(job.name)}],
        },
        "Tags": tag_list(read_tags(context, job.arn)),
    }
    del result["AIWorkloadConfigName"]  # only summaries have it
    if job.started_at is not None:
        result["StartTime"] = job.started_at
    if job.failure_reason:
        result["FailureReason"] = short_reason(job.failure_reason)
    return result


def list_ai_benchmark_jobs(context: CallContext, params: Params) -> Result:
    """ListAIBenchmarkJobs."""
    jobs = [it for it in AI_BENCHMARK_JOBS.values(context) if passes(it, params)]
    operation, member = "ListAIBenchmarkJobs", "AIBenchmarkJobs"
    return list_answer(context, operation, params, member, jobs, _summarize)


def stop_ai_benchmark_job(context: CallContext, params: Params) -> Result:
    """StopAIBenchmarkJob. May be repeated. No results are written."""
    return {"AIBenchmarkJobArn": stop_job(context, KIND, params["AIBenchmarkJobName"]).arn}


def delete_ai_benchmark_job(context: CallContext, params: Params) -> Result:
    """DeleteAIBenchmarkJob. Results in S3 stay. Refused before the job is over."""
    found = AI_BENCHMARK_JOBS.find(context, params["AIBenchmarkJobName"])
    job = found.value
    if not job.is_over:
        raise validation_error(
            f"The request was rejected because the {KIND_WORDS[KIND]} is in status"
            f" {job.status.value}: {job.arn}. Stop it first."
        )
    AI_BENCHMARK_JOBS.delete(context, found)
    write_tags(context, job.arn, {})
    return {"AIBenchmarkJobArn": job.arn}


def _build_job(context: CallContext, params: Params) -> AiBenchmarkJob:
    """The job of a request. Raises ValidationException, and ResourceNotFound."""
    scope, name, now = context.scope, params["AIBenchmarkJobName"], context.now
    output, target = params["OutputConfig"], params["BenchmarkTarget"].get("Endpoint")
    refuse_fields(output, ("MlflowConfig",), "OutputConfig.")
    check_execution_role(context, {"ExecutionRoleArn": params["RoleArn"]})
    if target is None:
        raise validation_error(f"{TARGET} is required: the endpoint to measure.")
    refuse_fields(target, ("TargetContainerHostname",), f"{TARGET}.")
    identifier = params["AIWorkloadConfigIdentifier"]
    config: AiWorkloadConfig = find_identified(context, "ai-workload-config", identifier)
    _refuse_limits(config)
    endpoint = _find_endpoint(context, target["Identifier"])
    components = _find_components(context, endpoint, target.get("InferenceComponents") or ())
    path = "OutputConfig.S3OutputLocation"
    return AiBenchmarkJob(
        scope=scope,
        name=name,
        arn=scope.arn(KIND, name),
        created_at=now,
        modified_at=now,
        status=AiBenchmarkStatus.IN_PROGRESS,
        workload_name=config.name,
        workload=config.workload,
        endpoint_name=endpoint.name,
        endpoint_created_at=endpoint.created_at,
        component_names=components,
        output_uri=parse_s3_uri(output["S3OutputLocation"], path, is_prefix=True),
        chain_length=context.chain_length,
        deadline_at=now + _get_longest_s(config.workload),
        given={key: value for key, value in params.items() if key != "Tags"},
    )


def _refuse_limits(config: AiWorkloadConfig) -> None:
    if config.workload.has_limits:
        raise validation_error(
            f'AIWorkloadConfigIdentifier: the workload "{config.arn}" has goodput, the limits of an'
            " AI recommendation job; give a workload without it."
        )


def _get_longest_s(workload: AiWorkload) -> float:
    """The longest time of a job: its warm-up may take as long as its load."""
    num_loads = 2 if workload.warm_up_count else 1
    return num_loads * workload.duration_s + AI_BENCHMARK_SLACK_S


def find_identified(context: CallContext, kind: str, identifier: str) -> Any:
    """The resource with a name or an ARN. Raises the error for a missing one."""
    records = KINDS[kind]
    if not identifier.startswith("arn:"):
        return records.find(context, identifier).value
    arn = identifier.lower()  # as ARNs are, unlike names
    found = next((it for it in records.values(context) if it.arn == arn), None)
    if found is None:
        raise records.not_found(context, identifier.rpartition("/")[2])
    return found


def _find_endpoint(context: CallContext, identifier: str) -> Endpoint:
    endpoint: Endpoint = find_identified(context, "endpoint", identifier)
    if is_hidden(endpoint.name) or endpoint.status is not EndpointStatus.IN_SERVICE:
        raise validation_error(
            f'{TARGET}.Identifier: endpoint "{endpoint.arn}" is {endpoint.status.value}, and must'
            " be InService."
        )
    return endpoint


def _find_components(context: CallContext, endpoint: Endpoint, asked: Any) -> tuple[str, ...]:
    """The names of the components that get the requests. Empty on a model endpoint."""
    path = f"{TARGET}.InferenceComponents"
    if not endpoint.takes_components:
        problem = explain_unfit(endpoint)
        if problem is None and any(len(it.containers) > 1 for it in _list_models(endpoint)):
            problem = "has a pipeline of containers, whose answers are not streamed"
        if asked:
            problem = "has no inference components; leave InferenceComponents out"
        if problem is not None:
            raise validation_error(f'{TARGET}: endpoint "{endpoint.arn}" {problem}.')
        return ()
    if not 1 <= len(asked) <= MAX_COMPONENTS:
        raise validation_error(
            f'{path} has {len(asked)} entries; endpoint "{endpoint.arn}" hosts inference components'
            f", so give from 1 to {MAX_COMPONENTS}."
        )
    names = []
    for number, one in enumerate(asked, start=1):
        at = f"{path}.{number}.Identifier"
        identifier = one["Identifier"]
        component: InferenceComponent = find_identified(context, "inference-component", identifier)
        if component.endpoint_name != endpoint.name:
            raise validation_error(
                f'{at}: component "{component.arn}" is on endpoint {component.endpoint_name}.'
            )
        if component.status is not ComponentStatus.IN_SERVICE:
            raise validation_error(
                f'{at}: component "{component.arn}" is {component.status.value}, and must be'
                " InService."
            )
        names.append(component.name)
    return tuple(names)


def _list_models(endpoint: Endpoint) -> list[Model]:
    return [model for variant in endpoint.active.production for model in variant.models]


def _summarize(job: AiBenchmarkJob) -> Result:
    summary: Result = {
        "AIBenchmarkJobName": job.name,
        "AIBenchmarkJobArn": job.arn,
        "AIBenchmarkJobStatus": job.status.value,
        "CreationTime": job.created_at,
        "AIWorkloadConfigName": job.workload_name,
    }
    if job.ended_at is not None:
        summary["EndTime"] = job.ended_at
    return summary


OPERATIONS: Mapping[str, Operation] = {
    "CreateAIBenchmarkJob": create_ai_benchmark_job,
    "DescribeAIBenchmarkJob": describe_ai_benchmark_job,
    "ListAIBenchmarkJobs": list_ai_benchmark_jobs,
    "StopAIBenchmarkJob": stop_ai_benchmark_job,
    "DeleteAIBenchmarkJob": delete_ai_benchmark_job,
}
"""The operations by name."""
