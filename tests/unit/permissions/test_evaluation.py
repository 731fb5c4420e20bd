"""Decisions of policies: tables of statements and requests."""

import json
from typing import Any

from tests.cases import case, cases

from hostelry.permissions.authorization import Grants, authorize
from hostelry.permissions.condition import build_condition, holds
from hostelry.permissions.document import DocumentKind, parse_statements
from hostelry.permissions.evaluation import AccessRequest, Outcome, Policy
from hostelry.permissions.wildcard import MatchWork, compile_pattern, mark_wildcards, matches


@cases(
    "pattern, text, fits",
    case("a star at the end", "s3:Get*", "s3:GetObject", True),
    case("stars", "*a*b", "xxaxxb", True),
    case("one character", "a?c", "abc", True),
    case("a character is missing", "a?c", "ac", False),
    case("more than the pattern", "abc", "abcd", False),
    case("nothing", "", "", True),
    case("many stars end in time", "*" * 50 + "b", "a" * 5000, False),
)
def test_patterns(pattern: str, text: str, fits: bool) -> None:
    assert matches(compile_pattern(mark_wildcards(pattern)), text, MatchWork()) is fits


@cases(
    "operator, wanted, values, held",
    case("one of several", "StringEquals", ["a", "b"], ["b"], True),
    case("no wildcards in equality", "StringEquals", ["a*"], ["ab"], False),
    case("wildcards", "StringLike", ["a*"], ["ab"], True),
    case("not equal", "StringNotEquals", ["a"], ["b"], True),
    case("equal to one", "StringNotEquals", ["a", "b"], ["b"], False),
    case("negated, and no key", "StringNotEquals", ["a"], None, True),
    case("no key", "StringEquals", ["a"], None, False),
    case("no key, if exists", "StringEqualsIfExists", ["a"], None, True),
    case("any case", "StringEqualsIgnoreCase", ["A"], ["a"], True),
    case("less", "NumericLessThan", ["5"], ["4.5"], True),
    case("no number", "NumericLessThan", ["5"], ["many"], False),
    case("later", "DateGreaterThan", ["2026-01-01T00:00:00Z"], ["1800000000"], True),
    case("no date", "DateGreaterThan", ["yesterday"], ["2026-01-01"], False),
    case("a truth value", "Bool", ["true"], ["True"], True),
    case("in a network", "IpAddress", ["10.0.0.0/8"], ["10.1.2.3"], True),
    case("outside of it", "NotIpAddress", ["10.0.0.0/8"], ["11.1.2.3"], True),
    case("no network", "IpAddress", ["here"], ["10.1.2.3"], False),
    case("an ARN", "ArnLike", ["arn:aws:s3:::b/*"], ["arn:aws:s3:::b/k"], True),
    case("absent", "Null", ["true"], None, True),
    case("not absent", "Null", ["true"], ["x"], False),
    case("all", "ForAllValues:StringEquals", ["a", "b"], ["a", "b"], True),
    case("not all", "ForAllValues:StringEquals", ["a"], ["a", "b"], False),
    case("all of none", "ForAllValues:StringEquals", ["a"], None, True),
    case("any", "ForAnyValue:StringEquals", ["a"], ["a", "b"], True),
    case("any of none", "ForAnyValue:StringEquals", ["a"], None, False),
    case("a variable", "StringEquals", ["${other}"], ["v"], True),
    case("a variable without a value", "StringLike", ["${none}*"], ["v"], False),
    case("a star itself", "StringEquals", ["${*}"], ["*"], True),
)
def test_conditions(operator: str, wanted: list[str], values: list[str] | None, held: bool) -> None:
    condition = build_condition(operator, "Key", wanted)
    assert condition is not None
    context = {"other": ("v",), **({} if values is None else {"key": tuple(values)})}
    assert holds(condition, context, set(), MatchWork()) is held


def test_operators_that_there_are_not() -> None:
    for operator in ("StringNearly", "ForSome:StringEquals", "NullIfExists", ""):
        assert build_condition(operator, "key", ["a"]) is None


def allow(**more: Any) -> dict[str, Any]:
    return {"Effect": "Allow", "Action": "s3:GetObject", "Resource": "*", **more}


def without(statement: dict[str, Any], name: str, **more: Any) -> dict[str, Any]:
    return {**{key: it for key, it in statement.items() if key != name}, **more}


DENY = allow(Effect="Deny")


@cases(
    "statements, outcome",
    case("no statement", [], Outcome.IMPLICIT_DENY),
    case("allowed", [allow()], Outcome.ALLOWED),
    case("in any case", [allow(Action="S3:getobject")], Outcome.ALLOWED),
    case("a deny wins", [allow(), DENY], Outcome.EXPLICIT_DENY),
    case("another action", [allow(Action="s3:Put*")], Outcome.IMPLICIT_DENY),
    case("not puts", [without(allow(), "Action", NotAction="s3:Put*")], Outcome.ALLOWED),
    case(
        "all but gets", [without(allow(), "Action", NotAction=["s3:Get*"])], Outcome.IMPLICIT_DENY
    ),
    case("a bucket's objects", [allow(Resource="arn:aws:s3:::b/*")], Outcome.ALLOWED),
    case("another bucket", [allow(Resource="arn:aws:s3:::c/*")], Outcome.IMPLICIT_DENY),
    case(
        "all but another bucket",
        [without(allow(), "Resource", NotResource="arn:aws:s3:::c/*")],
        Outcome.ALLOWED,
    ),
    case(
        "all but a variable without a value, which is no resource",
        [without(allow(), "Resource", NotResource="arn:aws:s3:::${none}/*")],
        Outcome.ALLOWED,
    ),
    case("a variable", [allow(Resource="arn:aws:s3:::${bucket}/*")], Outcome.ALLOWED),
    case(
        "a condition that does not hold",
        [allow(Condition={"StringEquals": {"bucket": "c"}})],
        Outcome.IMPLICIT_DENY,
    ),
)
def test_decisions(statements: list[dict[str, Any]], outcome: Outcome) -> None:
    policies = []
    for statement in statements:
        text = json.dumps({"Version": "2012-10-17", "Statement": statement})
        parsed = parse_statements(text, DocumentKind.IDENTITY)
        policies.append(Policy(id="p", type="role", statements=parsed))
    request = AccessRequest(
        action="s3:GetObject", resource="arn:aws:s3:::b/key", context={"bucket": ("b",)}
    )
    decision = authorize(Grants(identity=tuple(policies)), frozenset(), "1", request)
    assert decision.outcome is outcome
