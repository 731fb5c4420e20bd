"""Options of tools, reasoning and the variables of chat templates."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from hostelry.containers.lmi.request.chat_fields import OWN_VARIABLES
from hostelry.containers.lmi.settings.option_reader import ConfigurationError, OptionReader
from hostelry.containers.lmi.tools.conventions import OFF
from hostelry.containers.lmi.tools.families import REASONING_FAMILIES, TOOL_FAMILIES


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
    reasoning = read.choice("reasoning_parser", "", (*REASONING_FAMILIES, OFF)) or None
    reasons = read.flag("enable_reasoning", True)
    variables = read.members("default_chat_template_kwargs")
    if taken := sorted(OWN_VARIABLES & variables.keys()):
        raise ConfigurationError(
            f"option.default_chat_template_kwargs has {taken[0]}, which only a request can set"
        )
    return ToolSettings(
        call_parser=read.choice("tool_call_parser", "", (*TOOL_FAMILIES, OFF)) or None,
        reasoning_parser=reasoning or (None if reasons else OFF),
        auto_choice=read.flag("enable_auto_tool_choice", True),
        template_variables=variables,
    )
