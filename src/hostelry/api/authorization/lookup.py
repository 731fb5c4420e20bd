"""Looks up the existing resources of a call in the control plane's records, and changes none."""

from collections.abc import Callable, Mapping
from typing import Any

from hostelry.api.authorization.row import ResourceLookup
from hostelry.api.context import CallContext
from hostelry.api.kms import lookup as kms
from hostelry.api.secretsmanager import get_secret
from hostelry.api.tags import read_tags
from hostelry.domain.principal import User
from hostelry.domain.role import InstanceProfile, ManagedPolicy, Role
from hostelry.permissions.wildcard import Context
from hostelry.store.records import Records, State, Versioned

IdentityRecord = Role | User | InstanceProfile | ManagedPolicy
_IDENTITIES: Mapping[str, Callable[[State], Records[Any]]] = {
    "role": lambda state: state.roles,
    "user": lambda state: state.users,
    "instance-profile": lambda state: state.instance_profiles,
    "policy": lambda state: state.managed_policies,
}
"""The records of IAM by their kind in ARNs. Names are in lower case."""


def build_lookup(context: CallContext, caller: str = "") -> ResourceLookup:
    """The lookup of a call. `caller` is the ARN of the caller."""
    return ResourceLookup(
        tags_of=lambda arn: _find_tags(context, arn),
        find_arn=lambda kind, name: _FINDERS[kind](context, name),
        find_keys=lambda arn: _find_keys(context, arn),
        caller=caller,
    )


def _find_tags(context: CallContext, arn: str) -> Mapping[str, str]:
    context.check_time()  # a request may name many resources
    identity = _get_identity_at(context, arn)
    if identity is not None:
        return identity.tags
    is_log = ":logs:" in arn  # streams have the tags of their group
    return read_tags(context, arn.partition(":log-stream:")[0] if is_log else arn)


def _find_keys(context: CallContext, arn: str) -> Context:
    """The boundary of a role or user, and the aliases of a key."""
    identity = _get_identity_at(context, arn)
    if isinstance(identity, Role | User) and identity.boundary:
        return {"iam:permissionsboundary": (identity.boundary,)}
    if ":kms:" in arn:
        key_id = arn.rpartition(":key/")[2]
        names = [it.name for it in kms.ALIASES.values(context) if it.key_id == key_id]
        return {"kms:resourcealiases": tuple(names)} if names else {}
    return {}


def _get_identity(context: CallContext, kind: str, name: str) -> IdentityRecord | None:
    records = _IDENTITIES[kind](context.state)
    found: Versioned[IdentityRecord] | None = records.get(context.scope.account_wide, name.lower())
    return found.value if found else None


def _get_identity_at(context: CallContext, arn: str) -> IdentityRecord | None:
    """The record of IAM with the ARN, or None."""
    parts = arn.split(":", 5)
    kind, _, rest = parts[-1].partition("/")
    if len(parts) != 6 or parts[2] != "iam" or kind not in _IDENTITIES:
        return None
    found = _get_identity(context, kind, rest.rpartition("/")[2])
    return found if found is not None and found.arn == arn else None


def _find_identity_arn(kind: str) -> Callable[[CallContext, str], str]:
    def find(context: CallContext, name: str) -> str:
        found = _get_identity(context, kind, name)
        return found.arn if found is not None else ""

    return find


def _find_key_owner(context: CallContext, key_id: str) -> str:
    """The ARN of the user with an access key."""
    users = [it.value for it in context.state.users.list(context.scope.account_wide)]
    return next((it.arn for it in users if key_id in {key.id for key in it.access_keys}), "")


def _find_customer_key_arn(context: CallContext, name: str) -> str:
    key = kms.get_key(context, name)
    is_customers = key is not None and not key.aws_service and key.scope == context.scope
    return key.arn if key is not None and is_customers else ""


def _find_secret_arn(context: CallContext, name: str) -> str:
    secret = get_secret(context, name)
    return secret.arn if secret is not None else ""


def _find_secret_key(context: CallContext, name: str) -> str:
    secret = get_secret(context, name)
    key_id = secret.kms_key_id if secret is not None else ""
    return _find_customer_key_arn(context, key_id) if key_id else ""


def _find_target_arn(context: CallContext, name: str) -> str:
    target = context.state.scalable_targets.get(context.scope, name)
    return target.value.arn if target else ""


_FINDERS: Mapping[str, Callable[[CallContext, str], str]] = {
    "role": _find_identity_arn("role"),
    "user": _find_identity_arn("user"),
    "instance-profile": _find_identity_arn("instance-profile"),
    "access-key": _find_key_owner,
    "key": kms.find_key_arn,
    "customer-key": _find_customer_key_arn,
    "sealing-key": kms.find_sealing_key,
    "secret": _find_secret_arn,
    "secret-key": _find_secret_key,
    "scalable-target": _find_target_arn,
}
