"""Resource policies of endpoints."""

import json
from typing import Any

import pytest
from tests.cases import case, cases
from tests.contract.api.rig import Api

from hostelry.base.errors import ServiceError
from hostelry.domain.endpoint import EndpointStatus

ARN = "arn:aws:sagemaker:us-west-2:123456789012:endpoint/e"
COMPONENT = "arn:aws:sagemaker:us-west-2:123456789012:inference-component/c"
STATEMENT = {
    "Sid": "InvokeThroughRouter",
    "Effect": "Allow",
    "Principal": {"AWS": "arn:aws:iam::111122223333:root"},
    "Action": "sagemaker:InvokeEndpoint",
    "Resource": ARN,
    "Condition": {
        "ArnEquals": {
            "sagemaker:SourceInferenceRouterArn": (
                "arn:aws:sagemaker:us-west-2:111122223333:inference-router/r"
            )
        }
    },
}


def build(*statements: dict[str, Any], **members: Any) -> str:
    document = {"Version": "2012-10-17", "Statement": list(statements), **members}
    return json.dumps(document)


def without(name: str, **more: Any) -> dict[str, Any]:
    return {**{key: it for key, it in STATEMENT.items() if key != name}, **more}


def put(api: Api, document: str) -> dict[str, Any]:
    return api.call("PutEndpointPolicy", EndpointName="e", ResourcePolicy=document)


def has_policy(api: Api) -> bool:
    try:
        api.call("GetEndpointPolicy", EndpointName="e")
    except ServiceError as error:
        text = f'Endpoint "{ARN}" has no resource policy.'
        return (error.code, error.http_status, error.message) != ("ValidationException", 400, text)
    return True


def test_a_policy_is_kept_as_it_is_written_until_it_is_replaced(api: Api) -> None:
    api.make.endpoint()
    assert not has_policy(api)
    first, second = build(STATEMENT), build(without("Condition"))
    assert put(api, first) == {"EndpointArn": ARN}
    answer = {"EndpointName": "e", "EndpointArn": ARN, "ResourcePolicy": first}
    assert api.call("GetEndpointPolicy", EndpointName="e") == answer
    put(api, second)
    assert api.call("GetEndpointPolicy", EndpointName="e")["ResourcePolicy"] == second


def test_a_policy_is_deleted_and_may_be_missing(api: Api) -> None:
    api.make.endpoint()
    put(api, build(STATEMENT))
    for _ in range(2):
        assert api.call("DeleteEndpointPolicy", EndpointName="e") == {}
        assert not has_policy(api)


def test_a_new_endpoint_of_the_same_name_has_no_policy(api: Api) -> None:
    api.make.endpoint()
    put(api, build(STATEMENT))
    api.call("DeleteEndpoint", EndpointName="e")
    assert api.state.endpoint_policies.list() == []
    found = api.state.endpoints.get(api.scope, "e")
    assert found is not None
    api.state.endpoints.delete(api.scope, "e", expect=found.version)
    api.call("CreateEndpoint", EndpointName="e", EndpointConfigName="e-config")
    assert not has_policy(api)


@cases(
    "status",
    case("deleting", EndpointStatus.DELETING),
    case("failed", EndpointStatus.FAILED),
)
def test_an_endpoint_that_will_not_serve_takes_no_policy(api: Api, status: EndpointStatus) -> None:
    api.make.endpoint()
    api.change_endpoint(status=status)
    text = api.refusal("PutEndpointPolicy", EndpointName="e", ResourcePolicy=build(STATEMENT))
    assert text == f'Cannot attach a policy to endpoint "{ARN}" in status {status.value}.'


@pytest.mark.parametrize("operation", ["Put", "Get", "Delete"])
def test_a_missing_endpoint_is_not_found(api: Api, operation: str) -> None:
    given = {"ResourcePolicy": build(STATEMENT)} if operation == "Put" else {}
    with pytest.raises(ServiceError) as caught:
        api.call(f"{operation}EndpointPolicy", EndpointName="e", **given)
    assert (caught.value.code, caught.value.message) == (
        "ResourceNotFound",
        f'Could not find endpoint "{ARN}".',
    )


@cases(
    "statements",
    case("an account by its number", [without("Principal", Principal={"AWS": "111122223333"})]),
    case(
        "a role, and actions on the endpoint and a component",
        [
            {
                **STATEMENT,
                "Principal": {"AWS": ["arn:aws:iam::123456789012:role/team/r"]},
                "Action": ["sagemaker:DescribeEndpoint", "SageMaker:invokeEndpointAsync"],
                "Resource": [ARN, COMPONENT],
            }
        ],
    ),
    case("a deny", [without("Sid", Effect="Deny"), STATEMENT]),
)
def test_a_policy_may_have(api: Api, statements: list[dict[str, Any]]) -> None:
    api.make.endpoint()
    put(api, build(*statements))
    assert has_policy(api)


@cases(
    "document, problem",
    case("not JSON", "{", "This policy contains invalid Json"),
    case("not an object", "[]", "Syntax errors in policy"),
    case("no statements", build(), "Syntax errors in policy"),
    case("a statement that is not an object", build("x"), "Syntax errors in policy"),  # type: ignore[arg-type]
    case("an unknown member", build(STATEMENT, Extra=1), "Syntax errors in policy"),
    case("other characters", build(without("Sid", Sid="x")).replace('"x"', '"é"'), "not ASCII"),
    case("no principal", build(without("Principal")), "Missing required field Principal"),
    case("everybody", build(without("Principal", Principal="*")), "needs a Principal"),
    case(
        "every account", build(without("Principal", Principal={"AWS": "*"})), "the principal *;"
    ),
    case(
        "a service", build(without("Principal", Principal={"Service": "events.amazonaws.com"})),
        "needs a Principal",
    ),
    case(
        "roles by a pattern",
        build(without("Principal", Principal={"AWS": "arn:aws:iam::111122223333:role/*"})),
        "Invalid principal in policy",
    ),
    case(
        "principals that are left out",
        build(without("Principal", NotPrincipal={"AWS": "111122223333"})), "NotPrincipal",
    ),
    case(
        "an action that changes the endpoint", build({**STATEMENT, "Action": "sagemaker:*"}),
        "statement 1 has the action sagemaker:*;",
    ),
    case(
        "actions that are left out", build(without("Action", NotAction="sagemaker:DeleteEndpoint")),
        "NotAction",
    ),
    case("no resource", build(without("Resource")), "statement 1 needs a Resource"),
    case("all resources", build({**STATEMENT, "Resource": "*"}), "the resource *;"),
    case(
        "another endpoint", build(STATEMENT, {**without("Sid"), "Resource": ARN + "2"}),
        f"statement 2 has the resource {ARN}2;",
    ),
    case(
        "a component of another account",
        build({**STATEMENT, "Resource": COMPONENT.replace("123456789012", "111122223333")}),
        "the resource arn",
    ),
)  # fmt: skip
def test_a_policy_is_refused(api: Api, document: str, problem: str) -> None:
    api.make.endpoint()
    text = api.refusal("PutEndpointPolicy", EndpointName="e", ResourcePolicy=document)
    assert text.startswith("The endpoint policy is not valid: ")
    assert problem in text
    assert not has_policy(api)
