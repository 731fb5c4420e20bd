"""Secrets Manager's operations by name."""

from collections.abc import Mapping

from hostelry.api.context import Operation
from hostelry.api.secretsmanager import secret, value

OPERATIONS: Mapping[str, Operation] = {
    "CreateSecret": secret.create_secret,
    "DescribeSecret": secret.describe_secret,
    "ListSecrets": secret.list_secrets,
    "UpdateSecret": secret.update_secret,
    "DeleteSecret": secret.delete_secret,
    "RestoreSecret": secret.restore_secret,
    "GetSecretValue": value.get_secret_value,
    "PutSecretValue": value.put_secret_value,
    "ListSecretVersionIds": value.list_secret_version_ids,
    "GetResourcePolicy": secret.get_resource_policy,
    "TagResource": secret.tag_resource,
    "UntagResource": secret.untag_resource,
}
