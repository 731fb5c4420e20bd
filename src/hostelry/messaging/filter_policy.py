"""Filter policies of subscriptions: tests that a message must pass. PURE.

    condition                          a value passes if it
    "text", 5, true, null              equals it
    {"prefix": "a"}, {"suffix": "a"}   begins or ends so
    {"equals-ignore-case": "a"}        equals it in any case
    {"anything-but": ...}              is not among these, or lacks this prefix or suffix
    {"numeric": [">", 0, "<=", 5]}     is a number in this range
    {"cidr": "10.0.0.0/24"}            is an address in this network
    {"exists": true}                   exists. With false: does not exist

Every key must pass. Of a key's conditions, of an array's values, and of `$or`, one must pass.
Event patterns are policies of the scope EventPattern, with the conditions of `events/calls.py`.

Source: Amazon SNS Developer Guide, "Subscription filter policies" and its constraints.
"""

import ipaddress
import itertools
import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

MAX_KEYS = 5
MAX_COMBINATIONS = 150
MAX_BYTES = 256 * 1024
MAX_DEPTH = 32
MAX_NUMBER = 1e9
MAX_PATTERN_NUMBER = 5e9
OR = "$or"
BODY_SCOPE = "MessageBody"
ATTRIBUTE_SCOPE = "MessageAttributes"
PATTERN_SCOPE = "EventPattern"
ANY_CASE = "equals-ignore-case"
STARS = re.compile(r"(?<!\\)\*")
COMPARISONS = ("=", "<", "<=", ">", ">=")

Policy = Mapping[str, Any]
Leaf = tuple[tuple[str, ...], Sequence[Any]]  # a key's path, its conditions


class FilterPolicyError(ValueError):
    """The policy is invalid. The message says why, in SNS's words if SNS has any."""


def read_policy(text: str, scope: str = ATTRIBUTE_SCOPE) -> Policy:
    """Parse a policy. Raises FilterPolicyError."""
    if len(text.encode()) > MAX_BYTES:
        raise FilterPolicyError("Filter policy is larger than 256 KB")
    try:
        policy = json.loads(text)
    except (ValueError, RecursionError):
        raise FilterPolicyError("failed to parse JSON.") from None
    if not isinstance(policy, dict):
        raise FilterPolicyError("Filter policy must be an object")
    check_object(policy, scope)
    leaves = list_branches(policy)
    if any(len(branch) > MAX_KEYS for branch in leaves):
        raise FilterPolicyError(f"Filter policy can not have more than {MAX_KEYS} keys")
    combinations = sum(
        math.prod(len(conditions) * len(path) for path, conditions in branch) for branch in leaves
    )
    if combinations > MAX_COMBINATIONS:
        raise FilterPolicyError("Filter policy is too complex")
    return policy


def passes_filter(
    policy: Policy,
    scope: str,
    attributes: Mapping[str, tuple[str, str]],
    body: str,
    check: Callable[[], None] = lambda: None,
) -> bool:
    """True if a message passes. `attributes` are (type, value) by name.

    `check` is called between steps and may raise, so that the work has a limit.
    """
    if scope == BODY_SCOPE:
        try:
            content = json.loads(body)
        except (ValueError, RecursionError):
            return False
        if not isinstance(content, dict):
            return False
    else:
        content = {name: _attribute_value(*it) for name, it in attributes.items()}
    return matches(policy, content, check)


def matches(
    policy: Policy, content: Mapping[str, Any], check: Callable[[], None] = lambda: None
) -> bool:
    """True if parsed JSON passes. `check` is called as by `passes_filter`."""
    return any(
        all(_passes(conditions, _values_at(content, path), check) for path, conditions in branch)
        for branch in list_branches(policy)
    )


def list_branches(policy: Policy) -> Sequence[Sequence[Leaf]]:
    """List the ways to pass `policy`. All keys of a way must pass. `$or` multiplies the ways."""
    factors: list[Sequence[Sequence[Leaf]]] = []
    for key, value in policy.items():
        if key == OR:
            factors.append([branch for it in value for branch in list_branches(it)])
        elif isinstance(value, dict):
            inner = list_branches(value)
            factors.append([[((key, *path), them) for path, them in each] for each in inner])
        else:
            factors.append([[((key,), value)]])
    if math.prod(len(it) for it in factors) > MAX_COMBINATIONS:
        raise FilterPolicyError("Filter policy is too complex")
    return [list(itertools.chain(*chosen)) for chosen in itertools.product(*factors)]


def check_object(policy: Policy, scope: str, depth: int = 1) -> None:
    """Raise FilterPolicyError for an object of a policy that is not valid in `scope`."""
    if depth > MAX_DEPTH:
        raise FilterPolicyError("Filter policy is nested too deeply")
    for key, value in policy.items():
        if key == OR:
            _check_or(value, scope, depth)
        elif isinstance(value, dict):
            if scope == ATTRIBUTE_SCOPE:
                raise FilterPolicyError(
                    "Filter policy scope MessageAttributes does not support nested filter policy"
                )
            if not value:
                raise FilterPolicyError("Empty objects are not allowed")
            check_object(value, scope, depth + 1)
        elif isinstance(value, list):
            _check_conditions(key, value, scope)
        else:
            raise FilterPolicyError(f'"{key}" must be an object or an array')


def _check_or(branches: Any, scope: str, depth: int) -> None:
    if not isinstance(branches, list) or len(branches) < 2:
        raise FilterPolicyError('"$or" must be an array of at least two objects')
    for branch in branches:
        if not isinstance(branch, dict) or not branch:
            raise FilterPolicyError('"$or" must hold objects that are not empty')
        check_object(branch, scope, depth + 1)


def _check_conditions(key: str, conditions: Sequence[Any], scope: str) -> None:
    if not conditions:
        raise FilterPolicyError("Empty arrays are not allowed")
    for condition in conditions:
        if isinstance(condition, list):
            raise FilterPolicyError("Match value must be String, number, true, false, or null")
        if not isinstance(condition, dict):
            _check_number(condition, scope)
            continue
        if len(condition) != 1:
            raise FilterPolicyError(f'A condition of "{key}" must have exactly one operator')
        ((operator, operand),) = condition.items()
        _check_operator(operator, operand, scope)


def _check_operator(operator: str, operand: Any, scope: str) -> None:
    if operator in ("prefix", "suffix", ANY_CASE, "cidr") or (
        operator == "wildcard" and scope == PATTERN_SCOPE
    ):
        if scope == PATTERN_SCOPE and operator in ("prefix", "suffix"):
            operand = _fold_case(operand)
        if not isinstance(operand, str):
            raise FilterPolicyError(f"{operator} match pattern must be a string")
        if operator == "cidr" and _network(operand) is None:
            raise FilterPolicyError("Malformed CIDR, one '/' required")
    elif operator == "exists":
        if not isinstance(operand, bool):
            raise FilterPolicyError("exists match pattern must be either true or false.")
    elif operator == "anything-but":
        _check_anything_but(operand, scope)
    elif operator == "numeric":
        _check_numeric(operand, scope)
    else:
        raise FilterPolicyError(f"Unrecognized match type {operator}")


def _check_anything_but(operand: Any, scope: str) -> None:
    if isinstance(operand, dict):
        more = ("wildcard", ANY_CASE) if scope == PATTERN_SCOPE else ()
        if len(operand) != 1 or next(iter(operand)) not in ("prefix", "suffix", *more):
            raise FilterPolicyError("Unsupported anything-but pattern")
        ((_, text),) = operand.items()
        several = text if scope == PATTERN_SCOPE and isinstance(text, list) and text else [text]
        if not all(isinstance(it, str) for it in several):
            raise FilterPolicyError("prefix match pattern must be a string")
        return
    values = operand if isinstance(operand, list) else [operand]
    if not values or any(isinstance(it, dict | list | bool | None) for it in values):
        raise FilterPolicyError("Inside anything-but list, only numbers or strings are supported")
    for value in values:
        _check_number(value, scope)


def _check_numeric(operand: Any, scope: str) -> None:
    if not isinstance(operand, list) or len(operand) not in (2, 4):
        raise FilterPolicyError("Value of numeric must be an array of one or two comparisons")
    for sign, number in zip(operand[::2], operand[1::2], strict=True):
        if sign not in COMPARISONS:
            raise FilterPolicyError(f"Unrecognized numeric range operator: {sign}")
        if not _is_number(number):
            raise FilterPolicyError(f"Value of {sign} must be numeric")
        _check_number(number, scope)
    if len(operand) == 4:
        low, high = operand[0], operand[2]
        if not (low in (">", ">=") and high in ("<", "<=") and operand[1] < operand[3]):
            raise FilterPolicyError("Bottom must be less than top")


def _check_number(value: Any, scope: str) -> None:
    most, text = (MAX_PATTERN_NUMBER, "5") if scope == PATTERN_SCOPE else (MAX_NUMBER, "1")
    if _is_number(value) and not abs(value) <= most:
        raise FilterPolicyError(f"Value must be between -{text}.0E9 and {text}.0E9, inclusive")


def _fold_case(operand: Any) -> Any:
    """The text of a prefix or suffix that is given as {"equals-ignore-case": text}."""
    return operand.get(ANY_CASE) if isinstance(operand, dict) and len(operand) == 1 else operand


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _attribute_value(kind: str, value: str) -> Any:
    """The value that conditions compare: a number, a list for an array. A binary value has none."""
    if kind == "Number":
        try:
            return float(value)
        except ValueError:
            return value
    if kind == "String.Array":
        try:
            return json.loads(value)
        except (ValueError, RecursionError):
            return value
    return () if kind.startswith("Binary") else value


def _values_at(content: Any, path: Sequence[str]) -> Sequence[Any] | None:
    """Return the values at a path, through arrays of objects, or None."""
    found = [content]
    for key in path:
        objects = [it for each in found for it in (each if isinstance(each, list) else [each])]
        found = [it[key] for it in objects if isinstance(it, dict) and key in it]
    if not found:
        return None
    return [it for each in found for it in (each if isinstance(each, list | tuple) else [each])]


def _passes(
    conditions: Sequence[Any], values: Sequence[Any] | None, check: Callable[[], None]
) -> bool:
    check()
    equal = {_equal_by(it) for it in conditions if not isinstance(it, dict)}
    if equal and any(_equal_by(it) in equal for it in values or ()):
        return True
    for condition in conditions:
        if isinstance(condition, dict):
            check()
            if _meets(condition, values):
                return True
    return False


def _meets(condition: Mapping[str, Any], values: Sequence[Any] | None) -> bool:
    ((operator, operand),) = condition.items()
    if operator == "exists":
        return bool((values is not None) == operand)
    if operator == "anything-but":
        return bool(values) and not _has_excluded(operand, values or ())
    return any(_is_met(operator, operand, it) for it in values or ())


def _equal_by(value: Any) -> Any:
    """A key that equal values share. None for objects and arrays, which conditions never contain.

    1 and 1.0 are equal, but 1 and true are not.
    """
    if isinstance(value, dict | list | tuple):
        return None
    return (float if _is_number(value) else type(value), value)


def _has_excluded(operand: Any, values: Sequence[Any]) -> bool:
    if isinstance(operand, dict):
        ((operator, text),) = operand.items()
        several = text if isinstance(text, list) else [text]
        return any(_is_met(operator, it, value) for value in values for it in several)
    excluded = {_equal_by(it) for it in (operand if isinstance(operand, list) else [operand])}
    return any(_equal_by(it) in excluded for it in values)


def _is_met(operator: str, operand: Any, value: Any) -> bool:
    if operator == "numeric":
        return _is_number(value) and _is_in_range(operand, value)
    if not isinstance(value, str):
        return False
    if operator in ("prefix", "suffix"):
        text, end = (value, operand)
        if isinstance(operand, dict):
            text, end = value.lower(), operand[ANY_CASE].lower()
        return bool(text.startswith(end) if operator == "prefix" else text.endswith(end))
    if operator == "wildcard":
        return _has_form(operand, value)
    if operator == "cidr":
        network = _network(operand)
        try:
            return network is not None and ipaddress.ip_address(value) in network
        except ValueError:
            return False
    return value.lower() == str(operand).lower()


def _has_form(form: str, value: str) -> bool:
    """Whether `value` matches `form`, in which `*` is any text, unless a backslash precedes it."""
    first, *others = (it.replace("\\*", "*") for it in STARS.split(form))
    if not others:
        return value == first
    if not (value.startswith(first) and value.endswith(others[-1])):
        return False
    at, end = len(first), len(value) - len(others[-1])
    for text in others[:-1]:  # the earliest match is always right, so no search goes back
        found = value.find(text, at, end)
        if found < 0:
            return False
        at = found + len(text)
    return at <= end


def _is_in_range(comparisons: Sequence[Any], value: float) -> bool:
    outcomes = {
        "=": lambda limit: value == limit,
        "<": lambda limit: value < limit,
        "<=": lambda limit: value <= limit,
        ">": lambda limit: value > limit,
        ">=": lambda limit: value >= limit,
    }
    pairs = zip(comparisons[::2], comparisons[1::2], strict=True)
    return all(outcomes[sign](limit) for sign, limit in pairs)


def _network(text: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network | None:
    try:
        return ipaddress.ip_network(text, strict=False) if "/" in text else None
    except ValueError:
        return None
