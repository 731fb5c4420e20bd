"""Messages of InvokeEndpointAsync (rest-json): a queued invocation and its answer."""

from functools import cache
from urllib.parse import unquote

import msgspec
from botocore.model import Shape

from hostelry.aws.codecs import encode_json
from hostelry.aws.constraints import broken_demands, member_path, violation, violations_error
from hostelry.aws.models import operation_model
from hostelry.base.errors import ServiceError
from hostelry.base.http import HttpRequest, HttpResponse
from hostelry.base.json import convert

SERVICE = "sagemaker-runtime"
OPERATION = "InvokeEndpointAsync"
ACTION = "/async-invocations"
MAX_DIGITS = 9
FIELDS = {
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


class AsyncInvokeRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One InvokeEndpointAsync, its body apart; a header that was not sent is None.

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
    return path.startswith("/endpoints/") and path.endswith(ACTION)


def parse_async_invocation(request: HttpRequest) -> AsyncInvokeRequest:
    """The queued invocation that `request` is.

    Raises ServiceError ValidationError (400) for a name, header or body that breaks the model, for
    another path or method, and unless exactly one of Body and InputLocation is given.
    """
    given: dict[str, str | int] = {"EndpointName": _endpoint_name(request)}
    members = _members()
    for name, (shape, header) in members.items():
        value = request.headers.get(header) if header else None
        if value is not None:
            given[name] = _number(name, value) if shape.type_name == "integer" else value
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
    return convert({FIELDS[name]: value for name, value in given.items()}, AsyncInvokeRequest)


def accepted_answer(
    *, request_id: str, inference_id: str, output_location: str, failure_location: str
) -> HttpResponse:
    """The 202 that says that the request is kept."""
    headers = {
        "Content-Type": "application/json",
        "x-amzn-RequestId": request_id,
        "X-Amzn-SageMaker-OutputLocation": output_location,
        "X-Amzn-SageMaker-FailureLocation": failure_location,
    }
    return HttpResponse(202, headers, encode_json({"InferenceId": inference_id}))


@cache
def _members() -> dict[str, tuple[Shape, str]]:
    """Each member's shape, and its header; an empty one for the name and the body."""
    shape = operation_model(SERVICE, OPERATION).input_shape
    return {
        name: (member, _header(member))
        for name, member in shape.members.items()
        if name in FIELDS or name == "Body"
    }


def _header(member: Shape) -> str:
    in_header = member.serialization.get("location") == "header"
    return member.serialization["name"].lower() if in_header else ""


def _endpoint_name(request: HttpRequest) -> str:
    parts = request.path.split("/")
    if len(parts) != 4 or not is_async_path(request.path) or request.method != "POST":
        asked = f"{request.method} {request.path:.200}"
        raise _invalid(f"{asked} is no runtime call: POST /endpoints/NAME{ACTION}")
    return unquote(parts[2])


def _number(name: str, value: str) -> int:
    digits = value.strip()
    if not (digits.isascii() and digits.isdigit() and len(digits) <= MAX_DIGITS):
        raise _invalid(f"{name} is '{value:.50}'; it must be a whole number of seconds.")
    return int(digits)


def _invalid(message: str) -> ServiceError:
    return ServiceError("ValidationError", message, 400)
