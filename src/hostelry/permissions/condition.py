"""Conditions of statements: operators over the values of a request's context.

Source: IAM user guide, pages reference_policies_elements_condition_operators and
reference_policies_multi-value-conditions.
"""

import base64
import binascii
import ipaddress
import operator
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from typing import Any

import msgspec

from hostelry.permissions.wildcard import (
    Context,
    MatchWork,
    Template,
    TextPattern,
    build_template,
    compile_arn,
    compile_pattern,
    expand,
    matches,
    matches_arn,
)

QUANTIFIERS = ("ForAllValues", "ForAnyValue")
NUMBER_CHARACTERS = frozenset("0123456789+-.eE")
YEAR_CHARACTERS, MONTH_CHARACTERS = 4, 7


def _read_number(text: str) -> Decimal | None:
    """A decimal number, or None."""
    if not text or not NUMBER_CHARACTERS.issuperset(text):
        return None
    try:
        return Decimal(text)
    except InvalidOperation:
        return None


def _read_date(text: str) -> Decimal | None:
    """Epoch seconds of an ISO 8601 date in one of W3C's forms, or of a number. None otherwise."""
    if len(text) == YEAR_CHARACTERS and text.isdecimal():
        text += "-01-01"
    number = _read_number(text)
    if number is not None:
        return number
    text += "-01" if len(text) == MONTH_CHARACTERS else ""
    try:
        moment = datetime.fromisoformat(text)
        moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
        return Decimal(str(moment.timestamp()))
    except (ValueError, OverflowError):
        return None


def _read_bytes(text: str) -> bytes | None:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return None


def _read_address(text: str) -> Any:
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None


def _read_network(text: str) -> Any:
    try:
        return ipaddress.ip_network(text, strict=False)
    except ValueError:
        return None


Reader = Callable[[str], Any]
"""A text -> its value, or None if it is not one."""
Test = Callable[[Any, Any], bool]
"""(value of the context, value of the policy) -> whether they fit."""


def _is_in(address: Any, network: Any) -> bool:
    return address in network


# Operators without variables: readers of the context's values and the policy's, and the test.
VALUES: Mapping[str, tuple[Reader, Reader, Test]] = {
    "NumericEquals": (_read_number, _read_number, operator.eq),
    "NumericLessThan": (_read_number, _read_number, operator.lt),
    "NumericLessThanEquals": (_read_number, _read_number, operator.le),
    "NumericGreaterThan": (_read_number, _read_number, operator.gt),
    "NumericGreaterThanEquals": (_read_number, _read_number, operator.ge),
    "DateEquals": (_read_date, _read_date, operator.eq),
    "DateLessThan": (_read_date, _read_date, operator.lt),
    "DateLessThanEquals": (_read_date, _read_date, operator.le),
    "DateGreaterThan": (_read_date, _read_date, operator.gt),
    "DateGreaterThanEquals": (_read_date, _read_date, operator.ge),
    "BinaryEquals": (_read_bytes, _read_bytes, operator.eq),
    "IpAddress": (_read_address, _read_network, _is_in),
}
# Operators on texts. Values of the policy may have variables, and wildcards if True.
TEXTS: Mapping[str, bool] = {
    "StringEquals": False,
    "StringEqualsIgnoreCase": False,
    "StringLike": True,
    "ArnEquals": True,
    "ArnLike": True,
    "Bool": False,
}
ANY_CASE = frozenset({"StringEqualsIgnoreCase", "Bool"})
ARNS = frozenset({"ArnEquals", "ArnLike"})
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
Compiled = str | TextPattern | tuple[TextPattern, ...]


class WantedText(msgspec.Struct, frozen=True):
    """A value of the policy, compiled unless it has variables."""

    template: Template
    compiled: Compiled | None


class PolicyCondition(msgspec.Struct, frozen=True, kw_only=True):
    """One operator on one key, with the values of the policy.

    `operator` is the operator without negation, quantifier and IfExists. `wanted` are the policy's
    values as the operator compares them. `num_characters` is their length.
    """

    operator: str
    is_negated: bool
    quantifier: str
    if_exists: bool
    key: str
    wanted: tuple[Any, ...]
    num_characters: int

    @property
    def keys(self) -> frozenset[str]:
        """The keys of the context that it reads, in lower case."""
        templates = (it.template for it in self.wanted if isinstance(it, WantedText))
        return frozenset({self.key.lower()}.union(*(it.keys for it in templates)))


def build_condition(
    operator: str, key: str, wanted: Sequence[str], *, variables: bool = True
) -> PolicyCondition | None:
    """The condition of a policy, or None for an unknown operator.

    Unless `variables`, a policy variable is a text like others.
    """
    quantifier, colon, name = operator.rpartition(":")
    if colon and quantifier not in QUANTIFIERS:
        return None
    if_exists = name.endswith("IfExists") and name != "NullIfExists"
    name = name.removesuffix("IfExists") if if_exists else name
    base = NEGATED.get(name, name)
    if base in TEXTS:
        compiled: list[Any] = [_compile_text(base, it, variables) for it in wanted]
    elif base in VALUES:
        compiled = [VALUES[base][1](it) for it in wanted]
    elif base == "Null":
        compiled = [it.lower() for it in wanted]
    else:
        return None
    return PolicyCondition(
        operator=base,
        is_negated=name in NEGATED,
        quantifier=quantifier,
        if_exists=if_exists,
        key=key,
        wanted=tuple(compiled),
        num_characters=sum(map(len, wanted)),
    )


def _compile_text(base: str, text: str, variables: bool) -> WantedText:
    template = build_template(text, wild=TEXTS[base], variables=variables)
    fixed = template.text
    return WantedText(template, None if fixed is None else _compile(base, fixed))


def _compile(base: str, marked: str) -> Compiled:
    if base in ARNS:
        return compile_arn(marked)
    if TEXTS[base]:
        return compile_pattern(marked)
    return marked.lower() if base in ANY_CASE else marked


def holds(condition: PolicyCondition, context: Context, missing: set[str], work: MatchWork) -> bool:
    """Whether the condition holds. Keys that the context lacks are added to `missing`.

    If the key is absent, then Null, ...IfExists, ForAllValues and negated operators hold, and all
    others do not. Quantifiers and Null treat a key with only empty values like an absent key.
    """
    values = context.get(condition.key.lower()) or ()
    is_empty = not any(values)
    if condition.operator == "Null":
        work.spend(condition.num_characters, len(condition.wanted))
        return ("true" if is_empty else "false") in condition.wanted
    if not values:
        missing.add(condition.key)
        if condition.if_exists:
            return True
    if is_empty and (condition.quantifier or not values):
        return condition.is_negated if not condition.quantifier else _is_for_all(condition)
    if condition.operator in VALUES:
        fits = _compare_values(condition, values, work)
    else:
        fits = _compare_texts(condition, values, context, missing, work)
    if condition.is_negated:
        fits = [not it for it in fits]
    if condition.quantifier:
        return all(fits) if _is_for_all(condition) else any(fits)
    return all(fits) if condition.is_negated else any(fits)


def _is_for_all(condition: PolicyCondition) -> bool:
    return condition.quantifier == "ForAllValues"


def _compare_values(
    condition: PolicyCondition, values: Sequence[str], work: MatchWork
) -> list[bool]:
    """Whether each value fits a value of the policy."""
    _spend(condition, values, work)
    read, _, test = VALUES[condition.operator]
    fits = []
    for value in map(read, values):
        known = (it for it in condition.wanted if it is not None and value is not None)
        fits.append(any(test(value, it) for it in known))
    return fits


def _compare_texts(
    condition: PolicyCondition,
    values: Sequence[str],
    context: Context,
    missing: set[str],
    work: MatchWork,
) -> list[bool]:
    """Whether each value fits a value of the policy."""
    base = condition.operator
    wanted: list[Any] = []
    for value in condition.wanted:
        compiled = value.compiled
        if compiled is None:
            text = expand(value.template, context, missing, work)
            compiled = None if text is None else _compile(base, text)
        if compiled is not None:
            wanted.append(compiled)
    if TEXTS[base]:
        test: Callable[[Any, str, MatchWork], bool] = matches_arn if base in ARNS else matches
        return [any(test(it, value, work) for it in wanted) for value in values]
    _spend(condition, values, work)
    given = [it.lower() for it in values] if base in ANY_CASE else values
    return [it in wanted for it in given]


def _spend(condition: PolicyCondition, values: Sequence[str], work: MatchWork) -> None:
    """Count the characters of each value compared with each value of the policy."""
    num_wanted = len(condition.wanted)
    num_characters = condition.num_characters * len(values) + sum(map(len, values)) * num_wanted
    work.spend(num_characters, num_wanted * len(values))
