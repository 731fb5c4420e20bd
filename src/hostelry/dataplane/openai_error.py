"""Errors in OpenAI's format.

Source: OpenAI API reference, Error codes.
"""

from typing import Any

import msgspec

from hostelry.base.errors import ServiceError
from hostelry.base.http import HttpResponse


def error_object(error: ServiceError) -> dict[str, Any]:
    """What `error` is under the key `error` of an answer."""
    kind = "invalid_request_error" if error.http_status < 500 else "server_error"
    return {
        "message": error.message,
        "type": kind,
        "param": error.members.get("param"),
        "code": error.code or None,
    }


def error_response(error: ServiceError, request_id: str) -> HttpResponse:
    """The answer that `error` is."""
    body = msgspec.json.encode({"error": error_object(error)})
    headers = {"Content-Type": "application/json", "x-request-id": request_id}
    return HttpResponse(error.http_status, headers, body)
