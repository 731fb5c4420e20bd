"""A new role: create, grant, simulate, assume, pass to a model, delete."""

import json
from collections.abc import Callable
from typing import Any

import boto3
from botocore.exceptions import ClientError

iam, sts, sm = boto3.client("iam"), boto3.client("sts"), boto3.client("sagemaker")
account = sts.get_caller_identity()["Account"]
name, model_name = "SageMakerRole", "role-example"
trust = {
    "Version": "2012-10-17",
    "Statement": [
        {
            "Effect": "Allow",
            "Principal": {
                "Service": "sagemaker.amazonaws.com",
                "AWS": f"arn:aws:iam::{account}:root",
            },
            "Action": "sts:AssumeRole",
        }
    ],
}
container = {"Image": "image", "ModelDataUrl": "s3://bucket/model.tar.gz"}


def refused(code: str, call: Callable[..., Any], **params: Any) -> str:
    """The message of the error that answers a call."""
    try:
        call(**params)
    except ClientError as error:
        answer = error.response["Error"]
    else:
        answer = {"Code": "none", "Message": ""}
    assert answer["Code"] == code, answer
    return str(answer["Message"])


missing = f"arn:aws:iam::{account}:role/{name}"
text = refused(
    "ValidationException",
    sm.create_model,
    ModelName=model_name,
    ExecutionRoleArn=missing,
    PrimaryContainer=container,
)
assert text.startswith(f"Could not assume role {missing}."), text

role = iam.create_role(RoleName=name, AssumeRolePolicyDocument=json.dumps(trust))["Role"]
iam.get_waiter("role_exists").wait(RoleName=name)
assert iam.get_role(RoleName=name)["Role"]["AssumeRolePolicyDocument"] == trust
full_access = "arn:aws:iam::aws:policy/AmazonSageMakerFullAccess"
iam.attach_role_policy(RoleName=name, PolicyArn=full_access)
document = {
    "Version": "2012-10-17",
    "Statement": [{"Effect": "Allow", "Action": "s3:GetObject", "Resource": "arn:aws:s3:::b/*"}],
}
policy = iam.create_policy(PolicyName="ReadBucket", PolicyDocument=json.dumps(document))["Policy"]
iam.attach_role_policy(RoleName=name, PolicyArn=policy["Arn"])
attached = iam.list_attached_role_policies(RoleName=name)["AttachedPolicies"]
assert {it["PolicyName"] for it in attached} == {"AmazonSageMakerFullAccess", "ReadBucket"}

paginator = iam.get_paginator("simulate_principal_policy")
actions = ["sagemaker:CreateEndpoint", "iam:DeleteRole"]
pages = paginator.paginate(PolicySourceArn=role["Arn"], ActionNames=actions)
found = {it["EvalActionName"]: it["EvalDecision"] for p in pages for it in p["EvaluationResults"]}
assert found == {"sagemaker:CreateEndpoint": "allowed", "iam:DeleteRole": "implicitDeny"}, found

keys = sts.assume_role(RoleArn=role["Arn"], RoleSessionName="example")["Credentials"]
session = boto3.Session(keys["AccessKeyId"], keys["SecretAccessKey"], keys["SessionToken"])
identity = session.client("sts").get_caller_identity()
assert identity["Arn"] == f"arn:aws:sts::{account}:assumed-role/{name}/example", identity
assert identity["UserId"] == f"{role['RoleId']}:example", identity
models = session.client("sagemaker")
models.create_model(ModelName=model_name, ExecutionRoleArn=role["Arn"], PrimaryContainer=container)
models.delete_model(ModelName=model_name)
runtime = session.client("sagemaker-runtime")
refused("ValidationError", runtime.invoke_endpoint, EndpointName="none", Body=b"{}")

altered = boto3.Session(keys["AccessKeyId"], keys["SecretAccessKey"], keys["SessionToken"][:-4])
refused("UnrecognizedClientException", altered.client("sagemaker").list_models)
refused("InvalidClientTokenId", altered.client("sts").get_caller_identity)

refused("DeleteConflict", iam.delete_role, RoleName=name)
for arn in (full_access, policy["Arn"]):
    iam.detach_role_policy(RoleName=name, PolicyArn=arn)
iam.delete_policy(PolicyArn=policy["Arn"])
assert iam.list_instance_profiles_for_role(RoleName=name)["InstanceProfiles"] == []
iam.delete_role(RoleName=name)
refused("UnrecognizedClientException", models.list_models)
refused("NoSuchEntity", iam.get_role, RoleName=name)
print(f"{role['Arn']} came, was assumed, and went")
