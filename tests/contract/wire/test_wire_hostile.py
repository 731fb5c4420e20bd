"""The answer to any bytes is a ServiceError in a readable protocol."""

import gzip
from collections.abc import Iterator
from random import Random
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hostelry.aws.call import ApiCall, parse_call, serialize_error
from hostelry.aws.models import operation_model
from hostelry.aws.runtime import InvokeRequest, parse_invocation
from hostelry.base.errors import ServiceError
from hostelry.base.http import HttpRequest

JSON, QUERY, CBOR = "json", "query", "smithy-rpc-v2-cbor"
QUIET = settings(deadline=None, max_examples=50, database=None)
SENT = [
    ("sagemaker", "CreateEndpointConfig", JSON),
    ("sagemaker", "CreateInferenceComponent", JSON),
    ("application-autoscaling", "PutScalingPolicy", JSON),
    ("cloudwatch", "PutMetricData", JSON),
    ("cloudwatch", "PutMetricData", QUERY),
    ("cloudwatch", "PutMetricAlarm", CBOR),
    ("iam", "GetRole", QUERY),
]
INSERTS = (
    b"{",
    b"}",
    b"[",
    b"null",
    b"-",
    b"1e999",
    b'"',
    b"&",
    b"=",
    b"%",
    b".",
    b"\xff",
    b"\xbf",
)


def mutations(body: bytes, random: Random) -> Iterator[bytes]:
    """The body with one fault: cut, flipped, spliced, repeated, or compressed."""
    at, to = sorted(random.randint(0, len(body)) for _ in range(2))
    yield body[:at]
    yield body[at:]
    yield body[:at] + body[to:]
    yield body[:at] + random.choice(INSERTS) + body[at:]
    yield body[:to] + body[at:]
    yield body[:at] + random.randbytes(4) + body[at + 4 :]
    yield gzip.compress(body)


def tried(request: HttpRequest) -> ApiCall | ServiceError:
    try:
        return parse_call(request, "id-1")
    except ServiceError as error:
        response = serialize_error(error, None, "id-1", request)
        assert 400 <= response.status < 500
        assert response.body
        return error


@pytest.mark.parametrize(("service", "operation", "protocol"), SENT)
@QUIET
@given(random=st.randoms(use_true_random=True))
def test_a_mutated_request_is_read_or_refused(
    service: str, operation: str, protocol: str, any_value: Any, client: Any, random: Random
) -> None:
    shape = operation_model(service, operation).input_shape
    params = any_value(random=random, full=False, constrained=True).of(shape)
    request = client(service=service, operation=operation, protocol=protocol).request(params)
    for body in mutations(request.body, random):
        tried(HttpRequest(request.method, request.path, "", request.headers, body))


TARGETS = st.sampled_from(
    ["SageMaker.CreateModel", "SageMaker.", ".", "", "GraniteServiceVersion20100801.PutMetricData"]
)
KINDS = st.sampled_from(["application/x-www-form-urlencoded", "application/cbor", "", "\u00e9"])
PATHS = st.sampled_from(
    ["/", "/service/", "/service/GraniteServiceVersion20100801/operation/PutMetricData", "*", ""]
)


@QUIET
@given(
    body=st.binary(max_size=100) | st.text(max_size=50).map(str.encode),
    target=st.none() | TARGETS | st.text(max_size=20),
    kind=st.none() | KINDS,
    encoding=st.none() | st.sampled_from(["gzip", "br", ""]),
    path=PATHS | st.text(max_size=20),
    method=st.sampled_from(["POST", "GET", "PATCH"]),
    query=st.text(max_size=20) | st.text(max_size=20).map("Action={}".format),
)
def test_random_requests_are_refused(
    body: bytes,
    target: str | None,
    kind: str | None,
    encoding: str | None,
    path: str,
    method: str,
    query: str,
) -> None:
    given_headers = {"x-amz-target": target, "content-type": kind, "content-encoding": encoding}
    headers = {name: value for name, value in given_headers.items() if value is not None}
    tried(HttpRequest(method, path, query, headers, body))


@QUIET
@given(
    name=st.text(max_size=70),
    action=st.sampled_from(["invocations", "invocations-response-stream", "x", ""]),
    escape=st.booleans(),
    value=st.text(max_size=70),
)
def test_random_invocations_are_read_or_refused(
    name: str, action: str, escape: bool, value: str
) -> None:
    headers = {"x-amzn-sagemaker-inference-component": value, "accept": value}
    path = f"/endpoints/{quote(name, safe='') if escape else name}/{action}"
    request = HttpRequest("POST", path, "", headers)
    outcome: InvokeRequest | ServiceError
    try:
        outcome = parse_invocation(request)
    except ServiceError as error:
        outcome = error
    if isinstance(outcome, InvokeRequest):
        assert outcome.inference_component_name == value
    else:
        assert (outcome.code, outcome.http_status) == ("ValidationError", 400)
