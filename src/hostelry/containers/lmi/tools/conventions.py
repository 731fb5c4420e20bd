"""One model's way of writing calls and reasoning, configured or as its template shows."""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from hostelry.containers.lmi.tools.families import (
    CALL_BEGIN,
    MISTRAL_NAMED,
    REASONING_FAMILIES,
    TOOL_FAMILIES,
    ReasoningFamily,
    ToolFamily,
)
from hostelry.containers.lmi.tools.xml_calls import DSML

OFF: Final = "none"
_NULL_CONTENT = re.compile(r"content['\"\]]*\s+is\s+(not\s+)?none", re.IGNORECASE)

# A family and what a template of it holds; the first of which all is there counts.
TOOL_SIGNS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("openai", ("<|channel|>", "<|message|>")),
    ("mistral", ("[TOOL_CALLS]",)),
    ("gemma4", ("<|tool_call>", "call:")),
    ("deepseek_v4", (f"{DSML}tool_calls>",)),
    ("deepseek_v32", (f"{DSML}function_calls>",)),
    ("minimax_m2", ("<minimax:tool_call>", "<invoke name=")),
    ("deepseek_v3", (CALL_BEGIN, "```json")),
    ("deepseek_v31", (CALL_BEGIN,)),
    ("seed_oss", ("<seed:tool_call>", "<function=")),
    ("qwen3_coder", ("<tool_call>", "<function=", "<parameter=")),
    (OFF, ("<function=",)),  # calls in other XML, which no parser here reads
    ("glm45", ("<tool_call>", "<arg_key>")),
    ("granite", ("<|tool_call|>",)),
    ("hermes", ("<tool_call>",)),
    ("llama3_json", ('{"name": function name, "parameters":',)),
    ("llama3_json", ("<|python_tag|>",)),
    ("pythonic", ("[func_name1(",)),
)
REASONING_SIGNS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("openai_gptoss", ("<|channel|>analysis", "<|message|>")),
    ("mistral", ("[THINK]",)),
    ("granite", ("Here is my thought process:",)),
    ("gemma4", ("<|channel>", "thought")),
    ("seed_oss", ("<seed:think>",)),
    ("glm45", ("</think>", "<|assistant|>", "[gMASK]")),
    ("deepseek_r1", ("<\uff5cAssistant\uff5c><think>",)),
    ("deepseek_r1", ("<\uff5cAssistant\uff5c>", "</think>")),
    ("qwen3", ("</think>", "<|im_start|>")),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Conventions:
    """A model's families; None where it is of none.

    `auto_calls` is unset where the configuration says so: then calls are made only when a request
    forces them. `special` are the markers that are control tokens, and their ids.
    `takes_tools` is whether the template shows tools to the model, `null_content` whether it looks
    for null in the content of a message with calls. `unread_tools` and `unread_reasoning` are the
    names of configured parsers that are not known here: the answer's text stays as it is.
    """

    tools: ToolFamily | None = None
    reasoning: ReasoningFamily | None = None
    auto_calls: bool = True
    takes_tools: bool = False
    null_content: bool = False
    unread_tools: str | None = None
    unread_reasoning: str | None = None
    special: Mapping[str, int] = field(default_factory=dict)


def conventions_of(
    template: str | None,
    special: Mapping[str, int],
    *,
    tool_parser: str | None = None,
    reasoning_parser: str | None = None,
    auto_calls: bool = True,
) -> Conventions:
    """The conventions of a model with this template and these control tokens.

    A parser's name is a family's or one not known here, `none` for no parser, or None to go by the
    template.
    """
    text = template or ""
    tools = TOOL_FAMILIES.get(tool_parser or detected(text, TOOL_SIGNS))
    reasoning = REASONING_FAMILIES.get(reasoning_parser or detected(text, REASONING_SIGNS))
    if tools and tools.name == "mistral" and "[ARGS]" in text:
        tools = replace(tools, form=MISTRAL_NAMED)
    markers = (*(tools.markers if tools else ()), *(reasoning.markers if reasoning else ()))
    return Conventions(
        tools=tools,
        reasoning=reasoning,
        auto_calls=auto_calls,
        takes_tools=re.search(r"\btools\b", text) is not None,
        null_content=_NULL_CONTENT.search(text) is not None,
        unread_tools=unread(tool_parser, TOOL_FAMILIES),
        unread_reasoning=unread(reasoning_parser, REASONING_FAMILIES),
        special={marker: special[marker] for marker in markers if marker in special},
    )


def unread(name: str | None, families: Collection[str]) -> str | None:
    """The configured parser's name if it is not known here."""
    return None if name in (None, OFF) or name in families else name


def detected(template: str, signs: tuple[tuple[str, tuple[str, ...]], ...]) -> str:
    """The first family whose signs are all in the template."""
    return next((name for name, held in signs if all(it in template for it in held)), OFF)
