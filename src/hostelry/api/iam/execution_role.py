"""The platform's execution role, which exists from the first start, and roles of services.

Programs look up the execution role (`sagemaker.get_execution_role()`), and the platform's own key
acts in this role.
"""

import json

from msgspec.structs import replace

from hostelry.api.context import CallContext, Params
from hostelry.base.errors import validation_error
from hostelry.domain.role import Role, parse_role_name
from hostelry.domain.scope import Scope
from hostelry.permissions.document import DocumentKind, parse_statements
from hostelry.permissions.evaluation import trusts
from hostelry.store.records import State

FIRST_ROLE_ID = "AROAHOSTELRYEXECROLE0"
SAGEMAKER = "sagemaker.amazonaws.com"
FULL_ACCESS = "arn:aws:iam::aws:policy/AmazonSageMakerFullAccess"
OBJECTS = "arn:aws:iam::aws:policy/AmazonS3FullAccess"
"""Without it a model could be read from buckets with `sagemaker` in their names only."""


KEYS_POLICY = "HostelryObjectKeys"
"""The inline policy for objects under the account's KMS keys."""


def ensure_execution_role(
    state: State, scope: Scope, name: str, created_at: float, role_id: str = FIRST_ROLE_ID
) -> None:
    """Make the execution role of an account unless it exists. It keeps its changes.

    `role_id` is for another account than the platform's first one. A role as earlier versions made
    it gets the access to objects, and to those under KMS keys, which no policy limited then.
    """
    at = scope.account_wide
    stored = state.roles.get(at, name.lower())
    if stored is not None:
        role = stored.value
        if role.attached_policies in ((FULL_ACCESS,), (FULL_ACCESS, OBJECTS)) and not (
            role.inline_policies
        ):
            changed = replace(
                role,
                attached_policies=(FULL_ACCESS, OBJECTS),
                inline_policies=_build_inline_policies(scope.account),
            )
            state.roles.put(at, name.lower(), changed, expect=stored.version)
        return
    role = Role(
        account=scope.account,
        name=name,
        id=role_id,
        trust_policy=_build_trust_policy(scope.account),
        created_at=created_at,
        description="Made with its account, for programs that look up a role of models.",
        attached_policies=(FULL_ACCESS, OBJECTS),
        inline_policies=_build_inline_policies(scope.account),
    )
    state.roles.put(at, name.lower(), role, expect=None)


def _build_inline_policies(account: str) -> dict[str, str]:
    statement = {
        "Effect": "Allow",
        "Action": ["kms:Decrypt", "kms:GenerateDataKey"],
        "Resource": f"arn:aws:kms:*:{account}:key/*",
        "Condition": {"StringLike": {"kms:ViaService": "s3.*.amazonaws.com"}},
    }
    return {KEYS_POLICY: json.dumps({"Version": "2012-10-17", "Statement": statement})}


def _build_trust_policy(account: str) -> str:
    principals = ({"Service": SAGEMAKER}, {"AWS": f"arn:aws:iam::{account}:root"})
    statement = {"Effect": "Allow", "Action": "sts:AssumeRole"}
    statements = [{**statement, "Principal": it} for it in principals]
    return json.dumps({"Version": "2012-10-17", "Statement": statements})


def can_assume(context: CallContext, service: str, arn: str) -> bool:
    """True if a service of the caller's account may assume the role with this ARN."""
    stored = context.state.roles.get(context.scope.account_wide, parse_role_name(arn).lower())
    return stored is not None and stored.value.arn == arn and _lets_service(stored.value, service)


def _lets_service(role: Role, service: str) -> bool:
    context = {"aws:sourceaccount": (role.account,), "aws:principalservicename": (service,)}
    statements = parse_statements(role.trust_policy, DocumentKind.TRUST)
    return trusts(statements, frozenset({f"Service:{service}"}), context)


def check_execution_role(context: CallContext, params: Params) -> None:
    """Raise ValidationException if SageMaker cannot assume the role of a request.

    Source: CreateModel's text is reported in awslabs/predictive-maintenance-using-machine-learning
    issue 3. Terraform's provider retries on "Could not assume role".
    """
    arn = params.get("ExecutionRoleArn")
    if arn and context.checks_roles and not can_assume(context, SAGEMAKER, arn):
        raise validation_error(
            f"Could not assume role {arn}. Please ensure that the role exists and allows principal"
            f" '{SAGEMAKER}' to assume the role."
        )
