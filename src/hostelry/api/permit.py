"""Holds calls to the policies of their callers."""

from functools import partial

from hostelry.api.authorization.finding import find_needed
from hostelry.api.authorization.lookup import build_lookup
from hostelry.api.context import CallContext, Params
from hostelry.api.resource_lookup import find_key_policy, is_foreign_key
from hostelry.api.rights import DECISIONS
from hostelry.aws.access_keys import STORE_KEY_ID
from hostelry.base.errors import ServiceError
from hostelry.principals.decisions import is_unlimited

CODES = {"ec2": "UnauthorizedOperation"}
"""The error codes of services that have another one than AccessDenied."""
DECIDED_LATER = frozenset({("sts", "AssumeRole"), ("sts", "AssumeRoleWithWebIdentity")})
"""Operations that decide by the trust policy of a role and the caller's policies together."""
STORES = frozenset({("kms", it) for it in ("DescribeKey", "GenerateDataKey", "Decrypt")})
"""The operations of the object store, under keys of any account. The S3 port has decided."""


def check_permissions(context: CallContext, service: str, operation: str, params: Params) -> None:
    """Raise AccessDenied (403) unless the caller's policies allow all that the call needs.

    The platform itself and the root of an account may do everything in the account. Of KMS keys of
    other accounts the root may use those whose policies allow it.
    """
    caller = context.caller
    if caller is None or (service, operation) in DECIDED_LATER:
        return
    if caller.access_key_id == STORE_KEY_ID:
        if (service, operation) not in STORES:
            text = f"The object store's key is not for {service}:{operation}."
            raise ServiceError("AccessDeniedException", text, 403)
        return
    is_root = is_unlimited(caller)
    if is_root and service != "kms":
        return
    lookup = build_lookup(context, caller.arn)
    needed = find_needed(service, operation, params, context.scope, lookup)
    if is_root:
        needed = tuple(it for it in needed if is_foreign_key(it.resource, caller.account))
    find_policy = partial(find_key_policy, context)
    refusal = DECISIONS.find_refusal(
        caller, needed, context.request_keys, find_policy, context.note_decision
    )
    if refusal is not None:
        raise ServiceError(CODES.get(service, "AccessDeniedException"), refusal, 403)
