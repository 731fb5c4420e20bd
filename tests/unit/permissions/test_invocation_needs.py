"""Permissions that invocations need."""

from tests.cases import case, cases

from hostelry.domain.scope import Scope
from hostelry.permissions.needs.invocation import (
    ASYNCHRONOUS,
    STREAMED,
    WHOLE,
    InvokedTarget,
    needed_for_invocation,
)

HERE = Scope("111122223333", "us-west-2")
SM = "arn:aws:sagemaker:us-west-2:111122223333:"


@cases(
    "operation, target, expected",
    case(
        "an endpoint", WHOLE, InvokedTarget(endpoint="Chat"),
        [("sagemaker:InvokeEndpoint", SM + "endpoint/chat")],
    ),
    case(
        "a stream", STREAMED, InvokedTarget(endpoint="chat"),
        [("sagemaker:InvokeEndpointWithResponseStream", SM + "endpoint/chat")],
    ),
    case(
        "an asynchronous request", ASYNCHRONOUS, InvokedTarget(endpoint="chat"),
        [("sagemaker:InvokeEndpointAsync", SM + "endpoint/chat")],
    ),
    case(
        "a component needs its endpoint and itself", WHOLE,
        InvokedTarget(endpoint="chat", component="Base"),
        [
            ("sagemaker:InvokeEndpoint", SM + "endpoint/chat"),
            ("sagemaker:InvokeEndpoint", SM + "inference-component/base"),
        ],
    ),
    case(
        "a name is only text", WHOLE, InvokedTarget(endpoint="*/../x"),
        [("sagemaker:InvokeEndpoint", SM + "endpoint/*/../x")],
    ),
)  # fmt: skip
def test_an_invocation_needs(
    operation: str, target: InvokedTarget, expected: list[tuple[str, str]]
) -> None:
    found = needed_for_invocation(operation, target, HERE)
    assert [(it.action, it.resource) for it in found] == expected


def test_the_keys_of_an_invocation() -> None:
    target = InvokedTarget(endpoint="e", model="a.tar.gz", container="second")
    tags = {SM + "endpoint/e": {"Team": "a"}}
    (found,) = needed_for_invocation(WHOLE, target, HERE, lambda arn: tags[arn])
    assert found.context == {
        "aws:requestedregion": ("us-west-2",),
        "aws:resourceaccount": ("111122223333",),
        "aws:resourcetag/team": ("a",),
        "sagemaker:resourcetag/team": ("a",),
        "sagemaker:targetmodel": ("a.tar.gz",),
        "sagemaker:targetcontainerhostname": ("second",),
    }
