"""Messages of a request's end to SNS topics, and the failure object.

end         topic          outputLocation        includes the response with
---------   ------------   -------------------   --------------------------
Completed   SuccessTopic   the output object     SUCCESS_NOTIFICATION_TOPIC
Failed      ErrorTopic     the failure object    ERROR_NOTIFICATION_TOPIC
Expired     ErrorTopic     the failure object    ERROR_NOTIFICATION_TOPIC

Source: SageMaker developer guide, "Check prediction results" of asynchronous inference.
"""

import base64
import json
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from hostelry.domain.async_request import AsyncRequest

MAX_INCLUDED_BYTES = 128 * 1024
SUCCESS_TOPIC = "SUCCESS_NOTIFICATION_TOPIC"
ERROR_TOPIC = "ERROR_NOTIFICATION_TOPIC"
FAILURE_CONTENT_TYPE = "text/plain; charset=utf-8"


@dataclass(frozen=True, slots=True, kw_only=True)
class Response:
    """The output object or the failure object of a request. A large body is missing (None)."""

    location: str
    content_type: str | None
    body: bytes | None = None


def build_success_message(request: AsyncRequest, response: Response, now: float) -> str | None:
    """Build the message to the success topic. None without such a topic."""
    if request.success_topic_arn is None:
        return None
    return _message(request, response, now, None, SUCCESS_TOPIC)


def build_failure_message(
    request: AsyncRequest, response: Response, reason: str, now: float
) -> str | None:
    """Build the message to the error topic. None without such a topic."""
    if request.error_topic_arn is None:
        return None
    return _message(request, response, now, reason, ERROR_TOPIC)


def build_expired_reason(request: AsyncRequest) -> str:
    """Build the failure reason of a request that did not begin in time."""
    ttl_s = request.expires_at - request.accepted_at
    return (
        f"The request expired: it waited in the queue of endpoint {request.endpoint_name} for "
        f"longer than its RequestTTLSeconds of {ttl_s:g}."
    )


def build_gone_reason(request: AsyncRequest) -> str:
    """Build the failure reason of a request whose endpoint was deleted."""
    return f"Endpoint {request.endpoint_name} was deleted before the request was processed."


def _message(
    request: AsyncRequest, response: Response, now: float, reason: str | None, included_in: str
) -> str:
    asked: dict[str, Any] = {"endpointName": request.endpoint_name}
    if request.content_type is not None:
        asked["contentType"] = request.content_type
    if request.input_uri is not None:
        asked["inputLocation"] = request.input_uri
    answered: dict[str, Any] = {"outputLocation": response.location}
    if response.content_type is not None:
        answered["contentType"] = response.content_type
    shown: dict[str, Any] = {
        "awsRegion": request.scope.region,
        "eventTime": _iso(now),
        "receivedTime": _iso(request.accepted_at),
        "invocationStatus": "Completed" if reason is None else "Failed",
    }
    if reason is not None:
        shown["failureReason"] = reason
    shown["requestParameters"] = asked
    if response.location:
        shown["responseParameters"] = answered
    if included_in in request.include_response_in and _is_small(response.body):
        content = base64.b64encode(response.body or b"").decode()
        shown["responseBody"] = {"content": content, "encoding": "BASE64"}
    shown |= {
        "inferenceId": request.inference_id,
        "eventVersion": "1.0",
        "eventSource": "aws:sagemaker",
        "eventName": "InferenceResult",
    }
    return json.dumps(shown)


def _is_small(body: bytes | None) -> bool:
    return body is not None and len(body) <= MAX_INCLUDED_BYTES


def _iso(at: float) -> str:
    moment = datetime.fromtimestamp(at, UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{moment.microsecond // 1000:03d}Z"
