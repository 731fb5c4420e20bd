"""The queued form of an invocation: where its input is, and where its answers go."""

from typing import Any

import pytest

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


@pytest.mark.parametrize(
    ("settings", "members", "output", "failure"),
    [
        pytest.param(
            SETTINGS, {"inference_id": "mine"},
            "s3://out/answers/mine.out", "s3://bad/mine-error.out", id="the client's id",
        ),
        pytest.param(
            SETTINGS, {"filename": "name"},
            "s3://out/answers/name.out", "s3://bad/new-error.out", id="a file's name",
        ),
        pytest.param(
            SETTINGS, {"output_path_extension": "/day/1/"},
            "s3://out/answers/day/1/new.out", "s3://bad/new-error.out", id="an extension",
        ),
        pytest.param(
            NO_FAILURES, {"output_path_extension": "/"},
            "s3://out/new.out", "s3://out/new-error.out", id="a bucket alone for both",
        ),
    ],
)  # fmt: skip
def test_answers_go_to(
    settings: AsyncInference, members: dict[str, Any], output: str, failure: str
) -> None:
    found = queued(settings, **members)
    assert (found.output_uri, found.failure_uri) == (output, failure)


@pytest.mark.parametrize(
    ("location", "uri"),
    [
        pytest.param("s3://in/a/b.json", "s3://in/a/b.json", id="its URI"),
        pytest.param(
            "https://inputs.s3.us-west-2.amazonaws.com/a%20b", "s3://inputs/a b", id="web address"
        ),
    ],
)
def test_an_input_in_s3_is_kept_by_its_address_alone(location: str, uri: str) -> None:
    found = queued(body=b"", input_location=location)
    assert (found.input_uri, found.body) == (uri, None)


@pytest.mark.parametrize(
    ("members", "text"),
    [
        pytest.param({"input_location": "s3://bucket"}, "names no object", id="no key"),
        pytest.param({"input_location": "s3://bucket/"}, "names no object", id="an empty key"),
        pytest.param(
            {"input_location": "https://example.com/x"}, "names no object", id="another site"
        ),
        pytest.param(
            {"output_path_extension": "e" * 511}, "S3 allows 1024", id="a key too long for S3"
        ),
    ],
)
def test_a_request_that_cannot_be_answered_is_refused(members: dict[str, Any], text: str) -> None:
    long = AsyncInference(output_uri="s3://b/" + "k" * 505)
    with pytest.raises(ServiceError, match=text) as caught:
        queued(long, **members)
    assert (caught.value.code, caught.value.http_status) == ("ValidationError", 400)
