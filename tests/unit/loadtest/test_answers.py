"""Streamed answers of LLMs, from bytes to text."""

import json

import pytest
from tests.cases import case, cases

from hostelry.loadtest import answers
from hostelry.loadtest.answers import AnswerPiece, AnswerReader, ModelAnswerError, error_text

USAGE = b'data: {"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 7}}\n\n'
DONE = b"data: [DONE]\n\n"


def event(**choice: object) -> bytes:
    return b"data: %b\n\n" % json.dumps({"choices": [choice]}).encode()


def read_whole(stream: bytes) -> list[AnswerPiece]:
    reader = AnswerReader()
    return [*reader.take(stream), *reader.end()]


CHAT = event(delta={"role": "assistant", "content": ""}) + event(delta={"content": "hé"})


@cases(
    "stream, text",
    case("chat", CHAT + USAGE + DONE, "hé"),
    case("completions", event(text="a") + event(text="b") + DONE, "ab"),
    case("lines of JSON", b'{"choices": [{"delta": {"content": "x"}}]}\n', "x"),
    case("a whole answer", b'{"choices": [{"message": {"content": "x"}}]}', "x"),
    case("other fields of events", b": ping\nevent: message\nid: 1\n" + CHAT, "hé"),
    case("lines that end as in HTTP", CHAT.replace(b"\n", b"\r\n"), "hé"),
    case("nulls", event(delta=None) + event(delta={"content": None}) + CHAT, "hé"),
    case("choices that are none", b'data: {"choices": [7, {}]}\n' + CHAT, "hé"),
)
def test_an_answer_is_the_same_however_it_is_cut(stream: bytes, text: str) -> None:
    for size in (1, 7, len(stream)):
        reader = AnswerReader()
        parts = [stream[at : at + size] for at in range(0, len(stream), size)]
        pieces = [piece for part in parts for piece in reader.take(part)] + reader.end()
        assert "".join(piece.text for piece in pieces) == text
        assert reader.num_tokens == (7 if USAGE in stream else None)


def test_reasoning_is_marked() -> None:
    pieces = AnswerReader().take(
        event(delta={"reasoning_content": "hm"}) + event(delta={"content": "so"})
    )
    assert pieces == [AnswerPiece("hm", is_reasoning=True), AnswerPiece("so")]


@cases(
    "stream, text",
    case("error", b'data: {"error": {"message": "out of\\n memory"}}\n', "out of"),
    case("an LLM server's error", b'{"error_msg": "broken"}\n', "broken"),
    case("no answer", b"", "empty"),
    case("a text", b"hello \x1b[31m\n", "not an LLM's; it begins: hello [31m"),
    case("another model's JSON", b'{"a": 1}\n', "no `choices`"),
    case("deep nesting", b"[" * 100_000 + b"\n", "not an LLM's"),
    case("no text", b"\xff\xfe\n", "not an LLM's"),
)
def test_an_answer_that_is_none_is_refused(stream: bytes, text: str) -> None:
    with pytest.raises(ModelAnswerError, match=text.replace("[", r"\[")):
        read_whole(stream)


def test_a_line_without_an_end_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answers, "MAX_LINE_BYTES", 100)
    with pytest.raises(ModelAnswerError, match="more than 100 bytes"):
        AnswerReader().take(b"x" * 101)


@cases(
    "body, text",
    case("OpenAI's", {"error": {"message": "m", "code": "c"}}, "m"),
    case("a text", {"error": "m"}, "m"),
    case("AWS's, its first line", {"message": "m\nn"}, "m"),
    case("without a message", {"error": {"message": None}}, "{'message': None}"),
    case("no object", "plain\x07", "plain"),
)
def test_error_texts(body: object, text: str) -> None:
    assert text in error_text(body)
