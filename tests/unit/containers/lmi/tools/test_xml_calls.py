"""Calls in XML: values with the types in the functions' schemas, and text without a call."""

import json
import time
from typing import Any

import pytest
from msgspec.structs import replace
from tests.cases import case, cases

from hostelry.containers.lmi.tools.deltas import CallArguments, CallName
from hostelry.containers.lmi.tools.families import TOOL_FAMILIES
from hostelry.containers.lmi.tools.reading import AnswerReading, read_whole
from hostelry.containers.lmi.tools.xml_calls import DSML, MAX_VALUE_CHARACTERS, XmlCalls

TYPES: dict[str, Any] = {
    "a": {"type": "integer"},
    "b": {"type": "string"},
    "c": {"type": "object"},
    "d": {"type": ["string", "null"]},
    "e": {"type": "boolean"},
    "g": {"anyOf": [{"type": "number"}, {"type": "null"}]},
    "h": {"type": "array"},
}


def reading(family: str) -> AnswerReading:
    parser = TOOL_FAMILIES[family].parser
    assert isinstance(parser, XmlCalls)
    return AnswerReading(calls=replace(parser, schemas={"f": {"properties": TYPES}}))


def qwen(*pairs: tuple[str, str]) -> str:
    parameters = "".join(f"<parameter={key}>\n{value}\n</parameter>\n" for key, value in pairs)
    return f"<tool_call>\n<function=f>\n{parameters}</function>\n</tool_call>"


def glm(*pairs: tuple[str, str]) -> str:
    parameters = "".join(
        f"<arg_key>{key}</arg_key>\n<arg_value>{value}</arg_value>\n" for key, value in pairs
    )
    return f"<tool_call>f\n{parameters}</tool_call>"


@cases(
    "key, text, value",
    case("an integer", "a", "3", 3),
    case("an integer with a point", "a", "3.0", 3),
    case("no integer is a text", "a", "3.5", "3.5"),
    case("truth is no integer", "a", "true", "true"),
    case("digits without end", "a", "9" * 5000, "9" * 5000),
    case("a text of digits", "b", "3", "3"),
    case("a text of lines and quotes", "b", 'say "hi"\n\n  x', 'say "hi"\n\n  x'),
    case("a text that says null", "b", "null", "null"),
    case("an object", "c", '{"k": [1]}', {"k": [1]}),
    case("Python's object", "c", "{'k': True, 'n': None}", {"k": True, "n": None}),
    case("no object is a text", "c", "[1]", "[1]"),
    case("half a character", "c", "{'k': '\\ud800'}", "{'k': '\\ud800'}"),
    case("nothing", "d", "None", None),
    case("a text that may be nothing", "d", "x", "x"),
    case("Python's truth", "e", "True", True),
    case("no truth", "e", "yes", "yes"),
    case("a number by a choice of types", "g", "1.5", 1.5),
    case("no number of JSON", "g", "1e999", "1e999"),
    case("a list", "h", "[1, [2]]", [1, [2]]),
    case("brackets without end", "h", "(" * 40_000, "(" * 40_000),
)
def test_values_have_their_schemas_types(key: str, text: str, value: Any) -> None:
    for family, call in (("qwen3_coder", qwen), ("glm45", glm)):
        (found,) = read_whole(reading(family), call((key, text), ("b", "z"))).calls
        wanted = {key: value, "b": "z"}
        assert (found.name, json.loads(found.arguments)) == ("f", wanted)


def dsml(outer: str, *pairs: tuple[str, str]) -> str:
    parameters = "".join(
        f'<{DSML}parameter name="{key}">{value}</{DSML}parameter>\n' for key, value in pairs
    )
    call = f'<{DSML}invoke name="f">\n{parameters}</{DSML}invoke>\n'
    return f"<{DSML}{outer}>\n{call}</{DSML}{outer}>"


TWO = '{"a": 1, "b": "x"}'
READ: list[Any] = [
    pytest.param("qwen3_coder", f"Hi. {qwen()}\n{qwen()}", "Hi.", ["{}", "{}"], id="two calls"),
    pytest.param(
        "qwen3_coder", qwen(("a", "1"), ("b", "x"))[12:], None, [TWO], id="without the outer mark"
    ),
    pytest.param(
        "qwen3_coder", "<function=f>\n<parameter=a>\n1\n<parameter=b>\nx\n</function>", None, [TWO],
        id="without the ends of values",
    ),
    pytest.param(
        "qwen3_coder", "<function=f>so<parameter=a>1</parameter>\n<parameter=b>x</parameter>", None,
        [TWO], id="without the end of the call, in one line, after a word",
    ),
    pytest.param(
        "qwen3_coder", "<tool_call><function=f></function><function=f></function></tool_call>!",
        "!", ["{}", "{}"], id="two functions in one mark",
    ),
    pytest.param(
        "qwen3_coder", qwen(("z", "7")), None, ['{"z": "7"}'], id="an unknown parameter is a text"
    ),
    pytest.param(
        "qwen3_coder", "<function=f>\n<parameter=b>\nab\n</par", None, ['{"b": "ab\\n</par'],
        id="a text that breaks off",
    ),
    pytest.param(
        "qwen3_coder", '<tool_call>\n{"name": "f"}</tool_call>',
        '<tool_call>\n{"name": "f"}</tool_call>', [], id="JSON is content",
    ),
    pytest.param("qwen3_coder", "<function=\n>", "<function=\n>", [], id="no name"),
    pytest.param("qwen3_coder", "<tool_call>\n<function=f", "<tool_call>\n<function=f", [],
                 id="cut in the name"),
    pytest.param("seed_oss", f"<seed:tool_call>{qwen(('b', 'x'))[11:-12]}</seed:tool_call>", None,
                 ['{"b": "x"}'], id="seed's outer mark"),
    pytest.param("minimax_m2", '<minimax:tool_call>\n<invoke name="f">\n<parameter name="a">\n1\n'
                 '</parameter>\n<parameter name="b">x</parameter>\n</invoke>\n'
                 '<invoke name="g">\n</invoke>\n</minimax:tool_call>', None, [TWO, "{}"],
                 id="minimax: two calls"),
    pytest.param("deepseek_v4", dsml("tool_calls", ('a" string="false', "1"),
                                     ('b" string="true', "x")), None, [TWO],
                 id="deepseek: parameters that say what they are"),
    pytest.param("deepseek_v32", dsml("function_calls", ('a" string="true', "1")) + ".", ".",
                 ['{"a": "1"}'], id="deepseek: a text in spite of its schema"),
    pytest.param("deepseek_v32", dsml("function_calls", ('z" string="false', "[1]")), None,
                 ['{"z": [1]}'], id="deepseek: a value of no type"),
    pytest.param("deepseek_v4", dsml("tool_calls", ('a" string="maybe', "1")), None, ["{}"],
                 id="deepseek: a parameter that says something else"),
    pytest.param("glm45", "<tool_call>f</tool_call>", None, ["{}"], id="glm: no parameter"),
    pytest.param("glm47", glm(("a", "1"), ("b", "x")).replace("\n", ""), None, [TWO],
                 id="glm: in one line"),
    pytest.param("glm45", glm(("z", '{"k": 1}')), None, ['{"z": {"k": 1}}'],
                 id="glm: an unknown parameter is what it is as JSON"),
    pytest.param("glm45", "<tool_call>f\n<arg_key>a</arg_key>x</tool_call>.", ".", ["{}"],
                 id="glm: a parameter without a value"),
    pytest.param("glm45", "<tool_call></tool_call>", "<tool_call></tool_call>", [],
                 id="glm: no call"),
    pytest.param("glm45", "<tool_call>f", "<tool_call>f", [], id="glm: cut in the name"),
]  # fmt: skip


@pytest.mark.parametrize(("family", "text", "content", "arguments"), READ)
def test_calls_in_xml(family: str, text: str, content: str | None, arguments: list[str]) -> None:
    answer = read_whole(reading(family), text)
    assert (answer.content, [it.arguments for it in answer.calls]) == (content, arguments)


def test_texts_come_as_they_are_written() -> None:
    read = reading("qwen3_coder")
    state, found = read.feed(read.start(), "<function=f>\n<parameter=b>\nab")
    assert found == (
        CallName("f"), CallArguments("{"), CallArguments('"b": "'), CallArguments("ab"),
    )  # fmt: skip
    assert read.feed(state, '"c\n</p')[1] == (CallArguments('\\"c'),)


def test_a_long_value_is_a_text() -> None:
    text = "1" * (MAX_VALUE_CHARACTERS + 5)
    (call,) = read_whole(reading("qwen3_coder"), qwen(("c", text))).calls
    assert json.loads(call.arguments) == {"c": text}


@pytest.mark.parametrize("family", ["qwen3_coder", "glm45"])
@pytest.mark.parametrize(
    "piece",
    [
        "<tool_call>", "<function=f>", "<function=f><parameter=", "\n</parameter>\n<parameter=a>",
        "<tool_call>f<arg_key>a</arg_key>", "<tool_call>f<arg_key>", "<arg_value>1</arg_value>",
    ],
)  # fmt: skip
def test_marks_without_end_take_time_in_proportion(family: str, piece: str) -> None:
    def cpu_s(count: int) -> float:
        started_at = time.process_time()
        read_whole(reading(family), piece * count)
        return time.process_time() - started_at

    cpu_s(10)
    assert cpu_s(8000) < 40 * cpu_s(500) + 0.5
