"""From a CreateTransformJob request to a transform job."""

from collections.abc import Mapping
from typing import Any

from hostelry.api.context import Params
from hostelry.api.refusals import unsupported
from hostelry.api.sagemaker.container import s3_uri_of
from hostelry.base.errors import validation_error
from hostelry.domain.deadline import TRANSFORM_S
from hostelry.domain.model import Model
from hostelry.domain.scope import Scope
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

DEFAULT_TIMEOUT_S = 600
DEFAULT_RETRIES = 3
UNSUPPORTED_KINDS: Mapping[str, str] = {
    "AugmentedManifestFile": "Put the records into objects, and give their prefix or a manifest.",
    "Converse": "Give the prefix of the records as S3Prefix.",
}


def transform_job_of(scope: Scope, model: Model, params: Params, now: float) -> TransformJob:
    """The job that a request describes, checked; `now` is in seconds since the epoch."""
    check_model(model)
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
        input=input_of(params["TransformInput"]),
        output=output_of(params["TransformOutput"]),
        processing=processing_of(params.get("DataProcessing") or {}),
        capture=capture_of(params.get("DataCaptureConfig")),
        strategy=None if strategy is None else BatchStrategy(strategy),
        # 0 asks for the default, as leaving it out does.
        max_concurrent=params.get("MaxConcurrentTransforms") or None,
        max_payload_mb=params.get("MaxPayloadInMB"),
        invocation_timeout_s=float(client.get("InvocationsTimeoutInSeconds", DEFAULT_TIMEOUT_S)),
        max_retries=client.get("InvocationsMaxRetries", DEFAULT_RETRIES),
        environment=dict(params.get("Environment") or {}),
        deadline_at=now + TRANSFORM_S,
        given=dict(params),
    )
    check_transform(job)
    return job


def check_model(model: Model) -> None:
    """Refuse models whose servers a job cannot use."""
    if model.is_direct:
        raise unsupported(
            f'A transform job with model "{model.name}", which has InferenceExecutionConfig.Mode'
            " Direct",
            "The requests of a job name no container; create a model of the one container.",
        )


def input_of(given: Mapping[str, Any]) -> TransformInput:
    """The input that a TransformInput describes."""
    path = "TransformInput.DataSource.S3DataSource"
    source = given["DataSource"]["S3DataSource"]
    asked = source["S3DataType"]
    if asked in UNSUPPORTED_KINDS:
        raise unsupported(f"{path}.S3DataType={asked}", UNSUPPORTED_KINDS[asked])
    kind = TransformInputKind(asked)
    uri = s3_uri_of(source["S3Uri"], f"{path}.S3Uri", is_prefix=kind is TransformInputKind.PREFIX)
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


def output_of(given: Mapping[str, Any]) -> TransformOutput:
    """The output that a TransformOutput describes."""
    uri = s3_uri_of(given["S3OutputPath"], "TransformOutput.S3OutputPath", is_prefix=True)
    return TransformOutput(
        path=uri.rstrip("/"),
        accept=given.get("Accept") or None,
        assemble_with=AssembleWith(given.get("AssembleWith", "None")),
        kms_key_id=given.get("KmsKeyId") or None,
    )


def processing_of(given: Mapping[str, Any]) -> TransformProcessing:
    """The filters and the join that a DataProcessing describes."""
    return TransformProcessing(
        input_filter=given.get("InputFilter") or WHOLE,
        output_filter=given.get("OutputFilter") or WHOLE,
        joins_input=given.get("JoinSource") == "Input",
    )


def capture_of(given: Mapping[str, Any] | None) -> TransformCapture | None:
    """The capture that a DataCaptureConfig describes."""
    if given is None:
        return None
    uri = s3_uri_of(given["DestinationS3Uri"], "DataCaptureConfig.DestinationS3Uri", is_prefix=True)
    return TransformCapture(
        uri=uri.rstrip("/"),
        kms_key_id=given.get("KmsKeyId") or None,
        adds_inference_id=bool(given.get("GenerateInferenceId")),
    )
