"""KMS's operations by name."""

from collections.abc import Mapping

from hostelry.api.context import Operation
from hostelry.api.kms import alias, encryption, key, tag

OPERATIONS: Mapping[str, Operation] = {
    "CreateKey": key.create_key,
    "DescribeKey": key.describe_key,
    "ListKeys": key.list_keys,
    "EnableKey": key.enable_key,
    "DisableKey": key.disable_key,
    "UpdateKeyDescription": key.update_key_description,
    "ScheduleKeyDeletion": key.schedule_key_deletion,
    "CancelKeyDeletion": key.cancel_key_deletion,
    "GetKeyPolicy": key.get_key_policy,
    "PutKeyPolicy": key.put_key_policy,
    "ListKeyPolicies": key.list_key_policies,
    "GetKeyRotationStatus": key.get_key_rotation_status,
    "CreateAlias": alias.create_alias,
    "UpdateAlias": alias.update_alias,
    "DeleteAlias": alias.delete_alias,
    "ListAliases": alias.list_aliases,
    "Encrypt": encryption.encrypt,
    "Decrypt": encryption.decrypt,
    "ReEncrypt": encryption.re_encrypt,
    "GenerateDataKey": encryption.generate_data_key,
    "GenerateDataKeyWithoutPlaintext": encryption.generate_data_key_without_plaintext,
    "GenerateRandom": encryption.generate_random,
    "TagResource": tag.tag_resource,
    "UntagResource": tag.untag_resource,
    "ListResourceTags": tag.list_resource_tags,
}
