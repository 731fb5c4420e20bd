"""Managed policies, their versions, and the policies of roles."""

import json
from collections.abc import Callable
from typing import Any
from urllib.parse import unquote

import pytest
from tests.cases import case, cases
from tests.contract.api.rig import Api

from hostelry.api.iam.execution_role import KEYS_POLICY
from hostelry.base.errors import ServiceError

Call = Callable[..., dict[str, Any]]
ROLE = "HostelryExecutionRole"
FULL_ACCESS = "arn:aws:iam::aws:policy/AmazonSageMakerFullAccess"
OBJECTS = "arn:aws:iam::aws:policy/AmazonS3FullAccess"
OWN = "arn:aws:iam::123456789012:policy/p"


def document(*actions: str, **more: Any) -> str:
    statement = {"Effect": "Allow", "Action": list(actions), "Resource": "*", **more}
    return json.dumps({"Version": "2012-10-17", "Statement": [statement]})


@pytest.fixture
def iam(api: Api) -> Call:
    api.call("CreatePolicy", "iam", PolicyName="p", PolicyDocument=document("s3:GetObject"))
    return lambda operation, **params: api.call(operation, "iam", **params)


def test_a_policy_is_attached_and_detached(iam: Call) -> None:
    iam("AttachRolePolicy", RoleName=ROLE, PolicyArn=OWN)
    iam("AttachRolePolicy", RoleName=ROLE, PolicyArn=OWN)
    attached = iam("ListAttachedRolePolicies", RoleName=ROLE)["AttachedPolicies"]
    assert [it["PolicyArn"] for it in attached] == [OBJECTS, FULL_ACCESS, OWN]
    policy = iam("GetPolicy", PolicyArn=OWN)["Policy"]
    assert (policy["AttachmentCount"], policy["DefaultVersionId"]) == (1, "v1")
    roles = iam("ListEntitiesForPolicy", PolicyArn=OWN)["PolicyRoles"]
    assert [it["RoleName"] for it in roles] == [ROLE]
    shown = iam("ListPolicies", OnlyAttached=True)["Policies"]
    assert [it["Arn"] for it in shown] == [OWN, OBJECTS, FULL_ACCESS]
    with pytest.raises(ServiceError, match="Cannot delete a policy attached to entities"):
        iam("DeletePolicy", PolicyArn=OWN)
    iam("DetachRolePolicy", RoleName=ROLE, PolicyArn=OWN)
    iam("DeletePolicy", PolicyArn=OWN)
    assert iam("ListPolicies", Scope="Local")["Policies"] == []


def test_versions_are_numbered_once_and_one_is_the_default(iam: Call) -> None:
    for number in range(2, 6):
        made = iam("CreatePolicyVersion", PolicyArn=OWN, PolicyDocument=document(f"s3:{number}"))
        assert made["PolicyVersion"]["VersionId"] == f"v{number}"
    with pytest.raises(ServiceError, match="up to 5 versions"):
        iam("CreatePolicyVersion", PolicyArn=OWN, PolicyDocument=document("s3:*"))
    iam("SetDefaultPolicyVersion", PolicyArn=OWN, VersionId="v3")
    with pytest.raises(ServiceError, match="Cannot delete the default version"):
        iam("DeletePolicyVersion", PolicyArn=OWN, VersionId="v3")
    with pytest.raises(ServiceError, match="more than one version"):
        iam("DeletePolicy", PolicyArn=OWN)
    iam("DeletePolicyVersion", PolicyArn=OWN, VersionId="v5")
    made = iam(
        "CreatePolicyVersion", PolicyArn=OWN, PolicyDocument=document("s3:*"), SetAsDefault=True
    )["PolicyVersion"]
    assert (made["VersionId"], made["IsDefaultVersion"]) == ("v6", True)
    listed = iam("ListPolicyVersions", PolicyArn=OWN)["Versions"]
    assert [it["VersionId"] for it in listed] == ["v6", "v4", "v3", "v2", "v1"]
    shown = iam("GetPolicyVersion", PolicyArn=OWN, VersionId="v3")["PolicyVersion"]
    assert json.loads(unquote(shown["Document"]))["Statement"][0]["Action"] == ["s3:3"]


def test_a_role_has_policies_of_its_own(iam: Call) -> None:
    given = {"RoleName": ROLE, "PolicyName": "inline"}
    iam("PutRolePolicy", **given, PolicyDocument=document("s3:GetObject"))
    assert iam("ListRolePolicies", RoleName=ROLE)["PolicyNames"] == [KEYS_POLICY, "inline"]
    assert unquote(iam("GetRolePolicy", **given)["PolicyDocument"]) == document("s3:GetObject")
    iam("DeleteRolePolicy", **given)
    with pytest.raises(ServiceError, match="The role policy with name inline cannot be found"):
        iam("GetRolePolicy", **given)


def test_a_role_in_use_is_not_deleted(iam: Call) -> None:
    trust = iam("GetRole", RoleName=ROLE)["Role"]["AssumeRolePolicyDocument"]
    iam("CreateRole", RoleName="r", AssumeRolePolicyDocument=unquote(trust))
    iam("PutRolePolicy", RoleName="r", PolicyName="i", PolicyDocument=document("s3:GetObject"))
    iam("AttachRolePolicy", RoleName="r", PolicyArn=FULL_ACCESS)
    iam("CreateInstanceProfile", InstanceProfileName="profile")
    iam("AddRoleToInstanceProfile", InstanceProfileName="profile", RoleName="r")
    found = iam("ListInstanceProfilesForRole", RoleName="r")["InstanceProfiles"]
    assert [it["Roles"][0]["RoleName"] for it in found] == ["r"]
    steps = (
        ("must remove roles from instance profile", "RemoveRoleFromInstanceProfile",
         {"InstanceProfileName": "profile", "RoleName": "r"}),
        ("must detach all policies", "DetachRolePolicy",
         {"RoleName": "r", "PolicyArn": FULL_ACCESS}),
        ("must delete policies first", "DeleteRolePolicy", {"RoleName": "r", "PolicyName": "i"}),
    )  # fmt: skip
    for text, remedy, params in steps:
        with pytest.raises(ServiceError, match=text) as caught:
            iam("DeleteRole", RoleName="r")
        assert (caught.value.code, caught.value.http_status) == ("DeleteConflict", 409)
        iam(remedy, **params)
    iam("DeleteRole", RoleName="r")
    iam("DeleteInstanceProfile", InstanceProfileName="profile")
    assert iam("ListInstanceProfiles")["InstanceProfiles"] == []


def test_a_service_linked_role_is_its_services(iam: Call) -> None:
    service = "sagemaker.application-autoscaling.amazonaws.com"
    role = iam("CreateServiceLinkedRole", AWSServiceName=service)["Role"]
    name = "AWSServiceRoleForApplicationAutoScaling_SageMakerEndpoint"
    assert role["Arn"] == f"arn:aws:iam::123456789012:role/aws-service-role/{service}/{name}"
    with pytest.raises(ServiceError, match="has been taken in this account"):
        iam("CreateServiceLinkedRole", AWSServiceName=service)
    with pytest.raises(ServiceError, match="only modifiable by AWS"):
        iam("DeleteRole", RoleName=name)
    task = iam("DeleteServiceLinkedRole", RoleName=name)["DeletionTaskId"]
    assert iam("GetServiceLinkedRoleDeletionStatus", DeletionTaskId=task)["Status"] == "SUCCEEDED"


@cases(
    "text, code, message",
    case("no JSON", "nothing", "MalformedPolicyDocument", "Syntax errors"),
    case("a list", "[]", "MalformedPolicyDocument", "Syntax errors"),
    case("no vendor", document("GetObject"), "MalformedPolicyDocument", "prefaced by a vendor"),
    case(
        "no ARN",
        document("s3:GetObject", Resource="bucket"),
        "MalformedPolicyDocument",
        'Resource bucket must be in ARN format or "*".',
    ),
    case(
        "a principal",
        document("s3:GetObject", Principal="*"),
        "MalformedPolicyDocument",
        "should not specify a principal",
    ),
    case(
        "an operator that there is not",
        document("s3:GetObject", Condition={"StringNearly": {"a": "b"}}),
        "MalformedPolicyDocument",
        "Syntax errors",
    ),
    case(
        "the old version",
        document("s3:GetObject").replace("2012", "2008"),
        "MalformedPolicyDocument",
        "must be version 2012-10-17 or greater",
    ),
    case(
        "too long",
        document(*(f"s3:{n:030}" for n in range(200))),
        "LimitExceeded",
        "PolicySize: 6144",
    ),
)
def test_documents_that_are_refused(iam: Call, text: str, code: str, message: str) -> None:
    with pytest.raises(ServiceError) as caught:
        iam("CreatePolicy", PolicyName="q", PolicyDocument=text)
    assert (caught.value.code, message in caught.value.message) == (code, True), caught.value


NO_POLICY = "arn:aws:iam::123456789012:policy/none"


@cases(
    "operation, params, code, text",
    case("get", "GetPolicy", {"PolicyArn": NO_POLICY}, "NoSuchEntity", "was not found"),
    case(
        "attach",
        "AttachRolePolicy",
        {"RoleName": ROLE, "PolicyArn": NO_POLICY},
        "NoSuchEntity",
        "does not exist or is not attachable",
    ),
    case(
        "detach what is not attached",
        "DetachRolePolicy",
        {"RoleName": ROLE, "PolicyArn": OWN},
        "NoSuchEntity",
        "was not found",
    ),
    case(
        "delete AWS's own",
        "DeletePolicy",
        {"PolicyArn": FULL_ACCESS},
        "AccessDenied",
        "cannot be changed",
    ),
    case(
        "a name twice",
        "CreatePolicy",
        {"PolicyName": "P", "PolicyDocument": document("s3:*")},
        "EntityAlreadyExists",
        "A policy called P already exists",
    ),
    case(
        "simulate a group",
        "SimulatePrincipalPolicy",
        {"PolicySourceArn": "arn:aws:iam::123456789012:group/g", "ActionNames": ["s3:GetObject"]},
        "InvalidInput",
        "Invalid Entity Arn",
    ),
    case(
        "simulate a resource's policy without a caller",
        "SimulateCustomPolicy",
        {
            "PolicyInputList": [document("s3:*")],
            "ActionNames": ["s3:GetObject"],
            "ResourcePolicy": document("s3:*", Principal="*"),
        },
        "InvalidInput",
        "CallerArn must be the ARN of a user",
    ),
    case(
        "simulate a user that is not there",
        "SimulatePrincipalPolicy",
        {"PolicySourceArn": "arn:aws:iam::123456789012:user/u", "ActionNames": ["s3:GetObject"]},
        "NoSuchEntity",
        "The user with name u cannot be found",
    ),
    case(
        "simulate more than one call may compare",
        "SimulateCustomPolicy",
        {
            "PolicyInputList": [document("*", Resource="arn:aws:s3:::" + "*a" * 1500 + "b")] * 40,
            "ActionNames": [f"s3:Get{n}" for n in range(1000)],
            "ResourceArns": ["arn:aws:s3:::" + "a" * 2000],
            "MaxItems": 1000,
        },
        "InvalidInput",
        "more than 50000000 characters",
    ),
    case(
        "simulate a variable that grows without bound",
        "SimulateCustomPolicy",
        {
            "PolicyInputList": [
                document("s3:*", Condition={"StringLike": {"aws:k": "${aws:v}" * 600}})
            ],
            "ActionNames": ["s3:GetObject"],
            "ContextEntries": [
                {"ContextKeyName": "aws:k", "ContextKeyValues": ["a"]},
                {"ContextKeyName": "aws:v", "ContextKeyValues": ["a" * 100_000]},
            ],
        },
        "InvalidInput",
        "shorter policies and values",
    ),
)
def test_what_is_refused_of_policies(
    iam: Call, operation: str, params: dict[str, Any], code: str, text: str
) -> None:
    with pytest.raises(ServiceError) as caught:
        iam(operation, **params)
    assert (caught.value.code, text in caught.value.message) == (code, True), caught.value


def test_simulation_of_the_execution_role(iam: Call) -> None:
    arn = f"arn:aws:iam::123456789012:role/{ROLE}"
    actions = ["sagemaker:CreateModel", "ecr:GetAuthorizationToken", "glue:GetTable"]
    given = {"PolicySourceArn": arn, "ActionNames": actions}
    first = iam("SimulatePrincipalPolicy", **given, MaxItems=2)
    last = iam("SimulatePrincipalPolicy", **given, MaxItems=2, Marker=first["Marker"])
    results = (*first["EvaluationResults"], *last["EvaluationResults"])
    assert [(it["EvalActionName"], it["EvalDecision"]) for it in results] == [
        ("sagemaker:CreateModel", "allowed"),
        ("ecr:GetAuthorizationToken", "allowed"),
        ("glue:GetTable", "implicitDeny"),
    ]
    assert results[0]["MatchedStatements"] == [
        {"SourcePolicyId": "AmazonSageMakerFullAccess", "SourcePolicyType": "aws-managed"}
    ]
    denied = document("sagemaker:*", Effect="Deny")
    iam("PutRolePolicy", RoleName=ROLE, PolicyName="deny", PolicyDocument=denied)
    result = iam("SimulatePrincipalPolicy", **given)["EvaluationResults"][0]
    assert result["EvalDecision"] == "explicitDeny"
    iam("PutRolePermissionsBoundary", RoleName=ROLE, PermissionsBoundary=OWN)
    result = iam("SimulatePrincipalPolicy", **given)["EvaluationResults"][1]
    assert result["EvalDecision"] == "implicitDeny"
    boundary = result["PermissionsBoundaryDecisionDetail"]
    assert boundary == {"AllowedByPermissionsBoundary": False}


def test_simulation_of_policies_that_are_given(iam: Call) -> None:
    condition = {"StringEquals": {"aws:PrincipalTag/team": "a"}}
    policy = document("s3:GetObject", Resource="arn:aws:s3:::b/*", Condition=condition)
    given = {
        "PolicyInputList": [policy],
        "ActionNames": ["s3:GetObject"],
        "ResourceArns": ["arn:aws:s3:::b/key"],
    }
    result = iam("SimulateCustomPolicy", **given)["EvaluationResults"][0]
    assert result["EvalDecision"] == "implicitDeny"
    assert result["MissingContextValues"] == ["aws:PrincipalTag/team"]
    entry = {"ContextKeyName": "aws:principaltag/team", "ContextKeyValues": ["a"]}
    answer = iam("SimulateCustomPolicy", **given, ContextEntries=[entry])
    assert answer["EvaluationResults"][0]["EvalDecision"] == "allowed"


def test_simulation_of_a_resources_policy(iam: Call) -> None:
    users = [f"arn:aws:iam::{account}:user/u" for account in ("123456789012", "444455556666")]
    given = {
        "PolicyInputList": [document("s3:PutObject")],
        "ActionNames": ["s3:GetObject", "s3:PutObject"],
        "ResourceArns": ["arn:aws:s3:::b/key"],
        "ResourcePolicy": document("s3:GetObject", Principal={"AWS": users}),
        "ResourceOwner": "arn:aws:iam::123456789012:root",
    }
    results = iam("SimulateCustomPolicy", **given, CallerArn=users[0])["EvaluationResults"]
    assert [it["EvalDecision"] for it in results] == ["allowed", "allowed"]
    assert results[0]["MatchedStatements"] == [
        {"SourcePolicyId": "ResourcePolicy", "SourcePolicyType": "resource"}
    ]
    results = iam("SimulateCustomPolicy", **given, CallerArn=users[1])["EvaluationResults"]
    assert [it["EvalDecision"] for it in results] == ["implicitDeny", "implicitDeny"]
