"""KMS's keys and aliases, found by each form of their names.

Source of the texts: KMS's answers as moto, LocalStack and Terraform's provider expect them.
"""

import re
from collections.abc import Mapping
from contextlib import suppress
from uuid import NAMESPACE_URL, uuid5

from msgspec.structs import replace

from hostelry.api.context import CallContext
from hostelry.api.kms.material import new_material
from hostelry.api.record_kind import RecordKind
from hostelry.api.tags import write_tags
from hostelry.base.errors import Conflict, ServiceError
from hostelry.domain.scope import Scope
from hostelry.domain.secret import KmsAlias, KmsKey, alias_arn, key_arn
from hostelry.store.records import Versioned

# AWS makes these keys at the first use of a service. Here they exist from the start.
MANAGED: Mapping[str, str] = {
    f"alias/aws/{service}": service for service in ("s3", "sagemaker", "secretsmanager")
}
KEY_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
ARN = re.compile(r"arn:aws[a-z-]*:kms:([^:]*):([^:]*):(key/|alias/)(.+)")
UNUSABLE: Mapping[str, tuple[str, str]] = {
    "Disabled": ("DisabledException", "{} is disabled."),
    "PendingDeletion": ("KMSInvalidStateException", "{} is pending deletion."),
}


KEYS = RecordKind[KmsKey](
    records=lambda state: state.kms_keys,
    not_found=lambda context, key_id: ServiceError(
        "NotFoundException", f"Key '{key_arn(context.scope, key_id)}' does not exist"
    ),
    record_name=lambda key: key.key_id,
)
ALIASES = RecordKind[KmsAlias](
    records=lambda state: state.kms_aliases,
    not_found=lambda context, name: ServiceError(
        "NotFoundException", f"Alias {alias_arn(context.scope, name)} is not found."
    ),
)


def find_key(context: CallContext, given: str) -> Versioned[KmsKey]:
    """The key of a key id, key ARN, alias or alias ARN. Raises NotFoundException."""
    name = _parse_name(context, given)
    if name.startswith("alias/"):
        return _find_live_key(context, find_alias(context, name).value.key_id)
    return _find_live_key(context, name)


def in_owners_scope(context: CallContext, given: str) -> CallContext:
    """The context in the account that a key's or alias's ARN names: there its key is found.

    Operations that may use keys of other accounts find keys so. The key's policy decides on them.
    """
    parts = ARN.fullmatch(given)
    if parts is None or parts.group(2) == context.scope.account:
        return context
    return replace(context, scope=Scope(parts.group(2), context.scope.region))


def get_key(context: CallContext, given: str) -> KmsKey | None:
    """The key of any account that `find_key` finds, or None. Makes and erases nothing."""
    context = in_owners_scope(context, given)
    try:
        name = _parse_name(context, given)
    except ServiceError:
        return None
    if name.startswith("alias/"):
        alias = ALIASES.get(context, name)
        name = alias.value.key_id if alias else ""
    found = KEYS.get(context, name) if name else None
    return found.value if found is not None and not _is_due(found.value, context.now) else None


def find_key_arn(context: CallContext, given: str) -> str:
    """The ARN of the key that `find_key` finds or makes, or "". Makes and erases nothing."""
    context = in_owners_scope(context, given)
    key = get_key(context, given)
    alias = "alias/" + given.rpartition("alias/")[2]
    if key is None and alias in MANAGED and given in (alias, alias_arn(context.scope, alias)):
        return key_arn(context.scope, _get_managed_id(context, alias))
    return "" if key is None else key.arn


def _get_managed_id(context: CallContext, alias: str) -> str:
    return str(uuid5(NAMESPACE_URL, alias_arn(context.scope, alias)))


def find_sealing_key(context: CallContext, key_id: str) -> str:
    """The ARN of the key with this id, of any account in the region. "" without one."""
    if KEYS.get(context, key_id) is not None:
        return key_arn(context.scope, key_id)
    for stored in context.state.kms_keys.list():
        key = stored.value
        if key.key_id == key_id and key.scope.region == context.scope.region:
            return key.arn
    return ""


def find_key_by_id(context: CallContext, given: str) -> Versioned[KmsKey]:
    """The key of a key id or key ARN. Operations that change a key take no alias."""
    if "alias/" in given:
        raise ServiceError("NotFoundException", f"Invalid keyId '{given}'")
    return find_key(context, given)


def find_changeable_key(context: CallContext, given: str) -> Versioned[KmsKey]:
    """As `find_key_by_id`. Raises AccessDeniedException for an AWS managed key."""
    found = find_key_by_id(context, given)
    if found.value.aws_service:
        message = f"{found.value.arn} is an AWS managed key and cannot be changed."
        raise ServiceError("AccessDeniedException", message)
    return found


def find_usable_key(context: CallContext, given: str, *, is_shared: bool = False) -> KmsKey:
    """The key, which must be enabled. Raises KMS's errors for other states.

    With `is_shared` it may belong to another account, whose policy was asked.
    """
    if is_shared:
        context = in_owners_scope(context, given)
    key = find_key(context, given).value
    if key.state in UNUSABLE:
        code, message = UNUSABLE[key.state]
        raise ServiceError(code, message.format(key.arn))
    return key


def _parse_name(context: CallContext, given: str) -> str:
    """A key id or an alias, from any form of either."""
    if given.startswith("arn:"):
        parts = ARN.fullmatch(given)
        scope = context.scope
        if parts is None:
            raise ServiceError("NotFoundException", f"Invalid arn {given}")
        region, account, kind, rest = parts.groups()
        if region != scope.region:
            raise ServiceError("NotFoundException", f"Invalid arn {region}")
        if account != scope.account:
            message = f"Key '{given}' does not exist"
            raise ServiceError("NotFoundException", message)
        return rest if kind == "key/" else kind + rest
    if given.startswith("alias/"):
        return given
    if not KEY_ID.fullmatch(given):
        raise ServiceError("NotFoundException", f"Invalid keyId '{given}'")
    return given


def _find_live_key(context: CallContext, key_id: str) -> Versioned[KmsKey]:
    found = KEYS.find(context, key_id)
    if _is_due(found.value, context.now):
        _erase(context, found)
        raise KEYS.not_found(context, key_id)
    return found


def _is_due(key: KmsKey, now: float) -> bool:
    return key.deletion_at is not None and key.deletion_at <= now


def _erase(context: CallContext, found: Versioned[KmsKey]) -> None:
    for alias in ALIASES.all(context):
        if alias.value.key_id == found.value.key_id:
            ALIASES.delete(context, alias)
    write_tags(context, found.value.arn, {})
    KEYS.delete(context, found)


def list_live_keys(context: CallContext) -> list[KmsKey]:
    """Every key of the scope, including AWS managed keys."""
    _make_managed_keys(context)
    kept = []
    for found in KEYS.all(context):
        if _is_due(found.value, context.now):
            _erase(context, found)
        else:
            kept.append(found.value)
    return kept


def find_alias(context: CallContext, name: str) -> Versioned[KmsAlias]:
    """The alias of that name. Raises NotFoundException."""
    if name in MANAGED:
        _make_managed_keys(context)
    return ALIASES.find(context, name)


def _make_managed_keys(context: CallContext) -> None:
    """Make missing AWS managed keys and their aliases."""
    scope = context.scope
    for name, service in MANAGED.items():
        if ALIASES.get(context, name) is not None:
            continue
        key_id = _get_managed_id(context, name)
        if KEYS.get(context, key_id) is None:
            key = KmsKey(
                scope=scope,
                key_id=key_id,
                material=new_material(context, key_id),
                created_at=context.now,
                description=f"Default key that protects my {service} data when no other is named",
                aws_service=service,
            )
            with suppress(Conflict):  # another call made it meanwhile
                KEYS.put(context, key)
        alias = KmsAlias(
            scope=scope, name=name, key_id=key_id, created_at=context.now, updated_at=context.now
        )
        with suppress(Conflict):
            ALIASES.put(context, alias)
