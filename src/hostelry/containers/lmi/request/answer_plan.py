"""The plan of a chat's answer: the structure that bounds its text, and how the text is read."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from hostelry.containers.lmi.refusal import Refusal, bad_request
from hostelry.containers.lmi.request.fields import BodyFields
from hostelry.containers.lmi.request.invocation import TextOptions
from hostelry.containers.lmi.request.tool_fields import ToolUse
from hostelry.containers.lmi.tools.deltas import TextParser
from hostelry.containers.lmi.tools.families import (
    JSON_FAMILY,
    TOOL_FAMILIES,
    Conventions,
    ToolFamily,
)
from hostelry.containers.lmi.tools.reading import AnswerReading
from hostelry.containers.lmi.tools.structures import (
    CallWriter,
    Format,
    after_thinking,
    build_choice,
)
from hostelry.containers.lmi.tools.thinking import Harmony, Thinking
from hostelry.containers.lmi.tools.xml_calls import XmlCalls
from hostelry.engine.request import SamplingParams, Structure

MAX_THINKING_TOKENS = 2**31 - 1
ANY_ANSWER: Format = {"type": "any_tokens"}


class AnswerPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The parser of reasoning after the prompt, the tools, and the model's conventions.

    The answer writes calls as `family` does, or has no calls without `family`. Without
    `shows_tools` the template does not show the tools to the model.
    """

    conventions: Conventions
    tools: ToolUse
    thinking: Thinking | Harmony | None = None
    family: ToolFamily | None = None
    budget_tokens: int | None = None
    shows_reasoning: bool = True
    shows_tools: bool = True

    @property
    def reading(self) -> AnswerReading | None:
        """The way to read the answer. None if all of its text is content."""
        if self.thinking is None and self.family is None:
            return None
        is_harmony = isinstance(self.thinking, Harmony) and self.family is not JSON_FAMILY
        family = None if is_harmony else self.family
        return AnswerReading(
            thinking=self.thinking,
            calls=self._call_parser(family),
            shows_reasoning=self.shows_reasoning,
            most_calls=None if self.tools.is_parallel else 1,
            named_choice=self.tools.is_named,
            call_id_length=self.family.call_id_length if self.family else None,
        )

    def _call_parser(self, family: ToolFamily | None) -> TextParser[Any] | None:
        """The family's parser, which may need the types of the functions' parameters."""
        parser = family.parser if family else None
        if isinstance(parser, XmlCalls):
            return replace(parser, schemas={it.name: it.schema for it in self.tools.functions})
        return parser

    def texts(self, texts: TextOptions) -> TextOptions:
        """Change `texts` to show the control tokens that the parsers look for."""
        families = (self.conventions.reasoning if self.thinking else None, self.family)
        special = self.conventions.special
        markers = {it for family in families if family for it in family.markers if it in special}
        return replace(texts, shown_tokens=frozenset(special[it] for it in markers))

    def sampling(self, sampling: SamplingParams) -> SamplingParams:
        """Add the structure of calls and reasoning to `sampling`. Raises Refusal."""
        asked = sampling.structure
        answer = self._answer(asked)
        if isinstance(self.thinking, Thinking) and not self.thinking.closed:
            if answer is None and asked is not None:
                answer = to_format(asked)
            if answer is None and self.budget_tokens is not None:
                answer = ANY_ANSWER
            if answer is not None:
                special = self.conventions.special
                answer = after_thinking(self.thinking, special, answer, self.budget_tokens)
        if answer is None:
            return sampling
        text = msgspec.json.encode(answer).decode()
        try:
            return replace(sampling, structure=Structure("structural_tag", text))
        except ValueError as error:
            raise bad_request(str(error)) from error

    def _answer(self, asked: Structure | None) -> Format | None:
        """The format of an answer with calls. None if it is free."""
        strict = [each for each in self.tools.functions if each.strict]
        if self.family is None or not (self.tools.is_forced or strict or asked):
            return None
        if self.family.form is None:
            raise build_form_refusal(
                self.family, "response_format" if asked else f"strict ({strict[0].name})"
            )
        writer = CallWriter(
            form=self.family.form,
            functions=self.tools.functions,
            special=self.conventions.special,
            parallel=self.tools.is_parallel,
            every=self.tools.is_forced,
        )
        if not self.tools.is_forced:
            return writer.offer(to_format(asked) if asked else None)
        if asked is not None:
            raise bad_request(
                "tool_choice forces a call, and structured output is asked for; only one of them "
                "can decide the answer",
                "tool_choice",
            )
        return writer.force()


def plan_answer(
    body: BodyFields, tools: ToolUse, conventions: Conventions, prompt: str, template: str | None
) -> AnswerPlan:
    """The plan of the answer to `prompt`. `template` is the request's own. Raises Refusal."""
    shows_tools = conventions.takes_tools if template is None else "tools" in template
    family = calling_family(tools, conventions, shows_tools) if tools.functions else None
    thinking = choose_thinking(conventions, prompt, calls=family is not None)
    budget = body.integer("thinking_token_budget", -1, MAX_THINKING_TOKENS)
    if budget == -1:
        budget = None
    if budget is not None and not isinstance(thinking, Thinking):
        raise bad_request(
            f"thinking_token_budget is {budget}, but the model's reasoning has no marks that could "
            "end it; leave it out, or name the marks with option.reasoning_parser",
            "thinking_token_budget",
        )
    shows_reasoning = body.flag("include_reasoning", True)
    if not shows_reasoning and conventions.unread_reasoning:
        raise bad_request(
            f"include_reasoning is false, and option.reasoning_parser is "
            f"{conventions.unread_reasoning}, which this server cannot read; leave it out",
            "include_reasoning",
        )
    return AnswerPlan(
        conventions=conventions,
        tools=tools,
        thinking=thinking,
        family=family,
        budget_tokens=budget,
        shows_reasoning=shows_reasoning,
        shows_tools=shows_tools or not tools.functions,
    )


def choose_thinking(
    conventions: Conventions, prompt: str, *, calls: bool
) -> Thinking | Harmony | None:
    """The parser of reasoning behind `prompt`. None for a model without reasoning."""
    names = [it.name for it in (conventions.reasoning, conventions.tools) if it]
    if "openai_gptoss" in names or (calls and "openai" in names):
        return Harmony(with_calls=calls)
    thinking = conventions.reasoning.thinking if conventions.reasoning else None
    return thinking.after_prompt(prompt) if thinking else None


def calling_family(tools: ToolUse, conventions: Conventions, shows_tools: bool) -> ToolFamily:
    """The family in which the answer writes its calls. Raises Refusal if no family can be used.

    As with vLLM, a call may be forced, and a configured family is read, even if the template does
    not show tools to the model.
    """
    own = conventions.tools
    if tools.is_forced:
        return own if own and own.form else JSON_FAMILY
    if not conventions.auto_calls:
        raise bad_request(
            "tool_choice is auto, which needs option.enable_auto_tool_choice=true; or force a call "
            "with tool_choice required",
            "tool_choice",
        )
    if conventions.unread_tools:
        raise bad_request(
            f"tool_choice is auto, and option.tool_call_parser is {conventions.unread_tools}, "
            f"which this server cannot read; set it to one of {', '.join(TOOL_FAMILIES)}, or force "
            "a call with tool_choice required",
            "tool_choice",
        )
    if own is None and not shows_tools:
        raise bad_request(
            "tools are given, but the chat template does not show tools to the model; leave them "
            "out, set option.chat_template to a template that has them, or force a call with "
            "tool_choice required",
            "tools",
        )
    if own is None:
        raise bad_request(
            "tool_choice is auto, and the chat template does not show how this model writes calls; "
            f"set option.tool_call_parser to one of {', '.join(TOOL_FAMILIES)}, or force a call "
            "with tool_choice required",
            "tool_choice",
        )
    return own


def build_form_refusal(family: ToolFamily, field: str) -> Refusal:
    """The refusal of a guarantee that a family's form of calls cannot have."""
    return bad_request(
        f"{field} cannot be guaranteed beside calls of the {family.name} family with tool_choice "
        "auto; leave it out, or force a call with tool_choice required",
        "tools",
    )


def to_format(structure: Structure) -> Format:
    """A structure as part of a structural tag. Raises Refusal if the text is invalid JSON."""
    match structure.kind:
        case "json_object":
            return schema_format({"type": "object", "additionalProperties": True})
        case "json_schema":
            return schema_format(decode_structure(structure))
        case "regex":
            return {"type": "regex", "pattern": structure.text}
        case "grammar":
            return {"type": "grammar", "grammar": structure.text}
        case "choice":
            choices: Sequence[str] = decode_structure(structure)
            return build_choice(*({"type": "const_string", "value": each} for each in choices))
        case "structural_tag":
            tag: Mapping[str, Any] = decode_structure(structure)
            return dict(tag)


def schema_format(schema: Any) -> Format:
    """A text that a JSON schema describes."""
    return {"type": "json_schema", "json_schema": schema}


def decode_structure(structure: Structure) -> Any:
    """The JSON value of a structure's text."""
    try:
        return msgspec.json.decode(structure.text)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise bad_request(f"the {structure.kind} is not JSON: {error}") from error
