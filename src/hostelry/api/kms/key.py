"""KMS's keys and aliases: create, describe, list, change and delete. Key policies and tags."""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from hostelry.api.context import CallContext, Params, Result
from hostelry.api.kms import lookup
from hostelry.api.kms.material import new_material
from hostelry.api.page import PageTokens, get_page, order_by_name
from hostelry.api.tags import add_tags, parse_tags, read_tags, remove_tags, write_tags
from hostelry.base.errors import ServiceError, validation_error
from hostelry.base.ids import new_uuid
from hostelry.domain.secret import KmsAlias, KmsKey, alias_arn
from hostelry.permissions.document import DocumentKind, MalformedDocument, parse_statements

ALGORITHM = "SYMMETRIC_DEFAULT"
# The only supported values of these members.
ONLY: Mapping[str, object] = {
    "KeyUsage": "ENCRYPT_DECRYPT",
    "KeySpec": ALGORITHM,
    "CustomerMasterKeySpec": ALGORITHM,
    "Origin": "AWS_KMS",
    "MultiRegion": False,
    "CustomKeyStoreId": None,
    "XksKeyId": None,
}
DEFAULT_WINDOW_DAYS = 30
WINDOW_DAYS = range(7, 31)
DAY_S = 86_400
POLICY_NAME = "default"
RESERVED = "alias/aws/"
DEFAULT_PAGE_SIZE = 100


def create_key(context: CallContext, params: Params) -> Result:
    """CreateKey: a symmetric key that this platform makes itself."""
    for name, served in ONLY.items():
        if name in params and params[name] not in (served, None):
            raise ServiceError(
                "UnsupportedOperationException",
                f"{name} {params[name]} is not supported by this version of Hostelry: its keys are "
                "symmetric encryption keys of one region, made by itself.",
            )
    tags = _parse_tags(params.get("Tags"))
    policy = _check_policy(params["Policy"]) if params.get("Policy") else ""
    key_id = new_uuid()
    key = KmsKey(
        scope=context.scope,
        key_id=key_id,
        material=new_material(context, key_id),
        created_at=context.now,
        description=params.get("Description", ""),
        policy=policy,
    )
    write_tags(context, key.arn, tags)
    return {"KeyMetadata": _describe_key(lookup.KEYS.put(context, key))}


def describe_key(context: CallContext, params: Params) -> Result:
    """DescribeKey, by id, ARN, alias or alias ARN."""
    owners = lookup.in_owners_scope(context, params["KeyId"])
    return {"KeyMetadata": _describe_key(lookup.find_key(owners, params["KeyId"]).value)}


def list_keys(context: CallContext, params: Params) -> Result:
    """ListKeys, in the order of their ids."""
    keys = lookup.list_live_keys(context)
    rows = [(it.key_id, {"KeyId": it.key_id, "KeyArn": it.arn}) for it in keys]
    return _answer_page(context, "ListKeys", params, "Keys", rows)


def enable_key(context: CallContext, params: Params) -> Result:
    """EnableKey."""
    return _change_key(context, params, is_enabled=True)


def disable_key(context: CallContext, params: Params) -> Result:
    """DisableKey: the key encrypts and decrypts nothing until it is enabled again."""
    return _change_key(context, params, is_enabled=False)


def update_key_description(context: CallContext, params: Params) -> Result:
    """UpdateKeyDescription."""
    return _change_key(context, params, description=params["Description"])


def schedule_key_deletion(context: CallContext, params: Params) -> Result:
    """ScheduleKeyDeletion: the key cannot be used any more, and is erased after the window."""
    days = params.get("PendingWindowInDays", DEFAULT_WINDOW_DAYS)
    if days not in WINDOW_DAYS:
        raise validation_error(
            f"PendingWindowInDays is {days}; it must be between {WINDOW_DAYS[0]} and "
            f"{WINDOW_DAYS[-1]} (inclusive)."
        )
    found = lookup.find_changeable_key(context, params["KeyId"])
    _check_not_pending(found.value)
    deletion_at = context.now + days * DAY_S
    key = replace(found.value, deletion_at=deletion_at, is_enabled=False)
    lookup.KEYS.put(context, key, found)
    return {
        "KeyId": key.arn,
        "DeletionDate": deletion_at,
        "KeyState": key.state,
        "PendingWindowInDays": days,
    }


def cancel_key_deletion(context: CallContext, params: Params) -> Result:
    """CancelKeyDeletion: the key exists again, disabled."""
    found = lookup.find_changeable_key(context, params["KeyId"])
    if found.value.deletion_at is None:
        message = f"{found.value.arn} is not pending deletion."
        raise ServiceError("KMSInvalidStateException", message)
    key = replace(found.value, deletion_at=None)
    lookup.KEYS.put(context, key, found)
    return {"KeyId": key.arn}


def get_key_policy(context: CallContext, params: Params) -> Result:
    """GetKeyPolicy: the given policy, or AWS's default policy."""
    _check_policy_name(params)
    key = lookup.find_key_by_id(context, params["KeyId"]).value
    policy = key.policy or _build_default_policy(key.scope.account)
    return {"Policy": policy, "PolicyName": POLICY_NAME}


def put_key_policy(context: CallContext, params: Params) -> Result:
    """PutKeyPolicy."""
    _check_policy_name(params)
    return _change_key(context, params, policy=_check_policy(params["Policy"]))


def list_key_policies(context: CallContext, params: Params) -> Result:
    """ListKeyPolicies: each key has the one policy ``default``."""
    lookup.find_key_by_id(context, params["KeyId"])
    return {"PolicyNames": [POLICY_NAME], "Truncated": False}


def get_key_rotation_status(context: CallContext, params: Params) -> Result:
    """GetKeyRotationStatus: keys are not rotated, and EnableKeyRotation is not served."""
    key = lookup.find_key_by_id(context, params["KeyId"]).value
    _check_not_pending(key)
    return {"KeyRotationEnabled": False, "KeyId": key.arn}


def _change_key(context: CallContext, params: Params, **members: Any) -> Result:
    found = lookup.find_changeable_key(context, params["KeyId"])
    _check_not_pending(found.value)
    key = replace(found.value, **members)
    lookup.KEYS.put(context, key, found)
    return {}


def _check_not_pending(key: KmsKey) -> None:
    if key.deletion_at is not None:
        raise ServiceError("KMSInvalidStateException", f"{key.arn} is pending deletion.")


def _check_policy_name(params: Params) -> None:
    name = params.get("PolicyName", POLICY_NAME)
    if name != POLICY_NAME:
        raise ServiceError("NotFoundException", f"No such policy exists: {name}")


def _check_policy(text: str) -> str:
    try:
        parse_statements(text, DocumentKind.RESOURCE)
    except MalformedDocument as error:
        raise ServiceError("MalformedPolicyDocumentException", str(error)) from None
    return text


def _build_default_policy(account: str) -> str:
    statement = {
        "Sid": "Enable IAM User Permissions",
        "Effect": "Allow",
        "Principal": {"AWS": f"arn:aws:iam::{account}:root"},
        "Action": "kms:*",
        "Resource": "*",
    }
    return json.dumps({"Version": "2012-10-17", "Id": "key-default-1", "Statement": [statement]})


def _describe_key(key: KmsKey) -> Result:
    pending = {} if key.deletion_at is None else {"DeletionDate": key.deletion_at}
    return {
        "AWSAccountId": key.scope.account,
        "KeyId": key.key_id,
        "Arn": key.arn,
        "CreationDate": key.created_at,
        "Enabled": key.state == "Enabled",
        "Description": key.description,
        "KeyUsage": "ENCRYPT_DECRYPT",
        "KeyState": key.state,
        "Origin": "AWS_KMS",
        "KeyManager": "AWS" if key.aws_service else "CUSTOMER",
        "CustomerMasterKeySpec": ALGORITHM,
        "KeySpec": ALGORITHM,
        "EncryptionAlgorithms": [ALGORITHM],
        "MultiRegion": False,
        **pending,
    }


def create_alias(context: CallContext, params: Params) -> Result:
    """CreateAlias."""
    name = _check_alias_name(params["AliasName"])
    key = _find_target(context, params)
    if lookup.ALIASES.get(context, name) is not None:
        message = f"An alias with the name {alias_arn(context.scope, name)} already exists"
        raise ServiceError("AlreadyExistsException", message)
    alias = KmsAlias(
        scope=context.scope,
        name=name,
        key_id=key,
        created_at=context.now,
        updated_at=context.now,
    )
    lookup.ALIASES.put(context, alias)
    return {}


def update_alias(context: CallContext, params: Params) -> Result:
    """UpdateAlias: points the alias to another key."""
    name = _check_alias_name(params["AliasName"])
    found = lookup.find_alias(context, name)
    alias = replace(found.value, key_id=_find_target(context, params), updated_at=context.now)
    lookup.ALIASES.put(context, alias, found)
    return {}


def delete_alias(context: CallContext, params: Params) -> Result:
    """DeleteAlias."""
    name = _check_alias_name(params["AliasName"])
    lookup.ALIASES.delete(context, lookup.find_alias(context, name))
    return {}


def list_aliases(context: CallContext, params: Params) -> Result:
    """ListAliases, of one key or of all."""
    lookup.list_live_keys(context)  # makes managed aliases, and erases aliases of expired keys
    wanted = None
    if params.get("KeyId"):
        wanted = lookup.find_key_by_id(context, params["KeyId"]).value.key_id
    aliases = [it for it in lookup.ALIASES.values(context) if wanted in (None, it.key_id)]
    rows = [(it.name, _describe_alias(it)) for it in aliases]
    return _answer_page(context, "ListAliases", params, "Aliases", rows)


def _describe_alias(alias: KmsAlias) -> Result:
    return {
        "AliasName": alias.name,
        "AliasArn": alias.arn,
        "TargetKeyId": alias.key_id,
        "CreationDate": alias.created_at,
        "LastUpdatedDate": alias.updated_at,
    }


def _check_alias_name(name: str) -> str:
    """The name, which a customer may give to an alias."""
    if not name.startswith("alias/") or name == "alias/":
        raise validation_error("Invalid identifier")
    if name.startswith(RESERVED):
        message = f"{name} is reserved: names with the prefix {RESERVED} are AWS's own."
        raise ServiceError("NotAuthorizedException", message)
    return name


def _find_target(context: CallContext, params: Params) -> str:
    key = lookup.find_key_by_id(context, params["TargetKeyId"]).value
    if key.deletion_at is not None:
        raise ServiceError("KMSInvalidStateException", f"{key.arn} is pending deletion.")
    return key.key_id


def _parse_tags(given: Sequence[Mapping[str, str]] | None) -> dict[str, str]:
    return parse_tags([{"Key": it["TagKey"], "Value": it["TagValue"]} for it in given or ()])


def tag_resource(context: CallContext, params: Params) -> Result:
    """TagResource."""
    arn = lookup.find_changeable_key(context, params["KeyId"]).value.arn
    add_tags(context, arn, _parse_tags(params["Tags"]))
    return {}


def untag_resource(context: CallContext, params: Params) -> Result:
    """UntagResource."""
    arn = lookup.find_changeable_key(context, params["KeyId"]).value.arn
    remove_tags(context, arn, params["TagKeys"])
    return {}


def list_resource_tags(context: CallContext, params: Params) -> Result:
    """ListResourceTags."""
    arn = lookup.find_key_by_id(context, params["KeyId"]).value.arn
    rows = [(key, {"TagKey": key, "TagValue": it}) for key, it in read_tags(context, arn).items()]
    return _answer_page(context, "ListResourceTags", params, "Tags", rows)


def _answer_page(
    context: CallContext,
    operation: str,
    params: Params,
    member: str,
    rows: Iterable[tuple[str, Result]],
) -> Result:
    """Build the requested page of `rows` (name, entry). KMS's tokens are Marker and NextMarker."""
    asked = {name: it for name, it in params.items() if name not in ("Marker", "Limit")}
    asked["NextToken"] = params.get("Marker")
    tokens = PageTokens(context, operation, asked, "InvalidMarkerException")
    size = params.get("Limit") or DEFAULT_PAGE_SIZE
    page, following = get_page(tokens, order_by_name(rows), size)
    answer: Result = {member: page, "Truncated": bool(following)}
    return {**answer, "NextMarker": following["NextToken"]} if following else answer
