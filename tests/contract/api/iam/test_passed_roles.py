"""Roles that are passed to SageMaker: they have to be there, and to trust it."""

import json
from collections.abc import Callable
from typing import Any

import pytest

Call = Callable[..., dict[str, Any]]
ACCOUNT = "123456789012"


def trust(service: str, **more: Any) -> str:
    principal = {"Service": service}
    statement = {"Effect": "Allow", "Principal": principal, "Action": "sts:AssumeRole", **more}
    return json.dumps({"Version": "2012-10-17", "Statement": [statement]})


def source(account: str) -> dict[str, Any]:
    return {"StringEquals": {"aws:SourceAccount": account}}


SAGEMAKER = "sagemaker.amazonaws.com"


@pytest.mark.parametrize(
    ("document", "arn", "accepted"),
    [
        pytest.param(trust(SAGEMAKER), f"arn:aws:iam::{ACCOUNT}:role/p/r", True, id="a role"),
        pytest.param(
            trust(SAGEMAKER, Condition=source(ACCOUNT)),
            f"arn:aws:iam::{ACCOUNT}:role/p/r",
            True,
            id="for this account only",
        ),
        pytest.param(
            trust(SAGEMAKER, Condition=source("999999999999")),
            f"arn:aws:iam::{ACCOUNT}:role/p/r",
            False,
            id="for another account only",
        ),
        pytest.param(
            trust("ec2.amazonaws.com"),
            f"arn:aws:iam::{ACCOUNT}:role/p/r",
            False,
            id="trusts another service",
        ),
        pytest.param(
            trust(SAGEMAKER), f"arn:aws:iam::{ACCOUNT}:role/r", False, id="without its path"
        ),
        pytest.param(
            trust(SAGEMAKER), "arn:aws:iam::999999999999:role/p/r", False, id="another account"
        ),
        pytest.param(trust(SAGEMAKER), f"arn:aws:iam::{ACCOUNT}:role/none", False, id="not there"),
    ],
)
def test_a_role_is_taken_where_sagemaker_can_assume_it(
    call: Call, make: Any, refused: Callable[..., str], document: str, arn: str, accepted: bool
) -> None:
    call("CreateRole", "iam", RoleName="r", Path="/p/", AssumeRolePolicyDocument=document)
    if accepted:
        make.model(ExecutionRoleArn=arn)
        make.config(ExecutionRoleArn=arn)
        return
    text = (
        f"Could not assume role {arn}. Please ensure that the role exists and allows principal"
        " 'sagemaker.amazonaws.com' to assume the role."
    )
    container = {"Image": "image"}
    given = {"ModelName": "m", "PrimaryContainer": container, "ExecutionRoleArn": arn}
    assert refused("CreateModel", **given) == text
    variants = [make.variant]
    config = {"EndpointConfigName": "c", "ProductionVariants": variants, "ExecutionRoleArn": arn}
    assert refused("CreateEndpointConfig", **config) == text
