"""A second evaluator of IAM policies, to compare `hostelry.permissions` with.

It is written from AWS's documentation, works on documents as JSON values, and shares no code with
the package. Wildcards become regular expressions, and nothing is compiled or kept.
"""

import base64
import binascii
import ipaddress
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

Document = Mapping[str, Any]
Case = Mapping[str, Any]
NO_MATCH = "(?!)"
DATE_FORMS = ("%Y-%m-%dT%H:%M:%S%z", "%Y-%m-%dT%H:%M%z", "%Y-%m-%d", "%Y-%m", "%Y")


def judge(case: Case) -> str:
    """The decision on a call, in the words of SimulateCustomPolicy.

    A case has identity, boundary, session (lists of documents or None), resource_policy, owner,
    is_decisive, is_root, account, names (ARNs of the caller, a session's last, or a service's
    name), action, resource and context.
    """
    root = case["is_root"]
    identity = [] if root else _effects(case["identity"], case)
    boundary = None if root or case["boundary"] is None else _effects(case["boundary"], case)
    session = None if case["session"] is None else _effects(case["session"], case)
    owned = _owned_effects(case)
    if "Deny" in [*identity, *(boundary or ()), *(session or ()), *(it for it, _ in owned)]:
        return "explicitDeny"
    granted = root or "Allow" in identity
    within = all("Allow" in it for it in (boundary, session) if it is not None)
    kinds = {_kind_of_grant(principal, case) for _, principal in owned}
    if case["owner"] != case["account"]:
        allowed = granted and within and bool(kinds)
    elif "direct" in kinds:
        allowed = True
    elif case["is_decisive"]:
        allowed = within and ("role" in kinds or ("account" in kinds and granted))
    else:
        allowed = within and (granted or "role" in kinds)
    return "allowed" if allowed else "implicitDeny"


def _effects(documents: Iterable[Document], case: Case) -> list[str]:
    """The effects of the statements that apply."""
    return [
        statement["Effect"]
        for document in documents
        for statement in _as_list(document["Statement"])
        if _applies(statement, document, case)
    ]


def _owned_effects(case: Case) -> list[tuple[str, Any]]:
    """Effects of the resource's policy, each with a principal by which it is about the caller."""
    document = case["resource_policy"]
    found = []
    for statement in _as_list(document["Statement"]) if document else ():
        if not _applies(statement, document, case):
            continue
        if "NotPrincipal" in statement:
            if not _is_excepted(statement, case):
                found.append((statement["Effect"], "*"))
            continue
        found += [(statement["Effect"], it) for it in _listed(statement["Principal"], case)]
    return found


def _principals(element: Any) -> list[str]:
    if element == "*":
        return ["*"]
    return [it for value in element.values() for it in _as_list(value)]


def _account_names(case: Case) -> set[str]:
    return {case["account"], f"arn:aws:iam::{case['account']}:root"}


def _listed(element: Any, case: Case) -> list[str]:
    known = {"*", *case["names"], *_account_names(case)}
    return [it for it in _principals(element) if it in known]


def _is_excepted(statement: Document, case: Case) -> bool:
    """Whether NotPrincipal excepts the caller: for a deny, at each level of its identity."""
    listed = set(_principals(statement["NotPrincipal"]))
    if "*" in listed:
        return True
    accounts = _account_names(case)
    own = set(case["names"]) - accounts
    if statement["Effect"] == "Allow":
        return bool(listed & (own | accounts))
    return own <= listed and bool(listed & accounts)


def _kind_of_grant(principal: str, case: Case) -> str:
    """How far an allow for a principal goes within the caller's account."""
    if principal == "*":
        return "direct"
    if principal in _account_names(case):
        if not case["is_root"]:
            return "account"
        return "direct" if case["session"] is None else "role"
    is_session = any(":assumed-role/" in it for it in case["names"])
    return "role" if is_session and ":role/" in principal else "direct"


def _applies(statement: Document, document: Document, case: Case) -> bool:
    variables = document.get("Version") == "2012-10-17"
    context = {key.lower(): list(value) for key, value in case["context"].items()}
    conditions = statement.get("Condition", {})
    return (
        _action_fits(statement, case["action"])
        and _resource_fits(statement, case["resource"], context, variables)
        and all(
            _condition_holds(operator, key, _texts(wanted), context, variables)
            for operator, keys in conditions.items()
            for key, wanted in keys.items()
        )
    )


def _action_fits(statement: Document, action: str) -> bool:
    listed = _as_list(statement.get("Action", statement.get("NotAction")))
    patterns = [_regex(it, {}, variables=False) for it in listed]
    fits = any(re.fullmatch(it, action, re.IGNORECASE) for it in patterns)
    return fits if "Action" in statement else not fits


def _resource_fits(
    statement: Document, resource: str, context: Mapping[str, Any], variables: bool
) -> bool:
    if "Resource" not in statement and "NotResource" not in statement:
        return True
    listed = _as_list(statement.get("Resource", statement.get("NotResource")))
    patterns = [_regex(it, context, variables=variables, parts=True) for it in listed]
    fits = any(re.fullmatch(it, resource, re.DOTALL) for it in patterns)
    return fits if "Resource" in statement else not fits


def _regex(
    text: str,
    context: Mapping[str, Any],
    *,
    variables: bool,
    parts: bool = False,
    wild: bool = True,
) -> str:
    """A regular expression of a text. Matches nothing if a variable has no value.

    With `parts`, wildcards before the fifth colon match no colon, except a star at a part's end.
    """
    found, at, colons = "", 0, 0
    while at < len(text):
        end = text.find("}", at)
        inner = text[at + 2 : end]
        if variables and text.startswith("${", at) and end > 0 and "{" not in inner:
            value = _variable(inner, context)
            if value is None:
                return NO_MATCH
            found += re.escape(value)
            at = end + 1
            continue
        is_inner = parts and colons < 5 and text.count(":") >= 5
        if text[at] == "*" and wild:
            found += "[^:]*" if is_inner and text[at + 1 : at + 2] != ":" else ".*"
        elif text[at] == "?" and wild:
            found += "[^:]" if is_inner else "."
        else:
            colons += text[at] == ":"
            found += re.escape(text[at])
        at += 1
    return found


def _variable(inner: str, context: Mapping[str, Any]) -> str | None:
    name, _, default = inner.partition(",")
    name, default = name.strip(), default.strip()
    if name in ("*", "?", "$"):
        return name
    values = context.get(name.lower(), [])
    if len(values) == 1 and values[0]:
        return str(values[0])
    if len(default) >= 2 and default.startswith("'") and default.endswith("'"):
        return default[1:-1]
    return None


def _condition_holds(
    operator: str, key: str, wanted: list[str], context: Mapping[str, Any], variables: bool
) -> bool:
    values = context.get(key.lower(), [])
    is_null = all(it == "" for it in values)
    if operator == "Null":
        return ("true" if is_null else "false") in [it.lower() for it in wanted]
    quantifier, _, name = operator.rpartition(":")
    if name.endswith("IfExists"):
        if not values:
            return True
        name = name.removesuffix("IfExists")
    negated = "Not" in name
    base = name.replace("Not", "", 1) if negated else name
    if quantifier and is_null:
        return quantifier == "ForAllValues"
    if not values:
        return negated
    test = _comparison(base, context, variables)
    fits = [any(test(value, it) for it in wanted) for value in values]
    if negated:
        fits = [not it for it in fits]
    if quantifier == "ForAnyValue" or (not quantifier and not negated):
        return any(fits)
    return all(fits)


def _comparison(
    base: str, context: Mapping[str, Any], variables: bool
) -> Callable[[str, str], bool]:
    """(value of the request, value of the policy) -> whether they match."""

    def like(value: str, wanted: str, *, wild: bool, flags: re.RegexFlag = re.DOTALL) -> bool:
        pattern = _regex(wanted, context, variables=variables, wild=wild)
        return re.fullmatch(pattern, value, flags) is not None

    def like_arn(value: str, wanted: str) -> bool:
        if wanted.count(":") < 5:
            return like(value, wanted, wild=True)
        parts, given = _split_arn(wanted), _split_arn(value)
        return len(given) == len(parts) and all(
            like(it, part, wild=True) for part, it in zip(parts, given, strict=True)
        )

    if base == "StringLike":
        return lambda value, wanted: like(value, wanted, wild=True)
    if base in ("ArnLike", "ArnEquals"):
        return like_arn
    if base == "StringEquals":
        return lambda value, wanted: like(value, wanted, wild=False)
    if base in ("StringEqualsIgnoreCase", "Bool"):
        flags = re.DOTALL | re.IGNORECASE
        return lambda value, wanted: like(value, wanted, wild=False, flags=flags)
    if base == "BinaryEquals":
        return lambda value, wanted: _bytes(value) == _bytes(wanted) is not None
    if base == "IpAddress":
        return _is_in_network
    read = _number if base.startswith("Numeric") else _seconds
    return lambda value, wanted: _compare(base, read(value), read(wanted))


def _split_arn(text: str) -> list[str]:
    """The six parts of an ARN. Braces of variables may hold colons, which split nothing."""
    parts: list[str] = []
    depth, current = 0, ""
    for at, character in enumerate(text):
        depth += text.startswith("${", at) - (character == "}" and depth > 0)
        if character == ":" and depth == 0 and len(parts) < 5:
            parts.append(current)
            current = ""
        else:
            current += character
    return [*parts, current]


def _compare(base: str, value: float | None, wanted: float | None) -> bool:
    if value is None or wanted is None:
        return False
    return {
        "Equals": value == wanted,
        "LessThan": value < wanted,
        "LessThanEquals": value <= wanted,
        "GreaterThan": value > wanted,
        "GreaterThanEquals": value >= wanted,
    }[base.removeprefix("Numeric").removeprefix("Date")]


def _number(text: str) -> float | None:
    return float(text) if re.fullmatch(r"[+-]?\d+(\.\d+)?", text) else None


def _seconds(text: str) -> float | None:
    if re.fullmatch(r"\d{5,}", text):
        return float(text)
    for form in DATE_FORMS:
        try:
            moment = datetime.strptime(text, form)  # noqa: DTZ007 - UTC if it has no zone
        except ValueError:
            continue
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    return _number(text)


def _bytes(text: str) -> bytes | None:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error:
        return None


def _is_in_network(value: str, wanted: str) -> bool:
    network, _, length = wanted.partition("/")
    try:
        address, base = ipaddress.ip_address(value), ipaddress.ip_address(network)
    except ValueError:
        return False
    if address.version != base.version:
        return False
    free_bits = base.max_prefixlen - int(length or base.max_prefixlen)
    return int(address) >> free_bits == int(base) >> free_bits


def _texts(wanted: Any) -> list[str]:
    return [str(it).lower() if isinstance(it, bool) else str(it) for it in _as_list(wanted)]


def _as_list(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list) else [value]
