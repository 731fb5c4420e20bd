"""Permanent access keys of users, and of the roots of accounts besides the platform's first one.

The secret is derived from the id, so it is not stored. Only the answer to CreateAccessKey shows it.
"""

from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from hostelry.api.context import CallContext, Params, Result
from hostelry.api.iam.answers import (
    build_page,
    invalid_input,
    limit_exceeded,
    no_such_entity,
    validation_failed,
)
from hostelry.api.iam.user import ROOT, USERS, find_user, is_root
from hostelry.api.record_kind import RecordKind
from hostelry.audit.chain import TrailLine
from hostelry.audit.lookup import TrailFilter
from hostelry.base.ids import new_access_key_id
from hostelry.domain.principal import MAX_ACCESS_KEYS, AccessKey, Account, User
from hostelry.store.records import Versioned

Owner = Versioned[User] | Versioned[Account]
SEARCH_S = 1.0  # of computing, for the last use of a key
STATUSES = {"Active": True, "Inactive": False}
ACCOUNTS = RecordKind[Account](
    records=lambda state: state.accounts,
    not_found=lambda _, account: no_such_entity(f"The account {account} cannot be found."),
    record_name=lambda account: account.id,
    is_account_wide=True,
)


def create_access_key(context: CallContext, params: Params) -> Result:
    """CreateAccessKey. Raises LimitExceeded for a third key."""
    owner = _find_owner(context, params)
    keys = owner.value.access_keys
    if len(keys) >= MAX_ACCESS_KEYS:
        raise limit_exceeded(f"Cannot exceed quota for AccessKeysPerUser: {MAX_ACCESS_KEYS}")
    key = AccessKey(id=new_access_key_id(context.scope.account), created_at=context.now)
    secret = context.derive_secret(key.id)
    _put_keys(context, owner, (*keys, key))
    return {"AccessKey": {**_describe_key(owner, key), "SecretAccessKey": secret}}


def list_access_keys(context: CallContext, params: Params) -> Result:
    """ListAccessKeys, without their secrets."""
    owner = _find_owner(context, params)
    rows = [(it.id, _describe_key(owner, it)) for it in owner.value.access_keys]
    page, members = build_page(params, rows)
    return {"AccessKeyMetadata": page, **members}


def update_access_key(context: CallContext, params: Params) -> Result:
    """UpdateAccessKey: activates or deactivates a key."""
    is_active = parse_status(params["Status"])
    _change_key(context, params, is_active=is_active)
    return {}


def delete_access_key(context: CallContext, params: Params) -> Result:
    """DeleteAccessKey."""
    _change_key(context, params)
    return {}


def get_access_key_last_used(context: CallContext, params: Params) -> Result:
    """GetAccessKeyLastUsed: the newest record of the key in the audit trail, or N/A without one.

    A call examines the newest records only. Of invocations the trail has those that it is to have.
    """
    key_id = params["AccessKeyId"]
    named = [(it.name, it.access_keys) for it in USERS.records.values(context)]
    named += [(ROOT, it.access_keys) for it in ACCOUNTS.values(context)]
    for name, keys in named:
        if any(it.id == key_id for it in keys):
            return {"UserName": name, "AccessKeyLastUsed": _find_last_use(context, key_id)}
    raise _not_found(key_id)


def _find_last_use(context: CallContext, key_id: str) -> Result:
    wanted = TrailFilter(account=context.scope.account, attribute="AccessKeyId", value=key_id)
    if context.trail is None:
        lines: tuple[TrailLine, ...] = ()
    else:
        page = context.trail.find(wanted, 1, None, lambda: context.worked_s() > SEARCH_S)
        lines = page.lines
    if not lines:
        return {"ServiceName": "N/A", "Region": "N/A"}
    service = lines[0].source.removesuffix(".amazonaws.com")
    return {"LastUsedDate": lines[0].at, "ServiceName": service, "Region": lines[0].region}


def parse_status(status: str) -> bool:
    """True if a key is to be active. Raises InvalidInput for a status that cannot be set."""
    if status not in STATUSES:
        raise invalid_input(f"Status {status} cannot be set: use Active or Inactive.")
    return STATUSES[status]


def _find_owner(context: CallContext, params: Params) -> Owner:
    """The named user, or else the caller: a user, or the root of the account."""
    name, account = params.get("UserName"), context.scope.account
    if name is not None or not is_root(context):
        return find_user(context, name)
    if account == context.first_account:
        raise validation_failed(
            f"The root of account {account} has its key in the platform's home"
            " (credentials.json). Name a user by UserName."
        )
    return ACCOUNTS.find(context, account)


def _change_key(context: CallContext, params: Params, **changes: Any) -> None:
    """Change a key of the owner, or delete it if there are no `changes`."""
    owner, key_id = _find_owner(context, params), params["AccessKeyId"]
    keys = owner.value.access_keys
    if all(it.id != key_id for it in keys):
        raise _not_found(key_id)
    changed = [replace(it, **changes) if it.id == key_id else it for it in keys]
    _put_keys(context, owner, [it for it in changed if changes or it.id != key_id])


def _put_keys(context: CallContext, owner: Owner, keys: Sequence[AccessKey]) -> None:
    value = replace(owner.value, access_keys=tuple(keys))
    if isinstance(value, User):
        USERS.records.put(context, value, owner)
    else:
        ACCOUNTS.put(context, value, owner)


def _not_found(key_id: str) -> Exception:
    return no_such_entity(f"The Access Key with id {key_id} cannot be found.")


def _describe_key(owner: Owner, key: AccessKey) -> Result:
    return {
        "UserName": owner.value.name if isinstance(owner.value, User) else ROOT,
        "AccessKeyId": key.id,
        "Status": "Active" if key.is_active else "Inactive",
        "CreateDate": key.created_at,
    }


OPERATIONS = {
    "CreateAccessKey": create_access_key,
    "ListAccessKeys": list_access_keys,
    "UpdateAccessKey": update_access_key,
    "DeleteAccessKey": delete_access_key,
    "GetAccessKeyLastUsed": get_access_key_last_used,
}
