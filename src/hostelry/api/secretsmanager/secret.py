"""Secrets: create, describe, list, update, delete, restore."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from hostelry.api.context import CallContext, Params, Result
from hostelry.api.kms.lookup import found_key
from hostelry.api.page import PageTokens, page_of
from hostelry.api.refusals import refuse_fields, unsupported
from hostelry.api.secretsmanager.lookup import erase, found_secret, live_secret, secrets_of
from hostelry.api.secretsmanager.value import (
    DEFAULT_PAGE_SIZE,
    given_value,
    named,
    with_value,
)
from hostelry.api.tags import read_tags, tag_list, tags_of, tags_without, write_tags
from hostelry.base.errors import ServiceError
from hostelry.base.ids import new_uuid
from hostelry.domain.secret import CURRENT, StoredSecret

UNSERVED = ("AddReplicaRegions", "CrossAccountPrimaryARN", "Type")
DEFAULT_WINDOW_DAYS = 30
WINDOW_DAYS = range(7, 31)
DAY_S = 86_400
FILTERS = ("name", "description", "tag-key", "tag-value", "all")


def create_secret(context: CallContext, params: Params) -> Result:
    """CreateSecret, with a first version where a value is given."""
    refuse_fields(params, UNSERVED)
    name, scope = params["Name"], context.scope
    before = next((it for it in secrets_of(context) if it.name == name), None)
    if before is not None and is_repeated(before, params):
        secret, version = with_value(context, before, params, (CURRENT,))
        return {**named(secret), "VersionId": version.version_id}
    if before is not None:
        raise taken(before)
    if params.get("KmsKeyId"):
        found_key(context, params["KmsKeyId"])
    tags = tags_of(params.get("Tags"))
    secret = StoredSecret(
        scope=scope,
        name=name,
        arn=f"arn:aws:secretsmanager:{scope.region}:{scope.account}:secret:{name}-{new_uuid()[:6]}",
        created_at=context.now,
        changed_at=context.now,
        description=params.get("Description", ""),
        kms_key_id=params.get("KmsKeyId", ""),
    )
    answer = named(secret)
    if given_value(params) is not None:
        secret, version = with_value(context, secret, params, (CURRENT,))
        answer["VersionId"] = version.version_id
    write_tags(context, secret.arn, tags)
    context.state.secrets.put(scope, name, secret, expect=None)
    return answer


def is_repeated(before: StoredSecret, params: Params) -> bool:
    """Whether a create was asked for before, with the same token."""
    token = params.get("ClientRequestToken", "")
    return before.deletion_at is None and before.version(token) is not None


def taken(before: StoredSecret) -> ServiceError:
    """The error for a create of a name that a secret has."""
    if before.deletion_at is not None:
        return ServiceError(
            "InvalidRequestException",
            "You can't create this secret because a secret with this name is already scheduled for "
            "deletion.",
        )
    message = f"The operation failed because the secret {before.name} already exists."
    return ServiceError("ResourceExistsException", message)


def update_secret(context: CallContext, params: Params) -> Result:
    """UpdateSecret: description and key, and a new current version where a value is given."""
    refuse_fields(params, UNSERVED)
    found = live_secret(context, params["SecretId"])
    secret = found.value
    if params.get("KmsKeyId"):
        found_key(context, params["KmsKeyId"])
        secret = replace(secret, kms_key_id=params["KmsKeyId"])
    if params.get("Description") is not None:
        secret = replace(secret, description=params["Description"])
    answer = named(secret)
    if given_value(params) is not None:
        secret, version = with_value(context, secret, params, (CURRENT,))
        answer["VersionId"] = version.version_id
    secret = replace(secret, changed_at=context.now)
    context.state.secrets.put(context.scope, secret.name, secret, expect=found.version)
    return answer


def describe_secret(context: CallContext, params: Params) -> Result:
    """DescribeSecret, of a deleted one too while it can be restored."""
    secret = found_secret(context, params["SecretId"]).value
    return {**described(context, secret), "VersionIdsToStages": stages_of(secret)}


def list_secrets(context: CallContext, params: Params) -> Result:
    """ListSecrets, by name, or by date with SortOrder."""
    filters = params.get("Filters", ())
    planned = params.get("IncludePlannedDeletion")
    shown = [it for it in secrets_of(context) if planned or it.deletion_at is None]
    kept = [it for it in shown if all(passes(context, it, asked) for asked in filters)]
    by_name = params.get("SortBy", "created-date") == "name"
    rows = [
        (
            (secret.name if by_name else secret.created_at, secret.name),
            {**described(context, secret), "SecretVersionsToStages": stages_of(secret)},
        )
        for secret in kept
    ]
    tokens = PageTokens(context, "ListSecrets", params, "InvalidNextTokenException")
    size = params.get("MaxResults") or DEFAULT_PAGE_SIZE
    descending = params.get("SortOrder", "desc") == "desc"
    page, following = page_of(tokens, rows, size, descending=descending)
    return {"SecretList": page, **following}


def passes(context: CallContext, secret: StoredSecret, asked: Mapping[str, Sequence[str]]) -> bool:
    """Whether a secret passes a filter: one of its values begins a text, or with "!" none does."""
    key = str(asked.get("Key", ""))
    if key not in FILTERS:
        raise unsupported(f"Filters of {key}")
    tags = read_tags(context, secret.arn)
    texts = {
        "name": [secret.name],
        "description": [secret.description],
        "tag-key": list(tags),
        "tag-value": list(tags.values()),
    }
    among = [text for each in texts.values() for text in each] if key == "all" else texts[key]
    wanted = [it for it in asked.get("Values", ()) if not it.startswith("!")]
    unwanted = [it[1:] for it in asked.get("Values", ()) if it.startswith("!")]
    if any(text.startswith(it) for it in unwanted for text in among):
        return False
    return not wanted or any(text.startswith(it) for it in wanted for text in among)


def delete_secret(context: CallContext, params: Params) -> Result:
    """DeleteSecret: at once, or after a window in which it can be restored."""
    days, at_once = params.get("RecoveryWindowInDays"), params.get("ForceDeleteWithoutRecovery")
    if days is not None and at_once:
        raise ServiceError(
            "InvalidParameterException",
            "You can't use ForceDeleteWithoutRecovery in conjunction with RecoveryWindowInDays.",
        )
    if days is not None and days not in WINDOW_DAYS:
        raise ServiceError(
            "InvalidParameterException",
            "The RecoveryWindowInDays value must be between 7 and 30 days (inclusive).",
        )
    found = (found_secret if at_once else live_secret)(context, params["SecretId"])
    if at_once:
        erase(context, found)
        return {**named(found.value), "DeletionDate": context.now}
    deletion_at = context.now + (days or DEFAULT_WINDOW_DAYS) * DAY_S
    secret = replace(found.value, deletion_at=deletion_at, deleted_at=context.now)
    context.state.secrets.put(context.scope, secret.name, secret, expect=found.version)
    return {**named(secret), "DeletionDate": deletion_at}


def restore_secret(context: CallContext, params: Params) -> Result:
    """RestoreSecret: its deletion is taken back."""
    found = found_secret(context, params["SecretId"])
    secret = replace(found.value, deletion_at=None, deleted_at=None)
    context.state.secrets.put(context.scope, secret.name, secret, expect=found.version)
    return named(secret)


def get_resource_policy(context: CallContext, params: Params) -> Result:
    """GetResourcePolicy: a secret has none, since there is one account."""
    return named(live_secret(context, params["SecretId"]).value)


def tag_resource(context: CallContext, params: Params) -> Result:
    """TagResource."""
    arn = live_secret(context, params["SecretId"]).value.arn
    write_tags(context, arn, {**read_tags(context, arn), **tags_of(params["Tags"])})
    return {}


def untag_resource(context: CallContext, params: Params) -> Result:
    """UntagResource."""
    arn = live_secret(context, params["SecretId"]).value.arn
    write_tags(context, arn, tags_without(context, arn, params["TagKeys"]))
    return {}


def described(context: CallContext, secret: StoredSecret) -> Result:
    """The secret as DescribeSecret and ListSecrets answer it, without its versions."""
    optional = {
        "Description": secret.description or None,
        "KmsKeyId": secret.kms_key_id or None,
        "DeletedDate": secret.deleted_at,
    }
    return {
        **named(secret),
        **{name: it for name, it in optional.items() if it is not None},
        "RotationEnabled": False,
        "LastChangedDate": secret.changed_at,
        "CreatedDate": secret.created_at,
        "Tags": tag_list(read_tags(context, secret.arn)),
    }


def stages_of(secret: StoredSecret) -> Mapping[str, list[str]]:
    """The labels of each version that has one."""
    return {it.version_id: list(it.stages) for it in secret.versions if it.stages}
