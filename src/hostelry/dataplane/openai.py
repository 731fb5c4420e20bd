"""OpenAI's API: the form of its errors, and the look-up of a request's `model`."""

import re
from typing import Any

import msgspec
from msgspec.structs import replace

from hostelry.base.errors import ServiceError
from hostelry.base.http import HttpResponse
from hostelry.dataplane.balancing.destination import UnknownNameError, failure_text
from hostelry.dataplane.route_table import Destination, RouteTable
from hostelry.domain.load import LoadKey
from hostelry.domain.scope import Scope

# Errors in OpenAI's format.
#
# Source: OpenAI API reference, Error codes.


def error_object(error: ServiceError) -> dict[str, Any]:
    """What `error` is under the key `error` of an answer."""
    kind = "invalid_request_error" if error.http_status < 500 else "server_error"
    return {
        "message": error.message,
        "type": error.members.get("type", kind),
        "param": error.members.get("param"),
        "code": error.code or None,
    }


def error_response(error: ServiceError, request_id: str) -> HttpResponse:
    """The answer that `error` is."""
    body = msgspec.json.encode({"error": error_object(error)})
    headers = {"Content-Type": "application/json", "x-request-id": request_id}
    return HttpResponse(error.http_status, headers, body)


ADAPTER_NAME = re.compile(r"[\x21-\x7e]{1,256}")  # it travels in a header


def find_model(table: RouteTable, owner: Scope, name: str) -> Destination:
    """Find the destination of COMPONENT or COMPONENT:ADAPTER. It may have no copy.

    Raises UnknownNameError, which is a ServiceError model_not_found (404), or ServiceError
    component_failed (400) with the reason for a component that is Failed.
    """
    whole = table.llm(owner, name)
    if whole is not None:
        return whole
    component_name, _, adapter = name.partition(":")
    failed = table.find_failed(owner, name) or table.find_failed(owner, component_name)
    if failed is not None and failed.serves_llm:
        raise ServiceError("component_failed", failure_text(failed), 400, {"param": "model"})
    base = table.llm(owner, component_name)
    if base is None or base.adapter_id is not None or not ADAPTER_NAME.fullmatch(adapter):
        text = (
            "does not exist. GET /v1/models lists the models there are; COMPONENT:ADAPTER names an "
            "adapter inside a component's archive."
        )
        if base is None and table.component(owner, name) is not None:
            text = (
                "is not an LLM, and this API calls LLMs alone. InvokeEndpoint calls it, with a body"
                " of its own: `hostelry invoke`, `hostelry load --body FILE`."
            )
        unknown = ServiceError(
            "model_not_found", f"The model `{name:.300}` {text}", 404, {"param": "model"}
        )
        raise UnknownNameError(
            unknown,
            LoadKey(scope=owner, endpoint_name="", variant_name="", component_name=component_name),
        )
    return replace(base, adapter_id=adapter, adapter_alias=adapter)
