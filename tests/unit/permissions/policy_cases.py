"""The cases of policy_cases.toml: policies, a caller, a call, and the decision AWS documents."""

import json
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

FILE = Path(__file__).with_name("policy_cases.toml")
ACCOUNT, OTHER_ACCOUNT = "111122223333", "444455556666"
Values = Mapping[str, tuple[str, ...]]


class Caller(msgspec.Struct, frozen=True, kw_only=True):
    """Who calls: the account, its names as a policy's Principal has them, and keys it brings."""

    account: str
    names: tuple[str, ...]
    context: Mapping[str, str]
    is_root: bool = False


class PolicyCase(msgspec.Struct, frozen=True, kw_only=True):
    """One call. Documents are JSON texts. The keys of `context` are in lower case."""

    name: str
    source: str
    caller: Caller
    identity: tuple[str, ...]
    boundary: tuple[str, ...] | None
    session: tuple[str, ...] | None
    resource_policy: str | None
    owner: str
    is_decisive: bool
    action: str
    resource: str
    expected: str
    context: Values


def _user(account: str, name: str) -> Caller:
    arn = f"arn:aws:iam::{account}:user/{name}"
    context = {"aws:username": name, "aws:userid": f"AIDA{name.upper()}", "aws:PrincipalArn": arn}
    return _build_caller(account, (arn,), "User", context)


def _session(account: str, role: str, session: str) -> Caller:
    arn = f"arn:aws:iam::{account}:role/{role}"
    names = (arn, f"arn:aws:sts::{account}:assumed-role/{role}/{session}")
    context = {
        "aws:userid": f"AROA{role.upper()}:{session}",
        "aws:PrincipalArn": arn,
        "aws:TokenIssueTime": "2026-01-02T03:04:05Z",
    }
    return _build_caller(account, names, "AssumedRole", context)


def _build_caller(
    account: str, arns: tuple[str, ...], kind: str, context: Mapping[str, str]
) -> Caller:
    return Caller(
        account=account,
        names=tuple(f"AWS:{it}" for it in arns),
        context={"aws:PrincipalAccount": account, "aws:PrincipalType": kind, **context},
        is_root=kind == "Account",
    )


ROOT_ARN = f"arn:aws:iam::{ACCOUNT}:root"
CALLERS: Mapping[str, Caller] = {
    "user": _user(ACCOUNT, "alice"),
    "role": _session(ACCOUNT, "worker", "job-1"),
    "root": _build_caller(ACCOUNT, (ROOT_ARN,), "Account", {"aws:PrincipalArn": ROOT_ARN}),
    "stranger": _user(OTHER_ACCOUNT, "bob"),
    "visitor": _session(OTHER_ACCOUNT, "visitor", "night"),
    # A service has no account. It is held to the policies of the resource's account.
    "service": Caller(
        account=ACCOUNT,
        names=("Service:sagemaker.amazonaws.com",),
        context={"aws:PrincipalServiceName": "sagemaker.amazonaws.com"},
    ),
}


def load_policy_cases() -> list[PolicyCase]:
    """All cases, in the order of the file."""
    document = tomllib.loads(FILE.read_text())
    return [it for group in document["group"] for it in _list_cases(group, document["sources"])]


def _list_cases(group: Mapping[str, Any], sources: Mapping[str, str]) -> Iterator[PolicyCase]:
    guide, _, page = group["source"].partition("/")
    caller = CALLERS[group.get("caller", "user")]
    for name, action, resource, expected, *context in group["calls"]:
        given = {**caller.context, **(context[0] if context else {})}
        by_key = {key.lower(): value for key, value in given.items()}
        yield PolicyCase(
            name=f"{group['title']}: {name}",
            source=sources[guide] + page,
            caller=caller,
            identity=_read_documents(group.get("identity", ())) or (),
            boundary=_read_documents(group.get("boundary")),
            session=_read_documents(group.get("session")),
            resource_policy=write_document(group["resource_policy"])
            if "resource_policy" in group
            else None,
            owner=group.get("owner", caller.account),
            is_decisive=group.get("is_decisive", False),
            action=action,
            resource=resource,
            expected=expected,
            context={
                key: (value,) if isinstance(value, str) else tuple(value)
                for key, value in by_key.items()
            },
        )


def _read_documents(given: list[str] | None) -> tuple[str, ...] | None:
    return None if given is None else tuple(map(write_document, given))


def write_document(statements: str) -> str:
    """The document with the statements of a JSON text: one, or a list."""
    return json.dumps({"Version": "2012-10-17", "Statement": json.loads(statements)})
