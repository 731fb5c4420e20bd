"""Invocations as parsed and answers as written, compared with botocore."""

from typing import Any
from urllib.parse import urlsplit

import pytest
from botocore.awsrequest import HeadersDict, create_request_object, prepare_request_dict
from botocore.parsers import create_parser
from botocore.serialize import create_serializer
from tests.cases import case, cases

from hostelry.aws.eventstream import payload_part, stream_exception
from hostelry.aws.models import operation_model
from hostelry.aws.runtime import InvokeRequest, invocation_response_headers, parse_invocation
from hostelry.base.errors import ServiceError
from hostelry.base.http import HttpRequest

SERVICE = "sagemaker-runtime"
EVERYTHING = {
    "ContentType": "application/json",
    "Accept": "text/csv",
    "CustomAttributes": "trace=1",
    "TargetVariant": "AllTraffic",
    "TargetContainerHostname": "second",
    "InferenceId": "id 7",
    "InferenceComponentName": "adapter-1",
    "SessionId": "abc",
}


def request_of(operation: str, **params: Any) -> HttpRequest:
    serializer = create_serializer("rest-json", include_validation=False)
    parts = {"Body": b"{}", **params}
    request = serializer.serialize_to_request(parts, operation_model(SERVICE, operation))
    prepare_request_dict(request, endpoint_url="http://127.0.0.1:8787", context={})
    prepared = create_request_object(request).prepare()
    headers = {
        name.lower(): value.decode() if isinstance(value, bytes) else value
        for name, value in prepared.headers.items()
    }
    return HttpRequest(prepared.method, urlsplit(prepared.url).path, "", headers, b"{}")


def test_an_invocation_with_everything() -> None:
    more = {"TargetModel": "m.tar.gz", "EnableExplanations": "`true`", "SessionId": "NEW_SESSION"}
    request = request_of("InvokeEndpoint", EndpointName="e-1", **{**EVERYTHING, **more})
    assert parse_invocation(request) == InvokeRequest(
        endpoint_name="e-1",
        stream=False,
        content_type="application/json",
        accept="text/csv",
        custom_attributes="trace=1",
        target_model="m.tar.gz",
        target_variant="AllTraffic",
        target_container_hostname="second",
        inference_id="id 7",
        enable_explanations="`true`",
        inference_component_name="adapter-1",
        session_id="NEW_SESSION",
    )


def test_a_stream_with_everything_reads_accept_from_its_own_header() -> None:
    request = request_of("InvokeEndpointWithResponseStream", EndpointName="e-1", **EVERYTHING)
    noisy = {**request.headers, "accept": "*/*", "x-amzn-sagemaker-target-model": "ignored"}
    assert parse_invocation(
        HttpRequest(request.method, request.path, "", noisy, b"")
    ) == InvokeRequest(
        endpoint_name="e-1",
        stream=True,
        content_type="application/json",
        accept="text/csv",
        custom_attributes="trace=1",
        target_variant="AllTraffic",
        target_container_hostname="second",
        inference_id="id 7",
        inference_component_name="adapter-1",
        session_id="abc",
    )


@cases(
    "given, read",
    case("below the prefix, as published programs write", "/m.tar.gz", "m.tar.gz"),
    case("two slashes", "//m.tar.gz", "/m.tar.gz"),
    case("no name", "/", "/"),
)
def test_a_target_model_may_begin_with_a_slash(given: str, read: str) -> None:
    request = request_of("InvokeEndpoint", EndpointName="e-1", TargetModel=given)
    assert parse_invocation(request).target_model == read


def test_an_invocation_with_nothing() -> None:
    request = HttpRequest("POST", "/endpoints/e/invocations")
    assert parse_invocation(request) == InvokeRequest(endpoint_name="e", stream=False)


def refused(request: HttpRequest) -> str:
    with pytest.raises(ServiceError) as caught:
        parse_invocation(request)
    assert (caught.value.code, caught.value.http_status) == ("ValidationError", 400)
    return caught.value.message


@cases(
    "method, path, text",
    case("a GET", "GET", "/endpoints/e/invocations", "is no runtime call"),
    case("no action", "POST", "/endpoints/e", "is no runtime call"),
    case("a slash more", "POST", "/endpoints/e/invocations/", "is no runtime call"),
    case("a part more", "POST", "/endpoints/e/x/invocations", "is no runtime call"),
    case("another noun", "POST", "/models/e/invocations", "is no runtime call"),
    case("another action", "POST", "/endpoints/e/explode", "is no runtime call"),
    case("an empty name", "POST", "/endpoints//invocations", "at 'endpointName'"),
    case("an escaped slash", "POST", "/endpoints/a%2Fb/invocations", "'a/b'"),
    case("a newline", "POST", "/endpoints/%0a/invocations", "at 'endpointName'"),
    case("a zero byte", "POST", "/endpoints/..%00/invocations", "at 'endpointName'"),
)
def test_paths_that_are_refused(method: str, path: str, text: str) -> None:
    assert text in refused(HttpRequest(method, path))


@cases(
    "header, value, text",
    case(
        "a component's name",
        "x-amzn-sagemaker-inference-component",
        "no_good",
        "Value 'no_good' at 'inferenceComponentName' failed to satisfy constraint: Member must "
        "satisfy regular expression pattern: ",
    ),
    case(
        "a long variant",
        "x-amzn-sagemaker-target-variant",
        "v" * 64,
        "at 'targetVariant' failed to satisfy constraint: Member must have length less than or "
        "equal to 63",
    ),
    case(
        "an empty id",
        "x-amzn-sagemaker-inference-id",
        "",
        "at 'inferenceId' failed to satisfy constraint: Member must have length greater than "
        "or equal to 1",
    ),
    case(
        "a sensitive value stays unsaid",
        "x-amzn-sagemaker-custom-attributes",
        "secr\u00e9t",
        "Value at 'customAttributes' failed to satisfy constraint: ",
    ),
    case("a long accept", "accept", "a" * 1025, "at 'accept'"),
    case("a session", "x-amzn-sagemaker-session-id", "-", "at 'sessionId'"),
    case("a model", "x-amzn-sagemaker-target-model", " m", "at 'targetModel'"),
)
def test_headers_that_are_refused(header: str, value: str, text: str) -> None:
    message = refused(HttpRequest("POST", "/endpoints/e/invocations", "", {header: value}))
    assert text in message
    assert "secr" not in message


def test_all_violations_are_reported_at_once() -> None:
    headers = {
        "x-amzn-sagemaker-inference-component": "_",
        "x-amzn-sagemaker-inference-id": "i" * 65,
    }
    message = refused(HttpRequest("POST", "/endpoints/_/invocations", "", headers))
    assert message.startswith("3 validation errors detected: ")


def test_the_answer_of_an_invocation() -> None:
    headers = invocation_response_headers(
        request_id="id-1",
        invoked_production_variant="AllTraffic",
        content_type="text/csv",
        custom_attributes="trace=1",
        new_session_id="abc; Expires=2026-11-21T08:30:00Z",
        closed_session_id="def",
    )
    raw = {"status_code": 200, "headers": HeadersDict(headers), "body": b"a,b"}
    shape = operation_model(SERVICE, "InvokeEndpoint").output_shape
    parsed = create_parser("rest-json").parse(raw, shape)
    assert parsed.pop("ResponseMetadata")["RequestId"] == "id-1"
    assert parsed == {
        "Body": "a,b",
        "ContentType": "text/csv",
        "InvokedProductionVariant": "AllTraffic",
        "CustomAttributes": "trace=1",
        "NewSessionId": "abc; Expires=2026-11-21T08:30:00Z",
        "ClosedSessionId": "def",
    }


class Chunks:
    def __init__(self, *chunks: bytes) -> None:
        self._chunks = chunks

    def stream(self) -> Any:
        return iter(self._chunks)


def test_the_answer_of_a_stream() -> None:
    headers = invocation_response_headers(
        request_id="id-1",
        invoked_production_variant="AllTraffic",
        content_type="application/jsonlines",
        stream=True,
    )
    assert headers["Content-Type"] == "application/vnd.amazon.eventstream"
    frames = payload_part(b"one") + payload_part(b"two")
    last = stream_exception("ModelStreamError", "The model died.", "StreamBroken")
    raw = {
        "status_code": 200,
        "headers": HeadersDict(headers),
        "body": Chunks(frames[:50], frames[50:] + last),
        "context": {"operation_name": "InvokeEndpointWithResponseStream"},
    }
    shape = operation_model(SERVICE, "InvokeEndpointWithResponseStream").output_shape
    parsed = create_parser("rest-json").parse(raw, shape)
    assert parsed["ContentType"] == "application/jsonlines"
    events = iter(parsed["Body"])
    assert [next(events)["PayloadPart"]["Bytes"] for _ in range(2)] == [b"one", b"two"]
    with pytest.raises(Exception, match=r"ModelStreamError.*The model died"):
        next(events)


def test_an_answer_without_a_content_type_names_none() -> None:
    headers = invocation_response_headers(
        request_id="id-1", invoked_production_variant="v", content_type=None
    )
    assert headers == {
        "x-amzn-RequestId": "id-1",
        "x-Amzn-Invoked-Production-Variant": "v",
    }
