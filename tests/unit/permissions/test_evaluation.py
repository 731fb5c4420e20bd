"""Decisions of policies: tables of statements and requests."""

import json
from typing import Any

import pytest

from hostelry.permissions.condition import condition_of, holds
from hostelry.permissions.document import DocumentKind, statements_of
from hostelry.permissions.evaluation import AccessRequest, Outcome, Policy, decide
from hostelry.permissions.wildcard import MatchWork, compiled, matches


@pytest.mark.parametrize(
    ("pattern", "text", "fits"),
    [
        pytest.param("s3:Get*", "s3:GetObject", True, id="a star at the end"),
        pytest.param("*a*b", "xxaxxb", True, id="stars"),
        pytest.param("a?c", "abc", True, id="one character"),
        pytest.param("a?c", "ac", False, id="a character is missing"),
        pytest.param("abc", "abcd", False, id="more than the pattern"),
        pytest.param("", "", True, id="nothing"),
        pytest.param("*" * 50 + "b", "a" * 5000, False, id="many stars end in time"),
    ],
)
def test_patterns(pattern: str, text: str, fits: bool) -> None:
    assert matches(compiled(pattern), text, MatchWork()) is fits


@pytest.mark.parametrize(
    ("operator", "wanted", "values", "held"),
    [
        pytest.param("StringEquals", ["a", "b"], ["b"], True, id="one of several"),
        pytest.param("StringEquals", ["a*"], ["ab"], False, id="no wildcards in equality"),
        pytest.param("StringLike", ["a*"], ["ab"], True, id="wildcards"),
        pytest.param("StringNotEquals", ["a"], ["b"], True, id="not equal"),
        pytest.param("StringNotEquals", ["a", "b"], ["b"], False, id="equal to one"),
        pytest.param("StringNotEquals", ["a"], None, True, id="negated, and no key"),
        pytest.param("StringEquals", ["a"], None, False, id="no key"),
        pytest.param("StringEqualsIfExists", ["a"], None, True, id="no key, if exists"),
        pytest.param("StringEqualsIgnoreCase", ["A"], ["a"], True, id="any case"),
        pytest.param("NumericLessThan", ["5"], ["4.5"], True, id="less"),
        pytest.param("NumericLessThan", ["5"], ["many"], False, id="no number"),
        pytest.param("DateGreaterThan", ["2026-01-01T00:00:00Z"], ["1800000000"], True, id="later"),
        pytest.param("DateGreaterThan", ["yesterday"], ["2026-01-01"], False, id="no date"),
        pytest.param("Bool", ["true"], ["True"], True, id="a truth value"),
        pytest.param("IpAddress", ["10.0.0.0/8"], ["10.1.2.3"], True, id="in a network"),
        pytest.param("NotIpAddress", ["10.0.0.0/8"], ["11.1.2.3"], True, id="outside of it"),
        pytest.param("IpAddress", ["here"], ["10.1.2.3"], False, id="no network"),
        pytest.param("ArnLike", ["arn:aws:s3:::b/*"], ["arn:aws:s3:::b/k"], True, id="an ARN"),
        pytest.param("Null", ["true"], None, True, id="absent"),
        pytest.param("Null", ["true"], ["x"], False, id="not absent"),
        pytest.param("ForAllValues:StringEquals", ["a", "b"], ["a", "b"], True, id="all"),
        pytest.param("ForAllValues:StringEquals", ["a"], ["a", "b"], False, id="not all"),
        pytest.param("ForAllValues:StringEquals", ["a"], None, True, id="all of none"),
        pytest.param("ForAnyValue:StringEquals", ["a"], ["a", "b"], True, id="any"),
        pytest.param("ForAnyValue:StringEquals", ["a"], None, False, id="any of none"),
        pytest.param("StringEquals", ["${other}"], ["v"], True, id="a variable"),
        pytest.param("StringLike", ["${none}*"], ["v"], False, id="a variable without a value"),
        pytest.param("StringEquals", ["${*}"], ["*"], True, id="a star itself"),
    ],
)
def test_conditions(operator: str, wanted: list[str], values: list[str] | None, held: bool) -> None:
    condition = condition_of(operator, "Key", wanted)
    assert condition is not None
    context = {"other": ("v",), **({} if values is None else {"key": tuple(values)})}
    assert holds(condition, context, set(), MatchWork()) is held


def test_operators_that_there_are_not() -> None:
    for operator in ("StringNearly", "ForSome:StringEquals", "NullIfExists", ""):
        assert condition_of(operator, "key", ["a"]) is None


def allow(**more: Any) -> dict[str, Any]:
    return {"Effect": "Allow", "Action": "s3:GetObject", "Resource": "*", **more}


def without(statement: dict[str, Any], name: str, **more: Any) -> dict[str, Any]:
    return {**{key: it for key, it in statement.items() if key != name}, **more}


DENY = allow(Effect="Deny")


@pytest.mark.parametrize(
    ("statements", "outcome"),
    [
        pytest.param([], Outcome.IMPLICIT_DENY, id="no statement"),
        pytest.param([allow()], Outcome.ALLOWED, id="allowed"),
        pytest.param([allow(Action="S3:getobject")], Outcome.ALLOWED, id="in any case"),
        pytest.param([allow(), DENY], Outcome.EXPLICIT_DENY, id="a deny wins"),
        pytest.param([allow(Action="s3:Put*")], Outcome.IMPLICIT_DENY, id="another action"),
        pytest.param(
            [without(allow(), "Action", NotAction="s3:Put*")], Outcome.ALLOWED, id="not puts"
        ),
        pytest.param(
            [without(allow(), "Action", NotAction=["s3:Get*"])],
            Outcome.IMPLICIT_DENY,
            id="all but gets",
        ),
        pytest.param(
            [allow(Resource="arn:aws:s3:::b/*")], Outcome.ALLOWED, id="a bucket's objects"
        ),
        pytest.param(
            [allow(Resource="arn:aws:s3:::c/*")], Outcome.IMPLICIT_DENY, id="another bucket"
        ),
        pytest.param(
            [without(allow(), "Resource", NotResource="arn:aws:s3:::c/*")],
            Outcome.ALLOWED,
            id="all but another bucket",
        ),
        pytest.param(
            [without(allow(), "Resource", NotResource="arn:aws:s3:::${none}/*")],
            Outcome.IMPLICIT_DENY,
            id="all but what is not known",
        ),
        pytest.param(
            [allow(Resource="arn:aws:s3:::${bucket}/*")], Outcome.ALLOWED, id="a variable"
        ),
        pytest.param(
            [allow(Condition={"StringEquals": {"bucket": "c"}})],
            Outcome.IMPLICIT_DENY,
            id="a condition that does not hold",
        ),
    ],
)
def test_decisions(statements: list[dict[str, Any]], outcome: Outcome) -> None:
    policies = []
    for statement in statements:
        text = json.dumps({"Version": "2012-10-17", "Statement": statement})
        parsed = statements_of(text, DocumentKind.IDENTITY)
        policies.append(Policy(id="p", type="role", statements=parsed))
    request = AccessRequest(
        action="s3:GetObject", resource="arn:aws:s3:::b/key", context={"bucket": ("b",)}
    )
    assert decide(policies, request).outcome is outcome
