"""LMI's output formatters other than json, jsonlines and sse."""

from typing import Any

import pytest
from tests.cases import case, cases
from tests.unit.containers.lmi.tiny import Answer, ask, config, fake, server

from hostelry.containers.lmi.http.server import LmiServer


def asked(formatter: str, served: LmiServer | None = None, **more: Any) -> Answer:
    parameters = {"max_new_tokens": 3, "output_formatter": formatter, **more.pop("parameters", {})}
    return ask(
        served or server(), "/invocations", {"inputs": "ab", "parameters": parameters, **more}
    )


def test_third_party() -> None:
    answer = asked("3p")
    assert answer.type == "application/json"
    assert answer.json == {
        "body": {
            "generation": "a b",
            "prompt_token_count": 2,
            "generation_token_count": 3,
            "stop_reason": "length",
        },
        "metering": {"inputTokenCount": 2, "outputTokenCount": 3},
        "content_type": "application/json",
    }


@pytest.mark.parametrize("formatter", ["3p", "3p_stream"])
def test_third_party_as_a_stream(formatter: str) -> None:
    answer = asked(formatter, stream=True)
    assert answer.type == "application/jsonlines"
    first, _, last = answer.lines
    assert first == {
        "body": {
            "generation": "a",
            "prompt_token_count": 2,
            "generation_token_count": 1,
            "stop_reason": None,
        },
        "metering": {"outputTokenCount": 1, "inputTokenCount": 2},
        "content_type": "application/jsonlines",
    }
    assert last["body"]["stop_reason"] == "length"
    assert last["metering"] == {"outputTokenCount": 3}


def test_none_is_the_bare_text() -> None:
    whole = asked("none", parameters={"return_full_text": True})
    assert (whole.type, whole.text) == ("text/plain", "aba b")
    stream = asked("none", stream=True)
    assert (stream.type, stream.text) == ("text/plain", "a b")


def test_the_forms_of_chats() -> None:
    content = asked("json_chat", parameters={"logprobs": 1}).json
    (choice,) = content["choices"]
    assert (content["object"], choice["message"]["content"]) == ("chat.completion", "a b")
    assert len(choice["logprobs"]["content"]) == 3
    lines = asked("jsonlines_chat")
    assert lines.type == "application/jsonlines"
    deltas = [it["choices"][0]["delta"] for it in lines.lines]
    assert deltas[0] == {"role": "assistant", "content": ""}
    assert "".join(it["content"] for it in deltas) == "a b"
    events = asked("sse_chat")
    assert events.type == "text/event-stream"
    assert events.events[-1] == "[DONE]"
    assert events.events[1]["object"] == "chat.completion.chunk"


def test_chats_are_events_where_the_deployment_configures_them() -> None:
    served = server(settings=config("option.output_formatter=sse_chat"))
    body = {"messages": [{"role": "user", "content": "hi"}], "stream": True}
    assert ask(served, "/invocations", body).events[-1] == "[DONE]"


@cases(
    "body, words",
    case("two inputs", {"inputs": ["a", "b"]}, "room for one text"),
    case("two sequences", {"parameters": {"n": 2}}, "room for one text"),
    case("our own", {"parameters": {"output_formatter": "none_stream"}}, "one of"),
)
def test_refused(body: dict[str, Any], words: str) -> None:
    answer = asked("3p", **body)
    assert answer.status == 424
    assert words in answer.json["error"]


@pytest.mark.parametrize("formatter", ["3p_stream", "none", "sse_chat"])
def test_a_stream_that_breaks_has_its_error_at_the_end(formatter: str) -> None:
    served = server()
    fake(served).fail_after = 2
    text = asked(formatter, served, stream=True).text.removesuffix("data: [DONE]\n\n")
    assert "ended unexpectedly" in text.rstrip().splitlines()[-1]
