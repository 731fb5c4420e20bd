"""DataCaptureConfig: accepted and refused values, descriptions, and retention by updates."""

from typing import Any

import pytest
from tests.cases import case, cases
from tests.contract.api.rig import Api

from hostelry.domain.data_capture import CaptureEncoding, DataCapture
from hostelry.domain.endpoint import EndpointStatus

ROLE = "arn:aws:iam::123456789012:role/HostelryExecutionRole"
MAIN = {"VariantName": "main", "InstanceType": "ml.m5.xlarge", "InitialInstanceCount": 1}
OF_MODEL = {**MAIN, "ModelName": "m"}
SERVERLESS = {"MemorySizeInMB": 2048, "MaxConcurrency": 1}
CAPTURE = {
    "InitialSamplingPercentage": 20,
    "DestinationS3Uri": "s3://seen/capture/",
    "KmsKeyId": "alias/mine",
    "CaptureOptions": [{"CaptureMode": "Input"}, {"CaptureMode": "Output"}],
    "CaptureContentTypeHeader": {
        "CsvContentTypes": ["text/csv"],
        "JsonContentTypes": ["application/json", "Application/JSONLines"],
    },
}
OFF = {**CAPTURE, "EnableCapture": False}
SHOWN = {
    "EnableCapture": True,
    "CaptureStatus": "Started",
    "CurrentSamplingPercentage": 20,
    "DestinationS3Uri": "s3://seen/capture",
    "KmsKeyId": "alias/mine",
}
MULTI_MODEL = {
    "Image": "123456789012.dkr.ecr.us-west-2.amazonaws.com/sagemaker-scikit-learn:1.2-1-cpu-py3",
    "Mode": "MultiModel",
    "ModelDataUrl": "s3://b/models/",
}


def given(**more: Any) -> dict[str, Any]:
    return {name: it for name, it in {**CAPTURE, **more}.items() if it is not None}


def served(api: Api, capture: Any) -> None:
    api.make.model()
    more = {} if capture is None else {"DataCaptureConfig": capture}
    api.make.config("c", OF_MODEL, **more)
    api.call("CreateEndpoint", EndpointName="e", EndpointConfigName="c")
    api.change_endpoint(status=EndpointStatus.IN_SERVICE, deadline_at=None)


def test_every_field_is_kept_and_described(api: Api) -> None:
    served(api, CAPTURE)
    assert (
        api.call("DescribeEndpointConfig", EndpointConfigName="c")["DataCaptureConfig"] == CAPTURE
    )
    assert api.call("DescribeEndpoint", EndpointName="e")["DataCaptureConfig"] == SHOWN
    assert api.endpoint().active.capture == DataCapture(
        percent=20,
        uri="s3://seen/capture",
        kms_key_id="alias/mine",
        csv_types=("text/csv",),
        json_types=("application/json", "application/jsonlines"),
    )


@cases(
    "status, capture, shown",
    case("not before it serves", EndpointStatus.CREATING, CAPTURE, "Stopped"),
    case("while it is updated", EndpointStatus.UPDATING, CAPTURE, "Started"),
    case("not once it has failed", EndpointStatus.FAILED, CAPTURE, "Stopped"),
    case("not when switched off", EndpointStatus.IN_SERVICE, OFF, "Stopped"),
    case("nothing where none was asked for", EndpointStatus.IN_SERVICE, None, None),
)
def test_the_status_reports_whether_data_is_captured(
    api: Api, status: EndpointStatus, capture: Any, shown: str | None
) -> None:
    served(api, capture)
    api.change_endpoint(status=status)
    found = api.call("DescribeEndpoint", EndpointName="e").get("DataCaptureConfig")
    assert (found and found["CaptureStatus"]) == shown


@pytest.mark.parametrize(
    ("modes", "takes"),
    [
        (["Input"], (True, False)),
        (["Output"], (False, True)),
        (["InputAndOutput"], (True, True)),
        (["Output", "Input"], (True, True)),
    ],
)
def test_the_options_choose_the_sides(api: Api, modes: list[str], takes: tuple[bool, bool]) -> None:
    options = [{"CaptureMode": it} for it in modes]
    served(api, given(CaptureOptions=options, CaptureContentTypeHeader=None))
    capture = api.endpoint().active.capture
    assert capture is not None
    assert (capture.takes_input, capture.takes_output) == takes
    assert capture.get_encoding("text/csv") is CaptureEncoding.BASE64


# tests/contract/wire tests the ranges, lengths and patterns of botocore's model.
def test_a_destination_elsewhere_is_refused(api: Api) -> None:
    api.make.model()
    capture = given(DestinationS3Uri="https://example.com/x")
    asked = {"EndpointConfigName": "c", "ProductionVariants": [OF_MODEL]}
    text = api.refusal("CreateEndpointConfig", **asked, DataCaptureConfig=capture)
    assert 'DataCaptureConfig.DestinationS3Uri "https://example.com/x" is not supported' in text


@cases(
    "variant, more, message",
    case("components", MAIN, {}, "DataCaptureConfig of an endpoint for inference components"),
    case(
        "multi-model",
        {**MAIN, "ModelName": "many"},
        {},
        'DataCaptureConfig with the multi-model container (Mode MultiModel) of model "many"',
    ),
    case(
        "serverless",
        {"VariantName": "main", "ModelName": "m", "ServerlessConfig": SERVERLESS},
        {},
        "DataCaptureConfig cannot be given beside",
    ),
)
def test_only_endpoints_of_one_model_a_variant_are_captured(
    api: Api, variant: dict[str, Any], more: dict[str, Any], message: str
) -> None:
    api.make.model()
    api.make.model("many", PrimaryContainer=MULTI_MODEL)
    asked = {"ExecutionRoleArn": ROLE, "ProductionVariants": [variant], **more}
    text = api.refusal(
        "CreateEndpointConfig", EndpointConfigName="c", DataCaptureConfig=CAPTURE, **asked
    )
    assert message in text
    api.call("CreateEndpointConfig", EndpointConfigName="c", DataCaptureConfig=OFF, **asked)


RETAIN = {"RetainAllVariantProperties": True}
EXCLUDE = {
    **RETAIN,
    "ExcludeRetainedVariantProperties": [{"VariantPropertyType": "DataCaptureConfig"}],
}
NEW = {**CAPTURE, "InitialSamplingPercentage": 80}


@cases(
    "live, new, params, percent",
    case("the new one unless asked to retain", CAPTURE, NEW, {}, 80),
    case("the live one where it is retained", CAPTURE, NEW, RETAIN, 20),
    case("the new one where it is excluded", CAPTURE, NEW, EXCLUDE, 80),
    case("none where the new one has none", CAPTURE, None, {}, None),
    case("the live one where the new one has none", CAPTURE, None, RETAIN, 20),
    case("none where none was live", None, NEW, RETAIN, None),
    case("the new one, excluded, where none was live", None, NEW, EXCLUDE, 80),
)
def test_an_update_retains_the_live_capture(
    api: Api, live: Any, new: Any, params: dict[str, Any], percent: int | None
) -> None:
    served(api, live)
    api.make.config("new", OF_MODEL, **({} if new is None else {"DataCaptureConfig": new}))
    api.call("UpdateEndpoint", EndpointName="e", EndpointConfigName="new", **params)
    pending = api.endpoint().pending
    assert pending is not None
    assert (pending.capture and pending.capture.percent) == percent


def test_a_capture_cannot_be_retained_for_an_endpoint_of_many_models(api: Api) -> None:
    served(api, CAPTURE)
    api.make.model("many", PrimaryContainer=MULTI_MODEL)
    api.make.config("new", {**OF_MODEL, "ModelName": "many"})
    asked = {"EndpointName": "e", "EndpointConfigName": "new"}
    assert "multi-model container" in api.refusal("UpdateEndpoint", **asked, **RETAIN)
    api.call("UpdateEndpoint", **asked, **EXCLUDE)


def test_an_asynchronous_endpoint_is_captured(api: Api) -> None:
    api.make.model()
    queued = {"AsyncInferenceConfig": {"OutputConfig": {"S3OutputPath": "s3://b/out"}}}
    api.make.config("c", OF_MODEL, DataCaptureConfig=CAPTURE, **queued)
    api.call("CreateEndpoint", EndpointName="e", EndpointConfigName="c")
    capture = api.endpoint().active.capture
    assert capture is not None
    assert capture.takes_any
