"""Existing resources of calls, as authorization looks them up."""

import json
from typing import Any

import pytest
from tests.contract.api.rig import HERE, ROLE, SHAPES, Api

from hostelry.api.authorization.finding import find_needed
from hostelry.api.authorization.lookup import build_lookup
from hostelry.api.context import CallContext
from hostelry.domain.endpoint import EndpointStatus
from hostelry.domain.principal import AccessKey, User
from hostelry.permissions.needs.needed import NeededPermission

TRUST = json.dumps(
    {
        "Version": "2012-10-17",
        "Statement": {
            "Effect": "Allow",
            "Principal": {"Service": "sagemaker.amazonaws.com"},
            "Action": "sts:AssumeRole",
        },
    }
)
BOUNDARY = "arn:aws:iam::aws:policy/AmazonSageMakerFullAccess"
TAGS = [{"Key": "team", "Value": "a"}]


@pytest.fixture
def context(api: Api) -> CallContext:
    return CallContext(
        scope=api.scope,
        state=api.state,
        now=api.clock.now(),
        get_shape=SHAPES.__getitem__,
        role_arn=ROLE,
        role_name="HostelryExecutionRole",
        metrics=api.metrics,
        root_key=api.root_key,
    )


def find(context: CallContext, call: str, **params: Any) -> NeededPermission:
    service, _, operation = call.partition(":")
    return find_needed(service, operation, params, context.scope, build_lookup(context))[0]


def test_a_role_has_its_path_tags_and_boundary(api: Api, context: CallContext) -> None:
    given = {"RoleName": "Runner", "Path": "/team/", "AssumeRolePolicyDocument": TRUST}
    api.call("CreateRole", "iam", **given, PermissionsBoundary=BOUNDARY, Tags=TAGS)
    found = find(context, "iam:DeleteRole", RoleName="runner")
    assert found.resource == f"arn:aws:iam::{HERE.account}:role/team/Runner"
    assert found.name == "role runner"
    assert found.context["iam:resourcetag/team"] == ("a",)
    assert found.context["iam:permissionsboundary"] == (BOUNDARY,)


def test_an_access_key_belongs_to_its_user(api: Api, context: CallContext) -> None:
    key = AccessKey(id="AKIA1", created_at=0.0)
    user = User(
        account=HERE.account, name="Ann", id="AIDA1", created_at=0.0, path="/p/", access_keys=(key,)
    )
    api.state.users.put(HERE.account_wide, "ann", user, expect=None)
    assert find(context, "iam:GetAccessKeyLastUsed", AccessKeyId="AKIA1").resource == user.arn
    assert find(context, "iam:GetAccessKeyLastUsed", AccessKeyId="AKIA2").resource == "*"
    assert find(context, "iam:DeleteUser", UserName="ANN").resource == user.arn


def test_every_form_of_a_key_is_the_same_key(api: Api, context: CallContext) -> None:
    tags = [{"TagKey": "team", "TagValue": "a"}]
    key = api.call("CreateKey", "kms", Tags=tags)["KeyMetadata"]
    api.call("CreateAlias", "kms", AliasName="alias/data", TargetKeyId=key["KeyId"])
    place = f"kms:us-west-2:{HERE.account}:"
    forms = (
        "alias/data", key["KeyId"], key["Arn"], f"arn:aws:{place}alias/data",
        f"arn:aws-other:{place}key/{key['KeyId']}",
    )  # fmt: skip
    for form in forms:
        found = find(context, "kms:Encrypt", KeyId=form)
        assert found.resource == key["Arn"], form
        assert found.context["aws:resourcetag/team"] == ("a",)
        assert found.context["kms:resourcealiases"] == ("alias/data",)
    other = f"arn:aws:kms:us-west-2:111122223333:key/{key['KeyId']}"
    assert find(context, "kms:Encrypt", KeyId=other).resource == other


def test_a_lookup_knows_managed_keys_and_makes_none(api: Api, context: CallContext) -> None:
    found = find(context, "kms:Encrypt", KeyId="alias/aws/s3")
    assert api.state.kms_keys.list() == []
    key = api.call("DescribeKey", "kms", KeyId="alias/aws/s3")["KeyMetadata"]
    assert found.resource == key["Arn"]


def test_every_form_of_a_secret_is_the_same_secret(api: Api, context: CallContext) -> None:
    key = api.call("CreateKey", "kms")["KeyMetadata"]["Arn"]
    given = {"Name": "token", "SecretString": "s", "KmsKeyId": key, "Tags": TAGS}
    arn = api.call("CreateSecret", "secretsmanager", **given)["ARN"]
    for form in ("token", arn, arn[:-7]):
        found = find(context, "secretsmanager:GetSecretValue", SecretId=form)
        assert (found.resource, found.name) == (arn, form)
        assert found.context["secretsmanager:resourcetag/team"] == ("a",)
    needs = find_needed(
        "secretsmanager", "GetSecretValue", {"SecretId": arn}, HERE, build_lookup(context)
    )
    assert [(it.action, it.resource) for it in needs[1:]] == [("kms:Decrypt", key)]


def test_a_stream_has_the_tags_of_its_group(api: Api, context: CallContext) -> None:
    api.call("CreateLogGroup", "logs", logGroupName="g", tags={"team": "a"})
    found = find(context, "logs:PutLogEvents", logGroupName="g", logStreamName="s")
    assert found.context["aws:resourcetag/team"] == ("a",)


def test_a_scalable_target_has_its_arn(api: Api, context: CallContext) -> None:
    api.make.model()
    api.make.endpoint("e", {"ModelName": "m"})
    api.change_endpoint(status=EndpointStatus.IN_SERVICE)
    target = {
        "ResourceId": "endpoint/e/variant/main",
        "ScalableDimension": "sagemaker:variant:DesiredInstanceCount",
    }
    call = "application-autoscaling:DeregisterScalableTarget"
    assert find(context, call, **target).resource.endswith(":scalable-target/*")
    arn = api.scaling("RegisterScalableTarget", **target, MinCapacity=1, MaxCapacity=2)
    assert find(context, call, **target).resource == arn["ScalableTargetARN"]


def test_resources_of_another_account_have_no_tags_here(api: Api, context: CallContext) -> None:
    api.make.model("m", Tags=TAGS)
    arn = f"arn:aws:sagemaker:us-west-2:{HERE.account}:model/m"
    foreign = arn.replace(HERE.account, "111122223333")
    assert find(context, "sagemaker:ListTags", ResourceArn=arn).context["aws:resourcetag/team"]
    found = find(context, "sagemaker:ListTags", ResourceArn=foreign)
    assert found.context["aws:resourceaccount"] == ("111122223333",)
    assert "aws:resourcetag/team" not in found.context
