"""Control-plane calls: requests to `ApiCall`s, results and errors to responses.

Knows botocore's models and their protocols, and nothing about the effect of an operation.
"""

from collections.abc import Mapping
from typing import Any

import msgspec
from botocore.model import StructureShape

from hostelry.aws import codecs, query
from hostelry.aws.constraints import check_params
from hostelry.aws.failure import serialize_failure, tree_response
from hostelry.aws.models import operation_model, service_model, service_operations
from hostelry.aws.rest import read_rest
from hostelry.aws.runtime import is_runtime_path, runtime_error
from hostelry.aws.target import (
    CBOR,
    EC2,
    JSON,
    QUERY,
    REST,
    OperationTarget,
    find_target,
    head_service,
    plain_body,
)
from hostelry.aws.tree import JSON_READERS, read_tree, write_tree
from hostelry.base.errors import ServiceError
from hostelry.base.http import HttpRequest, HttpResponse

__all__ = [
    "ApiCall",
    "find_target",
    "parse_call",
    "serialize_error",
    "serialize_result",
    "service_operations",
]


class ApiCall(msgspec.Struct, frozen=True, kw_only=True):
    """One validated request.

    Args:
        service: boto3 name, for example ``application-autoscaling``.
        operation: AWS name, for example ``CreateEndpoint``.
        params: members by AWS name, as the model types them, with timestamps in epoch seconds.
        protocol: botocore's name of the protocol it came in and is answered in.
        request_id: goes into the answer.
    """

    service: str
    operation: str
    params: dict[str, Any]
    protocol: str
    request_id: str


def parse_call(request: HttpRequest, request_id: str) -> ApiCall:
    """The call that `request` makes, valid against its model.

    Raises ServiceError UnknownOperationException, SerializationException or ValidationException.
    """
    target = find_target(request)
    shape = operation_model(target.service, target.operation).input_shape
    params: dict[str, Any] = {}
    if shape is not None:
        params = _read_params(shape, request, target)
        check_params(shape, params)
    return ApiCall(
        service=target.service,
        operation=target.operation,
        params=params,
        protocol=target.protocol,
        request_id=request_id,
    )


def _read_params(
    shape: StructureShape, request: HttpRequest, target: OperationTarget
) -> dict[str, Any]:
    if target.protocol == QUERY:
        return query.read_form(shape, target.fields)
    if target.protocol == EC2:
        return query.read_form(shape, target.fields, query.EC2)
    body = plain_body(request)
    params: dict[str, Any]
    if target.protocol == REST:
        return read_rest(shape, codecs.decode_json(body), target.fields, request.query)
    if target.protocol == CBOR:
        params = read_tree(shape, codecs.decode_cbor(body), "", codecs.CBOR_READERS)
    else:
        params = read_tree(shape, codecs.decode_json(body), "", JSON_READERS)
    return params


def serialize_result(call: ApiCall, result: Mapping[str, Any]) -> HttpResponse:
    """The answer to `call`. Members of `result` with the value None count as absent.

    Raises TypeError or ValueError where `result` breaks the operation's output shape.
    """
    shape = operation_model(call.service, call.operation).output_shape
    if shape is None and result:
        raise ValueError(f"{call.operation} has no output, got members {sorted(result)}")
    headers = {"x-amzn-RequestId": call.request_id}
    if call.protocol in (QUERY, EC2):
        namespace = service_model(call.service).metadata["xmlNamespace"]
        write = query.result_xml if call.protocol == QUERY else query.ec2_result_xml
        body = write(call.operation, namespace, shape, result, call.request_id)
        return HttpResponse(200, {"Content-Type": "text/xml", **headers}, body)
    writers = codecs.CBOR_WRITERS if call.protocol == CBOR else codecs.JSON_WRITERS
    tree = None if shape is None else write_tree(shape, result, call.operation, writers)
    return tree_response(200, tree, call.service, call.protocol, headers)


def serialize_error(
    error: ServiceError, call: ApiCall | None, request_id: str, request: HttpRequest | None = None
) -> HttpResponse:
    """The error answer in the protocol of `call`, or else in the one `request` seems to speak.

    Its body is not read: its sender may not be verified, and it may unpack to any size.
    """
    if call is not None:
        return serialize_failure(error, call.service, call.protocol, request_id)
    if request is None:
        return serialize_failure(error, None, JSON, request_id)
    if is_runtime_path(request.path):
        return runtime_error(error, request_id)
    service, protocol = head_service(request)
    return serialize_failure(error, service, protocol, request_id)
