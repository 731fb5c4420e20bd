"""Images and other parts in the messages of a chat."""

import base64
from typing import Any

import pytest
from msgspec.structs import replace
from tests.cases import case, cases
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


@cases(
    "parts, message",
    case("more than allowed", [part(data(b"x"))] * 3, "more than 2 images"),
    case("too many bytes", [part(data(b"1234567"))], "more than 6 bytes"),
    case("no bytes", [part(data(b""))], "no bytes"),
    case("no base64", [part("data:image/png;base64,a$==")], "no base64"),
    case("no base64 named", [part("data:image/png,abc")], "a data URI begins with"),
    case("another type", [part(data(b"x", "image/svg+xml"))], "TYPE is one of"),
    case("another host", [part("https://other.example/a")], "allowed are: pictures.example"),
    case("a longer host", [part("https://pictures.example.evil/a")], "not allowed"),
    case("a user", [part("https://a@pictures.example/a")], "must be a data URI"),
    case("another scheme", [part("ftp://pictures.example/a")], "must be a data URI"),
    case("a path", [part("/etc/passwd")], "must be a data URI"),
    case("half an address", [part("http://[::1/a")], "an address that is none"),
    case("too long", [part(f"https://pictures.example/{'a' * 9000}")], "characters"),
    case("no address", [part(None)], "has no url"),
    case("a number", [part(7)], "has no url"),
    case("nothing", [{"type": "image_url"}], "has no url"),
    case("an odd detail", [part(data(b"x"), detail="huge")], "detail is 'huge'"),
    case("a video", [{"type": "video_url"}], "video_url"),
)  # fmt: skip
def test_refusals_name_the_part(parts: list[Any], message: str) -> None:
    with pytest.raises(Refusal) as caught:
        parse(chat(*parts), SEEING)
    assert message in str(caught.value)
    assert "messages[0]" in str(caught.value) or "messages have" in str(caught.value)
    assert caught.value.cause is Cause.BAD_REQUEST


@cases(
    "template, is_placed",
    case("it places images", TEMPLATE, True),
    case("it prints the parts", "{{ messages[0]['content'] }}", False),
    case("it reads text", "{{ messages[0]['content'] + 'x' }}", False),
    case("it leaves images out",
        "{% for part in messages[0]['content'] %}{{ part.get('text', '') }}{% endfor %}", False),
    case("it fails", "{{ raise_exception('no') }}", False),
)  # fmt: skip
def test_whether_a_template_places_images(template: str, is_placed: bool) -> None:
    assert ChatTemplate(template, {}, ManualClock()).places_images() is is_placed


@cases(
    "parts, content, reasoning",
    case("a refusal", [REFUSED], "no", None),
    case("text, a refusal", [{"type": "text", "text": "a"}, REFUSED], "ano", None),
    case("text of Responses", [{"type": "output_text", "text": "a"}], "a", None),
    case("its input", [{"type": "input_text", "text": "a"}], "a", None),
    case("plain texts", ["a", "b"], "ab", None),
    case("no part", [], "", None),
    case("a refusal of nothing", [{"type": "refusal", "refusal": None}], "", None),
    case("reasoning, text", [THOUGHT, {"type": "text", "text": "a"}], "a", "hm"),
    case("reasoning in parts, as of Mistral's", [LISTED_THOUGHT, "a"], "a", "hm"),
    case("sealed reasoning", [SEALED, "a"], "a", None),
)
def test_parts_that_clients_send_back_are_read(
    parts: list[Any], content: str, reasoning: str | None
) -> None:
    given = [{"role": "assistant", "content": parts}]
    (message,) = parse_messages(given, ChatImages(NO_IMAGES))
    assert (message["content"], message.get("reasoning_content")) == (content, reasoning)


@cases(
    "role, part, message",
    case("audio", "assistant", {"type": "input_audio"}, "type 'input_audio'"),
    case("a user's reasoning", "user", THOUGHT, "type 'thinking'; read are text,"),
    case("a number", "assistant", {"type": "refusal", "refusal": 1}, "refusal is 1"),
    case("no part at all", "assistant", 5, "must be a JSON object"),
    case("reasoning in reasoning", "assistant", {"type": "thinking", "thinking": [THOUGHT]},
        "type 'thinking'"),
)  # fmt: skip
def test_parts_that_are_not_read_are_refused(role: str, part: Any, message: str) -> None:
    with pytest.raises(Refusal, match=message):
        parse_messages([{"role": role, "content": [part]}], ChatImages(NO_IMAGES))
