"""Parser of the tools that a chat offers, and of calls in its history."""

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from hostelry.containers.lmi.refusal import bad_request
from hostelry.containers.lmi.request.fields import BodyFields, parse_json, show
from hostelry.containers.lmi.tools.structures import Function

MAX_TOOLS = 1024
MAX_CALLS = 1024  # of one message
NO_ARGUMENTS: Mapping[str, Any] = {"type": "object", "properties": {}}
_NAME = re.compile(r"[\w.:/-]{1,128}", re.ASCII)


class ToolUse(msgspec.Struct, frozen=True, kw_only=True):
    """The tools of a request and their use.

    `shown` are the tools as the template gets them. The answer may call `functions`: with
    `is_forced` it must call one, with `is_named` exactly one.
    """

    shown: tuple[Mapping[str, Any], ...] = ()
    functions: tuple[Function, ...] = ()
    is_forced: bool = False
    is_named: bool = False
    is_parallel: bool = True


def parse_tool_use(body: BodyFields) -> ToolUse:
    """The tools of a chat's body. Raises Refusal."""
    tools = body.raw("tools")
    offered = () if tools is None else parse_tools(tools)
    choice = body.raw("tool_choice") if "tool_choice" in body else "auto"
    is_parallel = body.flag("parallel_tool_calls", True)
    if not offered and choice not in ("none", "auto"):
        raise bad_request(
            f"tool_choice is {show(choice)}, but there are no tools; send tools or leave it out",
            "tool_choice",
        )
    if choice == "none" or not offered:
        return ToolUse(shown=tuple(tools or ()))
    if choice in ("auto", "required"):
        return ToolUse(
            shown=tuple(tools),
            functions=offered,
            is_forced=choice == "required",
            is_parallel=is_parallel,
        )
    name = named_function(choice)
    functions = tuple(each for each in offered if each.name == name)
    if not functions:
        raise bad_request(
            f"tool_choice names {show(name)}, which is none of the tools", "tool_choice"
        )
    return ToolUse(
        shown=tuple(tools), functions=functions, is_forced=True, is_named=True, is_parallel=False
    )


def parse_tools(value: object) -> tuple[Function, ...]:
    """The functions of a list of tools."""
    if not isinstance(value, list) or len(value) > MAX_TOOLS:
        raise bad_request(
            f"tools is {show(value)}; it must be a list of at most {MAX_TOOLS} tools",
            "tools",
        )
    functions = tuple(parse_tool(each, f"tools[{number}]") for number, each in enumerate(value))
    names = [each.name for each in functions]
    for name in names:
        if names.count(name) > 1:
            raise bad_request(f"tools has two functions named {name}; rename one", "tools")
    return functions


def parse_tool(value: object, where: str) -> Function:
    """One tool: a function with its parameters' JSON schema."""
    tool = BodyFields(value, where)
    kind = tool.raw("type")
    if kind != "function":
        raise bad_request(f"{where}.type is {show(kind)}; it must be function", "tools")
    function = BodyFields(tool.raw("function"), f"{where}.function")
    name = function.raw("name")
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise bad_request(
            f"{where}.function.name is {show(name)}; it must be 1 to 128 letters, digits and "
            "_ . : / -",
            "tools",
        )
    schema = function.raw("parameters")
    if schema is not None and not isinstance(schema, dict):
        raise bad_request(
            f"{where}.function.parameters is {show(schema)}; it must be a JSON schema",
            "tools",
        )
    return Function(name=name, schema=schema or NO_ARGUMENTS, strict=function.flag("strict"))


def named_function(choice: object) -> str:
    """The name in OpenAI's form of a choice."""
    name = None
    if isinstance(choice, dict) and choice.get("type") == "function":
        function = choice.get("function")
        name = function.get("name") if isinstance(function, dict) else None
    if not isinstance(name, str):
        raise bad_request(
            f"tool_choice is {show(choice)}; it must be none, auto, required or "
            '{"type": "function", "function": {"name": NAME}}',
            "tool_choice",
        )
    return name


def parse_past_calls(value: object, where: str) -> list[dict[str, Any]]:
    """The calls of a message in the history, their arguments as objects, as templates read them."""
    if not isinstance(value, list) or len(value) > MAX_CALLS:
        raise bad_request(
            f"{where}.tool_calls is {show(value)}; it must be a list of at most {MAX_CALLS} calls",
            where,
        )
    return [past_call(each, f"{where}.tool_calls[{number}]") for number, each in enumerate(value)]


def past_call(value: object, where: str) -> dict[str, Any]:
    """One call of the history."""
    call = BodyFields(value, where)
    function = BodyFields(call.raw("function"), f"{where}.function")
    if not function.text("name"):
        raise bad_request(f"{where}.function has no name", where)
    given = function.raw("arguments")
    arguments = parsed_arguments(given) if isinstance(given, str) else given or {}
    if not isinstance(arguments, dict):
        raise bad_request(
            f"{where}.function.arguments is {show(given)}; it must be a JSON object, or the text "
            "of one; mend it before you send the call back",
            where,
        )
    return {
        **call.as_dict(),
        "type": "function",
        "function": {**function.as_dict(), "arguments": arguments},
    }


def parsed_arguments(text: str) -> Any:
    """The JSON value of a call's arguments. None if they are invalid JSON."""
    if not text.strip():
        return {}
    try:
        msgspec.json.decode(text)
    except (msgspec.MsgspecError, RecursionError, UnicodeError):
        return None
    return parse_json(text.encode())
