"""Roles: from create to delete, and refusals in AWS's words."""

import json
from collections.abc import Callable
from typing import Any
from urllib.parse import unquote

import pytest
from tests.cases import case, cases
from tests.contract.api.rig import Api

from hostelry.api.iam.execution_role import ensure_execution_role
from hostelry.base.errors import ServiceError
from hostelry.domain.scope import Scope
from hostelry.store.records import State

Call = Callable[..., dict[str, Any]]
TRUST = json.dumps(
    {
        "Version": "2012-10-17",
        "Statement": [
            {
                "Effect": "Allow",
                "Principal": {"Service": "sagemaker.amazonaws.com"},
                "Action": "sts:AssumeRole",
            }
        ],
    }
)


@pytest.fixture
def iam(api: Api) -> Call:
    return lambda operation, **params: api.call(operation, "iam", **params)


def create(iam: Call, name: str = "r", **more: Any) -> dict[str, Any]:
    given = {"RoleName": name, "AssumeRolePolicyDocument": TRUST, **more}
    role: dict[str, Any] = iam("CreateRole", **given)["Role"]
    return role


@pytest.mark.parametrize("field", ["MaxSigninSessionDuration", "ResetMaxSigninSessionDuration"])
def test_sessions_of_a_console_are_refused(iam: Call, field: str) -> None:
    create(iam)
    value = 3600 if field.startswith("Max") else True
    with pytest.raises(ServiceError, match=f"{field} is not supported"):
        iam("UpdateRole", RoleName="r", **{field: value})


def test_a_role_lives_from_create_to_delete(iam: Call) -> None:
    made = create(iam, Path="/team/", Description="d", Tags=[{"Key": "a", "Value": "1"}])
    assert made["Arn"] == "arn:aws:iam::123456789012:role/team/r"
    assert made["RoleId"].startswith("AROA")
    assert len(made["RoleId"]) == 21
    assert unquote(made["AssumeRolePolicyDocument"]) == TRUST
    assert iam("GetRole", RoleName="R")["Role"] == made, "names differ in more than case"
    iam("UpdateRole", RoleName="r", MaxSessionDuration=7200, Description="e")
    iam("UpdateAssumeRolePolicy", RoleName="r", PolicyDocument=TRUST.replace("sagemaker", "ec2"))
    role = iam("GetRole", RoleName="r")["Role"]
    assert (role["MaxSessionDuration"], role["Description"]) == (7200, "e")
    assert "ec2.amazonaws.com" in role["AssumeRolePolicyDocument"]
    iam("TagRole", RoleName="r", Tags=[{"Key": "A", "Value": "2"}, {"Key": "b", "Value": "3"}])
    iam("UntagRole", RoleName="r", TagKeys=["b", "never"])
    assert iam("ListRoleTags", RoleName="r")["Tags"] == [{"Key": "A", "Value": "2"}]
    iam("DeleteRole", RoleName="r")
    with pytest.raises(ServiceError, match="The role with name r cannot be found"):
        iam("GetRole", RoleName="r")


def test_pages_hold_every_role_once(iam: Call) -> None:
    for number in range(7):
        create(iam, f"r{number}", Path="/p/")
    first = iam("ListRoles", PathPrefix="/p/", MaxItems=4)
    second = iam("ListRoles", PathPrefix="/p/", MaxItems=4, Marker=first["Marker"])
    names = [it["RoleName"] for it in (*first["Roles"], *second["Roles"])]
    assert names == [f"r{number}" for number in range(7)]
    assert (first["IsTruncated"], second["IsTruncated"]) == (True, False)
    assert "Marker" not in second


def test_roles_are_the_accounts_in_every_region(api: Api, iam: Call) -> None:
    create(iam)
    elsewhere = Scope("123456789012", "eu-west-1")
    assert api.call_as(elsewhere, "GetRole", "iam", RoleName="r")["Role"]
    with pytest.raises(ServiceError, match="cannot be found"):
        api.call_as(Scope("999999999999", "us-west-2"), "GetRole", "iam", RoleName="r")


def test_the_execution_role_is_made_once(iam: Call, state: State, scope: Scope) -> None:
    iam("UpdateRole", RoleName="HostelryExecutionRole", Description="mine")
    ensure_execution_role(state, scope, "HostelryExecutionRole", 2_000_000_000.0)
    role = iam("GetRole", RoleName="HostelryExecutionRole")["Role"]
    assert (role["Description"], role["RoleId"]) == ("mine", "AROAHOSTELRYEXECROLE0")


NEW = {"RoleName": "new", "AssumeRolePolicyDocument": TRUST}


@cases(
    "operation, params, code, text",
    case(
        "a name in another case",
        "CreateRole",
        {**NEW, "RoleName": "HERE"},
        "EntityAlreadyExists",
        "Role with name HERE already exists.",
    ),
    case(
        "no JSON",
        "CreateRole",
        {**NEW, "AssumeRolePolicyDocument": "{"},
        "MalformedPolicyDocument",
        "This policy contains invalid Json",
    ),
    case(
        "deep JSON",
        "CreateRole",
        {**NEW, "AssumeRolePolicyDocument": "[" * 100_000},
        "MalformedPolicyDocument",
        "This policy contains invalid Json",
    ),
    case(
        "a long trust policy",
        "CreateRole",
        {**NEW, "AssumeRolePolicyDocument": TRUST.replace("sagemaker", "s" * 2048)},
        "LimitExceeded",
        "Cannot exceed quota for ACLSizePerRole: 2048",
    ),
    case(
        "a tag twice",
        "CreateRole",
        {**NEW, "Tags": [{"Key": "a", "Value": ""}, {"Key": "A", "Value": ""}]},
        "InvalidInput",
        "Duplicate tag keys found",
    ),
    case(
        "a service's path",
        "CreateRole",
        {**NEW, "Path": "/aws-service-role/x/"},
        "ValidationError",
        "CreateServiceLinkedRole only",
    ),
    case(
        "the platform's own role",
        "DeleteRole",
        {"RoleName": "HostelryExecutionRole"},
        "UnmodifiableEntity",
        "protected role 'HostelryExecutionRole'",
    ),
    case(
        "too many tags",
        "TagRole",
        {"RoleName": "here", "Tags": [{"Key": f"k{n}", "Value": ""} for n in range(50)]},
        "LimitExceeded",
        "maximum limit: 50",
    ),
    case("no marker", "ListRoles", {"Marker": "***"}, "ValidationError", "Invalid Marker"),
)
def test_what_is_refused(
    iam: Call, operation: str, params: dict[str, Any], code: str, text: str
) -> None:
    create(iam, "here", Tags=[{"Key": "one", "Value": ""}])
    with pytest.raises(ServiceError) as caught:
        iam(operation, **params)
    assert (caught.value.code, text in caught.value.message) == (code, True), caught.value.message
