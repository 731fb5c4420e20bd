"""The execution role that a platform has from its first start; whether a service may assume one.

Programs look it up (`sagemaker.get_execution_role()`), and the platform's own key acts in it.
"""

import json

from hostelry.api.context import CallContext
from hostelry.domain.role import Role, role_name_of
from hostelry.domain.scope import Scope
from hostelry.permissions.document import DocumentKind, statements_of
from hostelry.permissions.evaluation import trusts
from hostelry.store.records import State

SAGEMAKER = "sagemaker.amazonaws.com"
ROLE_ID = "AROAHOSTELRYEXECROLE0"
FULL_ACCESS = "arn:aws:iam::aws:policy/AmazonSageMakerFullAccess"


def ensure_execution_role(state: State, scope: Scope, name: str, created_at: float) -> None:
    """Make the execution role where it is not there yet; changes of it stay."""
    at = scope.account_wide
    if state.roles.get(at, name.lower()) is not None:
        return
    role = Role(
        account=scope.account,
        name=name,
        id=ROLE_ID,
        trust_policy=trust_policy(scope.account),
        created_at=created_at,
        description="Made at the first start; the platform's own key acts in it.",
        attached_policies=(FULL_ACCESS,),
    )
    state.roles.put(at, name.lower(), role, expect=None)


def trust_policy(account: str) -> str:
    """SageMaker and the account's own keys may assume the role."""
    principals = ({"Service": SAGEMAKER}, {"AWS": f"arn:aws:iam::{account}:root"})
    statement = {"Effect": "Allow", "Action": "sts:AssumeRole"}
    statements = [{**statement, "Principal": it} for it in principals]
    return json.dumps({"Version": "2012-10-17", "Statement": statements})


def can_assume(context: CallContext, service: str, arn: str) -> bool:
    """Whether a service of the caller's account may assume the role with the ARN."""
    stored = context.state.roles.get(context.scope.account_wide, role_name_of(arn).lower())
    return stored is not None and stored.value.arn == arn and lets_service(stored.value, service)


def lets_service(role: Role, service: str) -> bool:
    """Whether the role's trust policy lets a service of its own account assume it."""
    context = {"aws:sourceaccount": (role.account,), "aws:principalservicename": (service,)}
    statements = statements_of(role.trust_policy, DocumentKind.TRUST)
    return trusts(statements, frozenset({f"Service:{service}"}), context)
