"""Users: from create to delete, their policies, access keys and OpenAI keys."""

import json
from collections.abc import Callable
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
from tests.cases import case, cases
from tests.contract.api.rig import HERE, SECRETS, Api
from tests.unit.audit.samples import call_event, opened_trail, root

from hostelry.audit.record import AuditedCaller
from hostelry.base.errors import ServiceError
from hostelry.domain.principal import Account, User
from hostelry.domain.scope import Scope

Call = Callable[..., dict[str, Any]]
OTHER = Scope("999999999999", "us-west-2")
FULL_ACCESS = "arn:aws:iam::aws:policy/AmazonSageMakerFullAccess"
BEDROCK = "bedrock.amazonaws.com"
DAY_S = 86_400


def document(*actions: str) -> str:
    statement = {"Effect": "Allow", "Action": list(actions), "Resource": "*"}
    return json.dumps({"Version": "2012-10-17", "Statement": [statement]})


@pytest.fixture
def iam(api: Api) -> Call:
    return lambda operation, **params: api.call(operation, "iam", **params)


def stored(api: Api, name: str) -> User:
    found = api.state.users.get(HERE.account_wide, name)
    assert found is not None
    return found.value


def test_a_user_lives_from_create_to_delete(iam: Call) -> None:
    made = iam("CreateUser", UserName="Ada", Path="/team/", Tags=[{"Key": "a", "Value": "1"}])
    user = made["User"]
    assert user["Arn"] == "arn:aws:iam::123456789012:user/team/Ada"
    assert user["UserId"].startswith("AIDA")
    assert iam("GetUser", UserName="ADA")["User"] == user, "names differ in more than case"
    iam("TagUser", UserName="ada", Tags=[{"Key": "b", "Value": "2"}])
    iam("UntagUser", UserName="ada", TagKeys=["a"])
    assert iam("ListUserTags", UserName="ada")["Tags"] == [{"Key": "b", "Value": "2"}]
    iam("UpdateUser", UserName="ada", NewUserName="Eva", NewPath="/")
    assert [it["Arn"] for it in iam("ListUsers")["Users"]] == ["arn:aws:iam::123456789012:user/Eva"]
    assert iam("ListUsers", PathPrefix="/team/")["Users"] == []
    assert iam("GetUser", UserName="eva")["User"]["UserId"] == user["UserId"]
    iam("UpdateUser", UserName="eva", NewUserName="EVA")
    assert iam("ListGroupsForUser", UserName="eva")["Groups"] == []
    iam("DeleteUser", UserName="eva")
    with pytest.raises(ServiceError, match="The user with name eva cannot be found"):
        iam("GetUser", UserName="eva")


def test_a_users_policies_count_as_a_roles_do(iam: Call) -> None:
    iam("CreateUser", UserName="ada")
    made = iam("CreatePolicy", PolicyName="p", PolicyDocument=document("s3:GetObject"))
    own = made["Policy"]["Arn"]
    iam("AttachUserPolicy", UserName="ada", PolicyArn=own)
    iam("PutUserPermissionsBoundary", UserName="ada", PermissionsBoundary=own)
    iam("PutUserPolicy", UserName="ada", PolicyName="i", PolicyDocument=document("s3:PutObject"))
    attached = iam("ListAttachedUserPolicies", UserName="ada")["AttachedPolicies"]
    assert [it["PolicyArn"] for it in attached] == [own]
    assert iam("ListUserPolicies", UserName="ada")["PolicyNames"] == ["i"]
    shown = iam("GetUserPolicy", UserName="ada", PolicyName="i")["PolicyDocument"]
    assert unquote(shown) == document("s3:PutObject")
    policy = iam("GetPolicy", PolicyArn=own)["Policy"]
    assert (policy["AttachmentCount"], policy["PermissionsBoundaryUsageCount"]) == (1, 1)
    entities = iam("ListEntitiesForPolicy", PolicyArn=own)
    assert [it["UserName"] for it in entities["PolicyUsers"]] == ["ada"]
    assert entities["PolicyRoles"] == []
    assert iam("ListEntitiesForPolicy", PolicyArn=own, EntityFilter="Role")["PolicyUsers"] == []
    with pytest.raises(ServiceError, match="Cannot delete a policy attached to entities"):
        iam("DeletePolicy", PolicyArn=own)
    results = iam(
        "SimulatePrincipalPolicy",
        PolicySourceArn="arn:aws:iam::123456789012:user/ada",
        ActionNames=["s3:GetObject", "s3:PutObject", "s3:ListBucket"],
    )["EvaluationResults"]
    decided = [it["EvalDecision"] for it in results]
    assert decided == ["allowed", "implicitDeny", "implicitDeny"], "the boundary limits the user"
    iam("DeleteUserPermissionsBoundary", UserName="ada")
    with pytest.raises(ServiceError, match="must detach all policies first"):
        iam("DeleteUser", UserName="ada")
    iam("DetachUserPolicy", UserName="ada", PolicyArn=own)
    with pytest.raises(ServiceError, match="must delete policies first"):
        iam("DeleteUser", UserName="ada")
    iam("DeleteUserPolicy", UserName="ada", PolicyName="i")
    iam("DeleteUser", UserName="ada")


def test_access_keys_are_made_rotated_and_deleted(api: Api, iam: Call) -> None:
    iam("CreateUser", UserName="ada")
    first = iam("CreateAccessKey", UserName="ada")["AccessKey"]
    assert first["AccessKeyId"].startswith("AKIA")
    assert len(first["AccessKeyId"]) == 20
    assert first["SecretAccessKey"] == SECRETS.derive(first["AccessKeyId"])
    second = iam("CreateAccessKey", UserName="ada")["AccessKey"]
    with pytest.raises(ServiceError, match="AccessKeysPerUser: 2") as caught:
        iam("CreateAccessKey", UserName="ada")
    assert (caught.value.code, caught.value.http_status) == ("LimitExceeded", 409)
    named = {"UserName": "ada", "AccessKeyId": first["AccessKeyId"]}
    iam("UpdateAccessKey", **named, Status="Inactive")
    listed = iam("ListAccessKeys", UserName="ada")["AccessKeyMetadata"]
    states = {it["AccessKeyId"]: it["Status"] for it in listed}
    assert states == {first["AccessKeyId"]: "Inactive", second["AccessKeyId"]: "Active"}
    assert "SecretAccessKey" not in listed[0]
    used = iam("GetAccessKeyLastUsed", AccessKeyId=first["AccessKeyId"])
    assert used == {"UserName": "ada", "AccessKeyLastUsed": {"ServiceName": "N/A", "Region": "N/A"}}
    with pytest.raises(ServiceError, match="must delete access keys first"):
        iam("DeleteUser", UserName="ada")
    iam("DeleteAccessKey", **named)
    for operation in ("DeleteAccessKey", "UpdateAccessKey"):
        more = {"Status": "Active"} if operation == "UpdateAccessKey" else {}
        with pytest.raises(ServiceError, match=r"The Access Key with id AKIA.* cannot be found"):
            iam(operation, **named, **more)
    info = api.call("GetAccessKeyInfo", "sts", AccessKeyId=second["AccessKeyId"])
    assert info == {"Account": HERE.account}


def test_the_last_use_of_a_key_is_the_newest_record_of_it(api: Api, tmp_path: Path) -> None:
    api.call("CreateUser", "iam", UserName="ada")
    key_id = api.call("CreateAccessKey", "iam", UserName="ada")["AccessKey"]["AccessKeyId"]
    user = AuditedCaller(
        kind="IAMUser", account=HERE.account, arn="a", principal_id="AIDA", access_key_id=key_id
    )
    owner = (HERE.account, HERE.region)
    with opened_trail(tmp_path) as trail:
        for at, caller in ((1.0, user), (2.0, user), (3.0, root(HERE.account))):
            trail.record(call_event(int(at), owner=owner, caller=caller), at)
        found = replace(api, trail=trail).call("GetAccessKeyLastUsed", "iam", AccessKeyId=key_id)
    used = {"LastUsedDate": 2.0, "ServiceName": "sagemaker", "Region": HERE.region}
    assert found == {"UserName": "ada", "AccessKeyLastUsed": used}


def test_a_user_without_a_name_is_the_caller(api: Api, iam: Call) -> None:
    iam("CreateUser", UserName="ada")
    iam("PutUserPolicy", UserName="ada", PolicyName="all", PolicyDocument=document("iam:*"))
    iam("CreateAccessKey", UserName="ada")

    def as_ada(operation: str, **params: Any) -> dict[str, Any]:
        return api.call_as(HERE, operation, "iam", None, "ada", **params)

    assert as_ada("GetUser")["User"]["UserName"] == "ada"
    made = as_ada("CreateAccessKey")["AccessKey"]
    assert made["UserName"] == "ada"
    assert len(as_ada("ListAccessKeys")["AccessKeyMetadata"]) == 2
    as_ada("DeleteAccessKey", AccessKeyId=made["AccessKeyId"])
    assert len(stored(api, "ada").access_keys) == 1


def test_the_root_of_another_account_has_keys(api: Api) -> None:
    account = Account(id=OTHER.account, name="other", created_at=5.0)
    api.state.accounts.put(OTHER.account_wide, OTHER.account, account, expect=None)

    def as_root(operation: str, **params: Any) -> dict[str, Any]:
        return api.call_as(OTHER, operation, "iam", **params)

    key_id = as_root("CreateAccessKey")["AccessKey"]["AccessKeyId"]
    as_root("UpdateAccessKey", AccessKeyId=key_id, Status="Inactive")
    (listed,) = as_root("ListAccessKeys")["AccessKeyMetadata"]
    assert (listed["AccessKeyId"], listed["Status"]) == (key_id, "Inactive")
    assert as_root("GetAccessKeyLastUsed", AccessKeyId=key_id)["UserName"] == "root"
    as_root("DeleteAccessKey", AccessKeyId=key_id)
    found = api.state.accounts.get(OTHER.account_wide, OTHER.account)
    assert found is not None
    assert found.value == account


def test_the_root_is_shown_as_on_aws(client: Callable[[str], Any]) -> None:
    root = client("iam").get_user()["User"]
    assert root["Arn"] == f"arn:aws:iam::{HERE.account}:root"
    assert (root["UserId"], root["CreateDate"].timestamp()) == (HERE.account, 1_700_000_000.0)


def test_openai_keys_are_service_specific_credentials(api: Api, iam: Call) -> None:
    iam("CreateUser", UserName="ada")
    given = {"UserName": "ada", "ServiceName": BEDROCK}
    made = iam("CreateServiceSpecificCredential", **given, CredentialAgeDays=30)
    key = made["ServiceSpecificCredential"]
    secret = key["ServiceCredentialSecret"]
    assert secret.startswith("sk-")
    assert len(secret) == 46
    assert key["ExpirationDate"] == api.clock.now() + 30 * DAY_S
    (kept,) = stored(api, "ada").openai_keys
    assert kept.digest == sha256(secret.encode()).hexdigest()
    assert secret not in repr(kept)
    named = {"UserName": "ada", "ServiceSpecificCredentialId": key["ServiceSpecificCredentialId"]}
    iam("UpdateServiceSpecificCredential", **named, Status="Inactive")
    (listed,) = iam("ListServiceSpecificCredentials", AllUsers=True)["ServiceSpecificCredentials"]
    assert listed["Status"] == "Inactive"
    assert "ServiceCredentialSecret" not in listed
    new = iam("ResetServiceSpecificCredential", **named)["ServiceSpecificCredential"]
    (reset,) = stored(api, "ada").openai_keys
    assert reset.digest == sha256(new["ServiceCredentialSecret"].encode()).hexdigest()
    assert (reset.id, reset.digest == kept.digest) == (kept.id, False)
    api.clock.advance(31 * DAY_S)
    (late,) = iam("ListServiceSpecificCredentials", UserName="ada")["ServiceSpecificCredentials"]
    assert late["Status"] == "Expired"
    iam("CreateServiceSpecificCredential", **given)
    with pytest.raises(ServiceError, match="ServiceSpecificCredentialsPerUser: 2"):
        iam("CreateServiceSpecificCredential", **given)
    with pytest.raises(ServiceError, match="must delete service specific credentials first"):
        iam("DeleteUser", UserName="ada")
    iam("DeleteServiceSpecificCredential", **named)
    assert len(stored(api, "ada").openai_keys) == 1


NO_KEY = "AKIA" + "A" * 16


@cases(
    "operation, params, code, text",
    case(
        "a name in another case",
        "CreateUser",
        {"UserName": "HERE"},
        "EntityAlreadyExists",
        "User with name HERE already exists",
    ),
    case(
        "the name of another user",
        "UpdateUser",
        {"UserName": "here", "NewUserName": "There"},
        "EntityAlreadyExists",
        "User with name There already exists",
    ),
    case(
        "a boundary that there is not",
        "CreateUser",
        {"UserName": "new", "PermissionsBoundary": "arn:aws:iam::aws:policy/None"},
        "NoSuchEntity",
        "does not exist or is not attachable",
    ),
    case(
        "a long inline policy",
        "PutUserPolicy",
        {"UserName": "here", "PolicyName": "p", "PolicyDocument": document("s3:" + "G" * 2048)},
        "LimitExceeded",
        "Maximum policy size of 2048 bytes exceeded for user here",
    ),
    case(
        "a policy that is not there",
        "GetUserPolicy",
        {"UserName": "here", "PolicyName": "p"},
        "NoSuchEntity",
        "The user policy with name p cannot be found",
    ),
    case(
        "the root's keys of the first account",
        "CreateAccessKey",
        {},
        "ValidationError",
        "has its key in the platform's home",
    ),
    case(
        "a key of no user",
        "GetAccessKeyLastUsed",
        {"AccessKeyId": NO_KEY},
        "NoSuchEntity",
        f"The Access Key with id {NO_KEY} cannot be found",
    ),
    case(
        "an expired key",
        "UpdateAccessKey",
        {"UserName": "here", "AccessKeyId": NO_KEY, "Status": "Expired"},
        "InvalidInput",
        "Status Expired cannot be set",
    ),
    case(
        "credentials of another service",
        "CreateServiceSpecificCredential",
        {"UserName": "here", "ServiceName": "codecommit.amazonaws.com"},
        "NotSupportedService",
        "keys of the OpenAI routes are for bedrock.amazonaws.com",
    ),
    case(
        "a user and all users",
        "ListServiceSpecificCredentials",
        {"UserName": "here", "AllUsers": True},
        "InvalidInput",
        "together with AllUsers",
    ),
    case(
        "no such credential",
        "ResetServiceSpecificCredential",
        {"UserName": "here", "ServiceSpecificCredentialId": "ACCA" + "A" * 17},
        "NoSuchEntity",
        "No such credential ACCA",
    ),
    case("a user of no name", "ListServiceSpecificCredentials", {}, "ValidationError", "userName"),
    case(
        "a group", "CreateGroup", {"GroupName": "g"}, "UnknownOperationException", "groups are not"
    ),
    case(
        "a password",
        "CreateLoginProfile",
        {"UserName": "here"},
        "UnknownOperationException",
        "users have access keys and OpenAI keys",
    ),
)
def test_what_is_refused_of_users(
    iam: Call, operation: str, params: dict[str, Any], code: str, text: str
) -> None:
    for name in ("here", "there"):
        iam("CreateUser", UserName=name)
    with pytest.raises(ServiceError) as caught:
        iam(operation, **params)
    assert (caught.value.code, text in caught.value.message) == (code, True), caught.value
