"""DataCaptureConfig of requests, its checks, and how DescribeEndpoint shows it."""

from collections.abc import Mapping
from typing import Any

from hostelry.api.context import Params
from hostelry.api.refusals import unsupported
from hostelry.api.sagemaker.model import parse_s3_uri
from hostelry.domain.data_capture import DataCapture
from hostelry.domain.endpoint import Deployment, EndpointStatus
from hostelry.domain.endpoint_config import EndpointConfig
from hostelry.domain.model import Model

FIELD = "DataCaptureConfig"
BOTH = "InputAndOutput"
SERVING = (EndpointStatus.IN_SERVICE, EndpointStatus.UPDATING)


def build_data_capture(params: Params) -> DataCapture | None:
    """The capture of a request, or None without a DataCaptureConfig."""
    given = params.get(FIELD)
    if given is None:
        return None
    uri = parse_s3_uri(given["DestinationS3Uri"], f"{FIELD}.DestinationS3Uri", is_prefix=True)
    modes = {it["CaptureMode"] for it in given["CaptureOptions"]}
    types = given.get("CaptureContentTypeHeader") or {}
    return DataCapture(
        is_enabled=given.get("EnableCapture", True),
        percent=given["InitialSamplingPercentage"],
        uri=uri.rstrip("/"),
        kms_key_id=given.get("KmsKeyId") or None,
        takes_input=bool(modes & {"Input", BOTH}),
        takes_output=bool(modes & {"Output", BOTH}),
        csv_types=tuple(it.lower() for it in types.get("CsvContentTypes") or ()),
        json_types=tuple(it.lower() for it in types.get("JsonContentTypes") or ()),
    )


def check_captured_config(capture: DataCapture | None, config: EndpointConfig) -> None:
    """Refuse a capture of an endpoint for inference components.

    Source: "Data capture" and "Model deployment options" in the SageMaker developer guide.
    """
    if capture is None or not capture.is_enabled:
        return
    if config.takes_components:
        raise unsupported(
            f"{FIELD} of an endpoint for inference components",
            "Data is captured on endpoints whose variants name a model.",
        )


def check_captured_model(model: Model) -> None:
    """Refuse a capture of a model that has a multi-model container."""
    if model.is_multi_model:
        raise unsupported(
            f'{FIELD} with the multi-model container (Mode MultiModel) of model "{model.name}"',
            "Create a model from one archive, or set EnableCapture to false.",
        )


def check_captured_deployment(deployment: Deployment) -> None:
    """Refuse a deployment that cannot be captured. An update may have retained its capture."""
    capture = deployment.capture
    check_captured_config(capture, deployment.config)
    if capture is None or not capture.is_enabled:
        return
    if any(variant.serverless is not None for variant in deployment.variants):
        raise unsupported(
            f"{FIELD} of a serverless variant",
            "Exclude DataCaptureConfig from the retained properties.",
        )
    for variant in deployment.variants:
        for model in variant.models:
            check_captured_model(model)


def describe_capture(deployment: Deployment, status: EndpointStatus) -> Mapping[str, Any]:
    """DataCaptureConfig in DescribeEndpoint. AWS's shape requires KmsKeyId, so it may be empty."""
    capture = deployment.capture
    if capture is None:
        return {}
    is_started = capture.is_enabled and status in SERVING
    return {
        FIELD: {
            "EnableCapture": capture.is_enabled,
            "CaptureStatus": "Started" if is_started else "Stopped",
            "CurrentSamplingPercentage": capture.percent,
            "DestinationS3Uri": capture.uri,
            "KmsKeyId": capture.kms_key_id or "",
        }
    }
