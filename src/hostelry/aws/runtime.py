"""Messages of the runtime API (rest-json): invocations, queued invocations and their answers.

InvokeEndpoint is the hot path: constraints are compiled once, and checked by a length and a match.
"""

import re
from collections.abc import Iterator
from functools import cache
from typing import Any
from urllib.parse import unquote

import msgspec
from botocore.model import Shape

from hostelry.aws.codecs import encode_json
from hostelry.aws.constraints import (
    broken_demands,
    compile_pattern,
    member_path,
    violation,
    violations_error,
)
from hostelry.aws.failure import error_members, error_shapes, error_status
from hostelry.aws.models import operation_model
from hostelry.base.errors import ServiceError
from hostelry.base.http import HttpRequest, HttpResponse
from hostelry.base.json import convert

_INVOKE = "InvokeEndpoint"
_INVOKE_STREAM = "InvokeEndpointWithResponseStream"
_ACTIONS = {"invocations": _INVOKE, "invocations-response-stream": _INVOKE_STREAM}
_WORD_START = re.compile(r"(?<!^)(?=[A-Z])")
_UNBOUNDED = 1 << 62
SERVICE = "sagemaker-runtime"
_INVOKE_ASYNC = "InvokeEndpointAsync"
_ASYNC_ACTION = "/async-invocations"
_MAX_DIGITS = 9
_ASYNC_FIELDS = {
    "EndpointName": "endpoint_name",
    "ContentType": "content_type",
    "Accept": "accept",
    "CustomAttributes": "custom_attributes",
    "InferenceId": "inference_id",
    "InputLocation": "input_location",
    "S3OutputPathExtension": "output_path_extension",
    "Filename": "filename",
    "RequestTTLSeconds": "request_ttl_s",
    "InvocationTimeoutSeconds": "invocation_timeout_s",
}


class InvokeRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One InvokeEndpoint, or InvokeEndpointWithResponseStream with `stream`, without its body.

    Missing headers have no value. Source: SageMaker runtime API reference, InvokeEndpoint.
    """

    endpoint_name: str
    stream: bool
    content_type: str | None = None
    accept: str | None = None
    custom_attributes: str | None = None
    target_model: str | None = None
    target_variant: str | None = None
    target_container_hostname: str | None = None
    inference_id: str | None = None
    enable_explanations: str | None = None
    inference_component_name: str | None = None
    session_id: str | None = None
    prefix_aware_id: str | None = None


class _Rule(msgspec.Struct, frozen=True, kw_only=True):
    """One member: its header, and the constraints of its shape."""

    member: str
    field: str
    header: str
    shape: Shape
    least: int
    most: int
    fullmatch: Any

    def holds(self, value: str) -> bool:
        return self.least <= len(value) <= self.most and self.fullmatch(value) is not None


class _Rules(msgspec.Struct, frozen=True, kw_only=True):
    name: _Rule
    headers: tuple[_Rule, ...]


@cache
def _rules(operation: str) -> _Rules:
    shape = operation_model(SERVICE, operation).input_shape
    known = set(InvokeRequest.__struct_fields__)
    rules = [_rule(name, member) for name, member in shape.members.items()]
    return _Rules(
        name=next(rule for rule in rules if rule.field == "endpoint_name"),
        headers=tuple(rule for rule in rules if rule.header and rule.field in known),
    )


def _rule(name: str, shape: Shape) -> _Rule:
    in_header = shape.serialization.get("location") == "header"
    return _Rule(
        member=name,
        field=_WORD_START.sub("_", name).lower(),
        header=shape.serialization["name"].lower() if in_header else "",
        shape=shape,
        least=shape.metadata.get("min", 0),
        most=shape.metadata.get("max", _UNBOUNDED),
        fullmatch=compile_pattern(shape.metadata.get("pattern", r"[\s\S]*")).fullmatch,
    )


def is_runtime_path(path: str) -> bool:
    """Whether a request to `path` is for the runtime API."""
    return path.startswith("/endpoints/")


def parse_invocation(request: HttpRequest) -> InvokeRequest:
    """The invocation of a request. Its body is not read.

    Raises ServiceError ValidationError (400) for a header or name that breaks the model, and for
    another path or method than an invocation's.
    """
    name, operation = _split(request)
    rules = _rules(operation)
    given: dict[str, Any] = {"endpoint_name": name, "stream": operation is _INVOKE_STREAM}
    broken = [] if rules.name.holds(name) else [(rules.name, name)]
    headers = request.headers
    for rule in rules.headers:
        value = headers.get(rule.header)
        if value is not None:
            given[rule.field] = value
            if not rule.holds(value):
                broken.append((rule, value))
    if broken:
        raise violations_error(list(_violations(broken)), "ValidationError")
    target = given.get("target_model")
    if target is not None and len(target) > 1:  # published programs write "/model.tar.gz"
        given["target_model"] = target.removeprefix("/")
    return InvokeRequest(**given)


def _violations(broken: list[tuple[_Rule, str]]) -> Iterator[str]:
    for rule, value in broken:
        for demand in broken_demands(rule.shape, value):
            yield violation(rule.shape, value, member_path(rule.member), demand)


def _split(request: HttpRequest) -> tuple[str, str]:
    """Endpoint name and operation of a runtime path."""
    parts = request.path.split("/")
    action = parts[3] if len(parts) == 4 and parts[1] == "endpoints" else ""
    operation = _ACTIONS.get(action)
    if operation is not None and request.method == "POST":
        return unquote(parts[2]) if "%" in parts[2] else parts[2], operation
    asked = f"{request.method} {request.path:.200}"
    raise _invalid(f"{asked} is no runtime call: POST /endpoints/NAME/({'|'.join(_ACTIONS)})")


def _invalid(message: str) -> ServiceError:
    return ServiceError("ValidationError", message, 400)


def invocation_response_headers(
    *,
    request_id: str,
    invoked_production_variant: str,
    content_type: str | None,
    custom_attributes: str | None = None,
    new_session_id: str | None = None,
    closed_session_id: str | None = None,
    stream: bool = False,
) -> dict[str, str]:
    """Headers of a 200 answer. `content_type` is the container's type of its body.

    Source: SageMaker runtime API reference, InvokeEndpoint and InvokeEndpointWithResponseStream.
    """
    headers = {
        "x-amzn-RequestId": request_id,
        "x-Amzn-Invoked-Production-Variant": invoked_production_variant,
    }
    if stream:
        headers["Content-Type"] = "application/vnd.amazon.eventstream"
    if content_type is not None:
        headers["X-Amzn-SageMaker-Content-Type" if stream else "Content-Type"] = content_type
    if custom_attributes is not None:
        headers["X-Amzn-SageMaker-Custom-Attributes"] = custom_attributes
    if new_session_id is not None:
        headers["X-Amzn-SageMaker-New-Session-Id"] = new_session_id
    if closed_session_id is not None:
        headers["X-Amzn-SageMaker-Closed-Session-Id"] = closed_session_id
    return headers


def runtime_error(error: ServiceError, request_id: str) -> HttpResponse:
    """The rest-json error answer. Texts are cut to the lengths in the model."""
    shape = error_shapes(SERVICE).get(error.code)
    members = error_members(error, shape)
    if shape is not None:
        members = {name: _cut(shape.members[name], value) for name, value in members.items()}
    headers = {
        "Content-Type": "application/json",
        "x-amzn-ErrorType": error.code,
        "x-amzn-RequestId": request_id,
    }
    return HttpResponse(error_status(error, shape), headers, encode_json(members))


def _cut(shape: Shape, value: Any) -> Any:
    return value[: shape.metadata.get("max")] if isinstance(value, str) else value


class AsyncInvokeRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One InvokeEndpointAsync without its body. Missing headers have no value.

    Source: SageMaker runtime API reference, InvokeEndpointAsync.
    """

    endpoint_name: str
    content_type: str | None = None
    accept: str | None = None
    custom_attributes: str | None = None
    inference_id: str | None = None
    input_location: str | None = None
    output_path_extension: str | None = None
    filename: str | None = None
    request_ttl_s: int | None = None
    invocation_timeout_s: int | None = None


def is_async_path(path: str) -> bool:
    """Whether a request to `path` is an InvokeEndpointAsync."""
    return path.startswith("/endpoints/") and path.endswith(_ASYNC_ACTION)


def parse_async_invocation(request: HttpRequest) -> AsyncInvokeRequest:
    """The queued invocation of a request.

    Raises ServiceError ValidationError (400) for a name, header or body that breaks the model, for
    another path or method, and unless exactly one of Body and InputLocation is given.
    """
    given: dict[str, str | int] = {"EndpointName": _split_async(request)}
    members = _async_members()
    for name, (shape, header) in members.items():
        value = request.headers.get(header) if header else None
        if value is not None:
            given[name] = _parse_seconds(name, value) if shape.type_name == "integer" else value
    values = {**given, "Body": request.body}
    broken = [
        violation(members[name][0], value, member_path(name), demand)
        for name, value in values.items()
        for demand in broken_demands(members[name][0], value)
    ]
    if broken:
        raise violations_error(broken, "ValidationError")
    if bool(request.body) == ("InputLocation" in given):
        both = "both were" if request.body else "none was"
        raise _invalid(f"Exactly one of Body and InputLocation is required; {both} given.")
    return convert(
        {_ASYNC_FIELDS[name]: value for name, value in given.items()}, AsyncInvokeRequest
    )


def accepted_answer(
    *, request_id: str, inference_id: str, output_location: str, failure_location: str
) -> HttpResponse:
    """The 202 answer to a stored request."""
    headers = {
        "Content-Type": "application/json",
        "x-amzn-RequestId": request_id,
        "X-Amzn-SageMaker-OutputLocation": output_location,
        "X-Amzn-SageMaker-FailureLocation": failure_location,
    }
    return HttpResponse(202, headers, encode_json({"InferenceId": inference_id}))


@cache
def _async_members() -> dict[str, tuple[Shape, str]]:
    """The shape and the header of each member. The name and the body have no header."""
    shape = operation_model(SERVICE, _INVOKE_ASYNC).input_shape
    return {
        name: (member, _header(member))
        for name, member in shape.members.items()
        if name in _ASYNC_FIELDS or name == "Body"
    }


def _header(member: Shape) -> str:
    in_header = member.serialization.get("location") == "header"
    return member.serialization["name"].lower() if in_header else ""


def _split_async(request: HttpRequest) -> str:
    parts = request.path.split("/")
    if len(parts) != 4 or not is_async_path(request.path) or request.method != "POST":
        asked = f"{request.method} {request.path:.200}"
        raise _invalid(f"{asked} is no runtime call: POST /endpoints/NAME{_ASYNC_ACTION}")
    return unquote(parts[2])


def _parse_seconds(name: str, value: str) -> int:
    digits = value.strip()
    if not (digits.isascii() and digits.isdigit() and len(digits) <= _MAX_DIGITS):
        raise _invalid(f"{name} is '{value:.50}'; it must be a whole number of seconds.")
    return int(digits)
