"""Queued requests: from an invocation and its endpoint's settings to what the queue keeps."""

from hostelry.aws.async_runtime import AsyncInvokeRequest
from hostelry.base.errors import ServiceError
from hostelry.domain.async_inference import AsyncInference
from hostelry.domain.async_request import AsyncRequest
from hostelry.domain.s3_address import object_uri
from hostelry.domain.scope import Scope

DEFAULT_TTL_S = 21600
DEFAULT_TIMEOUT_S = 900
MAX_KEY_BYTES = 1024  # of S3


def queued_request(
    scope: Scope,
    asked: AsyncInvokeRequest,
    settings: AsyncInference,
    body: bytes,
    ids: tuple[str, str],
    now: float,
) -> AsyncRequest:
    """The request to keep, accepted at `now`; `ids` are its own, and its default inference id.

    Raises ServiceError ValidationError (400) where the input or output can be no object.
    """
    own_id, new_inference_id = ids
    inference_id = asked.inference_id or new_inference_id
    input_uri = None
    if asked.input_location is not None:
        input_uri = object_uri(asked.input_location)
        if input_uri is None:
            raise _invalid(
                f"InputLocation '{asked.input_location}' names no object in S3; give it as"
                " s3://bucket/key or https://bucket.s3.REGION.amazonaws.com/key."
            )
    return AsyncRequest(
        id=own_id,
        inference_id=inference_id,
        scope=scope,
        endpoint_name=asked.endpoint_name,
        input_uri=input_uri,
        body=None if input_uri is not None else body,
        content_type=asked.content_type,
        accept=asked.accept,
        custom_attributes=asked.custom_attributes,
        output_uri=output_uri(asked, settings, inference_id),
        failure_uri=_checked(
            f"{settings.failure_uri or settings.output_uri}/{inference_id}-error.out"
        ),
        success_topic_arn=settings.success_topic_arn,
        error_topic_arn=settings.error_topic_arn,
        include_response_in=settings.include_response_in,
        kms_key_id=settings.kms_key_id,
        accepted_at=now,
        expires_at=now + (asked.request_ttl_s or DEFAULT_TTL_S),
        timeout_s=float(asked.invocation_timeout_s or DEFAULT_TIMEOUT_S),
    )


def output_uri(asked: AsyncInvokeRequest, settings: AsyncInference, inference_id: str) -> str:
    """The object of the answer: S3OutputPath, the extension, Filename or the inference id."""
    extension = (asked.output_path_extension or "").strip("/")
    folder = f"{settings.output_uri}/{extension}" if extension else settings.output_uri
    return _checked(f"{folder}/{asked.filename or inference_id}.out")


def _checked(uri: str) -> str:
    key = uri.removeprefix("s3://").partition("/")[2]
    if len(key.encode()) > MAX_KEY_BYTES:
        raise _invalid(
            f"The output object's key would have {len(key.encode())} bytes; S3 allows"
            f" {MAX_KEY_BYTES}. Shorten S3OutputPathExtension or InferenceId."
        )
    return uri


def _invalid(message: str) -> ServiceError:
    return ServiceError("ValidationError", message, 400)
