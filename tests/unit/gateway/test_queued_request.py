"""The queued form of an invocation: the place of its input, and of its answers."""

from typing import Any

import pytest
from tests.cases import case, cases

from hostelry.aws.runtime import AsyncInvokeRequest
from hostelry.base.errors import ServiceError
from hostelry.domain.async_request import AsyncInference, AsyncRequest
from hostelry.domain.scope import Scope
from hostelry.gateway.handlers.async_runtime import build_async_request

HERE = Scope("111122223333", "us-west-2")
SETTINGS = AsyncInference(
    output_uri="s3://out/answers",
    failure_uri="s3://bad",
    success_topic_arn="arn:done",
    error_topic_arn="arn:failed",
    include_response_in=("SUCCESS_NOTIFICATION_TOPIC",),
    kms_key_id="k",
)
NO_FAILURES = AsyncInference(output_uri="s3://out")


def queued(
    settings: AsyncInference = SETTINGS, body: bytes = b"in", **members: Any
) -> AsyncRequest:
    asked = AsyncInvokeRequest(endpoint_name="e", **members)
    return build_async_request(HERE, asked, settings, body, ("own", "new"), 100.0)


def test_a_request_is_kept_with_all_that_its_end_needs() -> None:
    given: dict[str, Any] = {
        "content_type": "text/csv",
        "accept": "application/json",
        "custom_attributes": "c=1",
    }
    found = queued(**given, request_ttl_s=60, invocation_timeout_s=7)
    assert found == AsyncRequest(
        id="own",
        inference_id="new",
        scope=HERE,
        endpoint_name="e",
        body=b"in",
        **given,
        output_uri="s3://out/answers/new.out",
        failure_uri="s3://bad/new-error.out",
        success_topic_arn="arn:done",
        error_topic_arn="arn:failed",
        include_response_in=("SUCCESS_NOTIFICATION_TOPIC",),
        kms_key_id="k",
        accepted_at=100.0,
        expires_at=160.0,
        timeout_s=7.0,
    )


def test_times_that_are_not_given_are_those_of_the_service() -> None:
    found = queued()
    assert (found.expires_at - found.accepted_at, found.timeout_s) == (21600.0, 900.0)


@cases(
    "settings, members, output, failure",
    case("the client's id", SETTINGS, {"inference_id": "mine"}, "s3://out/answers/mine.out",
        "s3://bad/mine-error.out"),
    case("a file's name", SETTINGS, {"filename": "name"}, "s3://out/answers/name.out",
        "s3://bad/new-error.out"),
    case("an extension", SETTINGS, {"output_path_extension": "/day/1/"},
        "s3://out/answers/day/1/new.out", "s3://bad/new-error.out"),
    case("a bucket alone for both", NO_FAILURES, {"output_path_extension": "/"}, "s3://out/new.out",
        "s3://out/new-error.out"),
)  # fmt: skip
def test_answers_go_to(
    settings: AsyncInference, members: dict[str, Any], output: str, failure: str
) -> None:
    found = queued(settings, **members)
    assert (found.output_uri, found.failure_uri) == (output, failure)


@cases(
    "location, uri",
    case("its URI", "s3://in/a/b.json", "s3://in/a/b.json"),
    case("web address", "https://inputs.s3.us-west-2.amazonaws.com/a%20b", "s3://inputs/a b"),
)
def test_an_input_in_s3_is_kept_by_its_address_alone(location: str, uri: str) -> None:
    found = queued(body=b"", input_location=location)
    assert (found.input_uri, found.body) == (uri, None)


@cases(
    "members, text",
    case("no key", {"input_location": "s3://bucket"}, "names no object"),
    case("an empty key", {"input_location": "s3://bucket/"}, "names no object"),
    case("another site", {"input_location": "https://example.com/x"}, "names no object"),
    case("a key too long for S3", {"output_path_extension": "e" * 511}, "S3 allows 1024"),
)
def test_a_request_that_cannot_be_answered_is_refused(members: dict[str, Any], text: str) -> None:
    long = AsyncInference(output_uri="s3://b/" + "k" * 505)
    with pytest.raises(ServiceError, match=text) as caught:
        queued(long, **members)
    assert (caught.value.code, caught.value.http_status) == ("ValidationError", 400)
