"""Parts of a message's content that clients send back: read, or refused by type."""

from typing import Any

import pytest

from hostelry.containers.lmi.refusal import Refusal
from hostelry.containers.lmi.request.images import NO_IMAGES, ChatImages
from hostelry.containers.lmi.request.openai import parse_messages

THOUGHT = {"type": "thinking", "thinking": "hm", "signature": "s"}
LISTED_THOUGHT = {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}
SEALED = {"type": "redacted_thinking", "data": "x"}
REFUSED = {"type": "refusal", "refusal": "no"}


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
