"""InvokeEndpointAsync as parsed and answered, compared with botocore."""

from typing import Any
from urllib.parse import urlsplit

import pytest
from botocore.awsrequest import HeadersDict, create_request_object, prepare_request_dict
from botocore.parsers import create_parser
from botocore.serialize import create_serializer
from tests.cases import case, cases

from hostelry.aws.models import operation_model
from hostelry.aws.runtime import (
    AsyncInvokeRequest,
    accepted_answer,
    is_async_path,
    parse_async_invocation,
)
from hostelry.base.errors import ServiceError
from hostelry.base.http import HttpRequest

MODEL = operation_model("sagemaker-runtime", "InvokeEndpointAsync")
PATH = "/endpoints/e/async-invocations"


def request_of(**params: Any) -> HttpRequest:
    serializer = create_serializer("rest-json", include_validation=False)
    request = serializer.serialize_to_request({"EndpointName": "e-1", **params}, MODEL)
    prepare_request_dict(request, endpoint_url="http://127.0.0.1:8787", context={})
    prepared = create_request_object(request).prepare()
    headers = {
        name.lower(): value.decode() if isinstance(value, bytes) else value
        for name, value in prepared.headers.items()
    }
    body = prepared.body or b""
    path = urlsplit(prepared.url).path
    return HttpRequest(prepared.method, path, "", headers, bytes(body))


def test_every_member_is_read_from_the_header_that_botocore_sends() -> None:
    request = request_of(
        ContentType="application/json",
        Accept="text/csv",
        CustomAttributes="trace=1",
        InferenceId="id 7",
        InputLocation="s3://in/key",
        S3OutputPathExtension="day/1",
        Filename="answer.json",
        RequestTTLSeconds=60,
        InvocationTimeoutSeconds=3600,
    )
    noisy = {**request.headers, "accept": "*/*", "content-type": "text/plain"}
    assert parse_async_invocation(
        HttpRequest(request.method, request.path, "", noisy, b"")
    ) == AsyncInvokeRequest(
        endpoint_name="e-1",
        content_type="application/json",
        accept="text/csv",
        custom_attributes="trace=1",
        inference_id="id 7",
        input_location="s3://in/key",
        output_path_extension="day/1",
        filename="answer.json",
        request_ttl_s=60,
        invocation_timeout_s=3600,
    )


def test_a_body_of_the_largest_size_is_enough() -> None:
    asked = parse_async_invocation(request_of(Body=b"x" * 128_000))
    assert asked == AsyncInvokeRequest(endpoint_name="e-1")


@cases(
    "headers, body, text",
    case("no input", {}, b"", "Body and InputLocation is required; none was"),
    case("two inputs", {"InputLocation": "s3://in/k"}, b"x", "is required; both were"),
    case("a body too large", {}, b"x" * 128_001, "'body' failed to satisfy constraint"),
    case("not in S3", {"InputLocation": "ftp://in/k"}, b"", "at 'inputLocation'"),
    case("an empty location", {"InputLocation": ""}, b"", "at 'inputLocation'"),
    case("short TTL", {"RequestTTLSeconds": "59"}, b"x", "at 'requestTTLSeconds'"),
    case("a long TTL", {"RequestTTLSeconds": "21601"}, b"x", "equal to 21600"),
    case("a long time limit", {"InvocationTimeoutSeconds": "3601"}, b"x", "equal to 3600"),
    case("no time", {"InvocationTimeoutSeconds": "0"}, b"x", "greater than or equal to 1"),
    case("no whole number", {"RequestTTLSeconds": "1e3"}, b"x", "must be a whole number"),
    case("a huge number", {"RequestTTLSeconds": "9" * 5000}, b"x", "must be a whole number"),
    case("below zero", {"RequestTTLSeconds": "-1"}, b"x", "must be a whole number"),
    case("a long id", {"Inference-Id": "i" * 65}, b"x", "at 'inferenceId'"),
    case("a name with two dots", {"Filename": "a.b.c"}, b"x", "at 'filename'"),
    case("a name with a slash", {"Filename": "a/b"}, b"x", "at 'filename'"),
    case("a long name", {"Filename": "f" * 33}, b"x", "at 'filename'"),
    case("another bucket as extension", {"S3OutputPathExtension": "s3://other/x"}, b"x",
        "at 's3OutputPathExtension'"),
    case("attributes", {"Custom-Attributes": "c" * 1025}, b"x", "at 'customAttributes'"),
)  # fmt: skip
def test_values_beyond_the_service_model_are_refused(
    headers: dict[str, str], body: bytes, text: str
) -> None:
    given = {f"x-amzn-sagemaker-{name}".lower(): value for name, value in headers.items()}
    with pytest.raises(ServiceError) as caught:
        parse_async_invocation(HttpRequest("POST", PATH, "", given, body))
    assert (caught.value.code, caught.value.http_status) == ("ValidationError", 400)
    assert text in caught.value.message
    assert len(caught.value.message) < 2000


@cases(
    "method, path, text",
    case("a GET", "GET", PATH, "is no runtime call"),
    case("a part more", "POST", "/endpoints/e/x/async-invocations", "is no runtime"),
    case("no name", "POST", "/endpoints//async-invocations", "at 'endpointName'"),
    case("a hidden endpoint", "POST", "/endpoints/a%2Fb/async-invocations", "'a/b'"),
)
def test_paths_that_are_refused(method: str, path: str, text: str) -> None:
    assert is_async_path(path)
    with pytest.raises(ServiceError, match=text):
        parse_async_invocation(HttpRequest(method, path, "", {}, b"x"))


def test_the_answer_is_what_botocore_reads() -> None:
    answer = accepted_answer(
        request_id="r", inference_id="i", output_location="s3://o/i.out", failure_location="s3://f"
    )
    response = {
        "status_code": answer.status,
        "headers": HeadersDict(answer.headers),
        "body": answer.body,
    }
    parsed = create_parser("rest-json").parse(response, MODEL.output_shape)
    del parsed["ResponseMetadata"]
    assert answer.status == 202
    assert parsed == {
        "InferenceId": "i",
        "OutputLocation": "s3://o/i.out",
        "FailureLocation": "s3://f",
    }
