"""Looks up the policies of the resources that calls name, for the decisions on calls."""

from hostelry.api.context import CallContext
from hostelry.api.kms.lookup import get_key
from hostelry.permissions.authorization import ResourcePolicy
from hostelry.principals.caller import build_key_policy


def find_key_policy(context: CallContext, arn: str) -> ResourcePolicy | None:
    """The policy of the KMS key with an ARN. None: it does not exist in the caller's account.

    A missing key of another account has a policy that allows nothing, as an existing one has.
    """
    key = get_key(context, arn) if ":key/" in arn else None
    if key is not None:
        return build_key_policy(key.scope.account, key.arn, key.policy)
    if is_foreign_key(arn, context.scope.account):
        return ResourcePolicy(account=arn.split(":")[4], policy=None)
    return None


def is_foreign_key(arn: str, account: str) -> bool:
    """True for the ARN of a KMS key or alias of another account."""
    parts = arn.split(":", 5)
    return len(parts) == 6 and parts[2] == "kms" and parts[4] != account
