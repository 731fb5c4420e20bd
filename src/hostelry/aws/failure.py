"""Error answers in each protocol: modelled shape, code, status and members."""

from collections.abc import Mapping
from functools import cache
from types import MappingProxyType
from typing import Any

from botocore.model import StructureShape

from hostelry.aws import codecs, query
from hostelry.aws.codes import query_code
from hostelry.aws.models import modelled_errors, service_model
from hostelry.aws.target import CBOR, EC2, QUERY, REST
from hostelry.aws.tree import write_tree
from hostelry.base.errors import ServiceError
from hostelry.base.http import HttpResponse


@cache
def error_shapes(service: str) -> Mapping[str, StructureShape]:
    """Modelled errors of `service` by shape name and by query code."""
    by_name = {shape.name: shape for shape in modelled_errors(service)}
    by_code = {shape.metadata.get("error", {}).get("code"): shape for shape in by_name.values()}
    by_code.pop(None, None)
    return MappingProxyType(by_code | by_name)


def error_status(error: ServiceError, shape: StructureShape | None) -> int:
    """The HTTP status of `error`, which the model may state."""
    modelled = shape.metadata.get("error", {}).get("httpStatusCode") if shape else None
    return int(modelled or error.http_status)


def error_members(error: ServiceError, shape: StructureShape | None) -> dict[str, Any]:
    """The message under the name that `shape` gives it, and the further members it knows."""
    if shape is None:
        return {"message": error.message}
    name = next((name for name in shape.members if name.lower() == "message"), "message")
    further = {
        member: write_tree(shape.members[member], value, f"{shape.name}.{member}", {})
        for member, value in error.members.items()
        if member in shape.members and value is not None
    }
    return {**further, name: error.message}


def serialize_failure(
    error: ServiceError, service: str | None, protocol: str, request_id: str
) -> HttpResponse:
    """The error answer in `protocol`. A request without a service has no `service`."""
    shape = error_shapes(service).get(error.code) if service else None
    status = error_status(error, shape)
    headers = {"x-amzn-RequestId": request_id}
    legacy_code = _legacy_code(error, shape)
    sender = "Sender" if status < 500 else "Receiver"
    if protocol == EC2:
        fault = {"Code": legacy_code, "Message": error.message}
        body = query.ec2_error_xml(fault, request_id)
        return HttpResponse(status, {"Content-Type": "text/xml", **headers}, body)
    if protocol == QUERY:
        members = {name: str(value) for name, value in error_members(error, shape).items()}
        message = members.pop("message", members.pop("Message", ""))
        fault = {"Type": sender, "Code": legacy_code, "Message": message, **members}
        namespace = service_model(service).metadata["xmlNamespace"] if service else ""
        body = query.error_xml(fault, namespace, request_id)
        return HttpResponse(status, {"Content-Type": "text/xml", **headers}, body)
    tree = {"__type": shape.name if shape else error.code, **error_members(error, shape)}
    if protocol == REST:
        headers["x-amzn-ErrorType"] = tree.pop("__type")
    if service and "awsQueryCompatible" in service_model(service).metadata:
        headers["x-amzn-query-error"] = f"{legacy_code};{sender}"
    return tree_response(status, tree, service, protocol, headers)


def tree_response(
    status: int, tree: Any, service: str | None, protocol: str, headers: Mapping[str, str]
) -> HttpResponse:
    """A JSON or CBOR answer. The tree None is an empty body."""
    is_rest = protocol == REST
    if protocol == CBOR:
        kind = {"Content-Type": "application/cbor", "smithy-protocol": "rpc-v2-cbor"}
        body = codecs.encode_cbor({} if tree is None else tree)
        return HttpResponse(status, {**kind, **headers}, body)
    version = service_model(service).metadata["jsonVersion"] if service and not is_rest else "1.1"
    content_type = "application/json" if is_rest else f"application/x-amz-json-{version}"
    body = b"" if tree is None else codecs.encode_json(tree)
    return HttpResponse(status, {"Content-Type": content_type, **headers}, body)


def _legacy_code(error: ServiceError, shape: StructureShape | None) -> str:
    modelled = shape.metadata.get("error", {}).get("code") if shape else None
    return str(modelled or query_code(error.code))
