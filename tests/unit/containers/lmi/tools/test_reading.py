"""Tool calls and reasoning in the forms of each family, whole and in any pieces."""

import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.cases import case, cases

from hostelry.containers.lmi.tools.deltas import (
    CallArguments,
    CallName,
    ContentText,
    Delta,
    ReasoningText,
)
from hostelry.containers.lmi.tools.families import (
    DEEPSEEK,
    JSON_FAMILY,
    REASONING_FAMILIES,
    TOOL_FAMILIES,
)
from hostelry.containers.lmi.tools.reading import AnswerReading, read_whole
from hostelry.containers.lmi.tools.thinking import Harmony

CALLS_BEGIN, CALLS_END, CALL_BEGIN, CALL_END, SEP = DEEPSEEK
PARIS = ("weather", '{"city": "Paris"}')
ROME = ("weather", '{"city": "Rome"}')
CITY = '{"name": "weather", "arguments": {"city": "Paris"}}'
CITY2 = '{"name": "weather", "arguments": {"city": "Rome"}}'
V3 = f'{CALL_BEGIN}function{SEP}weather\n```json\n{{"city": "Paris"}}\n```{CALL_END}'
V31 = f'{CALL_BEGIN}weather{SEP}{{"city": "Paris"}}{CALL_END}'


def reading(family: str, reasoning: str = "", **more: Any) -> AnswerReading:
    if family == "openai":
        return AnswerReading(thinking=Harmony(), **more)
    families = {**TOOL_FAMILIES, "json": JSON_FAMILY}
    calls = families[family].parser if family else None
    thinking = REASONING_FAMILIES[reasoning].thinking if reasoning else None
    return AnswerReading(calls=calls, thinking=thinking, **more)


READ: list[Any] = [
    pytest.param("hermes", "Hello.", "Hello.", [], id="plain text is content"),
    pytest.param("hermes", " two\n\n lines \n", " two\n\n lines \n", [], id="blanks are kept"),
    pytest.param(
        "hermes", f"<tool_call>\n{CITY}\n</tool_call>", None, [PARIS], id="hermes: one call"
    ),
    pytest.param(
        "hermes", f"Let me see.\n<tool_call>\n{CITY}\n</tool_call>\n<tool_call>\n{CITY2}\n"
        "</tool_call>", "Let me see.", [PARIS, ROME], id="hermes: two calls after a sentence",
    ),
    pytest.param(
        "hermes", '<tool_call>{"arguments": {"city": "Paris"}, "name": "weather"}</tool_call>',
        None, [("weather", '{"city":"Paris"}')], id="hermes: arguments before the name",
    ),
    pytest.param(
        "hermes", '<tool_call>{"name": "now"}</tool_call>', None, [("now", "{}")],
        id="hermes: no arguments",
    ),
    pytest.param(
        "hermes", '<tool_call>{"name": "f", "arguments": "{\\"a\\": 1}"}</tool_call>', None,
        [("f", '{"a":1}')], id="hermes: arguments as a text of JSON",
    ),
    pytest.param(
        "hermes", '<tool_call>\n{"name": "f", "arguments": {"x": "</tool_call> } \\" {"}}\n'
        "</tool_call>", None, [("f", '{"x": "</tool_call> } \\" {"}')],
        id="hermes: marks inside a string of the arguments",
    ),
    pytest.param(
        "hermes", f"<tool_call>{CITY}", None, [PARIS], id="hermes: no mark at the end"
    ),
    pytest.param(
        "hermes", '<tool_call>{"name": "f", "arguments": {"a": 1}</tool_call> done', "done",
        [("f", '{"a": 1}')], id="hermes: a brace is missing",
    ),
    pytest.param(
        "hermes", "<tool_call>not json</tool_call> sorry",
        "<tool_call>not json</tool_call> sorry", [], id="hermes: no JSON is content",
    ),
    pytest.param(
        "hermes", '<tool_call>{"name": 5, "arguments": {}}</tool_call>',
        '<tool_call>{"name": 5, "arguments": {}}</tool_call>', [], id="hermes: a name is no number",
    ),
    pytest.param(
        "hermes", '<tool_call>{"name": "f", "arguments": {"a": oops}}</tool_call>',
        '<tool_call>{"name": "f", "arguments": {"a": oops}}', [],
        id="hermes: arguments that are no JSON are content",
    ),
    pytest.param(
        "hermes", '<tool_call>{"name": "f", "arg', '<tool_call>{"name": "f", "arg', [],
        id="hermes: cut before the arguments",
    ),
    pytest.param(
        "hermes", '<tool_call>{"name": "f", "arguments": {"a": [1, ', None,
        [("f", '{"a": [1, ')], id="hermes: cut in the arguments",
    ),
    pytest.param("hermes", "<tool_call></tool_call>", "<tool_call></tool_call>", [],
                 id="hermes: an empty call is content"),
    pytest.param("hermes", "a < b <tool_", "a < b <tool_", [], id="hermes: half a mark is text"),
    pytest.param(
        "hermes", '<tool_call>{"name": "a\\"b", "arguments": {}}</tool_call>', None,
        [('a"b', "{}")], id="hermes: a quote in a name",
    ),
    pytest.param(
        "llama3_json", '{"name": "weather", "parameters": {"city": "Paris"}}', None, [PARIS],
        id="llama: one call",
    ),
    pytest.param(
        "llama3_json", '<|python_tag|>{"name": "weather", "parameters": {"city": "Paris"}}; '
        '{"name": "weather", "parameters": {"city": "Rome"}}', None, [PARIS, ROME],
        id="llama: two calls after the tag",
    ),
    pytest.param(
        "llama3_json", '{"type": "function", "name": "f", "parameters": {"a": 1}}', None,
        [("f", '{"a":1}')], id="llama: with a type first",
    ),
    pytest.param(
        "llama3_json", '{"city": "Paris"}', '{"city": "Paris"}', [], id="llama: JSON is content"
    ),
    pytest.param(
        "llama3_json", f"The call is {CITY}", f"The call is {CITY}", [],
        id="llama: a call inside a sentence is content",
    ),
    pytest.param(
        "mistral", f"[TOOL_CALLS][{CITY}, {CITY2}]", None, [PARIS, ROME], id="mistral: a list"
    ),
    pytest.param(
        "mistral", '[TOOL_CALLS] [{"name": "f", "arguments": {"a": 1}, "id": "abcdef123"}]', None,
        [("f", '{"a": 1}')], id="mistral: with an id",
    ),
    pytest.param(
        "mistral", 'I look.[TOOL_CALLS]weather[ARGS]{"city": "Paris"}[TOOL_CALLS]weather'
        '{"city": "Rome"}', "I look.", [PARIS, ROME], id="mistral: names before arguments",
    ),
    pytest.param(
        "mistral", "[TOOL_CALLS] sorry", "[TOOL_CALLS] sorry", [], id="mistral: a mark alone"
    ),
    pytest.param("mistral", "[1] a source", "[1] a source", [], id="mistral: a bracket is text"),
    pytest.param("granite", f"<|tool_call|>[{CITY}]", None, [PARIS], id="granite: a list"),
    pytest.param("granite", f"<tool_call> [{CITY}, {CITY2}]", None, [PARIS, ROME],
                 id="granite: the later mark"),
    pytest.param("json", f"[{CITY}, {CITY2}]", None, [PARIS, ROME], id="json: a list"),
    pytest.param("json", "[1, 2]", "[1, 2]", [], id="json: numbers are content"),
    pytest.param("deepseek_v3", CALLS_BEGIN + V3 + "\n" + V3 + CALLS_END, None, [PARIS, PARIS],
                 id="deepseek_v3: two calls"),
    pytest.param("deepseek_v31", f"Hm.{CALLS_BEGIN}{V31}{V31}{CALLS_END}", "Hm.", [PARIS, PARIS],
                 id="deepseek_v31: two calls"),
    pytest.param("deepseek_v3", CALLS_BEGIN + V31 + CALLS_END, CALLS_BEGIN + V31 + CALLS_END, [],
                 id="deepseek_v3: the other version's call is content"),
    pytest.param(
        "pythonic", '[weather(city="Paris"), f(a=[1, -2.5], b={"x": None}, c=True, d=false)]', None,
        [("weather", '{"city":"Paris"}'),
         ("f", '{"a":[1,-2.5],"b":{"x":null},"c":true,"d":false}')],
        id="pythonic: two calls",
    ),
    pytest.param("pythonic", "[now()]", None, [("now", "{}")], id="pythonic: no arguments"),
    pytest.param("pythonic", """[f(a="it's ) ]", b='"')]""", None,
                 [("f", '{"a":"it\'s ) ]","b":"\\""}')], id="pythonic: quotes and brackets"),
    pytest.param("pythonic", "[1] a source", "[1] a source", [], id="pythonic: a list of numbers"),
    pytest.param("pythonic", "[see below] and", "[see below] and", [], id="pythonic: a remark"),
    pytest.param("pythonic", "[f(1)]", "[f(1)]", [], id="pythonic: arguments without names"),
    pytest.param("pythonic", "[f(a=__import__('os'))]", "[f(a=__import__('os'))]", [],
                 id="pythonic: an expression is content"),
    pytest.param("pythonic", "[f(a=" + "[" * 300 + "]" * 300 + ")]",
                 "[f(a=" + "[" * 300 + "]" * 300 + ")]", [], id="pythonic: too deep"),
    pytest.param("pythonic", "[f(a=1", "[f(a=1", [], id="pythonic: cut"),
    pytest.param("pythonic", "[", "[", [], id="pythonic: a bracket alone"),
    pytest.param(
        "openai", '<|channel|>commentary to=functions.weather <|constrain|>json<|message|>'
        '{"city": "Paris"}<|call|>', None, [PARIS], id="harmony: a call",
    ),
    pytest.param(
        "openai", "<|channel|>final<|message|>Hello.<|return|>", "Hello.", [],
        id="harmony: an answer",
    ),
    pytest.param("openai", "Hello.", "Hello.", [], id="harmony: no channel at all"),
    pytest.param("openai", "<|channel|>fin", None, [], id="harmony: cut in a header"),
]  # fmt: skip


@pytest.mark.parametrize(("family", "text", "content", "calls"), READ)
def test_a_whole_answer(
    family: str, text: str, content: str | None, calls: list[tuple[str, str]]
) -> None:
    answer = read_whole(reading(family), text)
    assert (answer.content, [(it.name, it.arguments) for it in answer.calls]) == (content, calls)


HARMONY = (
    "<|channel|>analysis<|message|>Think.<|end|><|start|>assistant<|channel|>commentary"
    ' to=functions.weather <|constrain|>json<|message|>{"city": "Paris"}<|call|>'
)
CALL = f"<tool_call>\n{CITY}\n</tool_call>"


@cases(
    "family, reasoning, prompt, text, expected",
    case("a call after reasoning", "hermes", "qwen3", "", f"<think>\nSo.\n</think>\n\n{CALL}",
        ("So.", None, 1)),
    case("no call", "", "qwen3", "", "<think>a</think>\n\nHi.\n", ("a", "Hi.\n", 0)),
    case("no reasoning", "", "qwen3", "", "Hi.", (None, "Hi.", 0)),
    case("reasoning that the prompt begins", "", "qwen3", "<think>\n", "So.</think>Hi.",
        ("So.", "Hi.", 0)),
    case("reasoning that the prompt ends", "", "qwen3", "<think>\n\n</think>\n\n", "Hi.",
        (None, "Hi.", 0)),
    case("cut while reasoning", "", "qwen3", "", "<think>So", ("So", None, 0)),
    case("half a mark", "", "qwen3", "", "<thin", (None, "<thin", 0)),
    case("deepseek_r1 without a mark at the beginning", "", "deepseek_r1", "", "So.</think>Hi.",
        ("So.", "Hi.", 0)),
    case("deepseek_r1 with reasoning that the prompt ends", "", "deepseek_r1",
        "<think>\n\n</think>\n\n", "Hi.", (None, "Hi.", 0)),
    case("granite's phrases", "", "granite", "",
        "Here is my thought process: So. Here is my response: Hi.", ("So.", "Hi.", 0)),
    case("mistral's marks", "mistral", "mistral", "", f"[THINK]So.[/THINK][TOOL_CALLS][{CITY}]",
        ("So.", None, 1)),
    case("harmony", "openai", "", "", HARMONY, ("Think.", None, 1)),
)  # fmt: skip
def test_reasoning(
    family: str, reasoning: str, prompt: str, text: str, expected: tuple[str, str, int]
) -> None:
    read = reading(family, reasoning)
    answer = read_whole(read.after_prompt(prompt), text)
    assert (answer.reasoning, answer.content, len(answer.calls)) == expected


TEXTS = ContentText | ReasoningText | CallArguments


def in_pieces(read: AnswerReading, pieces: list[str]) -> list[Delta]:
    """The deltas of a stream, neighbours of one kind joined."""
    state = read.start()
    found: list[Delta] = []
    for piece in pieces:
        state, deltas = read.feed(state, piece)
        found += deltas
    _, last = read.finish(state)
    joined: list[Any] = []
    for delta in (*found, *last):
        if isinstance(delta, TEXTS) and joined and type(joined[-1]) is type(delta):
            joined[-1] = type(delta)(joined[-1].text + delta.text)
        else:
            joined.append(delta)
    return joined


FRAGMENTS = [
    "<tool_call>", "</tool_call>", "<|tool_call|>", "<|python_tag|>", "[TOOL_CALLS]", "[ARGS]", "[",
    "]", "{", "}", '"', "\\", ", ", ";", "\n", " ", CITY, CITY2, '{"name": "f", "arguments": ',
    '{"name": "f", "parameters": {', '"arguments"', '"name": "', "f(a=1)", "g(", ")", "'", "x",
    "<think>", "</think>", "[THINK]", "[/THINK]", "Here is my ", "thought process:", "response:",
    *DEEPSEEK, V3, V31, "function", "```json\n", "```", "<|channel|>", "analysis", "final",
    "<function=f>", "<function=", "\n<parameter=a>\n", "</parameter>", "</function>", "f\n",
    "<arg_key>", "a</arg_key>", "<arg_value>", "</arg_value>", "<seed:tool_call>", " " * 2000,
    "<|tool_call>", "<tool_call|>", '<|"|>', "call:f{", "a:", "</seed:tool_call>",
    "<\uff5cDSML\uff5cinvoke name=\"", '">', "<\uff5cDSML\uff5ctool_calls>",
    "<\uff5cDSML\uff5cparameter name=\"", '" string="true">', "</\uff5cDSML\uff5cparameter>",
    "<|end|>", "<|message|>", " to=functions.f", "<|call|>", "<|start|>", "assistant", "é", "to",
    "a" * 9000,
]  # fmt: skip
READINGS = [
    *((name, "") for name in (*TOOL_FAMILIES, "json")),
    ("hermes", "qwen3"), ("", "deepseek_r1"), ("granite", "granite"), ("mistral", "mistral"),
]  # fmt: skip


@given(
    which=st.sampled_from(READINGS),
    fragments=st.lists(st.sampled_from(FRAGMENTS), max_size=12),
    prompt=st.sampled_from(["", "<think>", "</think>"]),
    cuts=st.lists(st.floats(0, 1), max_size=8),
    each_alone=st.booleans(),
)
def test_any_text_is_read_alike_in_any_pieces(
    which: tuple[str, str], fragments: list[str], prompt: str, cuts: list[float], each_alone: bool
) -> None:
    text = "".join(fragments)
    read = reading(*which).after_prompt(prompt)
    places = sorted({0, len(text), *(int(cut * len(text)) for cut in cuts)})
    pieces = [text[low:high] for low, high in pairwise(places)]
    if each_alone and len(text) < 2000:
        pieces = list(text)
    assert in_pieces(read, pieces) == in_pieces(read, [text])


@pytest.mark.parametrize(("family", "text", "content", "calls"), READ)
def test_a_stream_letter_by_letter_is_the_whole(
    family: str, text: str, content: str | None, calls: list[tuple[str, str]]
) -> None:
    read = reading(family)
    assert in_pieces(read, list(text)) == in_pieces(read, [text])


def test_arguments_come_as_they_are_written() -> None:
    read = reading("hermes")
    state, found = read.feed(read.start(), '<tool_call>{"name": "f", "arguments": {"a')
    assert found == (CallName("f"), CallArguments('{"a'))
    state, found = read.feed(state, '": 1')
    assert found == (CallArguments('": 1'),)


def test_further_calls_and_reasoning_can_be_left_out() -> None:
    text = f"<think>So.</think>{CALL}\n{CALL}"
    read = reading("hermes", "qwen3", most_calls=1, shows_reasoning=False)
    answer = read_whole(read, text)
    assert (answer.reasoning, len(answer.calls), answer.content) == (None, 1, None)


@pytest.mark.parametrize("family", [*TOOL_FAMILIES, "json"])
def test_a_call_without_an_end_takes_no_quadratic_time(family: str) -> None:
    opening = {
        "hermes": "<tool_call>", "granite": "<tool_call>[", "mistral": "[TOOL_CALLS][",
        "pythonic": "[f(a='", "llama4_pythonic": "[f(a='", "json": "[", "llama3_json": "",
        **dict.fromkeys(("glm45", "glm47"), "<tool_call>f\n<arg_key>a</arg_key><arg_value>"),
        "gemma4": "<|tool_call>call:f{a:<|\"|>",
        "minimax_m2": '<invoke name="f"><parameter name="a">',
        **dict.fromkeys(("qwen3_coder", "qwen3_xml", "mimo"), "<function=f><parameter=a>"),
    }.get(family, CALLS_BEGIN + CALL_BEGIN)  # fmt: skip
    read = reading(family)
    state = read.start()
    state, _ = read.feed(state, opening + '{"name": "' * ("pythonic" not in family))
    for _ in range(5_000):
        state, _ = read.feed(state, "aaaa")
    assert len(json.dumps(str(state))) < 100_000


@pytest.mark.timeout(20)
@pytest.mark.parametrize("size", [1, 7, 4_000])
def test_a_header_beyond_its_limit_is_content_and_ends(size: int) -> None:
    text = "<|start|>" + "assistant " * 300 + "<|message|>so"
    parser = reading("openai")
    state = parser.start()
    found: list[Delta] = []
    for at in range(0, len(text), size):
        state, deltas = parser.feed(state, text[at : at + size])
        found += deltas
    _, last = parser.finish(state)
    assert "".join(it.text for it in (*found, *last) if isinstance(it, ContentText)) == text
