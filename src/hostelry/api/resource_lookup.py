"""Looks up the existing resources that calls name, for the decisions on calls."""

from collections.abc import Mapping
from functools import partial

from hostelry.api.authorization.row import ResourceLookup
from hostelry.api.context import CallContext
from hostelry.api.kms.lookup import find_key
from hostelry.api.secretsmanager import find_secret
from hostelry.api.tags import read_tags
from hostelry.base.errors import ServiceError
from hostelry.domain.principal import User
from hostelry.domain.role import InstanceProfile, Role
from hostelry.permissions.authorization import ResourcePolicy
from hostelry.permissions.document import DocumentKind
from hostelry.permissions.wildcard import Context
from hostelry.principals.caller import parse_policy
from hostelry.principals.table import PolicyRow


def build_lookup(context: CallContext) -> ResourceLookup:
    """The look-up of the resources of the call's account and region."""
    return ResourceLookup(
        tags_of=partial(_find_tags, context),
        find_arn=partial(_find_arn, context),
        find_keys=partial(_find_keys, context),
        caller="" if context.caller is None else context.caller.arn,
    )


def find_key_policy(context: CallContext, arn: str) -> ResourcePolicy | None:
    """The policy of the KMS key with an ARN, without which only the root may use the key."""
    if ":key/" not in arn:
        return None
    try:
        key = find_key(context, arn).value
    except ServiceError:
        return None
    row = PolicyRow(id=key.arn, type="resource", document=key.policy)
    policy = parse_policy(row, DocumentKind.RESOURCE) if key.policy else None
    return ResourcePolicy(account=key.scope.account, policy=policy, is_decisive=bool(key.policy))


def _find_principal(
    context: CallContext, kind: str, name: str
) -> Role | User | InstanceProfile | None:
    state, scope = context.state, context.scope.account_wide
    if kind == "role":
        role = state.roles.get(scope, name.lower())
        return None if role is None else role.value
    if kind == "user":
        user = state.users.get(scope, name.lower())
        return None if user is None else user.value
    profile = state.instance_profiles.get(scope, name.lower())
    return None if profile is None else profile.value


def _find_by_arn(context: CallContext, arn: str) -> Role | User | InstanceProfile | None:
    """The role, user or instance profile with an ARN, or None."""
    parts = arn.split(":", 5)
    if len(parts) != 6 or parts[2] != "iam":
        return None
    kind, _, path = parts[5].partition("/")
    if kind not in ("role", "user", "instance-profile"):
        return None
    found = _find_principal(context, kind, path.rpartition("/")[2])
    return found if found is not None and found.arn == arn else None


def _find_tags(context: CallContext, arn: str) -> Mapping[str, str]:
    found = _find_by_arn(context, arn)
    return read_tags(context, arn) if found is None else found.tags


def _find_keys(context: CallContext, arn: str) -> Context:
    found = _find_by_arn(context, arn)
    if isinstance(found, Role | User) and found.boundary is not None:
        return {"iam:permissionsboundary": (found.boundary,)}
    if ":key/" in arn:
        aliases = context.state.kms_aliases.list(context.scope)
        names = [it.value.name for it in aliases if arn.endswith(f":key/{it.value.key_id}")]
        return {"kms:resourcealiases": tuple(names)} if names else {}
    return {}


def _find_arn(context: CallContext, kind: str, name: str) -> str:
    """The ARN of the resource of that kind and name, or "" if it does not exist."""
    if kind in ("role", "user", "instance-profile"):
        found = _find_principal(context, kind, name)
        return "" if found is None else found.arn
    try:
        if kind in ("key", "customer-key"):
            key = find_key(context, name).value
            return "" if kind == "customer-key" and key.aws_service else key.arn
        if kind == "secret":
            return find_secret(context, name).value.arn
        if kind == "secret-key":
            sealed_by = find_secret(context, name).value.kms_key_id
            return _find_arn(context, "customer-key", sealed_by) if sealed_by else ""
    except ServiceError:
        return ""
    target = context.state.scalable_targets.get(context.scope, name)
    return "" if target is None else target.value.arn
