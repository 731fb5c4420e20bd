"""Tools and reasoning of a real server, whose random model obeys by structure alone."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest
from pydantic import BaseModel, Field
from tests.integration.lmi_rig import Server, byte_model, is_idle, serving

pytestmark = [pytest.mark.integration, pytest.mark.timeout(120)]

TEMPLATE = (
    "{% if tools %}{% for tool in tools %}{{ tool | tojson }}{% endfor %}<tool_call>{% endif %}"
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n<think>\n{% endif %}"
)


class Trip(BaseModel):
    """A trip to book."""

    city: str = Field(pattern="^[a-z]{1,8}$")
    nights: int = Field(ge=1, le=9)
    kind: str = Field(json_schema_extra={"enum": ["train", "bus"]})


TOOLS: Any = [
    openai.pydantic_function_tool(Trip, name="book"),
    {"type": "function", "function": {"name": "clock", "parameters": {"type": "object"}}},
]
CHAT: Any = {
    "model": "lmi",
    "messages": [{"role": "user", "content": "go"}],
    "max_tokens": 400,
    "temperature": 1,
    "seed": 5,
    "extra_body": {"thinking_token_budget": 6},
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    root: Path = tmp_path_factory.mktemp("tools")
    options = {
        "OPTION_CHAT_TEMPLATE": TEMPLATE,
        "OPTION_TOOL_CALL_PARSER": "hermes",
        "OPTION_REASONING_PARSER": "qwen3",
    }
    with serving(byte_model(root), root / "log", **options) as running:
        yield running


@pytest.fixture
def client(server: Server) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="any", max_retries=0) as made:
        yield made


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_named_function_gets_arguments_of_its_schema(client: openai.OpenAI, seed: int) -> None:
    choice: Any = {"type": "function", "function": {"name": "book"}}
    asked = {**CHAT, "tools": TOOLS, "tool_choice": choice, "seed": seed}
    answer = client.chat.completions.create(**asked).choices[0]
    assert answer.finish_reason == "stop"
    (call,) = answer.message.tool_calls or []
    assert call.type == "function"
    assert Trip.model_validate_json(call.function.arguments).kind in ("train", "bus")


def test_the_clients_own_parser_streams_and_reads_calls(client: openai.OpenAI) -> None:
    asked = {**CHAT, "tools": TOOLS, "tool_choice": "required", "parallel_tool_calls": False}
    whole = client.chat.completions.create(**asked).choices[0].message
    with client.chat.completions.stream(**asked) as stream:
        kinds = {event.type for event in stream}
        final = stream.get_final_completion().choices[0]
    assert final.finish_reason == "tool_calls"
    (call,) = final.message.tool_calls or []
    (same,) = whole.tool_calls or []
    assert same.type == "function"
    assert call.function.arguments == same.function.arguments
    if call.function.name == "book":
        assert isinstance(call.function.parsed_arguments, Trip)
    assert "tool_calls.function.arguments.delta" in kinds


def test_reasoning_is_apart_and_within_its_budget(client: openai.OpenAI) -> None:
    asked = {**CHAT, "max_tokens": 60, "extra_body": {**CHAT["extra_body"], "ignore_eos": False}}
    message = client.chat.completions.create(**asked).choices[0].message
    reasoning = message.model_extra["reasoning_content"] if message.model_extra else None
    assert reasoning
    # Each token is a byte. A byte that is not a character shows as a replacement character.
    assert len(reasoning) <= 6
    assert "</think>" not in reasoning + (message.content or "")


def test_a_structured_answer_follows_the_reasoning(client: openai.OpenAI) -> None:
    answer = client.chat.completions.parse(**CHAT, response_format=Trip).choices[0].message
    assert isinstance(answer.parsed, Trip)
    assert answer.model_extra
    assert answer.model_extra["reasoning_content"]


def test_forty_tools(client: openai.OpenAI) -> None:
    one: Any = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
    many = [
        {"type": "function", "function": {"name": f"f{number}", "parameters": one}}
        for number in range(40)
    ]
    asked = {**CHAT, "tools": many, "tool_choice": "required", "parallel_tool_calls": False}
    (call,) = client.chat.completions.create(**asked).choices[0].message.tool_calls or []
    assert call.type == "function"
    assert isinstance(json.loads(call.function.arguments)["a"], int)


def test_a_schema_that_cannot_be_kept_is_refused_by_its_keyword(
    client: openai.OpenAI, server: Server
) -> None:
    wrong: Any = {"type": "object", "properties": {"a": {"not": {"type": "string"}}}}
    tool: Any = {"type": "function", "function": {"name": "f", "parameters": wrong}}
    with pytest.raises(openai.BadRequestError, match="not"):
        client.chat.completions.create(**{**CHAT, "tools": [tool], "tool_choice": "required"})
    with server.client() as plain:
        assert is_idle(plain)
