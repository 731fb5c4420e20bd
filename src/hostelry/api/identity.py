"""sts GetCallerIdentity and iam GetRole, for programs that look up their execution role.

`sagemaker.get_execution_role()` needs an assumed-role identity, whose role it then looks up.
"""

import json
from collections.abc import Mapping
from urllib.parse import quote

from hostelry.api.context import CallContext, Operation, Params, Result
from hostelry.base.errors import ServiceError

SESSION_NAME = "hostelry"
ROLE_ID = "AROAHOSTELRYEXECROLE0"
TRUST_POLICY = {
    "Version": "2012-10-17",
    "Statement": [
        {
            "Effect": "Allow",
            "Principal": {"Service": "sagemaker.amazonaws.com"},
            "Action": "sts:AssumeRole",
        }
    ],
}


def get_caller_identity(context: CallContext, _: Params) -> Result:
    """GetCallerIdentity: every caller acts in the execution role."""
    account = context.scope.account
    return {
        "UserId": f"{ROLE_ID}:{SESSION_NAME}",
        "Account": account,
        "Arn": f"arn:aws:sts::{account}:assumed-role/{context.role_name}/{SESSION_NAME}",
    }


def get_role(context: CallContext, params: Params) -> Result:
    """GetRole: the execution role, and no other."""
    name = params["RoleName"]
    if name != context.role_name:
        raise ServiceError("NoSuchEntity", f"The role with name {name} cannot be found.", 404)
    return {
        "Role": {
            "Path": "/",
            "RoleName": name,
            "RoleId": ROLE_ID,
            "Arn": context.role_arn,
            "CreateDate": context.role_created_at,
            "AssumeRolePolicyDocument": quote(json.dumps(TRUST_POLICY)),
            "MaxSessionDuration": 3600,
        }
    }


STS_OPERATIONS: Mapping[str, Operation] = {"GetCallerIdentity": get_caller_identity}
IAM_OPERATIONS: Mapping[str, Operation] = {"GetRole": get_role}
