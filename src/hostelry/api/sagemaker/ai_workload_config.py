"""CreateAIWorkloadConfig, DescribeAIWorkloadConfig, ListAIWorkloadConfigs, DeleteAIWorkloadConfig.

A configuration is checked when it is created, and never changes.
"""

from collections.abc import Mapping

from hostelry.api.context import CallContext, Operation, Params, Result
from hostelry.api.page import list_answer, passes
from hostelry.api.refusals import echo_members, refuse_fields
from hostelry.api.sagemaker.kinds import (
    AI_BENCHMARK_JOBS,
    AI_RECOMMENDATION_JOBS,
    AI_WORKLOAD_CONFIGS,
    KIND_WORDS,
    has_name,
)
from hostelry.api.tags import parse_tags, read_tags, tag_list, write_tags
from hostelry.base.errors import ServiceError, validation_error
from hostelry.domain.ai_benchmark_job import AiWorkloadConfig
from hostelry.recommendations.workload import WorkloadError, parse_workload

KIND = "ai-workload-config"
INLINE = "AIWorkloadConfigs.WorkloadSpec.Inline"
UNSUPPORTED = ("DatasetConfig",)


def create_ai_workload_config(context: CallContext, params: Params) -> Result:
    """CreateAIWorkloadConfig."""
    name, tags = params["AIWorkloadConfigName"], parse_tags(params.get("Tags"))
    refuse_fields(params, UNSUPPORTED)
    text = ((params.get("AIWorkloadConfigs") or {}).get("WorkloadSpec") or {}).get("Inline")
    if text is None:
        raise validation_error(f"{INLINE} is required: the workload as YAML or JSON.")
    try:
        workload = parse_workload(text)
    except WorkloadError as error:
        raise validation_error(f"{INLINE}: {error}.") from None
    arn = context.scope.arn(KIND, name)
    if has_name(context, KIND, name):
        raise ServiceError("ResourceInUse", f'The {KIND_WORDS[KIND]} "{arn}" already exists.')
    config = AiWorkloadConfig(
        scope=context.scope,
        name=name,
        arn=arn,
        created_at=context.now,
        workload=workload,
        given={key: value for key, value in params.items() if key != "Tags"},
    )
    AI_WORKLOAD_CONFIGS.put(context, config)
    write_tags(context, arn, tags)
    return {"AIWorkloadConfigArn": arn}


def describe_ai_workload_config(context: CallContext, params: Params) -> Result:
    """DescribeAIWorkloadConfig."""
    config = AI_WORKLOAD_CONFIGS.find(context, params["AIWorkloadConfigName"]).value
    return {
        **_summarize(config),
        **echo_members(config.given, ("AIWorkloadConfigs",)),
        "Tags": tag_list(read_tags(context, config.arn)),
    }


def list_ai_workload_configs(context: CallContext, params: Params) -> Result:
    """ListAIWorkloadConfigs."""
    configs = [it for it in AI_WORKLOAD_CONFIGS.values(context) if passes(it, params)]
    operation, member = "ListAIWorkloadConfigs", "AIWorkloadConfigs"
    return list_answer(context, operation, params, member, configs, _summarize)


def delete_ai_workload_config(context: CallContext, params: Params) -> Result:
    """DeleteAIWorkloadConfig. Refused while a job that names it is not over."""
    found = AI_WORKLOAD_CONFIGS.find(context, params["AIWorkloadConfigName"])
    config = found.value
    used_by = [
        job.arn
        for job in AI_BENCHMARK_JOBS.values(context)
        if job.workload_name == config.name and not job.is_over
    ]
    used_by += [
        job.arn
        for job in AI_RECOMMENDATION_JOBS.values(context)
        if job.search and job.search.workload_name == config.name and not job.is_over
    ]
    if used_by:
        raise ServiceError(
            "ResourceInUse",
            f'The {KIND_WORDS[KIND]} "{config.arn}" is used by {used_by[0]}, which is not over.',
        )
    AI_WORKLOAD_CONFIGS.delete(context, found)
    write_tags(context, config.arn, {})
    return {"AIWorkloadConfigArn": config.arn}


def _summarize(config: AiWorkloadConfig) -> Result:
    return {
        "AIWorkloadConfigName": config.name,
        "AIWorkloadConfigArn": config.arn,
        "CreationTime": config.created_at,
    }


OPERATIONS: Mapping[str, Operation] = {
    "CreateAIWorkloadConfig": create_ai_workload_config,
    "DescribeAIWorkloadConfig": describe_ai_workload_config,
    "ListAIWorkloadConfigs": list_ai_workload_configs,
    "DeleteAIWorkloadConfig": delete_ai_workload_config,
}
"""The operations by name."""
