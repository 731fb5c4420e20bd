"""A conversation on a terminal: what is printed, what is kept."""

import io
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from hostelry.base.errors import TerminalError
from hostelry.cli.calls.chat import NO_TEMPLATE, STOPPED, Conversation, Talk, question_of
from hostelry.cli.calls.llm_calls import LlmCalls, ModelAnswerError
from hostelry.cli.named import NamedModel, NameKind
from hostelry.home.home import UpConfig

MODEL = NamedModel(kind=NameKind.COMPONENT, endpoint="shop", component="llama")


def event(**delta: str) -> bytes:
    return b"data: %b\n\n" % json.dumps({"choices": [{"delta": delta}]}).encode()


class _Terminal(io.TextIOWrapper):
    def isatty(self) -> bool:
        return True


class _Model:
    """Answers with `parts`; an exception among them is raised there."""

    def __init__(self, *parts: bytes | BaseException, has_template: bool = True) -> None:
        self._parts = parts
        self._has_template = has_template
        self.bodies: list[dict[str, Any]] = []

    def calls(self) -> LlmCalls:
        @contextmanager
        def opened(body: dict[str, Any]) -> Iterator[Iterator[bytes]]:
            self.bodies.append(body)
            if "messages" in body and not self._has_template:
                raise ModelAnswerError("the model has no chat template; set option.chat_template")
            yield self._stream()

        return LlmCalls(opened)

    def _stream(self) -> Iterator[bytes]:
        for part in self._parts:
            if isinstance(part, BaseException):
                raise part
            yield part


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", _Terminal(io.BytesIO()))


def talk(model: _Model) -> Talk:
    return Talk(UpConfig(control_port=1), None, model.calls(), MODEL, Conversation())


def test_an_answer_is_printed_without_control_characters_and_kept_as_it_is(
    terminal: None, capsys: pytest.CaptureFixture[str]
) -> None:
    model = _Model(event(content="a\x1b[2J"), event(content="b"))
    spoken = talk(model)
    spoken.answer("hello")
    out, err = capsys.readouterr()
    assert out == "a[2Jb\n"
    assert err.startswith("[2 tokens, first after ")
    assert spoken.conversation.turns == [("hello", "a\x1b[2Jb")], "the model gets its own text back"


def test_ctrl_c_ends_an_answer_and_keeps_its_text(
    terminal: None, capsys: pytest.CaptureFixture[str]
) -> None:
    spoken = talk(_Model(event(content="so far"), KeyboardInterrupt()))
    spoken.answer("hello")
    out, err = capsys.readouterr()
    assert (out, err) == ("so far\n", f"{STOPPED}\n")
    assert spoken.conversation.turns == [("hello", "so far")]


def test_a_broken_answer_is_an_error_and_not_kept(
    terminal: None, capsys: pytest.CaptureFixture[str]
) -> None:
    spoken = talk(_Model(event(content="so far"), b'data: {"error": {"message": "lost"}}\n'))
    with pytest.raises(ModelAnswerError, match="lost"):
        spoken.answer("hello")
    assert capsys.readouterr().out == "so far\n"
    assert spoken.conversation.turns == []


def test_without_a_chat_template_the_text_is_completed(
    terminal: None, capsys: pytest.CaptureFixture[str]
) -> None:
    model = _Model(event(content="x"), has_template=False)
    spoken = talk(model)
    spoken.answer("once")
    spoken.answer("twice")
    assert capsys.readouterr().err.count(NO_TEMPLATE) == 1
    assert ["prompt" in it for it in model.bodies] == [False, True, True]


def test_reasoning_is_shown_apart_and_not_sent_again(
    terminal: None, capsys: pytest.CaptureFixture[str]
) -> None:
    spoken = talk(_Model(event(reasoning_content="hm"), event(content="yes")))
    spoken.answer("hello")
    assert capsys.readouterr().out == "(thinking) hm\nyes\n"
    assert spoken.conversation.turns == [("hello", "yes")]


@pytest.mark.parametrize(
    ("content", "text"),
    [
        pytest.param(b"", "there is no question", id="an empty pipe"),
        pytest.param(b" \n", "there is no question", id="spaces"),
        pytest.param(b"\xff", "is no UTF-8 text", id="bytes"),
        pytest.param(b"x" * 101, "has more than the 100 bytes", id="too much"),
    ],
)
def test_a_pipe_without_a_question_is_refused(
    content: bytes, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))
    with pytest.raises(TerminalError, match=text):
        question_of(None, 100)


def test_a_pipe_is_one_question(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"/quit\nis a word\n")))
    assert question_of(None, 100) == "/quit\nis a word"
