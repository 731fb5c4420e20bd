"""KMS keys: create, describe, list, enable, disable, delete; their policies."""

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from hostelry.api.context import CallContext, Params, Result
from hostelry.api.kms import lookup
from hostelry.api.kms.material import new_material
from hostelry.api.kms.page import marked_page
from hostelry.api.kms.tag import tags_of_kms
from hostelry.api.tags import write_tags
from hostelry.base.errors import ServiceError, validation_error
from hostelry.base.ids import new_uuid
from hostelry.domain.kms import KmsKey

ALGORITHM = "SYMMETRIC_DEFAULT"
# What a key can be here; any other value is refused by name.
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


def create_key(context: CallContext, params: Params) -> Result:
    """CreateKey: a symmetric key of this platform's own making."""
    for name, served in ONLY.items():
        if name in params and params[name] not in (served, None):
            raise ServiceError(
                "UnsupportedOperationException",
                f"{name} {params[name]} is not supported by this version of Hostelry: its keys are "
                "symmetric encryption keys of one region, made by itself.",
            )
    tags = tags_of_kms(params.get("Tags"))
    policy = checked_policy(params["Policy"]) if params.get("Policy") else ""
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
    context.state.kms_keys.put(context.scope, key_id, key, expect=None)
    return {"KeyMetadata": metadata(key)}


def describe_key(context: CallContext, params: Params) -> Result:
    """DescribeKey, by id, ARN, alias or alias ARN."""
    return {"KeyMetadata": metadata(lookup.found_key(context, params["KeyId"]).value)}


def list_keys(context: CallContext, params: Params) -> Result:
    """ListKeys, in the order of their ids."""
    keys = [(it.key_id, {"KeyId": it.key_id, "KeyArn": it.arn}) for it in lookup.live_keys(context)]
    return marked_page(context, "ListKeys", params, "Keys", keys)


def enable_key(context: CallContext, params: Params) -> Result:
    """EnableKey."""
    return switch(context, params, is_enabled=True)


def disable_key(context: CallContext, params: Params) -> Result:
    """DisableKey: until it is enabled again, nothing is encrypted or decrypted under it."""
    return switch(context, params, is_enabled=False)


def update_key_description(context: CallContext, params: Params) -> Result:
    """UpdateKeyDescription."""
    return change(context, params, description=params["Description"])


def schedule_key_deletion(context: CallContext, params: Params) -> Result:
    """ScheduleKeyDeletion: the key cannot be used from now on, and is erased after the window."""
    days = params.get("PendingWindowInDays", DEFAULT_WINDOW_DAYS)
    if days not in WINDOW_DAYS:
        raise validation_error(
            f"PendingWindowInDays is {days}; it must be between {WINDOW_DAYS[0]} and "
            f"{WINDOW_DAYS[-1]} (inclusive)."
        )
    found = lookup.changeable_key(context, params["KeyId"])
    check_not_pending(found.value)
    deletion_at = context.now + days * DAY_S
    key = replace(found.value, deletion_at=deletion_at, is_enabled=False)
    context.state.kms_keys.put(context.scope, key.key_id, key, expect=found.version)
    return {
        "KeyId": key.arn,
        "DeletionDate": deletion_at,
        "KeyState": key.state,
        "PendingWindowInDays": days,
    }


def cancel_key_deletion(context: CallContext, params: Params) -> Result:
    """CancelKeyDeletion: the key is there again, disabled."""
    found = lookup.changeable_key(context, params["KeyId"])
    if found.value.deletion_at is None:
        message = f"{found.value.arn} is not pending deletion."
        raise ServiceError("KMSInvalidStateException", message)
    key = replace(found.value, deletion_at=None)
    context.state.kms_keys.put(context.scope, key.key_id, key, expect=found.version)
    return {"KeyId": key.arn}


def get_key_policy(context: CallContext, params: Params) -> Result:
    """GetKeyPolicy: the policy given, else AWS's default one. Policies are not enforced."""
    check_policy_name(params)
    key = lookup.own_key(context, params["KeyId"]).value
    policy = key.policy or default_policy(key.scope.account)
    return {"Policy": policy, "PolicyName": POLICY_NAME}


def put_key_policy(context: CallContext, params: Params) -> Result:
    """PutKeyPolicy."""
    check_policy_name(params)
    return change(context, params, policy=checked_policy(params["Policy"]))


def list_key_policies(context: CallContext, params: Params) -> Result:
    """ListKeyPolicies: each key has the one policy ``default``."""
    lookup.own_key(context, params["KeyId"])
    return {"PolicyNames": [POLICY_NAME], "Truncated": False}


def get_key_rotation_status(context: CallContext, params: Params) -> Result:
    """GetKeyRotationStatus: keys are not rotated, and EnableKeyRotation is not served."""
    key = lookup.own_key(context, params["KeyId"]).value
    check_not_pending(key)
    return {"KeyRotationEnabled": False, "KeyId": key.arn}


def switch(context: CallContext, params: Params, *, is_enabled: bool) -> Result:
    """Enable or disable a key."""
    return change(context, params, is_enabled=is_enabled)


def change(context: CallContext, params: Params, **members: Any) -> Result:
    """Change members of a key that is not pending deletion."""
    found = lookup.changeable_key(context, params["KeyId"])
    check_not_pending(found.value)
    key = replace(found.value, **members)
    context.state.kms_keys.put(context.scope, key.key_id, key, expect=found.version)
    return {}


def check_not_pending(key: KmsKey) -> None:
    """Raise KMSInvalidStateException for a key that is pending deletion."""
    if key.deletion_at is not None:
        raise ServiceError("KMSInvalidStateException", f"{key.arn} is pending deletion.")


def check_policy_name(params: Params) -> None:
    """Raise NotFoundException for a policy other than ``default``."""
    name = params.get("PolicyName", POLICY_NAME)
    if name != POLICY_NAME:
        raise ServiceError("NotFoundException", f"No such policy exists: {name}")


def checked_policy(text: str) -> str:
    """The policy; raises MalformedPolicyDocumentException where it is no JSON object."""
    try:
        is_policy = isinstance(json.loads(text), dict)
    except (ValueError, RecursionError):
        is_policy = False
    if not is_policy:
        raise ServiceError("MalformedPolicyDocumentException", "The policy is not a JSON object.")
    return text


def default_policy(account: str) -> str:
    """The policy of a key that was made without one."""
    statement = {
        "Sid": "Enable IAM User Permissions",
        "Effect": "Allow",
        "Principal": {"AWS": f"arn:aws:iam::{account}:root"},
        "Action": "kms:*",
        "Resource": "*",
    }
    return json.dumps({"Version": "2012-10-17", "Id": "key-default-1", "Statement": [statement]})


def metadata(key: KmsKey) -> Result:
    """The key as DescribeKey and CreateKey answer it."""
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
