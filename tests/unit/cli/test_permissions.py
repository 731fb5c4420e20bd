"""Lines of `hostelry permissions explain`, and arguments that it refuses."""

from typing import Any

import pytest
from tests.cases import case, cases

from hostelry.base.errors import UsageError
from hostelry.cli.permissions import _check, _describe

FOUND: dict[str, Any] = {
    "principal": "arn:aws:iam::111122223333:user/ann",
    "action": "sagemaker:InvokeEndpoint",
    "resource": "*",
    "decision": "allowed",
    "reason": "allowed by an identity-based policy",
    "statement": {"policy_id": "user_ann_own", "policy_type": "user", "sid": "Call", "index": 1},
    "policies": ["user_ann_own"],
    "has_boundary": False,
    "missing_keys": [],
}


def test_a_decision_names_its_statement() -> None:
    assert _describe(FOUND) == [
        "Allowed: sagemaker:InvokeEndpoint on *",
        "  for     arn:aws:iam::111122223333:user/ann",
        "  reason  allowed by an identity-based policy",
        "  by      statement 2 (Call) of user_ann_own",
        "  has     policies: user_ann_own",
    ]


def test_a_denial_without_a_statement_names_the_missing_keys() -> None:
    denied = {
        **FOUND,
        "decision": "implicitDeny",
        "statement": None,
        "policies": [],
        "has_boundary": True,
        "missing_keys": ["aws:SourceIp"],
    }
    lines = _describe(denied)
    assert lines[0] == "Denied: sagemaker:InvokeEndpoint on *"
    assert lines[-3:] == [
        "  has     policies: none",
        "          and a permissions boundary",
        "  absent  condition keys: aws:SourceIp",
    ]


@cases(
    "action, context",
    case("an action without a service", "InvokeEndpoint", []),
    case("an action with a wildcard", "sagemaker:*", []),
    case("a context without a value", "s3:GetObject", ["aws:SourceIp"]),
)
def test_arguments_that_say_nothing_are_refused(action: str, context: list[str]) -> None:
    with pytest.raises(UsageError):
        _check(action, context)
