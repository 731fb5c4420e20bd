"""Images and other parts in the messages of a chat."""

import base64
from dataclasses import replace
from typing import Any

import pytest
from tests.unit.containers.lmi.request.test_parse import CONTEXT, parse

from hostelry.base.clock import ManualClock
from hostelry.containers.lmi.refusal import Cause, Refusal
from hostelry.containers.lmi.request.chat_template import ChatTemplate
from hostelry.containers.lmi.request.images import NO_IMAGES, ChatImages, ImageLimits
from hostelry.containers.lmi.request.invocation import PromptText
from hostelry.containers.lmi.request.openai import parse_messages

TEMPLATE = (
    "{% for message in messages %}{% for part in message['content'] %}"
    "{% if part['type'] == 'image' %}<image>{% else %}{{ part['text'] }}{% endif %}"
    "{% endfor %}|{% endfor %}"
)
LIMITS = ImageLimits(most=2, max_bytes=6, domains=frozenset({"pictures.example"}))
SEEING = replace(CONTEXT, chat=ChatTemplate(TEMPLATE, {}, ManualClock()), images=LIMITS)
ADDRESS = "https://pictures.example/a.png?b=c"
THOUGHT = {"type": "thinking", "thinking": "hm", "signature": "s"}
LISTED_THOUGHT = {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}
SEALED = {"type": "redacted_thinking", "data": "x"}
REFUSED = {"type": "refusal", "refusal": "no"}


def data(content: bytes, kind: str = "image/png") -> str:
    return f"data:{kind};base64,{base64.b64encode(content).decode()}"


def part(url: Any, **more: Any) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": url, **more}}


def chat(*parts: Any, **more: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": list(parts)}], **more}


def test_images_keep_their_places_and_their_order() -> None:
    words = {"type": "text", "text": "and"}
    short = {"type": "input_image", "image_url": ADDRESS, "detail": "low"}
    found = parse(chat(part(data(b"one"), detail="high"), words, short), SEEING)
    (prompt,) = found.prompts
    assert isinstance(prompt, PromptText)
    assert prompt.text == "<image>and<image>|"
    assert [(it.data, it.url) for it in found.images] == [(b"one", None), (b"", ADDRESS)]


def test_texts_alone_are_parts_for_a_template_that_places_images() -> None:
    messages = [
        {"role": "user", "content": "a"},
        {"role": "user", "content": [{"type": "text", "text": "b"}, {"type": "text", "text": "c"}]},
    ]
    (prompt,) = parse({"messages": messages}, SEEING).prompts
    assert isinstance(prompt, PromptText)
    assert prompt.text == "a|bc|"


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        pytest.param([part(data(b"x"))] * 3, "more than 2 images", id="more than allowed"),
        pytest.param([part(data(b"1234567"))], "more than 6 bytes", id="too many bytes"),
        pytest.param([part(data(b""))], "no bytes", id="no bytes"),
        pytest.param([part("data:image/png;base64,a$==")], "no base64", id="no base64"),
        pytest.param([part("data:image/png,abc")], "a data URI begins with", id="no base64 named"),
        pytest.param([part(data(b"x", "image/svg+xml"))], "TYPE is one of", id="another type"),
        pytest.param([part("https://other.example/a")], "allowed are: pictures.example",
                     id="another host"),
        pytest.param([part("https://pictures.example.evil/a")], "not allowed", id="a longer host"),
        pytest.param([part("https://a@pictures.example/a")], "must be a data URI", id="a user"),
        pytest.param([part("ftp://pictures.example/a")], "must be a data URI", id="another scheme"),
        pytest.param([part("/etc/passwd")], "must be a data URI", id="a path"),
        pytest.param([part("http://[::1/a")], "an address that is none", id="half an address"),
        pytest.param([part(f"https://pictures.example/{'a' * 9000}")], "characters", id="too long"),
        pytest.param([part(None)], "has no url", id="no address"),
        pytest.param([part(7)], "has no url", id="a number"),
        pytest.param([{"type": "image_url"}], "has no url", id="nothing"),
        pytest.param([part(data(b"x"), detail="huge")], "detail is 'huge'", id="an odd detail"),
        pytest.param([{"type": "video_url"}], "video_url", id="a video"),
    ],
)  # fmt: skip
def test_refusals_name_the_part(parts: list[Any], message: str) -> None:
    with pytest.raises(Refusal) as caught:
        parse(chat(*parts), SEEING)
    assert message in str(caught.value)
    assert "messages[0]" in str(caught.value) or "messages have" in str(caught.value)
    assert caught.value.cause is Cause.BAD_REQUEST


@pytest.mark.parametrize(
    ("template", "is_placed"),
    [
        pytest.param(TEMPLATE, True, id="it places images"),
        pytest.param("{{ messages[0]['content'] }}", False, id="it prints the parts"),
        pytest.param("{{ messages[0]['content'] + 'x' }}", False, id="it reads text"),
        pytest.param(
            "{% for part in messages[0]['content'] %}{{ part.get('text', '') }}{% endfor %}", False,
            id="it leaves images out",
        ),
        pytest.param("{{ raise_exception('no') }}", False, id="it fails"),
    ],
)  # fmt: skip
def test_whether_a_template_places_images(template: str, is_placed: bool) -> None:
    assert ChatTemplate(template, {}, ManualClock()).places_images() is is_placed


@pytest.mark.parametrize(
    ("parts", "content", "reasoning"),
    [
        pytest.param([REFUSED], "no", None, id="a refusal"),
        pytest.param([{"type": "text", "text": "a"}, REFUSED], "ano", None, id="text, a refusal"),
        pytest.param([{"type": "output_text", "text": "a"}], "a", None, id="text of Responses"),
        pytest.param([{"type": "input_text", "text": "a"}], "a", None, id="its input"),
        pytest.param(["a", "b"], "ab", None, id="plain texts"),
        pytest.param([], "", None, id="no part"),
        pytest.param([{"type": "refusal", "refusal": None}], "", None, id="a refusal of nothing"),
        pytest.param([THOUGHT, {"type": "text", "text": "a"}], "a", "hm", id="reasoning, text"),
        pytest.param([LISTED_THOUGHT, "a"], "a", "hm", id="reasoning in parts, as of Mistral's"),
        pytest.param([SEALED, "a"], "a", None, id="sealed reasoning"),
    ],
)
def test_parts_that_clients_send_back_are_read(
    parts: list[Any], content: str, reasoning: str | None
) -> None:
    given = [{"role": "assistant", "content": parts}]
    (message,) = parse_messages(given, ChatImages(NO_IMAGES))
    assert (message["content"], message.get("reasoning_content")) == (content, reasoning)


@pytest.mark.parametrize(
    ("role", "part", "message"),
    [
        pytest.param("assistant", {"type": "input_audio"}, "type 'input_audio'", id="audio"),
        pytest.param("user", THOUGHT, "type 'thinking'; read are text,", id="a user's reasoning"),
        pytest.param("assistant", {"type": "refusal", "refusal": 1}, "refusal is 1", id="a number"),
        pytest.param("assistant", 5, "must be a JSON object", id="no part at all"),
        pytest.param(
            "assistant", {"type": "thinking", "thinking": [THOUGHT]}, "type 'thinking'",
            id="reasoning in reasoning",
        ),
    ],
)  # fmt: skip
def test_parts_that_are_not_read_are_refused(role: str, part: Any, message: str) -> None:
    with pytest.raises(Refusal, match=message):
        parse_messages([{"role": role, "content": [part]}], ChatImages(NO_IMAGES))
