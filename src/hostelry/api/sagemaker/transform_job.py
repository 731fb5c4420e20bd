"""Transform jobs: created, described, listed and stopped.

Only the job is written: a reconciler makes its instances from it, and ends them.
"""

from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from hostelry.api.context import CallContext, Params, Result
from hostelry.api.page import list_answer, passes
from hostelry.api.refusals import echo_members, short_reason, unsupported
from hostelry.api.sagemaker.kinds import MODELS, TRANSFORM_JOBS, create_job, stop_job
from hostelry.api.sagemaker.model import parse_s3_uri, select_job_model
from hostelry.api.tags import parse_tags
from hostelry.base.errors import validation_error
from hostelry.domain.model import Model
from hostelry.domain.scope import Scope
from hostelry.domain.status import TRANSFORM_S
from hostelry.domain.transform_job import (
    WHOLE,
    AssembleWith,
    BatchStrategy,
    SplitType,
    TransformCapture,
    TransformInput,
    TransformInputKind,
    TransformJob,
    TransformJobStatus,
    TransformOutput,
    TransformProcessing,
)
from hostelry.domain.transform_rules import check_transform
from hostelry.domain.validation import check_isolation

KIND = "transform-job"
ECHOED = (
    "MaxConcurrentTransforms",
    "ModelClientConfig",
    "MaxPayloadInMB",
    "BatchStrategy",
    "Environment",
    "DataCaptureConfig",
    "TransformResources",
    "ExperimentConfig",
)
DEFAULT_TIMEOUT_S = 600
DEFAULT_RETRIES = 3
UNSUPPORTED_KINDS: Mapping[str, str] = {
    "AugmentedManifestFile": "Put the records into objects, and give their prefix or a manifest.",
    "Converse": "Give the prefix of the records as S3Prefix.",
}


def create_transform_job(context: CallContext, params: Params) -> Result:
    """CreateTransformJob: the job takes its own copy of the model."""
    tags = parse_tags(params.get("Tags"))
    model = select_job_model(MODELS.find(context, params["ModelName"]).value, tags)
    job = _build_job(context.scope, model, params, context.now)
    job = replace(job, chain_length=context.chain_length)
    create_job(context, KIND, job, tags)
    return {"TransformJobArn": job.arn}


def describe_transform_job(context: CallContext, params: Params) -> Result:
    """DescribeTransformJob: the request with its defaults, and the progress."""
    job = TRANSFORM_JOBS.find(context, params["TransformJobName"]).value
    result: Result = {
        "TransformJobName": job.name,
        "TransformJobArn": job.arn,
        "TransformJobStatus": job.status.value,
        "ModelName": job.model.name,
        "CreationTime": job.created_at,
        **echo_members(job.given, ECHOED),
        **_describe_with_defaults(job),
    }
    if job.failure_reason:
        result["FailureReason"] = short_reason(job.failure_reason)
    if job.started_at is not None:
        result["TransformStartTime"] = job.started_at
    if job.ended_at is not None:
        result["TransformEndTime"] = job.ended_at
    return result


def list_transform_jobs(context: CallContext, params: Params) -> Result:
    """ListTransformJobs."""
    jobs = [it for it in TRANSFORM_JOBS.values(context) if passes(it, params)]
    member = "TransformJobSummaries"
    return list_answer(context, "ListTransformJobs", params, member, jobs, _summarize)


def stop_transform_job(context: CallContext, params: Params) -> Result:
    """StopTransformJob. May be repeated. Written outputs stay."""
    stop_job(context, KIND, params["TransformJobName"])
    return {}


def _describe_with_defaults(job: TransformJob) -> Result:
    """Input, output and processing of the request, with their defaults."""
    given = job.given
    processing: dict[str, Any] = {
        "InputFilter": job.processing.input_filter,
        "OutputFilter": job.processing.output_filter,
        "JoinSource": "Input" if job.processing.joins_input else "None",
    }
    return {
        "TransformInput": {
            "CompressionType": "None",
            "SplitType": job.input.split_type.value,
            **given["TransformInput"],
        },
        "TransformOutput": {
            "AssembleWith": job.output.assemble_with.value,
            **given["TransformOutput"],
        },
        "DataProcessing": processing,
    }


def _summarize(job: TransformJob) -> Result:
    summary: Result = {
        "TransformJobName": job.name,
        "TransformJobArn": job.arn,
        "CreationTime": job.created_at,
        "LastModifiedTime": job.modified_at,
        "TransformJobStatus": job.status.value,
    }
    if job.ended_at is not None:
        summary["TransformEndTime"] = job.ended_at
    if job.failure_reason:
        summary["FailureReason"] = short_reason(job.failure_reason)
    return summary


def _build_job(scope: Scope, model: Model, params: Params, now: float) -> TransformJob:
    """The job of a request. `now` is in seconds since the epoch."""
    _check_model(model)
    client, resources = params.get("ModelClientConfig") or {}, params["TransformResources"]
    strategy = params.get("BatchStrategy")
    name = params["TransformJobName"]
    job = TransformJob(
        scope=scope,
        name=name,
        arn=scope.arn("transform-job", name),
        created_at=now,
        modified_at=now,
        status=TransformJobStatus.IN_PROGRESS,
        model=model,
        instance_type=resources["InstanceType"],
        instance_count=resources["InstanceCount"],
        input=_build_input(params["TransformInput"]),
        output=_build_output(params["TransformOutput"]),
        processing=_build_processing(params.get("DataProcessing") or {}),
        capture=_build_capture(params.get("DataCaptureConfig")),
        strategy=None if strategy is None else BatchStrategy(strategy),
        # 0 means the default, as an omitted value does.
        max_concurrent=params.get("MaxConcurrentTransforms") or None,
        max_payload_mb=params.get("MaxPayloadInMB"),
        invocation_timeout_s=float(client.get("InvocationsTimeoutInSeconds", DEFAULT_TIMEOUT_S)),
        max_retries=client.get("InvocationsMaxRetries", DEFAULT_RETRIES),
        environment=dict(params.get("Environment") or {}),
        deadline_at=now + TRANSFORM_S,
        given=dict(params),
    )
    check_transform(job)
    check_isolation(model.add_environment(job.environment).containers)
    return job


def _check_model(model: Model) -> None:
    if model.is_direct:
        raise unsupported(
            f'A transform job with model "{model.name}", which has InferenceExecutionConfig.Mode'
            " Direct",
            "The requests of a job name no container; create a model of the one container.",
        )


def _build_input(given: Mapping[str, Any]) -> TransformInput:
    path = "TransformInput.DataSource.S3DataSource"
    source = given["DataSource"]["S3DataSource"]
    asked = source["S3DataType"]
    if asked in UNSUPPORTED_KINDS:
        raise unsupported(f"{path}.S3DataType={asked}", UNSUPPORTED_KINDS[asked])
    kind = TransformInputKind(asked)
    uri = parse_s3_uri(
        source["S3Uri"], f"{path}.S3Uri", is_prefix=kind is TransformInputKind.PREFIX
    )
    if kind is TransformInputKind.MANIFEST and uri.endswith("/"):
        raise validation_error(
            f'{path}.S3Uri "{uri}" must name the manifest, one object, where S3DataType is'
            " ManifestFile."
        )
    return TransformInput(
        kind=kind,
        uri=uri,
        content_type=given.get("ContentType") or None,
        is_gzip=given.get("CompressionType") == "Gzip",
        split_type=SplitType(given.get("SplitType", "None")),
    )


def _build_output(given: Mapping[str, Any]) -> TransformOutput:
    uri = parse_s3_uri(given["S3OutputPath"], "TransformOutput.S3OutputPath", is_prefix=True)
    return TransformOutput(
        path=uri.rstrip("/"),
        accept=given.get("Accept") or None,
        assemble_with=AssembleWith(given.get("AssembleWith", "None")),
        kms_key_id=given.get("KmsKeyId") or None,
    )


def _build_processing(given: Mapping[str, Any]) -> TransformProcessing:
    return TransformProcessing(
        input_filter=given.get("InputFilter") or WHOLE,
        output_filter=given.get("OutputFilter") or WHOLE,
        joins_input=given.get("JoinSource") == "Input",
    )


def _build_capture(given: Mapping[str, Any] | None) -> TransformCapture | None:
    if given is None:
        return None
    uri = parse_s3_uri(
        given["DestinationS3Uri"], "DataCaptureConfig.DestinationS3Uri", is_prefix=True
    )
    return TransformCapture(
        uri=uri.rstrip("/"),
        kms_key_id=given.get("KmsKeyId") or None,
        adds_inference_id=bool(given.get("GenerateInferenceId")),
    )
