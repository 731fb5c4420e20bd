"""Parser of OpenAI's Responses requests. They are read as chat requests, and are not stored.

a member                                             is
--------------------------------------------------   ---------------------------------------------
instructions, input, text, max_output_tokens, ...    that member of a chat request
one of PASSED_ON                                     passed on under its own name
one of WITHOUT_EFFECT                                accepted: it cannot change an answer
one of STATEFUL, or any other                        refused by name

Source: OpenAI API reference, Responses, Create a model response.
"""

from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from hostelry.containers.lmi.refusal import bad_request
from hostelry.containers.lmi.request.context import ParseContext
from hostelry.containers.lmi.request.field_table import ignored_fields
from hostelry.containers.lmi.request.fields import BodyFields, show
from hostelry.containers.lmi.request.invocation import Invocation, Schema
from hostelry.containers.lmi.request.openai import MAX_MESSAGES, TEXT_KINDS, parse_chat

PASSED_ON = (
    "model", "temperature", "top_p", "stream", "adapters", "adapter", "seed", "top_k", "min_p",
    "stop", "repetition_penalty", "presence_penalty", "frequency_penalty", "logit_bias",
    "ignore_eos", "min_tokens", "stop_token_ids", "skip_special_tokens",
    "include_stop_str_in_output", "chat_template_kwargs", "structured_outputs",
    "guided_json", "guided_regex", "guided_choice", "guided_grammar",
)  # fmt: skip
WITHOUT_EFFECT = (
    "user", "safety_identifier", "prompt_cache_key", "prompt_cache_retention", "service_tier",
    "max_tool_calls", "parallel_tool_calls", "stream_options",
)  # fmt: skip
NOT_STORED = "responses are not stored here; leave it out and send the whole conversation in input"
NO_TOOLS = "tools are not served on this route; send them to /v1/chat/completions"
STATEFUL: Mapping[str, tuple[tuple[object, ...], str]] = {
    "store": ((False,), NOT_STORED),
    "previous_response_id": ((), NOT_STORED),
    "conversation": ((), NOT_STORED),
    "background": ((False,), NOT_STORED),
    "prompt": ((), "prompts are not stored here; send their text in input"),
    "tools": (([],), NO_TOOLS),
    "tool_choice": (("none", "auto"), NO_TOOLS),
    "truncation": (("disabled",), "an input that is too long is refused; it must be disabled"),
    "reasoning": (
        ({}, {"effort": None}, {"effort": "none"}),
        "the effort of reasoning is the model's own; see chat_template_kwargs",
    ),
}
OWN = ("input", "instructions", "text", "max_output_tokens", "metadata", "include", "top_logprobs")
LOGPROBS = "message.output_text.logprobs"
INCLUDABLE = (LOGPROBS, "reasoning.encrypted_content")  # no response contains the second
ROLES = ("user", "assistant", "system", "developer")
MAX_METADATA, MAX_KEY_CHARACTERS, MAX_VALUE_CHARACTERS = 16, 64, 512


def parse_responses(body: BodyFields, context: ParseContext) -> Invocation:
    """The invocation of a body with `input`. Raises Refusal."""
    check_members(body)
    wording = text_format(body)
    chat: dict[str, Any] = {name: body.raw(name) for name in PASSED_ON if name in body}
    chat["messages"] = build_messages(body)
    if wording["format"]["type"] != "text":
        chat["response_format"] = chat_format(wording["format"])
    most = body.integer("max_output_tokens", 1)
    if most is not None:
        chat["max_completion_tokens"] = most
    include = body.texts("include", most=len(INCLUDABLE), longest=100)
    top = body.integer("top_logprobs", 0, 20)
    if LOGPROBS in include:
        chat |= {"logprobs": True, "top_logprobs": top or 0}
    elif top:
        raise bad_request(f'top_logprobs is {top}, which needs include ["{LOGPROBS}"]', "include")
    fields = BodyFields(chat, "the body")
    ignored_fields(
        Schema.CHAT, fields, strict=True
    )  # refuses fields that a chat's body may not have
    invocation = parse_chat(fields, context)
    repeated = {
        "instructions": body.text("instructions"),
        "max_output_tokens": most,
        "metadata": parse_metadata(body),
        "temperature": invocation.sampling.temperature,
        "text": wording,
        "top_logprobs": top or 0,
        "top_p": invocation.sampling.top_p,
        "user": body.text("user"),
    }
    form = replace(invocation.form, schema=Schema.RESPONSES, repeated=repeated)
    return replace(invocation, form=form)


def check_members(body: BodyFields) -> None:
    """Raise Refusal for a member that is not served, or is not known."""
    for name, (accepted, reason) in STATEFUL.items():
        body.refuse(name, accepted, reason)
    known = (*OWN, *PASSED_ON, *WITHOUT_EFFECT, *STATEFUL)
    for name in body.names():
        if name not in known:
            raise bad_request(f"{show(name)} is not a field of /v1/responses", name)
    for name in body.texts("include", most=20, longest=100):
        if name not in INCLUDABLE:
            raise bad_request(
                f"include has {show(name)}; it may have {', '.join(INCLUDABLE)}", "include"
            )


def build_messages(body: BodyFields) -> list[dict[str, Any]]:
    """The chat: the instructions as a system message, then the input."""
    instructions, given = body.text("instructions"), body.raw("input")
    messages = [] if instructions is None else [{"role": "system", "content": instructions}]
    if isinstance(given, str):
        return [*messages, {"role": "user", "content": given}]
    if not isinstance(given, list) or not 0 < len(given) <= MAX_MESSAGES:
        raise bad_request(
            f"input is {show(given)}; it must be a text or a list of 1 to {MAX_MESSAGES} messages",
            "input",
        )
    return messages + [build_message(each, f"input[{at}]") for at, each in enumerate(given)]


def build_message(value: object, where: str) -> dict[str, Any]:
    """One message of the input. A developer's message is the system's."""
    item = BodyFields(value, where)
    kind, role = item.text("type") or "message", item.text("role")
    if kind != "message":
        raise bad_request(
            f"{where} has the type {show(kind)}; an input holds messages only", "input"
        )
    if role not in ROLES:
        raise bad_request(
            f"{where}.role is {show(role)}; it must be one of {', '.join(ROLES)}", "input"
        )
    content = item.raw("content")
    if isinstance(content, list):
        content = "".join(part_text(each, where) for each in content)
    if not isinstance(content, str):
        raise bad_request(
            f"{where}.content is {show(content)}; it must be a text or a list of parts",
            "input",
        )
    return {"role": "system" if role == "developer" else role, "content": content}


def part_text(value: object, where: str) -> str:
    """The text of a part of a message."""
    part = BodyFields(value, f"{where}.content")
    kind = part.text("type")
    if kind not in TEXT_KINDS:
        raise bad_request(
            f"{where} has a content part of type {show(kind)}; this route reads "
            f"{', '.join(TEXT_KINDS)}",
            "input",
        )
    return part.text(TEXT_KINDS[kind]) or ""


def text_format(body: BodyFields) -> dict[str, Any]:
    """The `text` member, complete."""
    text = body.members("text")
    text.refuse("verbosity", ("medium",), "the model decides how much it says")
    given = text.members("format")
    kind = given.text("type") or "text"
    if kind not in ("text", "json_object", "json_schema"):
        raise bad_request(
            f"text.format.type is {show(kind)}; it must be text, json_object or json_schema",
            "text",
        )
    return {"format": {"type": kind} if kind != "json_schema" else text.raw("format")}


def chat_format(given: Mapping[str, Any]) -> dict[str, Any]:
    """The `response_format` of a chat request for a `text.format`."""
    if given["type"] != "json_schema":
        return {"type": given["type"]}
    schema = {name: value for name, value in given.items() if name != "type"}
    return {"type": "json_schema", "json_schema": schema}


def parse_metadata(body: BodyFields) -> dict[str, str]:
    """Up to 16 texts by name, which the response repeats."""
    value = body.raw("metadata")
    if value is None:
        return {}
    if (
        not isinstance(value, dict)
        or len(value) > MAX_METADATA
        or not all(
            len(name) <= MAX_KEY_CHARACTERS
            and isinstance(text, str)
            and len(text) <= MAX_VALUE_CHARACTERS
            for name, text in value.items()
        )
    ):
        raise bad_request(
            f"metadata is {show(value)}; it must hold at most {MAX_METADATA} texts of "
            f"{MAX_VALUE_CHARACTERS} characters under names of {MAX_KEY_CHARACTERS}",
            "metadata",
        )
    return value
