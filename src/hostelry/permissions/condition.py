"""Conditions of statements: operators over the values of a request's context."""

import ipaddress
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime

import msgspec

from hostelry.permissions.wildcard import Context, MatchWork, expand, matches

Test = Callable[[str, str], bool]
"""(value of the context, value of the policy) -> whether they fit."""


def _numbers(test: Callable[[float, float], bool]) -> Test:
    def check(value: str, wanted: str) -> bool:
        try:
            return test(float(value), float(wanted))
        except ValueError:
            return False

    return check


def _dates(test: Callable[[float, float], bool]) -> Test:
    def check(value: str, wanted: str) -> bool:
        try:
            return test(_epoch_s(value), _epoch_s(wanted))
        except (ValueError, OverflowError):
            return False

    return check


def _epoch_s(text: str) -> float:
    """Epoch seconds of an ISO 8601 date, or of a number."""
    try:
        return float(text)
    except ValueError:
        pass
    moment = datetime.fromisoformat(text)
    return moment.timestamp() if moment.tzinfo else _epoch_s(text + "+00:00")


def _in_network(value: str, wanted: str) -> bool:
    try:
        return ipaddress.ip_address(value) in ipaddress.ip_network(wanted, strict=False)
    except (ValueError, TypeError):
        return False


def _exactly(value: str, wanted: str) -> bool:
    return value == wanted


def _anyhow(value: str, wanted: str) -> bool:
    return value.lower() == wanted.lower()


WILD = frozenset({"StringLike", "ArnEquals", "ArnLike"})
TESTS: Mapping[str, Test] = {
    "StringEquals": _exactly,
    "StringEqualsIgnoreCase": _anyhow,
    "NumericEquals": _numbers(lambda a, b: a == b),
    "NumericLessThan": _numbers(lambda a, b: a < b),
    "NumericLessThanEquals": _numbers(lambda a, b: a <= b),
    "NumericGreaterThan": _numbers(lambda a, b: a > b),
    "NumericGreaterThanEquals": _numbers(lambda a, b: a >= b),
    "DateEquals": _dates(lambda a, b: a == b),
    "DateLessThan": _dates(lambda a, b: a < b),
    "DateLessThanEquals": _dates(lambda a, b: a <= b),
    "DateGreaterThan": _dates(lambda a, b: a > b),
    "DateGreaterThanEquals": _dates(lambda a, b: a >= b),
    "Bool": _anyhow,
    "BinaryEquals": _exactly,
    "IpAddress": _in_network,
}
NEGATED: Mapping[str, str] = {
    "StringNotEquals": "StringEquals",
    "StringNotEqualsIgnoreCase": "StringEqualsIgnoreCase",
    "StringNotLike": "StringLike",
    "NumericNotEquals": "NumericEquals",
    "DateNotEquals": "DateEquals",
    "NotIpAddress": "IpAddress",
    "ArnNotEquals": "ArnEquals",
    "ArnNotLike": "ArnLike",
}
QUANTIFIERS = ("ForAllValues", "ForAnyValue")


class PolicyCondition(msgspec.Struct, frozen=True, kw_only=True):
    """One operator on one key, with the values of the policy."""

    operator: str
    quantifier: str
    if_exists: bool
    key: str
    wanted: tuple[str, ...]


def build_condition(operator: str, key: str, wanted: Sequence[str]) -> PolicyCondition | None:
    """The condition of a policy, or None for an unknown operator."""
    quantifier, colon, name = operator.rpartition(":")
    if colon and quantifier not in QUANTIFIERS:
        return None
    if_exists = name.endswith("IfExists") and name != "NullIfExists"
    name = name.removesuffix("IfExists") if if_exists else name
    if name not in {*TESTS, *WILD, *NEGATED, "Null"}:
        return None
    return PolicyCondition(
        operator=name, quantifier=quantifier, if_exists=if_exists, key=key, wanted=tuple(wanted)
    )


def holds(condition: PolicyCondition, context: Context, missing: set[str], work: MatchWork) -> bool:
    """Whether the condition holds. Keys that the context lacks are added to `missing`.

    key absent: Null, ...IfExists, ForAllValues and negated operators hold, all others do not.
    """
    values = context.get(condition.key.lower())
    if condition.operator == "Null":
        work.spend(sum(map(len, condition.wanted)), len(condition.wanted))
        return ("false" if values else "true") in {it.lower() for it in condition.wanted}
    negated = condition.operator in NEGATED
    if not values:
        missing.add(condition.key)
        if condition.quantifier:
            return condition.if_exists or condition.quantifier == "ForAllValues"
        return condition.if_exists or negated
    base = NEGATED.get(condition.operator, condition.operator)
    patterns = _patterns(condition, base, context, missing, work)
    fits = [any(_fits(base, value, it, work) for it in patterns) != negated for value in values]
    if condition.quantifier == "ForAllValues" or (negated and not condition.quantifier):
        return all(fits)
    return any(fits)


def _patterns(
    condition: PolicyCondition, base: str, context: Context, missing: set[str], work: MatchWork
) -> Sequence[str]:
    """The values of the policy, as patterns where the operator knows wildcards."""
    wild = base in WILD
    found = [expand(it, context, missing, work, wild=wild) for it in condition.wanted]
    return [it for it in found if it is not None]


def _fits(operator: str, value: str, wanted: str, work: MatchWork) -> bool:
    if operator in WILD:
        return matches(wanted, value, work)
    work.spend(len(value) + len(wanted))
    return TESTS[operator](value, wanted)
