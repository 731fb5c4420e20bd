"""Protocol buffers' text format, as config.pbtxt files have it."""

from typing import Any

import pytest

from hostelry.containers.triton.text_format import TextFormatError, parse_message


@pytest.mark.parametrize(
    ("text", "found"),
    [
        pytest.param('name: "a"', {"name": ["a"]}, id="a string"),
        pytest.param("name: 'a' # b\n", {"name": ["a"]}, id="single quotes, a comment"),
        pytest.param('name: "a" "b"', {"name": ["ab"]}, id="strings beside each other are one"),
        pytest.param(r'name: "a\"b\\"', {"name": ['a"b\\']}, id="escapes"),
        pytest.param("max_batch_size: 8", {"max_batch_size": ["8"]}, id="a number"),
        pytest.param("dims: [ -1, 2 ]", {"dims": ["-1", "2"]}, id="a list"),
        pytest.param("dims: -1 dims: 2", {"dims": ["-1", "2"]}, id="a field that is repeated"),
        pytest.param('a { b: "c" }', {"a": [{"b": ["c"]}]}, id="a message without a colon"),
        pytest.param('a: { b: "c"; d: 1, }', {"a": [{"b": ["c"], "d": ["1"]}]}, id="with one"),
        pytest.param("a < b: 1 >", {"a": [{"b": ["1"]}]}, id="angle brackets"),
        pytest.param("a [ { b: 1 }, { b: 2 } ]", {"a": [{"b": ["1"]}, {"b": ["2"]}]},
                     id="a list of messages without a colon"),
        pytest.param("", {}, id="nothing"),
        pytest.param("kind: KIND_CPU", {"kind": ["KIND_CPU"]}, id="a name"),
    ],
)  # fmt: skip
def test_text(text: str, found: dict[str, Any]) -> None:
    assert parse_message(text) == found


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        pytest.param("a {\n b: 1", "line 2: the end where a field's name", id="no end"),
        pytest.param('name: "a\n"', "line 1: '\"' is not expected", id="a string over two lines"),
        pytest.param("name\n: }", "line 2: } where a value", id="no value"),
        pytest.param('name "a"', 'line 1: "a" where a value', id="a scalar without a colon"),
        pytest.param("a: [1", "line 1: the end where a value", id="no end of a list"),
        pytest.param("}", "line 1: } where a field's name", id="an end without a beginning"),
        pytest.param("a {" * 40, "more than 32 messages deep", id="deep"),
        pytest.param("a: $", "line 1: '[$]' is not expected", id="another sign"),
    ],
)
def test_no_message(text: str, reason: str) -> None:
    with pytest.raises(TextFormatError, match=reason):
        parse_message(text)
