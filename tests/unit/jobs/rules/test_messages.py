import dataclasses
import json

from msgspec.structs import replace

from hostelry.domain.async_request import AsyncRequest
from hostelry.domain.scope import Scope
from hostelry.jobs.rules.messages import (
    MAX_INCLUDED_BYTES,
    Response,
    build_expired_reason,
    build_failure_message,
    build_success_message,
)

REQUEST = AsyncRequest(
    id="1",
    inference_id="mine",
    scope=Scope("111122223333", "us-west-2"),
    endpoint_name="queued",
    input_uri="s3://in/a.csv",
    content_type="text/csv",
    output_uri="s3://out/mine.out",
    failure_uri="s3://out/mine-error.out",
    success_topic_arn="arn:aws:sns:us-west-2:111122223333:good",
    error_topic_arn="arn:aws:sns:us-west-2:111122223333:bad",
    accepted_at=1643150760.455,
    expires_at=1643150860.455,
    timeout_s=60,
)
OUTPUT = Response(location="s3://out/mine.out", content_type="application/json", body=b"[1]")
INCLUDED = replace(
    REQUEST, include_response_in=("SUCCESS_NOTIFICATION_TOPIC", "ERROR_NOTIFICATION_TOPIC")
)


def test_the_message_of_an_output() -> None:
    message = build_success_message(REQUEST, OUTPUT, 1643150760.608)
    assert message is not None
    assert json.loads(message) == {
        "awsRegion": "us-west-2",
        "eventTime": "2022-01-25T22:46:00.608Z",
        "receivedTime": "2022-01-25T22:46:00.455Z",
        "invocationStatus": "Completed",
        "requestParameters": {
            "contentType": "text/csv",
            "endpointName": "queued",
            "inputLocation": "s3://in/a.csv",
        },
        "responseParameters": {
            "contentType": "application/json",
            "outputLocation": "s3://out/mine.out",
        },
        "inferenceId": "mine",
        "eventVersion": "1.0",
        "eventSource": "aws:sagemaker",
        "eventName": "InferenceResult",
    }


def test_the_message_of_a_failure() -> None:
    failed = Response(location="s3://out/mine-error.out", content_type="text/plain", body=b"no")
    message = build_failure_message(REQUEST, failed, "no", 1643150761)
    assert message is not None
    shown = json.loads(message)
    assert (shown["invocationStatus"], shown["failureReason"]) == ("Failed", "no")
    assert shown["responseParameters"]["outputLocation"] == "s3://out/mine-error.out"


def test_without_a_topic_there_is_no_message() -> None:
    quiet = replace(REQUEST, success_topic_arn=None, error_topic_arn=None)
    assert build_success_message(quiet, OUTPUT, 0) is None
    assert build_failure_message(quiet, OUTPUT, "no", 0) is None


def test_the_response_is_included_where_asked_for_and_small() -> None:
    def included(request: AsyncRequest, body: bytes | None) -> object:
        message = build_success_message(request, dataclasses.replace(OUTPUT, body=body), 0)
        assert message is not None
        return json.loads(message).get("responseBody")

    assert included(INCLUDED, b"[1]") == {"content": "WzFd", "encoding": "BASE64"}
    assert included(INCLUDED, b"x" * MAX_INCLUDED_BYTES) is not None
    assert included(INCLUDED, b"x" * (MAX_INCLUDED_BYTES + 1)) is None
    assert included(INCLUDED, None) is None
    assert included(REQUEST, b"[1]") is None
    errors_only = replace(REQUEST, include_response_in=("ERROR_NOTIFICATION_TOPIC",))
    assert included(errors_only, b"[1]") is None


def test_an_inline_request_names_no_input_and_an_unwritten_failure_no_output() -> None:
    inline = replace(REQUEST, input_uri=None, content_type=None, body=b"1")
    message = build_failure_message(inline, Response(location="", content_type=None), "no", 0)
    assert message is not None
    shown = json.loads(message)
    assert shown["requestParameters"] == {"endpointName": "queued"}
    assert "responseParameters" not in shown


def test_the_reason_of_an_expired_request_names_its_limit() -> None:
    assert "RequestTTLSeconds of 100" in build_expired_reason(REQUEST)
