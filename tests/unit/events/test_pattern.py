"""Event patterns: which events match, and which patterns are refused."""

import json
from typing import Any

import pytest
from tests.cases import case, cases

from hostelry.events.calls import PatternError, matches_event, names_source, read_pattern

EVENT = {
    "source": "aws.s3",
    "detail": {"object": {"key": "in/Rows*1.CSV", "size": 3_000_000_000}, "gone": None},
}


def pattern(condition: Any) -> dict[str, Any]:
    return {"detail": {"object": {"key": [condition]}}}


@cases(
    "asked, matches",
    case("an exact value", {"source": ["aws.s3"]}, True),
    case("a field that is not there", {"source": ["aws.s3"], "id": ["x"]}, False),
    case("a prefix", pattern({"prefix": "in/"}), True),
    case("a suffix in another case", pattern({"suffix": ".csv"}), False),
    case("a suffix in any case", pattern({"suffix": {"equals-ignore-case": ".csv"}}), True),
    case("a prefix in any case", pattern({"prefix": {"equals-ignore-case": "IN/r"}}), True),
    case("a form", pattern({"wildcard": "in/*.CSV"}), True),
    case("a form with a star itself", pattern({"wildcard": "in/*\\*1*"}), True),
    case("another form", pattern({"wildcard": "in/*x*"}), False),
    case("not a prefix", pattern({"anything-but": {"prefix": "out/"}}), True),
    case("none of two forms", pattern({"anything-but": {"wildcard": ["a*", "in/*"]}}), False),
    case(
        "a size in a range",
        {"detail": {"object": {"size": [{"numeric": [">", 1e9, "<=", 4e9]}]}}},
        True,
    ),
    case("null", {"detail": {"gone": [None]}}, True),
    case("not there", {"detail": {"other": {"x": [{"exists": False}]}}}, True),
    case("there", {"detail": {"gone": [{"exists": True}]}}, True),
    case("one of two", {"$or": [{"source": ["x"]}, pattern({"prefix": "in/"})]}, True),
)
def test_an_event_matches(asked: dict[str, Any], matches: bool) -> None:
    assert matches_event(read_pattern(json.dumps(asked)), EVENT) is matches


@cases(
    "text",
    case("no object", "[]"),
    case("no field", "{}"),
    case("no condition", '{"a": []}'),
    case("an empty object", '{"a": {}}'),
    case("a prefix that is no text", '{"a": [{"prefix": 5}]}'),
    case("several forms", '{"a": [{"wildcard": ["a*"]}]}'),
    case("a number beyond five billion", '{"a": [{"numeric": ["<", 6e9]}]}'),
    case("nested two thousand deep", '{"a":' * 2000 + "1" + "}" * 2000),
)
def test_a_pattern_is_refused(text: str) -> None:
    with pytest.raises(PatternError, match=r"Event pattern is not valid\. Reason: "):
        read_pattern(text)


def test_a_form_of_many_stars_takes_no_time() -> None:
    asked = read_pattern(json.dumps({"key": [{"wildcard": "*a" * 1000 + "b"}]}))
    assert not matches_event(asked, {"key": "a" * 100_000})


def test_a_source_is_named_also_within_a_branch() -> None:
    assert names_source(read_pattern('{"$or": [{"source": ["aws.s3"]}, {"a": [1]}]}'), "aws.s3")
    assert not names_source(read_pattern('{"source": ["mine"]}'), "aws.s3")
