"""The operator's acts on accounts, users and keys. Each performs operations of IAM as the root."""

import string
from collections.abc import Callable
from dataclasses import fields
from typing import Annotated, Any, Literal

import msgspec
from msgspec.structs import replace

from hostelry.api.context import CallContext
from hostelry.api.iam import access_key, openai_key, user
from hostelry.api.iam.execution_role import ensure_execution_role
from hostelry.api.iam.policy import check_attachable
from hostelry.base.errors import ServiceError
from hostelry.base.ids import new_account_id, new_iam_id
from hostelry.control.audit_routes import MAX_CHARS
from hostelry.domain.principal import AccessKey, Account, OpenAiKey, User
from hostelry.domain.scope import ALL_REGIONS, Scope
from hostelry.store.records import Records, State, Versioned

Text = Annotated[str, msgspec.Meta(max_length=MAX_CHARS)]
Key = AccessKey | OpenAiKey
NAME_CHARACTERS = frozenset(string.ascii_letters + string.digits + "._-")
MAX_NAME = 64
IAM_KINDS = frozenset(
    {"account", "user", "role", "managed_policy", "instance_profile", "oidc_provider"}
)
"""The kinds of records that are deleted with their account."""


class AccountRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An act. `account` is the id or the name of an account, and empty for the first account.

    `name` is of a new account, or of a new OpenAI key. `expires_s` and `models` are of a new OpenAI
    key.
    """

    act: Literal[
        "create-account",
        "rename-account",
        "close-account",
        "open-account",
        "delete-account",
        "create-user",
        "delete-user",
        "attach-policy",
        "detach-policy",
        "create-key",
        "create-openai-key",
        "enable-key",
        "disable-key",
        "delete-key",
        "rotate-key",
    ]
    who: Text
    account: Text = ""
    user: Text = ""
    key: Text = ""
    name: Text = ""
    policy: Text = ""
    models: tuple[Text, ...] = ()
    expires_s: Annotated[float, msgspec.Meta(gt=0)] | None = None

    @property
    def target(self) -> str:
        """The thing that the act is about, for the audit log."""
        parts = (("account", self.account), ("user", self.user), ("key", self.key))
        named = [f"{word} {value}" for word, value in (*parts, ("name", self.name)) if value]
        return " ".join(named)[:MAX_CHARS]


class KeyOwner(msgspec.Struct, frozen=True, kw_only=True):
    """A key and its owner. Without a user, the owner is the root of the account."""

    key: Key
    account: str
    user: User | None = None


class AccountActs:
    """Performs acts. `first` is the platform's first account.

    `build_context` returns the context of a call of the platform itself in an account.
    """

    def __init__(
        self, state: State, first: str, build_context: Callable[[str], CallContext]
    ) -> None:
        self._state = state
        self._first = first
        self._build_context = build_context

    def perform(self, asked: AccountRequest) -> dict[str, Any]:
        """Perform an act, and return its result. Raises ServiceError if it is not allowed."""
        act: Callable[[AccountRequest], dict[str, Any]] = {
            "create-account": self._create_account,
            "rename-account": lambda it: self._change_account(it, name=self._free_name(it.name)),
            "close-account": lambda it: self._change_account(it, is_closed=True),
            "open-account": lambda it: self._change_account(it, is_closed=False),
            "delete-account": self._delete_account,
            "create-user": self._create_user,
            "delete-user": self._delete_user,
            "attach-policy": lambda it: self._change_policy(it, attach=True),
            "detach-policy": lambda it: self._change_policy(it, attach=False),
            "create-key": self._create_key,
            "create-openai-key": self._create_openai_key,
            "enable-key": lambda it: self._set_status(it, "Active"),
            "disable-key": lambda it: self._set_status(it, "Inactive"),
            "delete-key": self._delete_key,
            "rotate-key": self._rotate_key,
        }[asked.act]
        return act(asked)

    def find_target_account(self, asked: AccountRequest) -> str:
        """The id of the account that an act is about, or empty if it does not exist yet."""
        try:
            if asked.key:
                return self.find_key(asked.key).account
            return self.find_account(asked.account)
        except ServiceError:
            return ""

    def find_account(self, account: str) -> str:
        """The id of the account with this id or name, or of the first account if it is empty."""
        if account in ("", self._first):
            return self._first
        return self._find_record(account).value.id

    def _find_record(self, account: str) -> Versioned[Account]:
        if account in ("", self._first):
            raise _refuse(
                f"{self._first} is the platform's first account: its key is in the home, and it"
                " cannot be changed."
            )
        wanted = account.lower()
        for stored in self._state.accounts.list():
            if wanted in (stored.value.id, stored.value.name.lower()):
                return stored
        raise _not_found(f"There is no account {account}. `hostelry accounts list` shows all.")

    def _free_name(self, name: str) -> str:
        """The name of an account, which no other account has."""
        if not name or len(name) > MAX_NAME or not set(name) <= NAME_CHARACTERS or _is_id(name):
            raise _refuse(
                f"{name!r} is not a name for an account: 1 to {MAX_NAME} letters, digits, dots,"
                " dashes and underscores, and not an account id.",
                400,
            )
        for stored in self._state.accounts.list():
            if stored.value.name.lower() == name.lower():
                raise _refuse(f"Account {stored.value.id} already has the name {name}.")
        return name

    def _create_account(self, asked: AccountRequest) -> dict[str, Any]:
        account = asked.account or new_account_id()
        if not _is_id(account):
            raise _refuse(f"{account} is not an account id of 12 digits.", 400)
        scope = Scope(account, ALL_REGIONS)
        if account == self._first or self._state.accounts.get(scope, account) is not None:
            raise _refuse(f"There is an account {account} already.")
        context = self._build_context(account)
        if context.foreign_s3:
            raise _refuse(
                f"The platform uses the object store {context.foreign_s3}, which does not know"
                " accounts: their objects could not be kept apart. Start it without --s3-endpoint."
            )
        record = Account(id=account, name=self._free_name(asked.name), created_at=context.now)
        self._state.accounts.put(scope, account, record, expect=None)
        role_id = new_iam_id("AROA")
        ensure_execution_role(self._state, scope, context.role_name, context.now, role_id)
        return {"account": account, "name": record.name, **self._make_key(context, None)}

    def _change_account(self, asked: AccountRequest, **changes: Any) -> dict[str, Any]:
        stored = self._find_record(asked.account)
        changed = replace(stored.value, **changes)
        scope = Scope(changed.id, ALL_REGIONS)
        self._state.accounts.put(scope, changed.id, changed, expect=stored.version)
        return {"account": changed.id, "name": changed.name, "is_closed": changed.is_closed}

    def _delete_account(self, asked: AccountRequest) -> dict[str, Any]:
        """Delete a closed account that has no resources, with its users, roles and policies."""
        record = self._find_record(asked.account).value
        if not record.is_closed:
            raise _refuse(f"Account {record.id} ({record.name}) is open: close it first.")
        state = self._state
        values = (getattr(state, it.name) for it in fields(state))
        kinds = [it for it in values if isinstance(it, Records)]
        counts = {it.kind: _count_records(state, it.kind, record.id) for it in kinds}
        held = [f"{n} {kind}" for kind, n in counts.items() if n and kind not in IAM_KINDS]
        buckets = [it.value for it in state.buckets.list()]
        held += [f"bucket {it.name}" for it in buckets if it.account == record.id]
        if held:
            raise _refuse(
                f"Account {record.id} ({record.name}) still has {', '.join(held[:20])}. Open it,"
                " delete them, and close it again."
            )
        scope = Scope(record.id, ALL_REGIONS)
        gone = [it for it in kinds if it.kind in IAM_KINDS]
        state.store.write_all(
            [
                kind.write(scope, stored.key.name, None, expect=stored.version)
                for kind in gone
                for stored in state.store.list(kind.kind, scope)
            ]
        )
        return {"account": record.id, "name": record.name}

    def _create_user(self, asked: AccountRequest) -> dict[str, Any]:
        context = self._open(asked)
        if asked.policy:
            check_attachable(context, _find_policy_arn(context, asked.policy))
        user.create_user(context, {"UserName": asked.user})
        if asked.policy:
            self._change_policy(asked, attach=True)
        return {"account": context.scope.account, "user": asked.user}

    def _delete_user(self, asked: AccountRequest) -> dict[str, Any]:
        """Delete a user with its keys and policies."""
        context = self._open(asked)
        stored = user.USERS.find(context, asked.user)
        user.USERS.records.delete(context, stored)
        return {"account": context.scope.account, "user": stored.value.name}

    def _change_policy(self, asked: AccountRequest, *, attach: bool) -> dict[str, Any]:
        context = self._open(asked)
        change = user.USERS.attach_policy if attach else user.USERS.detach_policy
        arn = _find_policy_arn(context, asked.policy)
        change(context, {"UserName": asked.user, "PolicyArn": arn})
        return {"account": context.scope.account, "user": asked.user, "policy": arn}

    def _create_key(self, asked: AccountRequest) -> dict[str, Any]:
        return self._make_key(self._open(asked), asked.user or None)

    def _make_key(self, context: CallContext, user_name: str | None) -> dict[str, Any]:
        params = {} if user_name is None else {"UserName": user_name}
        made = access_key.create_access_key(context, params)["AccessKey"]
        return {
            "account": context.scope.account,
            "user": user_name or "",
            "key": made["AccessKeyId"],
            "secret": made["SecretAccessKey"],
        }

    def _create_openai_key(self, asked: AccountRequest) -> dict[str, Any]:
        if not asked.user:
            raise _refuse("An OpenAI key is of a user: name the user.", 400)
        context = self._open(asked)
        expires_at = None if asked.expires_s is None else context.now + asked.expires_s
        return self._make_openai_key(context, asked.user, expires_at, asked.models, asked.name)

    def _make_openai_key(
        self,
        context: CallContext,
        user_name: str,
        expires_at: float | None,
        models: tuple[str, ...],
        name: str,
    ) -> dict[str, Any]:
        made = openai_key.make_openai_key(context, user_name, expires_at, models, name)
        return {
            "account": context.scope.account,
            "user": user_name,
            "key": made[openai_key.ID],
            "secret": made["ServiceCredentialSecret"],
        }

    def _set_status(self, asked: AccountRequest, status: str) -> dict[str, Any]:
        owner = self.find_key(asked.key)
        context, params = self._build_context(owner.account), {**_name_key(owner), "Status": status}
        if isinstance(owner.key, OpenAiKey):
            openai_key.update_service_specific_credential(context, params)
        else:
            access_key.update_access_key(context, params)
        return _describe_owner(owner)

    def _delete_key(self, asked: AccountRequest) -> dict[str, Any]:
        owner = self.find_key(asked.key)
        context, params = self._build_context(owner.account), _name_key(owner)
        if isinstance(owner.key, OpenAiKey):
            openai_key.delete_service_specific_credential(context, params)
        else:
            access_key.delete_access_key(context, params)
        return _describe_owner(owner)

    def _rotate_key(self, asked: AccountRequest) -> dict[str, Any]:
        """Make another key like a key, which stays active."""
        owner = self.find_key(asked.key)
        context, old = self._build_context(owner.account), owner.key
        if owner.user is None or isinstance(old, AccessKey):
            return self._make_key(context, None if owner.user is None else owner.user.name)
        lifetime_s = None if old.expires_at is None else old.expires_at - old.created_at
        expires_at = None if lifetime_s is None else context.now + lifetime_s
        return self._make_openai_key(context, owner.user.name, expires_at, old.models, old.name)

    def find_key(self, key_id: str) -> KeyOwner:
        """The key with an id, and its owner. Raises ServiceError 404."""
        for account in (it.value for it in self._state.accounts.list()):
            for key in account.access_keys:
                if key.id == key_id:
                    return KeyOwner(key=key, account=account.id)
        for one in (it.value for it in self._state.users.list()):
            own: list[Key] = [*one.access_keys, *one.openai_keys]
            for held in own:
                if held.id == key_id:
                    return KeyOwner(key=held, account=one.account, user=one)
        raise _not_found(f"There is no key {key_id}. `hostelry keys list` shows the ids of all.")

    def _open(self, asked: AccountRequest) -> CallContext:
        """The context of a call in the account of an act."""
        return self._build_context(self.find_account(asked.account))

    def list_accounts(self, now: float) -> list[dict[str, Any]]:
        """Every account with its users and keys, the first account first."""
        users: dict[str, list[User]] = {}
        for one in (it.value for it in self._state.users.list()):
            users.setdefault(one.account, []).append(one)
        records = sorted((it.value for it in self._state.accounts.list()), key=lambda it: it.name)
        rows: list[dict[str, Any]] = [{"id": self._first, "name": "", "is_first": True}]
        rows += [
            {
                "id": record.id,
                "name": record.name,
                "created_at": record.created_at,
                "is_closed": record.is_closed,
                "keys": [describe_key(key, now) for key in record.access_keys],
            }
            for record in records
        ]
        for row in rows:
            row["users"] = [_describe_user(it, now) for it in users.get(row["id"], ())]
        return rows


def _find_policy_arn(context: CallContext, policy: str) -> str:
    """The ARN of a policy with an ARN or a name: of the account's own policy, or else of AWS's."""
    if policy.startswith("arn:"):
        return policy
    own = context.state.managed_policies.get(context.scope.account_wide, policy.lower())
    return own.value.arn if own else f"arn:aws:iam::aws:policy/{policy}"


def describe_key(key: Key, now: float) -> dict[str, Any]:
    """A key without its secret."""
    shown = {"id": key.id, "created_at": key.created_at, "is_active": key.is_active}
    if isinstance(key, AccessKey):
        return {"kind": "access", **shown}
    expired = key.expires_at is not None and key.expires_at <= now
    more = {"name": key.name, "models": list(key.models), "expires_at": key.expires_at}
    return {"kind": "openai", **shown, **more, "is_expired": expired}


def _describe_user(one: User, now: float) -> dict[str, Any]:
    own: list[Key] = [*one.access_keys, *one.openai_keys]
    return {
        "name": one.name,
        "arn": one.arn,
        "created_at": one.created_at,
        "policies": [*one.attached_policies, *one.inline_policies],
        "boundary": one.boundary,
        "keys": [describe_key(key, now) for key in own],
    }


def _name_key(owner: KeyOwner) -> dict[str, Any]:
    """The parameters by which IAM's operations name a key."""
    member = openai_key.ID if isinstance(owner.key, OpenAiKey) else "AccessKeyId"
    named = {member: owner.key.id}
    return named if owner.user is None else {**named, "UserName": owner.user.name}


def _describe_owner(owner: KeyOwner) -> dict[str, Any]:
    name = "" if owner.user is None else owner.user.name
    return {"account": owner.account, "user": name, "key": owner.key.id}


def _is_id(text: str) -> bool:
    return len(text) == 12 and text.isascii() and text.isdigit()


def _count_records(state: State, kind: str, account: str) -> int:
    return sum(record.key.scope.account == account for record in state.store.list(kind))


def _refuse(message: str, status: int = 409) -> ServiceError:
    return ServiceError("Refused", message, status)


def _not_found(message: str) -> ServiceError:
    return ServiceError("NotFound", message, 404)
