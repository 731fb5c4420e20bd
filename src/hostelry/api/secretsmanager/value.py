"""Values of secrets: put, encrypted, read."""

import base64
from collections.abc import Mapping, Sequence
from dataclasses import replace

from hostelry.api.context import CallContext, Params, Result
from hostelry.api.kms import lookup as kms
from hostelry.api.kms import material
from hostelry.api.page import PageTokens, page_of
from hostelry.api.refusals import unsupported
from hostelry.api.secretsmanager.lookup import live_secret
from hostelry.base.errors import ServiceError
from hostelry.base.ids import new_uuid
from hostelry.domain.secret import CURRENT, PREVIOUS, SecretVersion, StoredSecret

DEFAULT_KEY = "alias/aws/secretsmanager"
MAX_UNLABELLED = 20  # older versions without a label are dropped; AWS keeps up to 100
MAX_STAGES = 20
DEFAULT_PAGE_SIZE = 100


def put_secret_value(context: CallContext, params: Params) -> Result:
    """PutSecretValue: a new version, which takes over its labels."""
    if params.get("RotationToken"):
        raise unsupported("RotationToken")
    found = live_secret(context, params["SecretId"])
    if given_value(params) is None:
        raise ServiceError(
            "InvalidRequestException", "You must provide either SecretString or SecretBinary."
        )
    stages = tuple(dict.fromkeys(params.get("VersionStages") or (CURRENT,)))
    secret, version = with_value(context, found.value, params, stages)
    context.state.secrets.put(context.scope, secret.name, secret, expect=found.version)
    return {**named(secret), "VersionId": version.version_id, "VersionStages": list(version.stages)}


def get_secret_value(context: CallContext, params: Params) -> Result:
    """GetSecretValue: of a version or a label, AWSCURRENT by default."""
    secret = live_secret(context, params["SecretId"]).value
    version = asked_version(secret, params)
    value = opened(context, secret, version)
    shown: Result = {"SecretString": value.decode()} if version.is_text else {"SecretBinary": value}
    return {
        **named(secret),
        "VersionId": version.version_id,
        **({"VersionStages": list(version.stages)} if version.stages else {}),
        "CreatedDate": version.created_at,
        **shown,
    }


def list_secret_version_ids(context: CallContext, params: Params) -> Result:
    """ListSecretVersionIds: those with labels, and with IncludeDeprecated the others."""
    secret = live_secret(context, params["SecretId"]).value
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
    tokens = PageTokens(context, "ListSecretVersionIds", params, "InvalidNextTokenException")
    page, following = page_of(tokens, rows, params.get("MaxResults") or DEFAULT_PAGE_SIZE)
    return {**named(secret), "Versions": page, **following}


def with_value(
    context: CallContext, secret: StoredSecret, params: Params, stages: Sequence[str]
) -> tuple[StoredSecret, SecretVersion]:
    """The secret with a version of the value of a request; a repeated request adds none."""
    value = given_value(params)
    if value is None:
        raise ValueError("the request has no value")
    version_id = params.get("ClientRequestToken") or new_uuid()
    before = secret.version(version_id)
    if before is not None:
        if opened(context, secret, before) != value:
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
    version = sealed(context, secret, (version_id, value), params, stages)
    kept = [relabelled(secret, it, stages) for it in secret.versions]
    unlabelled = [it for it in kept if not it.stages]
    dropped = {it.version_id for it in unlabelled[: max(0, len(unlabelled) - MAX_UNLABELLED)]}
    versions = (*(it for it in kept if it.version_id not in dropped), version)
    return replace(secret, versions=versions, changed_at=context.now), version


def relabelled(secret: StoredSecret, version: SecretVersion, taken: Sequence[str]) -> SecretVersion:
    """A version once a new one has taken labels: what was current is previous."""
    stages = [it for it in version.stages if it not in taken]
    if CURRENT in taken and secret.labelled(CURRENT) is not None:
        stages = [it for it in stages if it != PREVIOUS]
        if CURRENT in version.stages:
            stages.append(PREVIOUS)
    return replace(version, stages=tuple(stages))


def sealed(
    context: CallContext,
    secret: StoredSecret,
    content: tuple[str, bytes],
    params: Params,
    stages: Sequence[str],
) -> SecretVersion:
    """A version of `content` (its id and value), encrypted under the secret's key."""
    version_id, value = content
    try:
        key = kms.usable_key(context, secret.kms_key_id or DEFAULT_KEY)
        blob = material.encrypt(context, key, value, bound_to(secret, version_id))
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


def opened(context: CallContext, secret: StoredSecret, version: SecretVersion) -> bytes:
    """The value of a version; raises DecryptionFailure where its key cannot be used."""
    try:
        key = kms.usable_key(context, version.key_arn)
        blob = base64.b64decode(version.ciphertext)
        return material.decrypt(context, key, blob, bound_to(secret, version.version_id))
    except ServiceError as error:
        text = "Secrets Manager can't decrypt the protected secret text using the provided KMS key."
        raise ServiceError("DecryptionFailure", f"{text} {error.message}".strip()) from error


def bound_to(secret: StoredSecret, version_id: str) -> Mapping[str, str]:
    """The encryption context of a version, as AWS has it."""
    return {"SecretARN": secret.arn, "SecretVersionId": version_id}


def given_value(params: Params) -> bytes | None:
    """The value of a request; None where it has none."""
    text, binary = params.get("SecretString"), params.get("SecretBinary")
    if text is not None and binary is not None:
        raise ServiceError(
            "InvalidParameterException",
            "You can't specify both a binary secret value and a string secret value in the same "
            "secret.",
        )
    return text.encode() if text is not None else binary


def asked_version(secret: StoredSecret, params: Params) -> SecretVersion:
    """The version that a request asks for; raises ResourceNotFoundException without one."""
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
        version, asked = secret.labelled(stage), f"staging label: {stage}"
    if version is None:
        message = f"Secrets Manager can't find the specified secret value for {asked}"
        raise ServiceError("ResourceNotFoundException", message)
    return version


def named(secret: StoredSecret) -> Result:
    """ARN and name, with which every answer begins."""
    return {"ARN": secret.arn, "Name": secret.name}
