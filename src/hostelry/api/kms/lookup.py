"""Keys and aliases, found by every form of their names.

Source of the texts: KMS's answers as moto, LocalStack and Terraform's provider expect them.
"""

import re
from collections.abc import Mapping
from contextlib import suppress
from uuid import NAMESPACE_URL, uuid5

from hostelry.api.context import CallContext
from hostelry.api.kms.material import new_material
from hostelry.base.errors import Conflict, ServiceError
from hostelry.domain.kms import KmsAlias, KmsKey, alias_arn, key_arn
from hostelry.store.records import Versioned

# AWS makes these at a service's first use; here they are there from the start.
MANAGED: Mapping[str, str] = {
    f"alias/aws/{service}": service for service in ("s3", "sagemaker", "secretsmanager")
}
KEY_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
ARN = re.compile(r"arn:aws[a-z-]*:kms:([^:]*):([^:]*):(key/|alias/)(.+)")
UNUSABLE: Mapping[str, tuple[str, str]] = {
    "Disabled": ("DisabledException", "{} is disabled."),
    "PendingDeletion": ("KMSInvalidStateException", "{} is pending deletion."),
}


def found_key(context: CallContext, given: str) -> Versioned[KmsKey]:
    """The key of a key id, key ARN, alias or alias ARN; raises NotFoundException without one."""
    name = own_name(context, given)
    if name.startswith("alias/"):
        return live_key(context, found_alias(context, name).value.key_id)
    return live_key(context, name)


def own_key(context: CallContext, given: str) -> Versioned[KmsKey]:
    """The key of a key id or key ARN: operations that change a key take no alias."""
    if "alias/" in given:
        raise ServiceError("NotFoundException", f"Invalid keyId '{given}'")
    return found_key(context, given)


def changeable_key(context: CallContext, given: str) -> Versioned[KmsKey]:
    """As `own_key`; raises where it is an AWS managed key, which no caller may change."""
    found = own_key(context, given)
    if found.value.aws_service:
        message = f"{found.value.arn} is an AWS managed key and cannot be changed."
        raise ServiceError("AccessDeniedException", message)
    return found


def usable_key(context: CallContext, given: str) -> KmsKey:
    """The key, which must be enabled to encrypt or decrypt."""
    key = found_key(context, given).value
    check_usable(key)
    return key


def check_usable(key: KmsKey) -> None:
    """Raise what KMS answers for a key that is disabled or pending deletion."""
    if key.state in UNUSABLE:
        code, message = UNUSABLE[key.state]
        raise ServiceError(code, message.format(key.arn))


def own_name(context: CallContext, given: str) -> str:
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


def live_key(context: CallContext, key_id: str) -> Versioned[KmsKey]:
    """The key of that id; one whose waiting period is over is erased first."""
    found = context.state.kms_keys.get(context.scope, key_id)
    if found is not None and is_due(found.value, context.now):
        erase(context, found)
        found = None
    if found is None:
        arn = key_arn(context.scope, key_id)
        raise ServiceError("NotFoundException", f"Key '{arn}' does not exist")
    return found


def is_due(key: KmsKey, now: float) -> bool:
    """Whether the key's waiting period is over."""
    return key.deletion_at is not None and key.deletion_at <= now


def erase(context: CallContext, found: Versioned[KmsKey]) -> None:
    """Remove a key with its material, its aliases and its tags."""
    state, scope, key = context.state, context.scope, found.value
    for alias in state.kms_aliases.list(scope):
        if alias.value.key_id == key.key_id:
            state.kms_aliases.delete(scope, alias.value.name, expect=alias.version)
    tags = state.tags.get(scope, key.arn)
    if tags is not None:
        state.tags.delete(scope, key.arn, expect=tags.version)
    state.kms_keys.delete(scope, key.key_id, expect=found.version)


def live_keys(context: CallContext) -> list[KmsKey]:
    """Every key of the caller's scope, AWS managed ones included."""
    make_managed(context)
    kept = []
    for found in context.state.kms_keys.list(context.scope):
        if is_due(found.value, context.now):
            erase(context, found)
        else:
            kept.append(found.value)
    return kept


def found_alias(context: CallContext, name: str) -> Versioned[KmsAlias]:
    """The alias of that name; raises NotFoundException without one."""
    if name in MANAGED:
        make_managed(context)
    found = context.state.kms_aliases.get(context.scope, name)
    if found is None:
        arn = alias_arn(context.scope, name)
        raise ServiceError("NotFoundException", f"Alias {arn} is not found.")
    return found


def make_managed(context: CallContext) -> None:
    """Make the AWS managed keys and their aliases where they are missing."""
    state, scope = context.state, context.scope
    for name, service in MANAGED.items():
        if state.kms_aliases.get(scope, name) is not None:
            continue
        key_id = str(uuid5(NAMESPACE_URL, alias_arn(scope, name)))
        if state.kms_keys.get(scope, key_id) is None:
            key = KmsKey(
                scope=scope,
                key_id=key_id,
                material=new_material(context, key_id),
                created_at=context.now,
                description=f"Default key that protects my {service} data when no other is named",
                aws_service=service,
            )
            with suppress(Conflict):  # another call made it meanwhile
                state.kms_keys.put(scope, key_id, key, expect=None)
        alias = KmsAlias(
            scope=scope, name=name, key_id=key_id, created_at=context.now, updated_at=context.now
        )
        with suppress(Conflict):
            state.kms_aliases.put(scope, name, alias, expect=None)
