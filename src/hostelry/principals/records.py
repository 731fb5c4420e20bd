"""The rows of principals, from the records of the control plane."""

from collections.abc import Iterable, Mapping
from typing import TypeVar

from hostelry.aws.sigv4 import Identity
from hostelry.domain.endpoint import EndpointPolicy
from hostelry.domain.principal import User
from hostelry.domain.role import ManagedPolicy, Role
from hostelry.domain.scope import ALL_REGIONS, Scope
from hostelry.domain.secret import KmsKey
from hostelry.principals.caller import Caller, Principals
from hostelry.principals.table import (
    KeyRow,
    KmsKeyRow,
    OpenAiKeyRow,
    PolicyRow,
    PrincipalRow,
    PrincipalTable,
    inline_key,
    principal_key,
    stamp_version,
)
from hostelry.store.records import State, Versioned

T = TypeVar("T")

TAGGED = ("endpoint/", "inference-component/")
KINDS = frozenset(
    {"account", "user", "role", "managed_policy", "tags", "endpoint_policy", "bucket", "kms_key"}
)
"""The kinds of records that a table is made of."""


def build_table(state: State, aws_policies: Iterable[ManagedPolicy]) -> PrincipalTable:
    """The table of all principals. `aws_policies` are AWS's own policies."""
    accounts = {it.value.id: it.value for it in state.accounts.list()}
    users = [it.value for it in state.users.list()]
    roles = [it.value for it in state.roles.list()]
    managed = [*aws_policies, *(it.value for it in state.managed_policies.list())]
    closed = {it.id for it in accounts.values() if it.is_closed}
    policies = {it.arn: build_policy_row(it) for it in managed}
    principals: list[User | Role] = [*users, *roles]
    for principal in principals:
        policies |= build_inline_rows(principal)
    access_keys = {
        key.id: KeyRow(account=account.id)
        for account in accounts.values()
        for key in account.access_keys
        if key.is_active
    }
    access_keys |= _user_key_rows(users)
    table = PrincipalTable(
        accounts=frozenset(accounts.keys() - closed),
        users={principal_key(it.account, it.name): build_row(it) for it in users},
        roles={principal_key(it.account, it.name): build_row(it) for it in roles},
        access_keys={key: it for key, it in access_keys.items() if it.account not in closed},
        openai_keys=_openai_rows(it for it in users if it.account not in closed),
        policies=policies,
        tags=_resource_tags(state),
        endpoint_policies=_endpoint_policies(it.value for it in state.endpoint_policies.list()),
        buckets={it.value.name: it.value.account for it in state.buckets.list()},
        kms_keys={it.value.arn: build_key_row(it.value) for it in state.kms_keys.list()},
    )
    return stamp_version(table)


def find_caller(
    state: State, aws_policies: Mapping[str, ManagedPolicy], owner: str, identity: Identity
) -> Caller:
    """The caller with verified keys, by the records of this moment.

    `owner` is the platform's first account, and `aws_policies` are AWS's own policies by ARN.
    Raises ServiceError 403 if the keys are not valid any more.
    """
    account, session = Scope(identity.account_id, ALL_REGIONS), identity.session
    user_name = identity.user or (session.user_name if session is not None else "")
    role_name = (session.role_name or session.bounded_by) if session is not None else ""
    users = _value(state.users.get(account, user_name.lower())) if user_name else []
    roles = _value(state.roles.get(account, role_name.lower())) if role_name else []
    found: list[User | Role] = [*users, *roles]
    arns = {it for row in found for it in (*row.attached_policies, row.boundary or "")}
    arns |= set(session.policy_arns if session is not None else ())
    policies = {it: build_policy_row(aws_policies[it]) for it in arns if it in aws_policies}
    for arn in arns - policies.keys() - {""}:
        stored = state.managed_policies.get(account, arn.rpartition("/")[2].lower())
        if stored is not None and stored.value.arn == arn:
            policies[arn] = build_policy_row(stored.value)
    for row in found:
        policies |= build_inline_rows(row)
    own = None if account.account == owner else state.accounts.get(account, account.account)
    table = PrincipalTable(
        accounts=frozenset({account.account} if own and not own.value.is_closed else ()),
        users={principal_key(it.account, it.name): build_row(it) for it in users},
        roles={principal_key(it.account, it.name): build_row(it) for it in roles},
        access_keys=_user_key_rows(users),
        policies=policies,
    )
    return Principals(table, owner).resolve(identity)


def build_row(principal: User | Role) -> PrincipalRow:
    """The row of a user or a role."""
    inline = (inline_key(principal.arn, name) for name in principal.inline_policies)
    return PrincipalRow(
        account=principal.account,
        name=principal.name,
        id=principal.id,
        arn=principal.arn,
        policies=(*inline, *principal.attached_policies),
        boundary=principal.boundary,
        tags=principal.tags,
    )


def build_key_row(key: KmsKey) -> KmsKeyRow:
    """The row of a KMS key."""
    return KmsKeyRow(state=key.state, policy=key.policy, is_managed=bool(key.aws_service))


def build_inline_rows(principal: User | Role) -> dict[str, PolicyRow]:
    """The inline policies of a user or a role, by `inline_key`."""
    kind = "user" if isinstance(principal, User) else "role"
    return {
        inline_key(principal.arn, name): PolicyRow(
            id=f"{kind}_{principal.name}_{name}", type=kind, document=document
        )
        for name, document in principal.inline_policies.items()
    }


def build_policy_row(policy: ManagedPolicy) -> PolicyRow:
    """The default version of a managed policy."""
    kind = "aws-managed" if policy.account == "aws" else "user-managed"
    return PolicyRow(id=policy.name, type=kind, document=policy.document)


def _value(stored: Versioned[T] | None) -> list[T]:
    return [] if stored is None else [stored.value]


def _user_key_rows(users: Iterable[User]) -> dict[str, KeyRow]:
    return {
        key.id: KeyRow(account=user.account, user=principal_key(user.account, user.name))
        for user in users
        for key in user.access_keys
        if key.is_active
    }


def _openai_rows(users: Iterable[User]) -> dict[str, OpenAiKeyRow]:
    return {
        key.digest: OpenAiKeyRow(
            account=user.account,
            user=principal_key(user.account, user.name),
            id=key.id,
            expires_at=key.expires_at,
            models=key.models,
        )
        for user in users
        for key in user.openai_keys
        if key.is_active
    }


def _resource_tags(state: State) -> dict[str, Mapping[str, str]]:
    found = (stored.value for stored in state.tags.list())
    return {it.arn: it.tags for it in found if it.arn.split(":", 5)[-1].startswith(TAGGED)}


def _endpoint_policies(policies: Iterable[EndpointPolicy]) -> dict[str, str]:
    return {it.scope.arn("endpoint", it.endpoint_name): it.document for it in policies}
