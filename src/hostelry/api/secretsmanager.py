"""Secrets Manager: secrets, their values encrypted by KMS, and their versions.

Source of the texts: Secrets Manager's answers as moto and Terraform's provider expect them.
"""

import base64
from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from hostelry.api.context import CallContext, Params, Result
from hostelry.api.kms import lookup as kms
from hostelry.api.kms import material
from hostelry.api.page import ListPaging
from hostelry.api.record_kind import RecordKind
from hostelry.api.refusals import refuse_fields, unsupported
from hostelry.api.tags import TagOperations, parse_tags, read_tags, tag_list, write_tags
from hostelry.base.errors import ServiceError
from hostelry.base.ids import new_uuid
from hostelry.domain.secret import CURRENT, PREVIOUS, SecretVersion, StoredSecret
from hostelry.store.records import Versioned

SUFFIX_CHARACTERS = 7  # after the name in an ARN: a hyphen and six others
UNSERVED = ("AddReplicaRegions", "CrossAccountPrimaryARN", "Type")
DEFAULT_WINDOW_DAYS = 30
WINDOW_DAYS = range(7, 31)
DAY_S = 86_400
FILTERS = ("name", "description", "tag-key", "tag-value", "all")
DEFAULT_KEY = "alias/aws/secretsmanager"
MAX_UNLABELLED = 20  # older versions without a label are dropped. AWS keeps up to 100.
MAX_STAGES = 20
LISTS = ListPaging(page_size=100, error_code="InvalidNextTokenException")


SECRETS = RecordKind[StoredSecret](
    records=lambda state: state.secrets,
    not_found=lambda *_: ServiceError(
        "ResourceNotFoundException", "Secrets Manager can't find the specified secret."
    ),
)


def find_secret(context: CallContext, given: str) -> Versioned[StoredSecret]:
    """The secret with the name or the ARN, whose suffix may be left out.

    Secrets that are marked for deletion are found, too, until their recovery window ends.
    """
    name = _parse_name(context, given)
    found = SECRETS.find(context, name)
    if _is_due(found.value, context.now):
        _erase(context, found)
        raise SECRETS.not_found(context, name)
    return found


def get_secret(context: CallContext, given: str) -> StoredSecret | None:
    """The secret with the name or the ARN, or None. Erases nothing."""
    name = _parse_name(context, given)
    found = SECRETS.get(context, name) if name else None
    return found.value if found is not None and not _is_due(found.value, context.now) else None


def _parse_name(context: CallContext, given: str) -> str:
    """The name in a request, or the name of the secret with the ARN. "" for an unknown ARN."""
    if not given.startswith("arn:"):
        return given
    arns = {it.arn: it.name for it in SECRETS.values(context)}
    return ({arn[:-SUFFIX_CHARACTERS]: it for arn, it in arns.items()} | arns).get(given, "")


def _find_live_secret(context: CallContext, given: str) -> Versioned[StoredSecret]:
    """The secret. Raises InvalidRequestException if it is marked for deletion."""
    found = find_secret(context, given)
    if found.value.deletion_at is not None:
        raise ServiceError(
            "InvalidRequestException",
            "You can't perform this operation on the secret because it was marked for deletion.",
        )
    return found


def _list_live_secrets(context: CallContext) -> list[StoredSecret]:
    """The secrets of the scope, after erasing those whose recovery window has ended."""
    kept = []
    for found in SECRETS.all(context):
        if _is_due(found.value, context.now):
            _erase(context, found)
        else:
            kept.append(found.value)
    return kept


def _is_due(secret: StoredSecret, now: float) -> bool:
    return secret.deletion_at is not None and secret.deletion_at <= now


def _erase(context: CallContext, found: Versioned[StoredSecret]) -> None:
    write_tags(context, found.value.arn, {})
    SECRETS.delete(context, found)


def create_secret(context: CallContext, params: Params) -> Result:
    """CreateSecret, with a first version if a value is given."""
    refuse_fields(params, UNSERVED)
    name, scope = params["Name"], context.scope
    before = next((it for it in _list_live_secrets(context) if it.name == name), None)
    if before is not None and _is_repeated(before, params):
        secret, version = _add_version(context, before, params, (CURRENT,))
        return {**_identify(secret), "VersionId": version.version_id}
    if before is not None:
        raise _already_exists(before)
    if params.get("KmsKeyId"):
        kms.find_key(context, params["KmsKeyId"])
    tags = parse_tags(params.get("Tags"))
    secret = StoredSecret(
        scope=scope,
        name=name,
        arn=f"arn:aws:secretsmanager:{scope.region}:{scope.account}:secret:{name}-{new_uuid()[:6]}",
        created_at=context.now,
        changed_at=context.now,
        description=params.get("Description", ""),
        kms_key_id=params.get("KmsKeyId", ""),
    )
    answer = _identify(secret)
    if _parse_value(params) is not None:
        secret, version = _add_version(context, secret, params, (CURRENT,))
        answer["VersionId"] = version.version_id
    write_tags(context, secret.arn, tags)
    SECRETS.put(context, secret)
    return answer


def _is_repeated(before: StoredSecret, params: Params) -> bool:
    """True if an earlier create had the same token."""
    token = params.get("ClientRequestToken", "")
    return before.deletion_at is None and before.version(token) is not None


def _already_exists(before: StoredSecret) -> ServiceError:
    if before.deletion_at is not None:
        return ServiceError(
            "InvalidRequestException",
            "You can't create this secret because a secret with this name is already scheduled for "
            "deletion.",
        )
    message = f"The operation failed because the secret {before.name} already exists."
    return ServiceError("ResourceExistsException", message)


def update_secret(context: CallContext, params: Params) -> Result:
    """UpdateSecret: description and key, and a new current version if a value is given."""
    refuse_fields(params, UNSERVED)
    found = _find_live_secret(context, params["SecretId"])
    secret = found.value
    if params.get("KmsKeyId"):
        kms.find_key(context, params["KmsKeyId"])
        secret = replace(secret, kms_key_id=params["KmsKeyId"])
    if params.get("Description") is not None:
        secret = replace(secret, description=params["Description"])
    answer = _identify(secret)
    if _parse_value(params) is not None:
        secret, version = _add_version(context, secret, params, (CURRENT,))
        answer["VersionId"] = version.version_id
    secret = replace(secret, changed_at=context.now)
    SECRETS.put(context, secret, found)
    return answer


def describe_secret(context: CallContext, params: Params) -> Result:
    """DescribeSecret, also of a deleted secret that can be restored."""
    secret = find_secret(context, params["SecretId"]).value
    return {**_describe(context, secret), "VersionIdsToStages": _get_stages(secret)}


def list_secrets(context: CallContext, params: Params) -> Result:
    """ListSecrets, by name, or by date with SortOrder."""
    filters = params.get("Filters", ())
    planned = params.get("IncludePlannedDeletion")
    shown = [it for it in _list_live_secrets(context) if planned or it.deletion_at is None]
    kept = [it for it in shown if all(_passes(context, it, asked) for asked in filters)]
    by_name = params.get("SortBy", "created-date") == "name"
    rows = [
        (
            (secret.name if by_name else secret.created_at, secret.name),
            {**_describe(context, secret), "SecretVersionsToStages": _get_stages(secret)},
        )
        for secret in kept
    ]
    descending = params.get("SortOrder", "desc") == "desc"
    return LISTS.answer(context, "ListSecrets", params, "SecretList", rows, descending=descending)


def _passes(context: CallContext, secret: StoredSecret, asked: Mapping[str, Sequence[str]]) -> bool:
    """True if one value of a filter begins a text of the secret, or with "!" if no value does."""
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
    """DeleteSecret: at once, or after a window in which the secret can be restored."""
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
    found = (find_secret if at_once else _find_live_secret)(context, params["SecretId"])
    if at_once:
        _erase(context, found)
        return {**_identify(found.value), "DeletionDate": context.now}
    deletion_at = context.now + (days or DEFAULT_WINDOW_DAYS) * DAY_S
    secret = replace(found.value, deletion_at=deletion_at, deleted_at=context.now)
    SECRETS.put(context, secret, found)
    return {**_identify(secret), "DeletionDate": deletion_at}


def restore_secret(context: CallContext, params: Params) -> Result:
    """RestoreSecret: cancels the deletion."""
    found = find_secret(context, params["SecretId"])
    secret = replace(found.value, deletion_at=None, deleted_at=None)
    SECRETS.put(context, secret, found)
    return _identify(secret)


def get_resource_policy(context: CallContext, params: Params) -> Result:
    """GetResourcePolicy: without a policy, since secrets have none."""
    return _identify(_find_live_secret(context, params["SecretId"]).value)


TAGS = TagOperations(
    find_arn=lambda context, params: _find_live_secret(context, params["SecretId"]).value.arn
)


def _describe(context: CallContext, secret: StoredSecret) -> Result:
    """The secret as DescribeSecret and ListSecrets answer it, without its versions."""
    optional = {
        "Description": secret.description or None,
        "KmsKeyId": secret.kms_key_id or None,
        "DeletedDate": secret.deleted_at,
    }
    return {
        **_identify(secret),
        **{name: it for name, it in optional.items() if it is not None},
        "RotationEnabled": False,
        "LastChangedDate": secret.changed_at,
        "CreatedDate": secret.created_at,
        "Tags": tag_list(read_tags(context, secret.arn)),
    }


def _get_stages(secret: StoredSecret) -> Mapping[str, list[str]]:
    """The staging labels of each labelled version."""
    return {it.version_id: list(it.stages) for it in secret.versions if it.stages}


def put_secret_value(context: CallContext, params: Params) -> Result:
    """PutSecretValue: a new version, which takes the labels of older versions."""
    if params.get("RotationToken"):
        raise unsupported("RotationToken")
    found = _find_live_secret(context, params["SecretId"])
    if _parse_value(params) is None:
        raise ServiceError(
            "InvalidRequestException", "You must provide either SecretString or SecretBinary."
        )
    stages = tuple(dict.fromkeys(params.get("VersionStages") or (CURRENT,)))
    secret, version = _add_version(context, found.value, params, stages)
    SECRETS.put(context, secret, found)
    return {
        **_identify(secret),
        "VersionId": version.version_id,
        "VersionStages": list(version.stages),
    }


def get_secret_value(context: CallContext, params: Params) -> Result:
    """GetSecretValue, of a version or a label. The default is AWSCURRENT."""
    secret = _find_live_secret(context, params["SecretId"]).value
    version = _find_version(secret, params)
    value = _decrypt(context, secret, version)
    shown: Result = {"SecretString": value.decode()} if version.is_text else {"SecretBinary": value}
    return {
        **_identify(secret),
        "VersionId": version.version_id,
        **({"VersionStages": list(version.stages)} if version.stages else {}),
        "CreatedDate": version.created_at,
        **shown,
    }


def list_secret_version_ids(context: CallContext, params: Params) -> Result:
    """ListSecretVersionIds: labelled versions, and with IncludeDeprecated the others."""
    secret = _find_live_secret(context, params["SecretId"]).value
    asked = [it for it in secret.versions if it.stages or params.get("IncludeDeprecated")]
    rows = [
        (
            (version.created_at, version.version_id),
            {
                "VersionId": version.version_id,
                **({"VersionStages": list(version.stages)} if version.stages else {}),
                "CreatedDate": version.created_at,
                "KmsKeyIds": [secret.kms_key_id or "DefaultEncryptionKey"],
            },
        )
        for version in asked
    ]
    answer = LISTS.answer(context, "ListSecretVersionIds", params, "Versions", rows)
    return {**_identify(secret), **answer}


def _add_version(
    context: CallContext, secret: StoredSecret, params: Params, stages: Sequence[str]
) -> tuple[StoredSecret, SecretVersion]:
    """The secret with a version for the value of a request. A repeated request adds no version."""
    value = _parse_value(params)
    if value is None:
        raise ValueError("the request has no value")
    version_id = params.get("ClientRequestToken") or new_uuid()
    before = secret.version(version_id)
    if before is not None:
        if _decrypt(context, secret, before) != value:
            raise ServiceError(
                "ResourceExistsException",
                "You can't use ClientRequestToken "
                f"{version_id} because that value is already in use for a version of secret "
                f"{secret.arn}.",
            )
        return secret, before
    if len(stages) > MAX_STAGES:
        message = f"A version has at most {MAX_STAGES} staging labels."
        raise ServiceError("LimitExceededException", message)
    if not secret.versions:
        stages = tuple(dict.fromkeys((*stages, CURRENT)))  # the first value is always current
    version = _encrypt(context, secret, (version_id, value), params, stages)
    kept = [_relabel(secret, it, stages) for it in secret.versions]
    unlabelled = [it for it in kept if not it.stages]
    dropped = {it.version_id for it in unlabelled[: max(0, len(unlabelled) - MAX_UNLABELLED)]}
    versions = (*(it for it in kept if it.version_id not in dropped), version)
    return replace(secret, versions=versions, changed_at=context.now), version


def _relabel(
    secret: StoredSecret, version: SecretVersion, _already_exists: Sequence[str]
) -> SecretVersion:
    """Relabel an older version after a new version took its labels. Current becomes previous."""
    stages = [it for it in version.stages if it not in _already_exists]
    if CURRENT in _already_exists and secret.find_version(CURRENT) is not None:
        stages = [it for it in stages if it != PREVIOUS]
        if CURRENT in version.stages:
            stages.append(PREVIOUS)
    return replace(version, stages=tuple(stages))


def _encrypt(
    context: CallContext,
    secret: StoredSecret,
    content: tuple[str, bytes],
    params: Params,
    stages: Sequence[str],
) -> SecretVersion:
    """A version of `content` (its id and value), encrypted under the secret's key."""
    version_id, value = content
    try:
        key = kms.find_usable_key(context, secret.kms_key_id or DEFAULT_KEY)
        blob = material.encrypt(context, key, value, _encryption_context(secret, version_id))
    except ServiceError as error:
        text = "Secrets Manager can't encrypt the protected secret text using the provided KMS key."
        raise ServiceError("EncryptionFailure", f"{text} {error.message}".strip()) from error
    return SecretVersion(
        version_id=version_id,
        created_at=context.now,
        ciphertext=base64.b64encode(blob).decode(),
        key_arn=key.arn,
        is_text="SecretString" in params,
        stages=tuple(stages),
    )


def _decrypt(context: CallContext, secret: StoredSecret, version: SecretVersion) -> bytes:
    """The value of a version. Raises DecryptionFailure if its key cannot be used."""
    try:
        key = kms.find_usable_key(context, version.key_arn)
        blob = base64.b64decode(version.ciphertext)
        return material.decrypt(context, key, blob, _encryption_context(secret, version.version_id))
    except ServiceError as error:
        text = "Secrets Manager can't decrypt the protected secret text using the provided KMS key."
        raise ServiceError("DecryptionFailure", f"{text} {error.message}".strip()) from error


def _encryption_context(secret: StoredSecret, version_id: str) -> Mapping[str, str]:
    """The encryption context of a version, as on AWS."""
    return {"SecretARN": secret.arn, "SecretVersionId": version_id}


def _parse_value(params: Params) -> bytes | None:
    """The value of a request, or None."""
    text, binary = params.get("SecretString"), params.get("SecretBinary")
    if text is not None and binary is not None:
        raise ServiceError(
            "InvalidParameterException",
            "You can't specify both a binary secret value and a string secret value in the same "
            "secret.",
        )
    return text.encode() if text is not None else binary


def _find_version(secret: StoredSecret, params: Params) -> SecretVersion:
    """The requested version. Raises ResourceNotFoundException."""
    version_id, stage = params.get("VersionId"), params.get("VersionStage")
    if version_id:
        version, asked = secret.version(version_id), f"VersionId: {version_id}"
        if version is not None and stage and stage not in version.stages:
            raise ServiceError(
                "InvalidRequestException",
                "You provided a VersionStage that is not associated to the provided VersionId.",
            )
    else:
        stage = stage or CURRENT
        version, asked = secret.find_version(stage), f"staging label: {stage}"
    if version is None:
        message = f"Secrets Manager can't find the specified secret value for {asked}"
        raise ServiceError("ResourceNotFoundException", message)
    return version


def _identify(secret: StoredSecret) -> Result:
    """Build the members that begin every answer."""
    return {"ARN": secret.arn, "Name": secret.name}
