"""Look-up of the service, operation and protocol of a request."""

import zlib
from collections.abc import Mapping

import msgspec

from hostelry.aws.models import TARGETS, VERSIONS, service_model, service_operations
from hostelry.aws.query import decode_form
from hostelry.aws.rest import rest_operation, rest_service
from hostelry.aws.tree import serialization_error
from hostelry.base.errors import ServiceError
from hostelry.base.http import HttpRequest

JSON = "json"
QUERY = "query"
EC2 = "ec2"
CBOR = "smithy-rpc-v2-cbor"
REST = "rest-json"

MAX_UNZIPPED_BYTES = 16 * 1024 * 1024
_GZIP_WINDOW_BITS = 31
_FORM = "application/x-www-form-urlencoded"
_SMITHY_ROOT = "/service/"


class OperationTarget(msgspec.Struct, frozen=True, kw_only=True):
    """Service by boto3 name, operation by AWS name, protocol by botocore's name.

    `fields` are the form's fields in the query protocols, the path's members in rest-json.
    """

    service: str
    operation: str
    protocol: str
    fields: Mapping[str, str] = msgspec.field(default_factory=dict)


def find_target(request: HttpRequest) -> OperationTarget:
    """The operation that `request` names, which its service's model has.

    Raises ServiceError UnknownOperationException, or SerializationException for a broken form.
    """
    if request.path.startswith(_SMITHY_ROOT):
        return _smithy_target(request.path)
    header = request.headers.get("x-amz-target")
    if header is not None:
        prefix, _, operation = header.rpartition(".")
        return _find_known(TARGETS.get(prefix), operation, JSON, header)
    service = rest_service(request.path)
    if service is not None:
        return _rest_target(service, request)
    if is_form(request):
        return _form_target(form_fields(request))
    raise unknown_operation(
        f"{request.method} {request.path:.200} names no operation: "
        "send X-Amz-Target, or a form with Action and Version"
    )


def head_service(request: HttpRequest) -> tuple[str | None, str]:
    """The service, if the head names it, and the protocol. The head may be invalid.

    Of a form only its protocol is known: the service is named in the body.
    """
    if request.path.startswith(_SMITHY_ROOT):
        return TARGETS.get(request.path.split("/")[2]), CBOR
    target = request.headers.get("x-amz-target", "")
    service = None if target else rest_service(request.path)
    if service is not None:
        return service, REST
    if target or not is_form(request):
        return TARGETS.get(target.rpartition(".")[0]), JSON
    return None, QUERY


def is_form(request: HttpRequest) -> bool:
    """Whether the protocol is query or ec2: a form body, or the same fields in a GET's query."""
    if request.method == "GET":
        return "Action=" in request.query
    return request.headers.get("content-type", "").lower().startswith(_FORM)


def form_fields(request: HttpRequest) -> dict[str, str]:
    """The form of a request. Raises ServiceError SerializationException."""
    body = request.query.encode() if request.method == "GET" else plain_body(request)
    return decode_form(body)


def unknown_operation(message: str) -> ServiceError:
    """The answer to an operation that does not exist."""
    return ServiceError("UnknownOperationException", message, 400)


def _smithy_target(path: str) -> OperationTarget:
    parts = path.split("/")
    if len(parts) != 5 or parts[3] != "operation":
        raise unknown_operation(f"{path:.200} is not /service/NAME/operation/OPERATION")
    return _find_known(TARGETS.get(parts[2]), parts[4], CBOR, f"{parts[2]}.{parts[4]}")


def _rest_target(service: str, request: HttpRequest) -> OperationTarget:
    asked = f"{request.method} {request.path}"
    found = rest_operation(service, request.method, request.path)
    if found is None:
        raise unknown_operation(f"{asked:.200} is no call of {service}")
    return _find_known(service, found[0], REST, asked, found[1])


def _form_target(fields: dict[str, str]) -> OperationTarget:
    version = fields.pop("Version", "")
    operation = fields.pop("Action", "")
    service = VERSIONS.get(version)
    protocol = EC2 if service == "ec2" else QUERY
    return _find_known(service, operation, protocol, f"{operation} of version {version}", fields)


def _find_known(
    service: str | None,
    operation: str,
    protocol: str,
    asked: str,
    fields: Mapping[str, str] | None = None,
) -> OperationTarget:
    known = service is not None and operation in service_operations(service)
    if service is None or not known:
        raise unknown_operation(f"Operation {asked:.200} does not exist in a service served here")
    if protocol not in service_model(service).metadata["protocols"]:
        raise unknown_operation(f"Operation {asked:.200} is not served in protocol {protocol}")
    return OperationTarget(
        service=service, operation=operation, protocol=protocol, fields=fields or {}
    )


def plain_body(request: HttpRequest) -> bytes:
    """The body without its content encoding. A zipped body has at most `MAX_UNZIPPED_BYTES`."""
    encoding = request.headers.get("content-encoding", "identity").strip().lower()
    if encoding in ("identity", ""):
        return request.body
    if encoding != "gzip":
        raise serialization_error(f"Content-Encoding '{encoding:.50}' is not gzip")
    return _unzip(request.body)


def _unzip(body: bytes) -> bytes:
    stream = zlib.decompressobj(_GZIP_WINDOW_BITS)
    try:
        plain = stream.decompress(body, MAX_UNZIPPED_BYTES + 1)
    except zlib.error as error:
        raise serialization_error(f"The body is not gzip: {error}") from None
    if len(plain) > MAX_UNZIPPED_BYTES:
        raise serialization_error(f"The body is over {MAX_UNZIPPED_BYTES} bytes when unzipped")
    if not stream.eof or stream.unused_data:
        raise serialization_error("The body is not one whole gzip stream")
    return plain
