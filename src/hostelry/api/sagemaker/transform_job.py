"""CreateTransformJob, DescribeTransformJob, ListTransformJobs and StopTransformJob.

Only the job is written: a reconciler makes its instances from it, and ends them.
"""

from dataclasses import replace
from typing import Any

from hostelry.api.context import CallContext, Params, Result
from hostelry.api.page import ListedResource, list_page
from hostelry.api.refusals import echoed, found_in, short_reason
from hostelry.api.sagemaker.model import find_model
from hostelry.api.sagemaker.target_model import model_of_job
from hostelry.api.sagemaker.transform_spec import transform_job_of
from hostelry.api.tags import tags_of, write_tags
from hostelry.base.errors import ServiceError, validation_error
from hostelry.domain.deadline import STOP_S
from hostelry.domain.status import Event, can, next_status
from hostelry.domain.transform_job import TransformJob, TransformJobStatus
from hostelry.store.records import Versioned

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


def create_transform_job(context: CallContext, params: Params) -> Result:
    """CreateTransformJob: the job takes its own copy of the model."""
    scope, name = context.scope, params["TransformJobName"]
    tags = tags_of(params.get("Tags"))
    model = model_of_job(find_model(context, params["ModelName"]).value, tags)
    job = transform_job_of(scope, model, params, context.now)
    if context.state.transform_jobs.has_name(scope, name):
        raise ServiceError(
            "ResourceInUse",
            "Job name must be unique within an AWS account and region, and a job with this name"
            f" already exists ({job.arn}).",
        )
    job = replace(job, chain_length=context.chain_length)
    context.state.transform_jobs.put(scope, name, job, expect=None)
    write_tags(context, job.arn, tags)
    return {"TransformJobArn": job.arn}


def describe_transform_job(context: CallContext, params: Params) -> Result:
    """DescribeTransformJob: what was given, with defaults, and how it goes."""
    job = find_transform_job(context, params["TransformJobName"]).value
    result: Result = {
        "TransformJobName": job.name,
        "TransformJobArn": job.arn,
        "TransformJobStatus": job.status.value,
        "ModelName": job.model.name,
        "CreationTime": job.created_at,
        **echoed(job.given, ECHOED),
        **with_defaults(job),
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
    rows = [
        ListedResource(
            name=job.name,
            created_at=job.created_at,
            modified_at=job.modified_at,
            status=job.status.value,
            summary=summary_of(job),
        )
        for job in (stored.value for stored in context.state.transform_jobs.list(context.scope))
    ]
    shown, following = list_page(context, "ListTransformJobs", params, rows)
    return {"TransformJobSummaries": shown, **following}


def stop_transform_job(context: CallContext, params: Params) -> Result:
    """StopTransformJob; again while it is being stopped.

    Objects that are done stay where they are.
    """
    found = find_transform_job(context, params["TransformJobName"])
    job = found.value
    if job.status is TransformJobStatus.STOPPING:
        return {}
    if not can(job.status, Event.STOP):
        raise validation_error(
            "The request was rejected because the transform job is in status"
            f" {job.status.value}: {job.arn}."
        )
    stopping = replace(
        job,
        status=next_status(job.status, Event.STOP),
        modified_at=context.now,
        deadline_at=context.now + STOP_S,
    )
    context.state.transform_jobs.put(context.scope, job.name, stopping, expect=found.version)
    return {}


def find_transform_job(context: CallContext, name: str) -> Versioned[TransformJob]:
    """The job; raises ValidationException where there is none of that name.

    Its reference names ResourceNotFound, but the service's waiter expects ValidationException.
    """
    return found_in(context.state.transform_jobs, context.scope, KIND, name)


def with_defaults(job: TransformJob) -> Result:
    """Input, output and processing as they were given, with the defaults of what was not."""
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


def summary_of(job: TransformJob) -> Result:
    """The job's entry in a list."""
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
