"""Roles that are passed to SageMaker: they have to be there, and to trust it."""

import json
from typing import Any

from tests.cases import case, cases
from tests.contract.api.rig import Api

ACCOUNT = "123456789012"


def trust(service: str, **more: Any) -> str:
    principal = {"Service": service}
    statement = {"Effect": "Allow", "Principal": principal, "Action": "sts:AssumeRole", **more}
    return json.dumps({"Version": "2012-10-17", "Statement": [statement]})


def source(account: str) -> dict[str, Any]:
    return {"StringEquals": {"aws:SourceAccount": account}}


SAGEMAKER = "sagemaker.amazonaws.com"


@cases(
    "document, arn, accepted",
    case("a role", trust(SAGEMAKER), f"arn:aws:iam::{ACCOUNT}:role/p/r", True),
    case(
        "for this account only",
        trust(SAGEMAKER, Condition=source(ACCOUNT)),
        f"arn:aws:iam::{ACCOUNT}:role/p/r",
        True,
    ),
    case(
        "for another account only",
        trust(SAGEMAKER, Condition=source("999999999999")),
        f"arn:aws:iam::{ACCOUNT}:role/p/r",
        False,
    ),
    case(
        "trusts another service",
        trust("ec2.amazonaws.com"),
        f"arn:aws:iam::{ACCOUNT}:role/p/r",
        False,
    ),
    case("without its path", trust(SAGEMAKER), f"arn:aws:iam::{ACCOUNT}:role/r", False),
    case("another account", trust(SAGEMAKER), "arn:aws:iam::999999999999:role/p/r", False),
    case("not there", trust(SAGEMAKER), f"arn:aws:iam::{ACCOUNT}:role/none", False),
)
def test_a_role_is_taken_where_sagemaker_can_assume_it(
    api: Api, document: str, arn: str, accepted: bool
) -> None:
    api.call("CreateRole", "iam", RoleName="r", Path="/p/", AssumeRolePolicyDocument=document)
    if accepted:
        api.make.model(ExecutionRoleArn=arn)
        api.make.config(ExecutionRoleArn=arn)
        return
    text = (
        f"Could not assume role {arn}. Please ensure that the role exists and allows principal"
        " 'sagemaker.amazonaws.com' to assume the role."
    )
    container = {"Image": "image"}
    given = {"ModelName": "m", "PrimaryContainer": container, "ExecutionRoleArn": arn}
    assert api.refusal("CreateModel", **given) == text
    variants = [api.make.variant]
    config = {"EndpointConfigName": "c", "ProductionVariants": variants, "ExecutionRoleArn": arn}
    assert api.refusal("CreateEndpointConfig", **config) == text
