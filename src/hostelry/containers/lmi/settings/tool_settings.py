"""Options of tools, reasoning and the variables of chat templates."""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from hostelry.containers.lmi.request.chat_fields import OWN_VARIABLES
from hostelry.containers.lmi.settings.option_reader import ConfigurationError, OptionReader
from hostelry.containers.lmi.tools.conventions import OFF
from hostelry.containers.lmi.tools.families import REASONING_FAMILIES, TOOL_FAMILIES

_NAME = re.compile(r"[\w.-]{1,64}", re.ASCII)
# Option -> what its parser reads, and the fields that need it.
EFFECTS: Mapping[str, tuple[str, str]] = {
    "tool_call_parser": ("calls", "tools and tool_choice auto"),
    "reasoning_parser": ("thoughts", "thinking_token_budget or include_reasoning false"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolSettings:
    """Names of parsers (None: by the chat template, `none`: no parser) and template variables.

    Without `auto_choice` only a request that forces a call gets one. `template_variables` are those
    of requests that give none of their own.
    """

    call_parser: str | None = None
    reasoning_parser: str | None = None
    auto_choice: bool = True
    template_variables: Mapping[str, Any] = field(default_factory=dict)


def parse_tool_settings(read: OptionReader) -> ToolSettings:
    """The settings in the options. Raises ConfigurationError."""
    calls = parser_name(read, "tool_call_parser", TOOL_FAMILIES)
    reasoning = parser_name(read, "reasoning_parser", REASONING_FAMILIES)
    reasons = read.flag("enable_reasoning", True)
    variables = read.members("default_chat_template_kwargs")
    if taken := sorted(OWN_VARIABLES & variables.keys()):
        raise ConfigurationError(
            f"option.default_chat_template_kwargs has {taken[0]}, which only a request can set"
        )
    return ToolSettings(
        call_parser=calls,
        reasoning_parser=reasoning or (None if reasons else OFF),
        auto_choice=read.flag("enable_auto_tool_choice", True),
        template_variables=variables,
    )


def parser_name(read: OptionReader, option: str, known: Collection[str]) -> str | None:
    """The parser that the option names; a name that is not known here is a warning.

    Most chats need no parser, and vLLM has more of them from version to version.
    """
    name = read.parsed(option, well_formed)
    if name is not None and name not in (*known, OFF):
        what, needs = EFFECTS[option]
        read.warnings.append(
            f"option.{option} is {name}, which this server cannot read: {what} stay in the "
            f"answer's text, and requests with {needs} are refused; known are {', '.join(known)}"
        )
    return name


def well_formed(value: str) -> str:
    """A parser's name in small letters. Raises ValueError."""
    if not _NAME.fullmatch(value):
        raise ValueError("must be a parser's name, of letters, digits, _, - and .")
    return value.lower()
