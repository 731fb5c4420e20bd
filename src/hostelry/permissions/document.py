"""Policy documents: JSON text -> statements, or the error in AWS's words."""

from collections.abc import Mapping
from enum import Enum
from typing import Any

import msgspec

from hostelry.permissions.condition import PolicyCondition, build_condition

VERSIONS = ("2012-10-17", "2008-10-17")
SYNTAX = "Syntax errors in policy."
MEMBERS = frozenset(
    {
        "Sid", "Effect", "Action", "NotAction", "Resource", "NotResource", "Principal",
        "NotPrincipal", "Condition",
    }
)  # fmt: skip
PRINCIPAL_TYPES = frozenset({"AWS", "Service", "Federated", "CanonicalUser"})
TRUST_ACTIONS = frozenset(
    {
        "sts:assumerole", "sts:assumerolewithsaml", "sts:assumerolewithwebidentity",
        "sts:tagsession", "sts:setsourceidentity", "sts:setcontext", "sts:*",
    }
)  # fmt: skip


class DocumentKind(Enum):
    """What a document is for: a policy of an identity, or the trust policy of a role."""

    IDENTITY = "identity"
    TRUST = "trust"


class MalformedDocument(ValueError):  # noqa: N818 - AWS's own word
    """The document is invalid. The text says why."""


class PolicyStatement(msgspec.Struct, frozen=True, kw_only=True):
    """One statement. `principals` are (type, name), as ``("Service", "sagemaker.amazonaws.com")``.

    Of each pair (`actions`, `not_actions` and so on) one is empty.
    """

    sid: str
    allows: bool
    actions: tuple[str, ...] = ()
    not_actions: tuple[str, ...] = ()
    resources: tuple[str, ...] = ()
    not_resources: tuple[str, ...] = ()
    principals: tuple[tuple[str, str], ...] = ()
    not_principals: tuple[tuple[str, str], ...] = ()
    conditions: tuple[PolicyCondition, ...] = ()


def parse_statements(text: str, kind: DocumentKind) -> tuple[PolicyStatement, ...]:
    """The statements of a document. Raises MalformedDocument."""
    invalid = SYNTAX if kind is DocumentKind.IDENTITY else "This policy contains invalid Json"
    try:
        document = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError, UnicodeError):
        raise MalformedDocument(invalid) from None
    if not isinstance(document, dict):
        raise MalformedDocument(SYNTAX)
    _check_head(document, kind)
    given = document.get("Statement")
    listed = given if isinstance(given, list) else [given]
    if not listed:
        raise MalformedDocument(SYNTAX)
    statements = tuple(_statement(it, kind) for it in listed)
    named = [it.sid for it in statements if it.sid]
    if len(named) != len(set(named)):
        raise MalformedDocument("Statement IDs (SID) in a single policy must be unique.")
    return statements


def _check_head(document: Mapping[str, Any], kind: DocumentKind) -> None:
    if set(document) - {"Version", "Id", "Statement"} or "Statement" not in document:
        raise MalformedDocument(SYNTAX)
    version = document.get("Version", VERSIONS[1])
    if version not in VERSIONS:
        raise MalformedDocument(SYNTAX)
    if kind is DocumentKind.IDENTITY and version != VERSIONS[0]:
        raise MalformedDocument("Policy document must be version 2012-10-17 or greater.")
    if not isinstance(document.get("Id", ""), str):
        raise MalformedDocument(SYNTAX)


def _statement(given: Any, kind: DocumentKind) -> PolicyStatement:
    if not isinstance(given, dict) or set(given) - MEMBERS:
        raise MalformedDocument(SYNTAX)
    sid, effect = given.get("Sid", ""), given.get("Effect")
    if not isinstance(sid, str) or effect not in ("Allow", "Deny"):
        raise MalformedDocument(SYNTAX)
    for name in ("Action", "Resource", "Principal"):
        if name in given and "Not" + name in given:
            raise MalformedDocument(SYNTAX)
    statement = PolicyStatement(
        sid=sid,
        allows=effect == "Allow",
        actions=_texts(given, "Action"),
        not_actions=_texts(given, "NotAction"),
        resources=_texts(given, "Resource"),
        not_resources=_texts(given, "NotResource"),
        principals=_principals(given.get("Principal")),
        not_principals=_principals(given.get("NotPrincipal")),
        conditions=_conditions(given.get("Condition")),
    )
    if not (statement.actions or statement.not_actions):
        raise MalformedDocument("Policy statement must contain actions.")
    for action in (*statement.actions, *statement.not_actions):
        _check_action(action)
    (_check_trust if kind is DocumentKind.TRUST else _check_identity)(given, statement)
    return statement


def _check_identity(given: Mapping[str, Any], statement: PolicyStatement) -> None:
    if "Principal" in given or "NotPrincipal" in given:
        raise MalformedDocument("Policy document should not specify a principal.")
    resources = (*statement.resources, *statement.not_resources)
    if not resources:
        raise MalformedDocument("Policy statement must contain resources.")
    for resource in resources:
        if resource != "*" and not _is_arn(resource):
            raise MalformedDocument(f'Resource {resource:.200} must be in ARN format or "*".')


def _check_trust(given: Mapping[str, Any], statement: PolicyStatement) -> None:
    if "Resource" in given or "NotResource" in given:
        raise MalformedDocument("Has prohibited field Resource")
    if not (statement.principals or statement.not_principals):
        raise MalformedDocument("Missing required field Principal")
    if any(it.lower() not in TRUST_ACTIONS for it in statement.actions):
        raise MalformedDocument("AssumeRole policy may only specify STS AssumeRole actions.")


def _check_action(action: str) -> None:
    if action == "*":
        return
    vendor, colon, name = action.partition(":")
    if not colon or not vendor or not name:
        raise MalformedDocument(
            "Actions/Conditions must be prefaced by a vendor, e.g., iam, sdb, ec2, etc."
        )
    if ":" in name:
        raise MalformedDocument("Actions/Condition can contain only one colon.")


def _is_arn(text: str) -> bool:
    parts = text.split(":", 5)
    return text.startswith("arn:") and (len(parts) == 6 or "*" in text)


def _texts(given: Mapping[str, Any], name: str) -> tuple[str, ...]:
    """A text, or a list of texts."""
    value = given.get(name, [])
    listed = value if isinstance(value, list) else [value]
    if not all(isinstance(it, str) for it in listed):
        raise MalformedDocument(SYNTAX)
    return tuple(listed)


def _principals(given: Any) -> tuple[tuple[str, str], ...]:
    if given is None:
        return ()
    if given == "*":
        return (("AWS", "*"),)
    if not isinstance(given, dict) or not given or set(given) - PRINCIPAL_TYPES:
        raise MalformedDocument(SYNTAX)
    return tuple((kind, name) for kind in given for name in _texts(given, kind))


def _conditions(given: Any) -> tuple[PolicyCondition, ...]:
    if given is None:
        return ()
    if not isinstance(given, dict):
        raise MalformedDocument(SYNTAX)
    found = []
    for operator, keys in given.items():
        if not isinstance(keys, dict):
            raise MalformedDocument(SYNTAX)
        for key, wanted in keys.items():
            condition = build_condition(operator, key, _values(wanted))
            if condition is None:
                raise MalformedDocument(SYNTAX)
            found.append(condition)
    return tuple(found)


def _values(wanted: Any) -> list[str]:
    """Values of a condition as texts: numbers and truth values may be written bare."""
    listed = wanted if isinstance(wanted, list) else [wanted]
    if not all(isinstance(it, str | int | float | bool) for it in listed):
        raise MalformedDocument(SYNTAX)
    return [str(it).lower() if isinstance(it, bool) else str(it) for it in listed]
