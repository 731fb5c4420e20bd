"""Calls in Gemma 4's format: the JSON of their arguments, and text without a call."""

import json
import time
from typing import Any

import pytest
from tests.cases import case, cases

from hostelry.containers.lmi.tools.families import REASONING_FAMILIES, TOOL_FAMILIES
from hostelry.containers.lmi.tools.gemma_calls import MAX_CALL_CHARACTERS
from hostelry.containers.lmi.tools.reading import AnswerReading, read_whole

READING = AnswerReading(
    calls=TOOL_FAMILIES["gemma4"].parser, thinking=REASONING_FAMILIES["gemma4"].thinking
)
Q = '<|"|>'


def call(arguments: str) -> str:
    return f"<|tool_call>call:f{{{arguments}}}<tool_call|>"


@cases(
    "arguments, value",
    case("none", "", {}),
    case("a text with marks of values", f"a:{Q}x, y: {{}}{Q}", {"a": "x, y: {}"}),
    case("a text with the end mark", f"a:{Q}<tool_call|>{Q}", {"a": "<tool_call|>"}),
    case("numbers, truth, nothing", "a:1,b: 2.5 ,c:true,d:null,e:None",
        {"a": 1, "b": 2.5, "c": True, "d": None, "e": None}),
    case("nested", f"a:[1,[{Q}x{Q}],{{b:{Q}y{Q}}}]", {"a": [1, ["x"], {"b": "y"}]}),
    case("a key in marks", f"{Q}a b{Q}:bare words", {"a b": "bare words"}),
    case("an empty list", "a:[]", {"a": []}),
)  # fmt: skip
def test_arguments_as_json(arguments: str, value: Any) -> None:
    (found,) = read_whole(READING, call(arguments)).calls
    assert (found.name, json.loads(found.arguments)) == ("f", value)


@cases(
    "text",
    case("no name", "<|tool_call>f{}<tool_call|>"),
    case("no value", call("a")),
    case("an empty value", call("a:")),
    case("more after the end", call("a:1}b")),
    case("too deep", call("a:" + "[" * 100 + "]" * 100)),
    case("a text without an end", call(f"a:{Q}x")),
    case("cut off", "<|tool_call>call:f{a:1"),
    case("half a mark", "a <|tool"),
    case("too long", call("a:" + "1" * MAX_CALL_CHARACTERS)),
)
def test_what_is_no_call_is_content(text: str) -> None:
    answer = read_whole(READING, text)
    assert (answer.content, answer.calls) == (text, [])


def test_reasoning_text_and_calls_together() -> None:
    text = f"<|channel>thought\nhm<channel|>Well. {call('a:1')}{call('a:2')}"
    answer = read_whole(READING, text)
    assert (answer.reasoning, answer.content) == ("hm", "Well.")
    assert [it.arguments for it in answer.calls] == ['{"a": 1}', '{"a": 2}']


@pytest.mark.parametrize("piece", ["<|tool_call>", Q, "a:[", "<tool_call|>", call("a:{")])
def test_marks_without_end_take_time_in_proportion(piece: str) -> None:
    def cpu_s(count: int) -> float:
        started_at = time.process_time()
        read_whole(READING, "<|tool_call>call:f{" + piece * count)
        return time.process_time() - started_at

    cpu_s(10)
    assert cpu_s(8000) < 40 * cpu_s(500) + 0.5


def test_beginnings_of_calls_alone_take_time_in_proportion() -> None:
    def cpu_s(text: str) -> float:
        started_at = time.process_time()
        assert read_whole(READING, text).content == text
        return time.process_time() - started_at

    assert cpu_s("<|tool_call>" * 40_000) < 100 * cpu_s("<|tool_call>" * 2000) + 0.5
