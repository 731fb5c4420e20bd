"""Patterns against a slow reference, how their work grows, and its budget."""

import random
import sys
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
from tests.cases import case, cases

from hostelry.permissions.authorization import Grants, authorize
from hostelry.permissions.condition import build_condition, holds
from hostelry.permissions.document import DocumentKind, parse_statements
from hostelry.permissions.evaluation import AccessRequest, Policy
from hostelry.permissions.wildcard import (
    MatchWork,
    TextPattern,
    TooMuchMatching,
    build_template,
    compile_pattern,
    expand,
    mark_wildcards,
    matches,
)


def compile_text(pattern: str) -> TextPattern:
    return compile_pattern(mark_wildcards(pattern))


@cache
def fits_slowly(pattern: str, text: str) -> bool:
    if not pattern:
        return not text
    if pattern[0] == "*":
        return any(fits_slowly(pattern[1:], text[at:]) for at in range(len(text) + 1))
    return bool(text) and pattern[0] in ("?", text[0]) and fits_slowly(pattern[1:], text[1:])


def test_patterns_fit_the_same_texts_as_in_a_slow_reference() -> None:
    rng = random.Random(5)
    outcomes = set()
    for _ in range(4000):
        pattern = "".join(rng.choices("ab?*", k=rng.randrange(9)))
        text = "".join(rng.choices("ab", k=rng.randrange(11)))
        fits = fits_slowly(pattern, text)
        assert matches(compile_text(pattern), text, MatchWork()) is fits, (pattern, text)
        outcomes.add(fits)
    assert outcomes == {True, False}


class CountedWork(MatchWork):
    def __init__(self) -> None:
        super().__init__(10**12)
        self.spent = 0

    def spend(self, num_characters: int, num_steps: int = 1) -> None:
        self.spent += num_characters
        super().spend(num_characters, num_steps)


def calls_during(run: Callable[[], object]) -> int:
    """The calls of functions, of the interpreter's own ones too, that `run` makes."""
    num_calls = 0

    def count(frame: object, event: str, argument: Any) -> None:
        nonlocal num_calls
        num_calls += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        run()
    finally:
        sys.setprofile(before)
    return num_calls


@cases(
    "case",
    case("many pieces, and no end", lambda n: ("*a" * n + "b", "a" * 2 * n)),
    case("many stars in a row", lambda n: ("*" * n + "b*c", "a" * n)),
    case("a long piece", lambda n: ("*" + "a" * n + "b*", "a" * 2 * n)),
    case("single characters", lambda n: ("?" * n + "*" + "?" * n, "a" * 2 * n)),
    case("short pieces with a character", lambda n: ("*a?" * n + "b", "aa" * n)),
)
def test_work_grows_as_the_lengths_do(case: Callable[[int], tuple[str, str]]) -> None:
    counts = []
    for length in (200, 400):
        pattern, text = case(length)
        work = CountedWork()
        calls = calls_during(lambda: matches(compile_text(pattern), text, work))  # noqa: B023 - runs now
        counts.append((calls, work.spent))
    (calls, spent), (twice_calls, twice_spent) = counts
    assert twice_calls <= 2.2 * calls + 10
    assert twice_spent <= 2.2 * spent


def test_a_long_piece_with_a_character_is_counted_at_each_place() -> None:
    pattern = compile_text("*" + "a" * 500 + "?b*")
    work = CountedWork()
    assert not matches(pattern, "a" * 2000, work)
    assert 500 * 1000 < work.spent < 600 * 2000
    with pytest.raises(TooMuchMatching):
        matches(pattern, "a" * 2000, MatchWork(500 * 1000))


def test_values_of_variables_are_counted_before_they_are_joined() -> None:
    template = build_template("${k}" * 30_000)
    with pytest.raises(TooMuchMatching):
        expand(template, {"k": ("v" * 1_000_000,)}, set(), MatchWork())


@cases(
    "operator, wanted, values",
    case("many values", "StringEquals", ["a"], ["b"] * 200),
    case("many values of the policy", "StringEquals", ["a"] * 200, ["b"]),
    case("a long pattern", "StringLike", ["*" * 2000], ["b"]),
    case("a long value", "NumericEquals", ["1"], ["1" * 2000]),
    case("a long value of Null", "Null", ["x" * 2000], None),
)
def test_conditions_have_a_budget(
    operator: str, wanted: list[str], values: list[str] | None
) -> None:
    condition = build_condition(operator, "key", wanted)
    assert condition is not None
    context = {} if values is None else {"key": tuple(values)}
    holds(condition, context, set(), MatchWork(100_000))
    with pytest.raises(TooMuchMatching):
        holds(condition, context, set(), MatchWork(1500))


def test_decisions_share_a_budget() -> None:
    document = """{"Version": "2012-10-17",
        "Statement": {"Effect": "Allow", "Action": "s3:*", "Resource": "*"}}"""
    statements = parse_statements(document, DocumentKind.IDENTITY)
    grants = Grants(identity=(Policy(id="p", type="role", statements=statements),))
    request = AccessRequest(action="s3:GetObject", resource="*", context={})
    work = MatchWork(60)
    authorize(grants, frozenset(), "1", request, None, work)
    with pytest.raises(TooMuchMatching):
        authorize(grants, frozenset(), "1", request, None, work)
