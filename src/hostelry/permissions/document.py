"""Policy documents: JSON text -> statements, or the error in AWS's words."""

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any

import msgspec

from hostelry.permissions.condition import PolicyCondition, build_condition
from hostelry.permissions.statement import (
    PolicyStatement,
    PrincipalSet,
    compile_actions,
    compile_resources,
    list_keys,
)

VERSIONS = ("2012-10-17", "2008-10-17")
ACCOUNT_DIGITS, ID_CHARACTERS = 12, 16
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
    """What a document is for: a policy of an identity, of a resource, or a role's trust policy."""

    IDENTITY = "identity"
    TRUST = "trust"
    RESOURCE = "resource"


class MalformedDocument(ValueError):  # noqa: N818 - AWS's own word
    """The document is invalid. The text says why."""


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
    # Documents of the first version have no variables.
    variables = document.get("Version") == VERSIONS[0]
    statements = tuple(_statement(it, kind, variables) for it in listed)
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


def _statement(given: Any, kind: DocumentKind, variables: bool) -> PolicyStatement:
    if not isinstance(given, dict) or set(given) - MEMBERS:
        raise MalformedDocument(SYNTAX)
    sid, effect = given.get("Sid", ""), given.get("Effect")
    if not isinstance(sid, str) or effect not in ("Allow", "Deny"):
        raise MalformedDocument(SYNTAX)
    actions, excludes_actions = _read_either(given, "Action")
    resources, excludes_resources = _read_either(given, "Resource")
    principals = _read_principals(given)
    conditions = _conditions(given.get("Condition"), variables)
    if not actions:
        raise MalformedDocument("Policy statement must contain actions.")
    for action in actions:
        _check_action(action)
    CHECKS[kind](given, actions if not excludes_actions else (), resources, principals)
    compiled = (
        compile_resources(resources, excludes=excludes_resources, variables=variables)
        if resources
        else None
    )
    return PolicyStatement(
        sid=sid,
        allows=effect == "Allow",
        actions=compile_actions(actions, excludes=excludes_actions),
        resources=compiled,
        principals=principals,
        conditions=conditions,
        keys=list_keys(compiled, conditions),
    )


def _read_either(given: Mapping[str, Any], name: str) -> tuple[tuple[str, ...], bool]:
    """The texts of a member or of its Not... form, and whether it is the latter."""
    other = "Not" + name
    if name in given and other in given:
        raise MalformedDocument(SYNTAX)
    return (_texts(given, other), True) if other in given else (_texts(given, name), False)


def _read_principals(given: Mapping[str, Any]) -> PrincipalSet | None:
    if "Principal" in given and "NotPrincipal" in given:
        raise MalformedDocument(SYNTAX)
    excludes = "NotPrincipal" in given
    named = _principals(given.get("NotPrincipal" if excludes else "Principal"))
    return (
        PrincipalSet(frozenset(f"{it}:{name}" for it, name in named), excludes) if named else None
    )


def _check_identity(
    given: Mapping[str, Any],
    actions: Sequence[str],
    resources: Sequence[str],
    principals: PrincipalSet | None,
) -> None:
    if "Principal" in given or "NotPrincipal" in given:
        raise MalformedDocument("Policy document should not specify a principal.")
    if not resources:
        raise MalformedDocument("Policy statement must contain resources.")
    _check_resources(resources)


def _check_resource(
    given: Mapping[str, Any],
    actions: Sequence[str],
    resources: Sequence[str],
    principals: PrincipalSet | None,
) -> None:
    if principals is None:
        raise MalformedDocument("Missing required field Principal")
    _check_resources(resources)
    for name in principals.names:
        kind, _, text = name.partition(":")
        if text != "*" and ("*" in text or "?" in text or (kind == "AWS" and not _is_known(text))):
            raise MalformedDocument(f'Invalid principal in policy: "{kind}":"{text:.200}"')


def _check_resources(resources: Sequence[str]) -> None:
    for resource in resources:
        if resource != "*" and not _is_arn(resource):
            raise MalformedDocument(f'Resource {resource:.200} must be in ARN format or "*".')
        if any("${" in it for it in resource.split(":", 5)[:5]):
            raise MalformedDocument(
                f"Resource {resource:.200} must have policy variables after its fifth colon only."
            )


def _check_trust(
    given: Mapping[str, Any],
    actions: Sequence[str],
    resources: Sequence[str],
    principals: PrincipalSet | None,
) -> None:
    if "Resource" in given or "NotResource" in given:
        raise MalformedDocument("Has prohibited field Resource")
    if principals is None:
        raise MalformedDocument("Missing required field Principal")
    if any(it.lower() not in TRUST_ACTIONS for it in actions):
        raise MalformedDocument("AssumeRole policy may only specify STS AssumeRole actions.")


CHECKS = {
    DocumentKind.IDENTITY: _check_identity,
    DocumentKind.RESOURCE: _check_resource,
    DocumentKind.TRUST: _check_trust,
}


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


def _is_known(principal: str) -> bool:
    """Whether a principal of the type AWS has a known form: an account, an ARN or a unique id."""
    is_account = principal.isdecimal() and len(principal) == ACCOUNT_DIGITS
    is_id = principal.isalnum() and principal.isupper() and len(principal) >= ID_CHARACTERS
    return is_account or is_id or (principal.startswith("arn:") and len(principal.split(":")) == 6)


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


def _conditions(given: Any, variables: bool) -> tuple[PolicyCondition, ...]:
    if given is None:
        return ()
    if not isinstance(given, dict):
        raise MalformedDocument(SYNTAX)
    found = []
    for operator, keys in given.items():
        if not isinstance(keys, dict):
            raise MalformedDocument(SYNTAX)
        for key, wanted in keys.items():
            condition = build_condition(operator, key, _values(wanted), variables=variables)
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
