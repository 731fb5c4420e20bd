"""A conversation with a model: lines in, requests and notes out."""

import pytest

from hostelry.base.errors import TerminalError
from hostelry.cli.calls.chat import (
    AskedQuestion,
    ChosenAdapter,
    Conversation,
    ListAdapters,
    QuitChat,
    ShownNote,
    lacks_template,
    setting,
)


@pytest.mark.parametrize(
    ("line", "turn"),
    [
        pytest.param("hello there ", AskedQuestion("hello there"), id="a question"),
        pytest.param("   ", None, id="an empty line"),
        pytest.param("//etc is it", AskedQuestion("/etc is it"), id="a slash to be sent"),
        pytest.param("/adapter pirate", ChosenAdapter("pirate"), id="an adapter"),
        pytest.param("/adapter", ChosenAdapter(""), id="the base again"),
    ],
)
def test_a_line_asks_for(line: str, turn: object) -> None:
    assert Conversation().take(line) == turn


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        pytest.param("/quit", QuitChat, id="the end"),
        pytest.param("/bye", QuitChat, id="the end as elsewhere"),
        pytest.param("/adapters", ListAdapters, id="the adapters"),
        pytest.param("/help", ShownNote, id="help"),
        pytest.param("/nonsense", ShownNote, id="an unknown command is not sent"),
    ],
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


@pytest.mark.parametrize(
    ("name", "value", "is_set_to"),
    [
        pytest.param("temperature", "0.2", 0.2, id="a number"),
        pytest.param("max_tokens", "12", 12, id="a whole number"),
        pytest.param("stop", "the end", "the end", id="a text"),
    ],
)
def test_settings(name: str, value: str, is_set_to: object) -> None:
    assert setting(name, value) == is_set_to


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        pytest.param("heat", "1", "there is no setting heat: there are temperature", id="unknown"),
        pytest.param("temperature", "hot", "from 0 to 2, not hot", id="no number"),
        pytest.param("temperature", "nan", "from 0 to 2, not nan", id="not a number"),
        pytest.param("max_tokens", "1.5", "a whole number", id="a fraction"),
        pytest.param("max_tokens", "0", "from 1", id="too small"),
    ],
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


@pytest.mark.parametrize(
    ("message", "lacks"),
    [
        pytest.param("the model has no chat template; set option.x", True, id="here"),
        pytest.param("default chat template is no longer allowed", True, id="as vLLM says it"),
        pytest.param("templates of requests are not trusted", False, id="another refusal"),
        pytest.param("The model `x` does not exist.", False, id="another error"),
    ],
)
def test_a_missing_template_is_recognised(message: str, lacks: bool) -> None:
    assert lacks_template(message) is lacks
