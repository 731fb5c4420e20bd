"""Chats with tools and reasoning over HTTP: whole answers, streams, structures, refusals."""

import json
from collections.abc import Sequence
from typing import Any

import pytest
from msgspec.structs import replace
from tests.cases import case, cases
from tests.unit.containers.lmi.tiny import Answer, ask, config, fake, ids, server

from hostelry.containers.lmi.fake import FACTS, FakeBackend
from hostelry.containers.lmi.http.server import LmiServer
from hostelry.containers.lmi.request.tool_fields import MAX_TOOLS
from hostelry.containers.lmi.settings.option_reader import ConfigurationError

CHAT = "/v1/chat/completions"
ENDING = "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
HERMES = (  # in the manner of Qwen's: calls and reasoning in XML marks
    "{% if tools %}Tools: {% for tool in tools %}{{ tool | tojson }}{% endfor %} <tool_call>"
    "{% endif %}{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}"
    "{% for call in m.tool_calls or [] %}<tool_call>{{ call.function.arguments.city }}</tool_call>"
    "{% endfor %}<|im_end|>\n{% endfor %}"
    "{% if enable_thinking is defined and not enable_thinking %}<think>\n\n</think>\n{% endif %}"
) + ENDING
PLAIN = "{{ tools }}{% for m in messages %}{{ m.content }}{% endfor %}" + ENDING
DEAF = "{% for m in messages %}{{ m.content }}{% endfor %}"
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
WEATHER = {"type": "function", "function": {"name": "weather", "parameters": SCHEMA}}
STRICT = {
    "type": "function",
    "function": {"name": "weather", "parameters": SCHEMA, "strict": True},
}
CLOCK = {"type": "function", "function": {"name": "clock"}}
NAMED = {"type": "function", "function": {"name": "weather"}}
CALL = '{"name": "weather", "arguments": {"city": "Rome"}}'
XML = f"<tool_call>\n{CALL}\n</tool_call>"
LISTED = f"[{CALL}]"
USER = [{"role": "user", "content": "hi"}]


def served(text: str, template: str = HERMES, options: str = "") -> LmiServer:
    backend = FakeBackend({None: ids(text)}, facts=replace(FACTS, max_model_len=4096))
    return server(backend=backend, template=template, settings=config(options))


def chat(given: LmiServer, **fields: Any) -> Answer:
    return ask(given, CHAT, {"messages": USER, "tools": [WEATHER, CLOCK], **fields})


def structure_of(given: LmiServer) -> Any:
    """The structure in the engine's request. None for free text."""
    structure = fake(given).seen[-1].sampling.structure
    return None if structure is None else (structure.kind, structure.text)


def joined(events: Sequence[Any]) -> tuple[dict[str, Any], str]:
    """The message that a stream's deltas make, and its finish reason."""
    message: dict[str, Any] = {"content": None, "reasoning_content": None, "tool_calls": []}
    finish = ""
    for event in events:
        if event == "[DONE]" or not event["choices"]:
            continue
        (choice,) = event["choices"]
        finish = choice["finish_reason"] or finish
        delta = choice["delta"]
        for name in ("content", "reasoning_content"):
            if delta.get(name):
                message[name] = (message[name] or "") + delta[name]
        for part in delta.get("tool_calls", []):
            if "id" in part:
                assert part["index"] == len(message["tool_calls"])
                message["tool_calls"].append({**part, "function": dict(part["function"])})
            else:
                call = message["tool_calls"][part["index"]]
                call["function"]["arguments"] += part["function"]["arguments"]
    return message, finish


ANSWERS: list[Any] = [
    pytest.param(XML, {}, None, None, 1, "tool_calls", id="a call"),
    pytest.param(f"Well. {XML}\n{XML}", {}, "Well.", None, 2, "tool_calls", id="two, after text"),
    pytest.param("No need.", {}, "No need.", None, 0, "stop", id="no call"),
    pytest.param(
        f"<think>hm</think>\n\n{XML}", {}, None, "hm", 1, "tool_calls", id="reasoning, then a call"
    ),
    pytest.param("<think>hm</think>so", {}, "so", "hm", 0, "stop", id="reasoning"),
    pytest.param(
        "<think>hm</think>so", {"tools": None}, "so", "hm", 0, "stop", id="reasoning without tools"
    ),
    pytest.param(
        "<think>hm</think>so", {"include_reasoning": False}, "so", None, 0, "stop",
        id="reasoning that is left out",
    ),
    pytest.param(
        f"{XML}{XML}", {"parallel_tool_calls": False}, None, None, 1, "tool_calls",
        id="one call where two are too many",
    ),
    pytest.param(
        XML, {"tool_choice": "none"}, XML, None, 0, "stop", id="no call is asked for"
    ),
    pytest.param(XML, {"tool_choice": "required"}, None, None, 1, "tool_calls", id="forced"),
    pytest.param(XML, {"tool_choice": NAMED}, None, None, 1, "stop", id="named"),
    pytest.param(
        XML, {"max_tokens": 58}, None, None, 1, "length", id="a call that breaks off"
    ),
]  # fmt: skip


@pytest.mark.parametrize(("text", "fields", "content", "reasoning", "calls", "finish"), ANSWERS)
def test_a_message_has_its_calls_and_reasoning(
    text: str,
    fields: dict[str, Any],
    content: str | None,
    reasoning: str | None,
    calls: int,
    finish: str,
) -> None:
    fields = {"max_tokens": 250, **fields}
    given = served(text, options="option.reasoning_parser=qwen3")
    whole = chat(given, **fields)
    assert whole.status == 200, whole.text
    (choice,) = whole.json["choices"]
    message = choice["message"]
    assert (message["content"], choice["finish_reason"]) == (content, finish)
    assert message.get("reasoning_content") == message.get("reasoning") == reasoning
    made = message.get("tool_calls", [])
    assert len(made) == calls
    for call in made:
        assert (call["type"], call["function"]["name"]) == ("function", "weather")
        if finish != "length":
            assert json.loads(call["function"]["arguments"]) == {"city": "Rome"}
    assert len({call["id"] for call in made}) == calls
    streamed, ended = joined(chat(given, stream=True, **fields).events)
    assert (streamed["content"], ended) == (content, finish)
    assert streamed["reasoning_content"] == reasoning
    functions = [call["function"] for call in made]
    assert [call["function"] for call in streamed["tool_calls"]] == functions


@pytest.mark.parametrize("route", ["/v1/chat/completions", "/invocations"])
def test_arguments_are_streamed_as_they_come(route: str) -> None:
    body = {"messages": USER, "tools": [WEATHER], "stream": True, "max_tokens": 200}
    answer = ask(served(XML), route, body)
    parts = answer.events if route.startswith("/v1") else answer.lines
    message, finish = joined(parts)
    arguments = [
        part["function"]["arguments"]
        for event in parts
        if event != "[DONE]"
        for choice in event["choices"]
        for part in choice["delta"].get("tool_calls", [])
    ]
    assert "".join(arguments) == '{"city": "Rome"}'
    assert len(arguments) > 5
    assert (message["tool_calls"][0]["function"]["name"], finish) == ("weather", "tool_calls")


def test_each_choice_has_calls_of_its_own() -> None:
    answer = chat(served(XML), n=2, max_tokens=200, temperature=1, seed=3)
    first, second = (it["message"]["tool_calls"][0] for it in answer.json["choices"])
    assert first["function"] == second["function"]
    assert first["id"] != second["id"]


@cases(
    "fields, kind",
    case("auto: free text", {}, None),
    case("none: free text", {"tool_choice": "none"}, None),
    case("required: a structure", {"tool_choice": "required"}, "structural_tag"),
    case("named: a structure", {"tool_choice": NAMED}, "structural_tag"),
    case("a strict function: a structure", {"tools": [STRICT]}, "structural_tag"),
    case("a call or JSON", {"response_format": {"type": "json_object"}}, "structural_tag"),
    case("a budget", {"tools": None, "thinking_token_budget": 5}, "structural_tag"),
    case("JSON after reasoning", {"tools": None, "response_format": {"type": "json_object"}},
        "structural_tag"),
)  # fmt: skip
def test_what_is_guaranteed_bounds_the_tokens(fields: dict[str, Any], kind: str | None) -> None:
    given = served("x", options="option.reasoning_parser=qwen3")
    answer = chat(given, max_tokens=5, **fields)
    assert answer.status == 200, answer.text
    structure = structure_of(given)
    assert (structure[0] if structure else None) == kind
    if "tool_choice" in fields and structure:
        assert '"city"' in structure[1]


def test_a_forced_call_needs_no_form_of_the_models_own() -> None:
    answer = chat(served(LISTED, PLAIN), tool_choice="required", max_tokens=200)
    (call,) = answer.json["choices"][0]["message"]["tool_calls"]
    assert json.loads(call["function"]["arguments"]) == {"city": "Rome"}


def test_past_calls_and_results_reach_the_template() -> None:
    call = {
        "id": "c1",
        "type": "function",
        "function": {"name": "weather", "arguments": '{"city": "Oslo"}'},
    }
    history = [
        *USER,
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "cold"},
    ]
    answer = chat(served("x"), messages=history, return_prompt_text=True, max_tokens=2)
    prompt = answer.json["prompt_text"]
    assert "<tool_call>Oslo</tool_call>" in prompt
    assert "<|im_start|>tool\ncold<|im_end|>" in prompt
    assert '"name": "weather"' in prompt


def test_default_variables_of_the_template_give_way_to_a_requests() -> None:
    given = served("x", options='option.default_chat_template_kwargs={"enable_thinking": false}')
    fields = {"tools": None, "return_prompt_text": True, "max_tokens": 1}
    assert "<think>" in chat(given, **fields).json["prompt_text"]
    own = {"chat_template_kwargs": {"enable_thinking": True}}
    assert "<think>" not in chat(given, **fields, **own).json["prompt_text"]


REFUSALS: list[Any] = [
    pytest.param({"tools": {}}, "tools is {}; it must be a list", id="tools that are no list"),
    pytest.param({"tools": [7]}, r"tools[0] is 7", id="a tool that is no object"),
    pytest.param({"tools": [{"type": "web"}]}, r"tools[0].type is 'web'", id="another kind"),
    pytest.param(
        {"tools": [{"type": "function"}]}, r"tools[0].function is None", id="no function"
    ),
    pytest.param(
        {"tools": [{"type": "function", "function": {}}]}, "name is None", id="no name"
    ),
    pytest.param(
        {"tools": [{"type": "function", "function": {"name": "a b"}}]}, "letters", id="a bad name"
    ),
    pytest.param({"tools": [CLOCK, CLOCK]}, "two functions named clock", id="a name twice"),
    pytest.param(
        {"tools": [{"type": "function", "function": {"name": "f", "parameters": []}}]},
        "must be a JSON schema", id="parameters that are no schema",
    ),
    pytest.param(
        {"tools": [CLOCK] * (MAX_TOOLS + 1)}, f"at most {MAX_TOOLS} tools", id="too many tools"
    ),
    pytest.param({"tool_choice": "maybe"}, "tool_choice is 'maybe'", id="an unknown choice"),
    pytest.param(
        {"tool_choice": {"type": "function", "function": {"name": "fly"}}}, "names 'fly'",
        id="a choice of another function",
    ),
    pytest.param({"tool_choice": {"type": "function"}}, "must be none, auto", id="half a choice"),
    pytest.param(
        {"tools": [], "tool_choice": "required"}, "there are no tools", id="a choice of nothing"
    ),
    pytest.param(
        {"tool_choice": "required", "response_format": {"type": "json_object"}},
        "only one of them", id="a forced call and JSON",
    ),
    pytest.param(
        {"messages": [{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "{"}}]}]},  # noqa: E501
        "arguments is '{'", id="a past call that is no JSON",
    ),
    pytest.param(
        {"messages": [{"role": "assistant", "function_call": {"name": "f"}}]},
        "the history has calls in tool_calls", id="the older form",
    ),
    pytest.param({"functions": [{"name": "f"}]}, "functions", id="the older form of tools"),
    pytest.param(
        {"thinking_token_budget": 3, "tools": None}, "no marks", id="a budget without reasoning"
    ),
]  # fmt: skip


@pytest.mark.parametrize(("fields", "message"), REFUSALS)
def test_a_refusal_names_the_field(fields: dict[str, Any], message: str) -> None:
    answer = chat(served("x", PLAIN), **fields)
    assert answer.status == 400
    assert message in answer.text
    assert len(answer.text) < 1000


@cases(
    "template, options, message",
    case("a template without tools", DEAF, "", "does not show tools"),
    case("a model of no known family", PLAIN, "", "tool_call_parser"),
    case("auto is turned off", HERMES, "option.enable_auto_tool_choice=false",
        "enable_auto_tool_choice"),
)  # fmt: skip
def test_tools_that_the_model_cannot_use_are_refused(
    template: str, options: str, message: str
) -> None:
    answer = chat(served("x", template, options))
    assert answer.status == 400
    assert message in answer.text


@cases(
    "options, fields",
    case("a configured family", "option.tool_call_parser=hermes", {}),
    case("a forced call", "", {"tool_choice": "required"}),
)
def test_tools_that_the_template_does_not_show_are_named(
    options: str, fields: dict[str, Any]
) -> None:
    given = served(XML if options else LISTED, DEAF, options)
    answer = chat(given, max_tokens=250, **fields)
    assert answer.json["choices"][0]["message"]["tool_calls"][0]["function"]["name"] == "weather"
    assert answer.headers["x-hostelry-ignored-fields"] == "tools"
    assert "x-hostelry-ignored-fields" not in chat(given, tools=None).headers


def test_reasoning_stays_in_the_content_where_it_is_turned_off() -> None:
    given = served("<think>a</think>b", options="option.reasoning_parser=none")
    answer = chat(given, tools=None, max_tokens=50)
    assert answer.json["choices"][0]["message"]["content"] == "<think>a</think>b"


UNREAD = "option.tool_call_parser=Kimi_K9\noption.reasoning_parser=kimi_k9"


@cases(
    "fields, message",
    case("a chat without tools", {"tools": None}, ""),
    case("tools that are not to be called", {"tool_choice": "none"}, ""),
    case("a forced call", {"tool_choice": "required"}, ""),
    case("a call by the model's choice", {}, "tool_call_parser is kimi_k9, which"),
    case("reasoning to be left out", {"tools": None, "include_reasoning": False},
        "reasoning_parser is kimi_k9, which"),
    case("a budget of reasoning", {"tools": None, "thinking_token_budget": 5},
        "thinking_token_budget is 5"),
)  # fmt: skip
def test_a_parser_not_known_here_stops_only_what_needs_it(
    fields: dict[str, Any], message: str
) -> None:
    given = served(LISTED, options=UNREAD)
    answer = chat(given, max_tokens=250, **fields)
    assert (answer.status, message in answer.text) == (400 if message else 200, True)
    (workflow,) = ask(given, "/models/lmi", method="GET").json
    calls, thoughts = workflow["models"][0]["warnings"]
    assert "option.tool_call_parser is kimi_k9, which this server cannot read: calls stay" in calls
    assert "option.reasoning_parser is kimi_k9, which this server cannot read" in thoughts


def test_calls_in_xml_have_the_types_of_their_functions() -> None:
    text = (
        "<think>so</think>\n<tool_call>\n<function=f>\n<parameter=n>\n2\n</parameter>\n"
        "</function>\n</tool_call>"
    )
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}}
    tool = {"type": "function", "function": {"name": "f", "parameters": schema}}
    given = served(text, options="option.tool_call_parser=qwen3_coder")
    fields: dict[str, Any] = {"tools": [tool], "max_tokens": 250}
    message = chat(given, **fields).json["choices"][0]["message"]
    assert message["tool_calls"][0]["function"] == {"name": "f", "arguments": '{"n": 2}'}
    assert message["reasoning_content"] == "so"
    streamed, finish = joined(chat(given, stream=True, **fields).events)
    assert (streamed["tool_calls"][0]["function"], finish) == (
        message["tool_calls"][0]["function"],
        "tool_calls",
    )


@cases(
    "options, message",
    case("no name of a parser", "option.tool_call_parser=a b", "a parser's name"),
    case("a long name", f"option.reasoning_parser={'x' * 65}", "a parser's name"),
    case("a request's variable", 'option.default_chat_template_kwargs={"tools": []}', "tools"),
    case("variables that are no object", "option.default_chat_template_kwargs=[1]",
        "default_chat_template_kwargs"),
    case("a flag that is none", "option.enable_auto_tool_choice=maybe", "maybe"),
)  # fmt: skip
def test_a_wrong_option_stops_the_server_by_name(options: str, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        config(options)
