"""Looks up the policies of the resources that calls name, for the decisions on calls."""

from hostelry.api.context import CallContext
from hostelry.api.kms.lookup import get_key
from hostelry.permissions.authorization import ResourcePolicy
from hostelry.permissions.document import DocumentKind
from hostelry.principals.caller import parse_policy
from hostelry.principals.table import PolicyRow


def find_key_policy(context: CallContext, arn: str) -> ResourcePolicy | None:
    """The policy of the KMS key with an ARN, without which only the root may use the key."""
    key = get_key(context, arn) if ":key/" in arn else None
    if key is None:
        return None
    row = PolicyRow(id=key.arn, type="resource", document=key.policy)
    policy = parse_policy(row, DocumentKind.RESOURCE) if key.policy else None
    return ResourcePolicy(account=key.scope.account, policy=policy, is_decisive=bool(key.policy))
