"""OpenAI keys of users, by the operations on service-specific credentials.

On AWS an API key for Bedrock's OpenAI-compatible routes is a service-specific credential. The
secret of a key is shown once, and only its SHA-256 is stored.
"""

from collections.abc import Sequence
from hashlib import sha256
from typing import Any

from msgspec.structs import replace

from hostelry.api.context import CallContext, Params, Result
from hostelry.api.iam.access_key import parse_status
from hostelry.api.iam.answers import build_page, invalid_input, limit_exceeded, no_such_entity
from hostelry.api.iam.user import USERS, find_user
from hostelry.base.errors import ServiceError
from hostelry.base.ids import new_iam_id, new_openai_key
from hostelry.domain.principal import OpenAiKey, User
from hostelry.store.records import Versioned

SERVICE = "bedrock.amazonaws.com"
MAX_KEYS = 2
DAY_S = 86_400


def create_service_specific_credential(context: CallContext, params: Params) -> Result:
    """CreateServiceSpecificCredential. Raises NotSupportedService for another service."""
    _check_service(params["ServiceName"])
    age_days = params.get("CredentialAgeDays")
    expires_at = None if age_days is None else context.now + age_days * DAY_S
    return {"ServiceSpecificCredential": make_openai_key(context, params["UserName"], expires_at)}


def make_openai_key(
    context: CallContext,
    user_name: str,
    expires_at: float | None = None,
    models: Sequence[str] = (),
    name: str = "",
) -> Result:
    """Make an OpenAI key of a user, for some `models` or for all. The answer has the secret."""
    stored = find_user(context, user_name)
    keys = stored.value.openai_keys
    if len(keys) >= MAX_KEYS:
        raise limit_exceeded(
            f"Cannot exceed quota for ServiceSpecificCredentialsPerUser: {MAX_KEYS}"
        )
    secret = new_openai_key()
    key = OpenAiKey(
        id=new_iam_id("ACCA"),
        digest=_digest(secret),
        created_at=context.now,
        name=name,
        expires_at=expires_at,
        models=tuple(models),
    )
    user = _put_keys(context, stored, (*keys, key))
    return {**_describe_key(context, user, key), "ServiceCredentialSecret": secret}


def list_service_specific_credentials(context: CallContext, params: Params) -> Result:
    """ListServiceSpecificCredentials of a user, or with AllUsers of every user."""
    if params.get("ServiceName") is not None:
        _check_service(params["ServiceName"])
    if params.get("AllUsers"):
        if params.get("UserName") is not None:
            raise invalid_input("UserName cannot be given together with AllUsers.")
        users = USERS.records.values(context)
    else:
        users = [find_user(context, params.get("UserName")).value]
    rows = [
        (f"{user.name}/{key.id}", _describe_key(context, user, key))
        for user in users
        for key in user.openai_keys
    ]
    page, members = build_page(params, rows)
    return {"ServiceSpecificCredentials": page, **members}


def update_service_specific_credential(context: CallContext, params: Params) -> Result:
    """UpdateServiceSpecificCredential: activates or deactivates a key."""
    _change_key(context, params, is_active=parse_status(params["Status"]))
    return {}


def reset_service_specific_credential(context: CallContext, params: Params) -> Result:
    """ResetServiceSpecificCredential: replaces the secret. The old one is refused at once."""
    secret = new_openai_key()
    user, key = _change_key(context, params, digest=_digest(secret))
    shown = {**_describe_key(context, user, key), "ServiceCredentialSecret": secret}
    return {"ServiceSpecificCredential": shown}


def delete_service_specific_credential(context: CallContext, params: Params) -> Result:
    """DeleteServiceSpecificCredential."""
    stored, key = _find_key(context, params)
    _put_keys(context, stored, [it for it in stored.value.openai_keys if it is not key])
    return {}


def _check_service(service: str) -> None:
    if service != SERVICE:
        raise ServiceError(
            "NotSupportedService",
            f"Service {service} is not supported: keys of the OpenAI routes are for {SERVICE}.",
            404,
        )


def _digest(secret: str) -> str:
    return sha256(secret.encode()).hexdigest()


def _find_key(context: CallContext, params: Params) -> tuple[Versioned[User], OpenAiKey]:
    stored, key_id = find_user(context, params.get("UserName")), params[ID]
    for key in stored.value.openai_keys:
        if key.id == key_id:
            return stored, key
    raise no_such_entity(f"No such credential {key_id} exists")


ID = "ServiceSpecificCredentialId"


def _change_key(context: CallContext, params: Params, **changes: Any) -> tuple[User, OpenAiKey]:
    stored, key = _find_key(context, params)
    changed = replace(key, **changes)
    keys = [changed if it is key else it for it in stored.value.openai_keys]
    return _put_keys(context, stored, keys), changed


def _put_keys(context: CallContext, stored: Versioned[User], keys: Sequence[OpenAiKey]) -> User:
    user = replace(stored.value, openai_keys=tuple(keys))
    return USERS.records.put(context, user, stored)


def _describe_key(context: CallContext, user: User, key: OpenAiKey) -> Result:
    expired = key.expires_at is not None and key.expires_at <= context.now
    return {
        "CreateDate": key.created_at,
        **({} if key.expires_at is None else {"ExpirationDate": key.expires_at}),
        "ServiceName": SERVICE,
        "ServiceCredentialAlias": key.name or f"{user.name}-at-{user.account}",
        ID: key.id,
        "UserName": user.name,
        "Status": "Expired" if expired else "Active" if key.is_active else "Inactive",
    }


OPERATIONS = {
    "CreateServiceSpecificCredential": create_service_specific_credential,
    "ListServiceSpecificCredentials": list_service_specific_credentials,
    "UpdateServiceSpecificCredential": update_service_specific_credential,
    "ResetServiceSpecificCredential": reset_service_specific_credential,
    "DeleteServiceSpecificCredential": delete_service_specific_credential,
}
