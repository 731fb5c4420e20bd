"""Event patterns: which events match, and which patterns are refused."""

import json
from typing import Any

import pytest

from hostelry.events.pattern import PatternError, matches_event, names_source, read_pattern

EVENT = {
    "source": "aws.s3",
    "detail": {"object": {"key": "in/Rows*1.CSV", "size": 3_000_000_000}, "gone": None},
}


def pattern(condition: Any) -> dict[str, Any]:
    return {"detail": {"object": {"key": [condition]}}}


@pytest.mark.parametrize(
    ("asked", "matches"),
    [
        pytest.param({"source": ["aws.s3"]}, True, id="an exact value"),
        pytest.param({"source": ["aws.s3"], "id": ["x"]}, False, id="a field that is not there"),
        pytest.param(pattern({"prefix": "in/"}), True, id="a prefix"),
        pytest.param(pattern({"suffix": ".csv"}), False, id="a suffix in another case"),
        pytest.param(
            pattern({"suffix": {"equals-ignore-case": ".csv"}}), True, id="a suffix in any case"
        ),
        pytest.param(
            pattern({"prefix": {"equals-ignore-case": "IN/r"}}), True, id="a prefix in any case"
        ),
        pytest.param(pattern({"wildcard": "in/*.CSV"}), True, id="a form"),
        pytest.param(pattern({"wildcard": "in/*\\*1*"}), True, id="a form with a star itself"),
        pytest.param(pattern({"wildcard": "in/*x*"}), False, id="another form"),
        pytest.param(pattern({"anything-but": {"prefix": "out/"}}), True, id="not a prefix"),
        pytest.param(
            pattern({"anything-but": {"wildcard": ["a*", "in/*"]}}), False, id="none of two forms"
        ),
        pytest.param(
            {"detail": {"object": {"size": [{"numeric": [">", 1e9, "<=", 4e9]}]}}},
            True,
            id="a size in a range",
        ),
        pytest.param({"detail": {"gone": [None]}}, True, id="null"),
        pytest.param({"detail": {"other": {"x": [{"exists": False}]}}}, True, id="not there"),
        pytest.param({"detail": {"gone": [{"exists": True}]}}, True, id="there"),
        pytest.param(
            {"$or": [{"source": ["x"]}, pattern({"prefix": "in/"})]}, True, id="one of two"
        ),
    ],
)
def test_an_event_matches(asked: dict[str, Any], matches: bool) -> None:
    assert matches_event(read_pattern(json.dumps(asked)), EVENT) is matches


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("[]", id="no object"),
        pytest.param("{}", id="no field"),
        pytest.param('{"a": []}', id="no condition"),
        pytest.param('{"a": {}}', id="an empty object"),
        pytest.param('{"a": [{"prefix": 5}]}', id="a prefix that is no text"),
        pytest.param('{"a": [{"wildcard": ["a*"]}]}', id="several forms"),
        pytest.param('{"a": [{"numeric": ["<", 6e9]}]}', id="a number beyond five billion"),
        pytest.param('{"a":' * 2000 + "1" + "}" * 2000, id="nested two thousand deep"),
    ],
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
