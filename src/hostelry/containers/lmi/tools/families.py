"""Families of models, by their ways of writing calls and reasoning. Finds a model's families."""

import re
from collections.abc import Collection, Mapping
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from hostelry.containers.lmi.tools.deltas import TextParser
from hostelry.containers.lmi.tools.gemma_calls import CLOSING, OPENING, QUOTE, GemmaCalls
from hostelry.containers.lmi.tools.json_calls import JsonCalls
from hostelry.containers.lmi.tools.pythonic import PythonicCalls
from hostelry.containers.lmi.tools.thinking import MARKERS, Harmony, Thinking
from hostelry.containers.lmi.tools.xml_calls import (
    DSML,
    GLM_MARKS,
    XmlCalls,
    dsml_marks,
    function_marks,
    invoke_marks,
)


class CallForm(msgspec.Struct, frozen=True, kw_only=True):
    """A family's form of a group of calls. `{name}` stands for the function's name.

    A call is `before`, the arguments, `after`. `separator` stands between the calls of a group.
    Without it, each call is a group. With `bare` a group begins the answer and has no trigger.
    """

    begin: str = ""
    before: str
    after: str
    separator: str | None
    end: str = ""
    bare: bool = False


class ToolFamily(msgspec.Struct, frozen=True, kw_only=True):
    """One way of writing calls: its parser, its special tokens, and its form if it has one."""

    name: str
    parser: TextParser[Any]
    markers: tuple[str, ...] = ()
    form: CallForm | None = None
    call_id_length: int | None = None


class ReasoningFamily(msgspec.Struct, frozen=True, kw_only=True):
    """One way of writing reasoning: in marks, or without `thinking` in harmony's channels."""

    name: str
    thinking: Thinking | None
    markers: tuple[str, ...] = ()


OBJECT = '{"name": "{name}", "arguments": '
# Without a family's form a forced call is a list of JSON objects, as the first of the answer.
JSON_FAMILY = ToolFamily(
    name="json",
    parser=JsonCalls(bare="["),
    form=CallForm(begin="[", before=OBJECT, after="}", separator=", ", end="]", bare=True),
)
DEEPSEEK = tuple(
    f"<\uff5ctool\u2581{word}\uff5c>"
    for word in ("calls\u2581begin", "calls\u2581end", "call\u2581begin", "call\u2581end", "sep")
)
CALLS_BEGIN, CALLS_END, CALL_BEGIN, CALL_END, SEPARATOR = DEEPSEEK
MISTRAL_NAMED = CallForm(begin="[TOOL_CALLS]", before="{name}[ARGS]", after="", separator=None)


def deepseek(name: str, head: re.Pattern[str], before: str, after: str) -> ToolFamily:
    """A version of DeepSeek's markers."""
    return ToolFamily(
        name=name,
        parser=JsonCalls(
            openings=(CALLS_BEGIN,),
            closing=CALLS_END,
            item=CALL_BEGIN,
            head=head,
            item_end=CALL_END,
        ),
        markers=DEEPSEEK,
        form=CallForm(
            begin=CALLS_BEGIN,
            before=CALL_BEGIN + before,
            after=after + CALL_END,
            separator="\n" if name == "deepseek_v3" else "",
            end=CALLS_END,
        ),
    )


def xml_family(name: str, parser: XmlCalls) -> ToolFamily:
    """A family whose calls are in XML."""
    return ToolFamily(name=name, parser=parser, markers=parser.marks.all)


TOOL_FAMILIES: Mapping[str, ToolFamily] = {
    family.name: family
    for family in (
        ToolFamily(
            name="hermes",
            parser=JsonCalls(openings=("<tool_call>",), closing="</tool_call>"),
            markers=("<tool_call>", "</tool_call>"),
            form=CallForm(
                begin="<tool_call>",
                before="\n" + OBJECT,
                after="}\n",
                separator=None,
                end="</tool_call>",
            ),
        ),
        ToolFamily(
            name="llama3_json",
            parser=JsonCalls(openings=("<|python_tag|>",), bare="{"),
            markers=("<|python_tag|>",),
            form=CallForm(
                before='{"name": "{name}", "parameters": ', after="}", separator="; ", bare=True
            ),
        ),
        ToolFamily(
            name="mistral",
            parser=JsonCalls(
                openings=("[TOOL_CALLS]",),
                head=re.compile(r"([\w.:/-]+)\s*(?:\[CALL_ID\]\w+\s*)?(?:\[ARGS\]\s*)?"),
            ),
            markers=("[TOOL_CALLS]", "[ARGS]", "[CALL_ID]"),
            form=CallForm(begin="[TOOL_CALLS][", before=OBJECT, after="}", separator=", ", end="]"),
            call_id_length=9,
        ),
        ToolFamily(name="pythonic", parser=PythonicCalls()),
        ToolFamily(
            name="granite",
            parser=JsonCalls(openings=("<|tool_call|>", "<tool_call>"), bare="["),
            markers=("<|tool_call|>", "<tool_call>"),
            form=CallForm(
                begin="<|tool_call|>[", before=OBJECT, after="}", separator=", ", end="]"
            ),
        ),
        deepseek(
            "deepseek_v3",
            re.compile(rf"\s*function{SEPARATOR}([^\n<`]*[^\s<`])\s*```json\s*"),
            f"function{SEPARATOR}{{name}}\n```json\n",
            "\n```",
        ),
        deepseek(
            "deepseek_v31",
            re.compile(rf"\s*([^\s<`][^\n<`]*){SEPARATOR}\s*"),
            f"{{name}}{SEPARATOR}",
            "",
        ),
        ToolFamily(name="openai", parser=Harmony(), markers=MARKERS),
        ToolFamily(name="gemma4", parser=GemmaCalls(), markers=(OPENING, CLOSING, QUOTE)),
        *(xml_family(it, XmlCalls(marks=GLM_MARKS)) for it in ("glm45", "glm47")),
        *(
            xml_family(name, XmlCalls(marks=function_marks(prefix), untyped_is_text=True))
            for name, prefix in (
                ("qwen3_coder", ""),
                ("qwen3_xml", ""),
                ("mimo", ""),
                ("seed_oss", "seed:"),
            )
        ),
        xml_family(
            "minimax_m2", XmlCalls(marks=invoke_marks("minimax:tool_call"), untyped_is_text=True)
        ),
        xml_family("deepseek_v32", XmlCalls(marks=dsml_marks("function_calls"))),
        xml_family("deepseek_v4", XmlCalls(marks=dsml_marks("tool_calls"))),
    )
}
# Further names of vLLM for families above.
TOOL_FAMILIES = {
    **TOOL_FAMILIES,
    "llama4_json": TOOL_FAMILIES["llama3_json"],
    "llama4_pythonic": TOOL_FAMILIES["pythonic"],
}

THINK = Thinking(begins=("<think>",), ends=("</think>",))
REASONING_FAMILIES: Mapping[str, ReasoningFamily] = {
    family.name: family
    for family in (
        *(
            ReasoningFamily(name=name, thinking=THINK, markers=("<think>", "</think>"))
            for name in ("qwen3", "deepseek_v3", "glm45", "glm47", "mimo", "deepseek_v4")
        ),
        *(
            ReasoningFamily(
                name=name,
                thinking=replace(THINK, assumed=True),
                markers=("<think>", "</think>"),
            )
            for name in ("deepseek_r1", "minimax_m2")
        ),
        ReasoningFamily(
            name="gemma4",
            thinking=Thinking(begins=("<|channel>thought\n",), ends=("<channel|>",)),
            markers=("<|channel>", "<channel|>"),
        ),
        ReasoningFamily(
            name="seed_oss",
            thinking=Thinking(begins=("<seed:think>",), ends=("</seed:think>",)),
            markers=("<seed:think>", "</seed:think>"),
        ),
        ReasoningFamily(
            name="mistral",
            thinking=Thinking(begins=("[THINK]",), ends=("[/THINK]",)),
            markers=("[THINK]", "[/THINK]"),
        ),
        ReasoningFamily(
            name="granite",
            thinking=Thinking(
                begins=("Here is my thought process:", "Here's my thought process:"),
                ends=("Here is my response:", "Here's my response:"),
            ),
        ),
        ReasoningFamily(name="openai_gptoss", thinking=None, markers=MARKERS),
    )
}


OFF: Final = "none"
_NULL_CONTENT = re.compile(r"content['\"\]]*\s+is\s+(not\s+)?none", re.IGNORECASE)

# A family, and texts that are all in its templates. The first family that matches counts.
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


class Conventions(msgspec.Struct, frozen=True, kw_only=True):
    """A model's families. A model may lack a family of either kind.

    Without `auto_calls`, which the configuration may unset, only a request that forces a call gets
    a call. `special` are the markers that are control tokens, and their ids. `takes_tools` says
    whether the template shows tools to the model, `null_content` whether it looks for null in the
    content of a message with calls. `unread_tools` and `unread_reasoning` are the names of
    configured parsers that are not known here. Then the answer's text stays as it is.
    """

    tools: ToolFamily | None = None
    reasoning: ReasoningFamily | None = None
    auto_calls: bool = True
    takes_tools: bool = False
    null_content: bool = False
    unread_tools: str | None = None
    unread_reasoning: str | None = None
    special: Mapping[str, int] = msgspec.field(default_factory=dict)


def find_conventions(
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
    tools = TOOL_FAMILIES.get(tool_parser or detect_family(text, TOOL_SIGNS))
    reasoning = REASONING_FAMILIES.get(reasoning_parser or detect_family(text, REASONING_SIGNS))
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


def detect_family(template: str, signs: tuple[tuple[str, tuple[str, ...]], ...]) -> str:
    """The first family whose signs are all in the template."""
    return next((name for name, held in signs if all(it in template for it in held)), OFF)
