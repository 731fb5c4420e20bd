"""A conversation on a terminal: the printed text, and the kept turns."""

import io
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from tests.cases import case, cases

from hostelry.base.errors import TerminalError
from hostelry.cli.calls.chat import (
    NO_TEMPLATE,
    STOPPED,
    AskedQuestion,
    ChosenAdapter,
    Conversation,
    ListAdapters,
    QuitChat,
    ShownNote,
    Talk,
    lacks_template,
    read_question,
    setting,
)
from hostelry.cli.calls.llm_calls import LlmCalls
from hostelry.cli.named import NamedModel, NameKind
from hostelry.home.home import UpConfig
from hostelry.loadtest.answers import ModelAnswerError

MODEL = NamedModel(kind=NameKind.COMPONENT, endpoint="shop", component="llama")


def event(**delta: str) -> bytes:
    return b"data: %b\n\n" % json.dumps({"choices": [{"delta": delta}]}).encode()


class _Terminal(io.TextIOWrapper):
    def isatty(self) -> bool:
        return True


class _Model:
    """Answers with `parts`. An exception among them is raised there."""

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


@cases(
    "content, text",
    case("an empty pipe", b"", "there is no question"),
    case("spaces", b" \n", "there is no question"),
    case("bytes", b"\xff", "is not UTF-8 text"),
    case("too much", b"x" * 101, "has more than the 100 bytes"),
)
def test_a_pipe_without_a_question_is_refused(
    content: bytes, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))
    with pytest.raises(TerminalError, match=text):
        read_question(None, 100)


def test_a_pipe_is_one_question(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"/quit\nis a word\n")))
    assert read_question(None, 100) == "/quit\nis a word"


@cases(
    "line, turn",
    case("a question", "hello there ", AskedQuestion("hello there")),
    case("an empty line", "   ", None),
    case("a slash to be sent", "//etc is it", AskedQuestion("/etc is it")),
    case("an adapter", "/adapter pirate", ChosenAdapter("pirate")),
    case("the base again", "/adapter", ChosenAdapter("")),
)
def test_a_line_asks_for(line: str, turn: object) -> None:
    assert Conversation().take(line) == turn


@cases(
    "line, kind",
    case("the end", "/quit", QuitChat),
    case("the end as elsewhere", "/bye", QuitChat),
    case("the adapters", "/adapters", ListAdapters),
    case("help", "/help", ShownNote),
    case("an unknown command is not sent", "/nonsense", ShownNote),
)
def test_a_command_is_no_question(line: str, kind: type) -> None:
    assert isinstance(Conversation().take(line), kind)


def test_a_request_has_the_system_message_and_earlier_turns() -> None:
    talk = Conversation()
    talk.take("/system Be brief.")
    talk.take("/set temperature 0.2")
    talk.answered("a", "b")
    body = talk.body("m", "c")
    assert [(it["role"], it["content"]) for it in body["messages"]] == [
        ("system", "Be brief."), ("user", "a"), ("assistant", "b"), ("user", "c"),
    ]  # fmt: skip
    assert (body["model"], body["temperature"], body["stream"]) == ("m", 0.2, True)
    talk.take("/reset")
    assert len(talk.body("m", "c")["messages"]) == 2, "the system message stays"
    talk.take("/system")
    assert len(talk.body("m", "c")["messages"]) == 1


def test_a_model_without_a_template_completes_the_text_so_far() -> None:
    talk = Conversation(system="A story.", has_template=False)
    talk.answered("Once", "upon a time")
    body = talk.body("m", "there was")
    assert body["prompt"] == "A story.\nOnce\nupon a time\nthere was"
    assert "messages" not in body


@cases(
    "name, value, is_set_to",
    case("a number", "temperature", "0.2", 0.2),
    case("a whole number", "max_tokens", "12", 12),
    case("a text", "stop", "the end", "the end"),
)
def test_settings(name: str, value: str, is_set_to: object) -> None:
    assert setting(name, value) == is_set_to


@cases(
    "name, value, text",
    case("unknown", "heat", "1", "there is no setting heat: there are temperature"),
    case("no number", "temperature", "hot", "from 0 to 2, not hot"),
    case("not a number", "temperature", "nan", "from 0 to 2, not nan"),
    case("a fraction", "max_tokens", "1.5", "a whole number"),
    case("too small", "max_tokens", "0", "from 1"),
)
def test_a_wrong_setting_is_refused(name: str, value: str, text: str) -> None:
    with pytest.raises(TerminalError, match=text):
        setting(name, value)
    talk = Conversation()
    assert text in str(talk.take(f"/set {name} {value}"))
    assert talk.settings == {}


def test_a_setting_without_a_value_is_the_models_own_again() -> None:
    talk = Conversation()
    talk.take("/set seed 3")
    assert talk.take("/set") == ShownNote("seed 3")
    talk.take("/set seed")
    assert talk.settings == {}


@cases(
    "message, lacks",
    case("here", "the model has no chat template; set option.x", True),
    case("as vLLM says it", "default chat template is no longer allowed", True),
    case("another refusal", "templates of requests are not trusted", False),
    case("another error", "The model `x` does not exist.", False),
)
def test_a_missing_template_is_recognised(message: str, lacks: bool) -> None:
    assert lacks_template(message) is lacks
