"""Resource policies of endpoints: PutEndpointPolicy, GetEndpointPolicy and DeleteEndpointPolicy.

Source: these operations in the SageMaker API reference, and "Route requests to endpoints in other
AWS accounts" in the developer guide, whose example the rules are made after.
"""

import json
from collections.abc import Mapping
from typing import Any

from hostelry.api.context import CallContext, Operation, Params, Result
from hostelry.api.sagemaker.endpoint import find_endpoint, forget_endpoint_policy
from hostelry.api.sagemaker.kinds import ENDPOINT_POLICIES
from hostelry.base.errors import ServiceError, validation_error
from hostelry.domain.endpoint import Endpoint, EndpointPolicy, EndpointStatus
from hostelry.permissions.document import DocumentKind, MalformedDocument, parse_statements

ACTIONS: Mapping[str, str] = {
    name.lower(): name
    for name in (
        "sagemaker:InvokeEndpoint",
        "sagemaker:InvokeEndpointAsync",
        "sagemaker:InvokeEndpointWithResponseStream",
        "sagemaker:DescribeEndpoint",
        "sagemaker:DescribeInferenceComponent",
    )
}
"""The actions that a policy may name, by their names in lower case."""
ACCOUNT_DIGITS = 12
REFUSED_STATUSES = (EndpointStatus.DELETING, EndpointStatus.FAILED)


def put_endpoint_policy(context: CallContext, params: Params) -> Result:
    """PutEndpointPolicy: replaces the present policy, if there is one."""
    endpoint = _find(context, params)
    if endpoint.status in REFUSED_STATUSES:
        raise validation_error(
            f'Cannot attach a policy to endpoint "{endpoint.arn}" in status'
            f" {endpoint.status.value}."
        )
    document = params["ResourcePolicy"]
    _check_document(endpoint, document)
    stored = ENDPOINT_POLICIES.get(context, endpoint.name.lower())
    policy = EndpointPolicy(scope=context.scope, endpoint_name=endpoint.name, document=document)
    ENDPOINT_POLICIES.put(context, policy, stored)
    return {"EndpointArn": endpoint.arn}


def get_endpoint_policy(context: CallContext, params: Params) -> Result:
    """GetEndpointPolicy. Raises ValidationException if the endpoint has no policy."""
    endpoint = _find(context, params)
    policy = ENDPOINT_POLICIES.get(context, endpoint.name.lower())
    if policy is None:
        raise ENDPOINT_POLICIES.not_found(context, endpoint.name)
    return {
        "EndpointName": endpoint.name,
        "EndpointArn": endpoint.arn,
        "ResourcePolicy": policy.value.document,
    }


def delete_endpoint_policy(context: CallContext, params: Params) -> Result:
    """DeleteEndpointPolicy. May be repeated."""
    forget_endpoint_policy(context, _find(context, params).name)
    return {}


OPERATIONS: Mapping[str, Operation] = {
    "PutEndpointPolicy": put_endpoint_policy,
    "GetEndpointPolicy": get_endpoint_policy,
    "DeleteEndpointPolicy": delete_endpoint_policy,
}
"""The operations by name."""


def _find(context: CallContext, params: Params) -> Endpoint:
    """The endpoint. Raises ResourceNotFound."""
    try:
        return find_endpoint(context, params["EndpointName"]).value
    except ServiceError as error:
        raise ServiceError("ResourceNotFound", error.message) from None


def _check_document(endpoint: Endpoint, document: str) -> None:
    """Raise ValidationException unless the document is a policy that an endpoint may have."""
    if not document.isascii():
        raise _invalid("it has characters that are not ASCII")
    try:
        parse_statements(document, DocumentKind.RESOURCE)
    except MalformedDocument as error:
        raise _invalid(str(error).rstrip(".")) from None
    for number, statement in enumerate(_list(json.loads(document)["Statement"]), start=1):
        problem = _find_problem(endpoint, statement)
        if problem is not None:
            raise _invalid(f"statement {number} {problem}")


def _invalid(problem: str) -> ServiceError:
    return validation_error(f"The endpoint policy is not valid: {problem}.")


def _find_problem(endpoint: Endpoint, statement: Mapping[str, Any]) -> str | None:
    """What is wrong with a statement of valid syntax, or None."""
    negated = [name for name in statement if name.startswith("Not")]
    if negated:
        return f"has {negated[0]}, which an endpoint policy may not have"
    for action in _list(statement["Action"]):
        if action.lower() not in ACTIONS:
            return f"has the action {action:.100}; it may have {', '.join(ACTIONS.values())}"
    principal = statement["Principal"]
    if not isinstance(principal, dict) or set(principal) != {"AWS"}:
        return "needs a Principal with AWS accounts, users or roles"
    for name in _list(principal["AWS"]):
        if not _is_identity(name):
            return (
                f"has the principal {name!s:.100}; it may have the number of an account, and ARNs"
                " of the root, users, roles and sessions of an account"
            )
    components = endpoint.scope.arn("inference-component", "")
    if "Resource" not in statement:
        return f"needs a Resource, such as {endpoint.arn}"
    for resource in _list(statement["Resource"]):
        if resource != endpoint.arn and not resource.startswith(components):
            return (
                f"has the resource {resource:.200}; it may have {endpoint.arn}, and ARNs of"
                " inference components on this endpoint"
            )
    return None


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _is_identity(name: Any) -> bool:
    """True for an account's number, and for the ARN of an identity of an account."""
    if not isinstance(name, str) or "*" in name or "?" in name:
        return False
    if name.startswith("arn:"):
        parts = name.split(":", 5)
        kind = parts[5].partition("/")[0] if len(parts) == 6 and parts[2] in ("iam", "sts") else ""
        name = parts[4] if kind in ("root", "user", "role", "assumed-role") else ""
    return len(name) == ACCOUNT_DIGITS and name.isascii() and name.isdecimal()
