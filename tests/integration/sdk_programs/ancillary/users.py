"""A user: created, granted, given keys, refused beyond its policy, revoked, deleted."""

import json
import os
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from typing import Any

import boto3
from botocore.exceptions import ClientError

iam = boto3.client("iam")
name, pool = "alice", "arn:aws:iam::aws:policy/AmazonSageMakerReadOnly"
REVOKED_WITHIN_S = 1.0


def find_code(call: Callable[..., Any], **params: Any) -> str:
    """The code of the error that answers a call, or "none"."""
    try:
        call(**params)
    except ClientError as error:
        return str(error.response["Error"]["Code"])
    return "none"


def ask_for_models(key: str) -> int:
    """The status of GET /v1/models with an OpenAI key."""
    url = os.environ["OPENAI_BASE_URL"] + "/models"
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {key}"})
    try:
        with urllib.request.urlopen(request) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


def wait_for(wanted: object, ask: Callable[[], object]) -> None:
    """Ask until the answer comes, for as long as gateways may take to follow control."""
    until = time.monotonic() + REVOKED_WITHIN_S
    while (found := ask()) != wanted:
        assert time.monotonic() < until, f"{found} after {REVOKED_WITHIN_S} s"
        time.sleep(0.01)


user = iam.create_user(UserName=name)["User"]
iam.get_waiter("user_exists").wait(UserName=name)
iam.attach_user_policy(UserName=name, PolicyArn=pool)
key = iam.create_access_key(UserName=name)["AccessKey"]
own = boto3.Session(
    aws_access_key_id=key["AccessKeyId"], aws_secret_access_key=key["SecretAccessKey"]
)
sts, sm = own.client("sts"), own.client("sagemaker")
wait_for("none", lambda: find_code(sts.get_caller_identity))
assert sts.get_caller_identity()["Arn"] == user["Arn"]
info = boto3.client("sts").get_access_key_info(AccessKeyId=key["AccessKeyId"])
assert info["Account"] in user["Arn"]
sm.list_models()
assert find_code(sm.delete_model, ModelName="none") == "AccessDeniedException"
assert find_code(own.client("iam").create_user, UserName="eve") == "AccessDenied"

credential = iam.create_service_specific_credential(
    UserName=name, ServiceName="bedrock.amazonaws.com", CredentialAgeDays=1
)["ServiceSpecificCredential"]
secret = credential["ServiceCredentialSecret"]
wait_for(200, lambda: ask_for_models(secret))

states = ("Inactive", "Active", "Inactive")
for state, code in zip(
    states, ("InvalidClientTokenId", "none", "InvalidClientTokenId"), strict=True
):
    iam.update_access_key(UserName=name, AccessKeyId=key["AccessKeyId"], Status=state)
    wait_for(code, lambda: find_code(sts.get_caller_identity))
iam.delete_service_specific_credential(
    UserName=name, ServiceSpecificCredentialId=credential["ServiceSpecificCredentialId"]
)
wait_for(401, lambda: ask_for_models(secret))

assert find_code(iam.delete_user, UserName=name) == "DeleteConflict"
iam.delete_access_key(UserName=name, AccessKeyId=key["AccessKeyId"])
iam.detach_user_policy(UserName=name, PolicyArn=pool)
iam.put_user_policy(
    UserName=name,
    PolicyName="all",
    PolicyDocument=json.dumps(
        {
            "Version": "2012-10-17",
            "Statement": [{"Effect": "Allow", "Action": "*", "Resource": "*"}],
        }
    ),
)
assert iam.list_user_policies(UserName=name)["PolicyNames"] == ["all"]
iam.delete_user_policy(UserName=name, PolicyName="all")
iam.delete_user(UserName=name)
print(f"{user['Arn']} came and went")
