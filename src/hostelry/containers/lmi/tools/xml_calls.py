r"""Calls that a model writes as a name and parameters in marks, with values as plain text.

    qwen3_coder  <tool_call>\n<function=NAME>\n<parameter=KEY>\nVALUE\n</parameter>\n
                 </function>\n</tool_call>
    minimax_m2   <minimax:tool_call><invoke name="NAME"><parameter name="KEY">VALUE</parameter>
                 </invoke></minimax:tool_call>
    glm45        <tool_call>NAME\n<arg_key>KEY</arg_key>\n<arg_value>VALUE</arg_value>\n</tool_call>

A value becomes JSON of the type that the function's schema gives the parameter, or a text if it is
not of that type. Texts are passed on as they come. No text is an error, and the held text is
bounded. Source: vLLM's parsers of these names.
"""

import ast
import json
from collections.abc import Collection, Mapping
from enum import Enum
from typing import Any

import msgspec
from msgspec.structs import replace

from hostelry.containers.lmi.tools.deltas import (
    PIECE_CHARACTERS,
    CallArguments,
    CallEnd,
    CallName,
    ContentText,
    Delta,
    cut_at,
)
from hostelry.containers.lmi.tools.json_calls import decode_json
from hostelry.containers.lmi.tools.pythonic import literal

MAX_NAME_CHARACTERS = 1024
DSML = "\uff5cDSML\uff5c"
MAX_VALUE_CHARACTERS = 65_536  # a longer value is always a text

_TYPES: Mapping[str, type | tuple[type, ...]] = {
    "integer": int,
    "number": (int, float),
    "boolean": bool,
    "object": dict,
    "array": list,
    "null": type(None),
}


class XmlMarks(msgspec.Struct, frozen=True, kw_only=True):
    """The marks of a family. `name_ends` and `value_ends` may name the next mark, which is kept.

    With `trims_lines` a line break at the beginning or the end of a value is not part of the value.
    The value after `text_key_end` is a text, even if the schema says otherwise. `tokens` are other
    control tokens that occur in marks.
    """

    opening: str = "<tool_call>"
    closing: str = "</tool_call>"
    name_begin: str = ""
    name_ends: tuple[str, ...]
    key_begin: str
    key_ends: tuple[str, ...]
    text_key_end: str = ""
    value_begin: str = ""
    value_ends: tuple[str, ...]
    call_end: str = ""
    trims_lines: bool = False
    tokens: tuple[str, ...] = ()

    @property
    def openings(self) -> tuple[str, ...]:
        """The marks that begin a call in the content. Models sometimes leave out the outer mark."""
        return (self.opening, self.name_begin) if self.name_begin else (self.opening,)

    @property
    def all(self) -> tuple[str, ...]:
        """The marks that may be control tokens."""
        marks = (self.opening, self.closing, self.key_begin, *self.key_ends, self.value_begin)
        ends = (*(end.strip() for end in self.value_ends), *self.tokens)
        return tuple(dict.fromkeys(it for it in (*marks, *ends) if is_token(it)))


def is_token(mark: str) -> bool:
    """True if a mark may be a control token: it is whole, and not cut before a name."""
    return mark[:1] in ("<", DSML[0]) and mark[-1:] in (">", DSML[-1])


def invoke_marks(
    outer: str, token: str = "", text_key_end: str = "", value_key_end: str = '">'
) -> XmlMarks:
    """Marks whose names are attributes, in an outer mark. Each mark begins with `token`."""
    end = f"</{token}parameter>"
    return XmlMarks(
        opening=f"<{token}{outer}>",
        closing=f"</{token}{outer}>",
        name_begin=f'<{token}invoke name="',
        name_ends=('">', "<", "\n"),
        key_begin=f'<{token}parameter name="',
        key_ends=tuple(filter(None, (text_key_end, value_key_end))),
        text_key_end=text_key_end,
        value_ends=(end,) if token else (f"\n{end}", end),
        call_end=f"</{token}invoke>",
        trims_lines=not token,
        tokens=(token,) if token else (),
    )


def dsml_marks(outer: str) -> XmlMarks:
    """DeepSeek's marks, whose parameters say whether they are texts."""
    return invoke_marks(outer, DSML, '" string="true">', '" string="false">')


def function_marks(prefix: str = "") -> XmlMarks:
    """Qwen 3 Coder's marks, the outer ones with a prefix in their names."""
    return XmlMarks(
        opening=f"<{prefix}tool_call>",
        closing=f"</{prefix}tool_call>",
        name_begin="<function=",
        name_ends=(">", "<", "\n"),
        key_begin="<parameter=",
        key_ends=(">",),
        value_ends=("\n</parameter>", "</parameter>", "\n<parameter=", "\n</function>"),
        call_end="</function>",
        trims_lines=True,
    )


GLM_MARKS = XmlMarks(
    name_ends=("\n", "<arg_key>", "</tool_call>"),
    key_begin="<arg_key>",
    key_ends=("</arg_key>",),
    value_begin="<arg_value>",
    value_ends=("</arg_value>",),
)


class CallPart(Enum):
    """The part that the held text begins."""

    TEXT = "text"  # content
    GROUP = "group"  # a call
    NAME = "name"  # the function's name
    PARAMETERS = "parameters"  # a parameter, or the end of the call
    KEY = "key"  # the parameter's name
    BEFORE_VALUE = "before value"  # the mark of a value
    VALUE = "value"  # the rest of a value
    AFTER = "after"  # the outer mark, after a call


class XmlState(msgspec.Struct, frozen=True, kw_only=True):
    """The phase, the text not decided yet, the call's parts so far.

    `raw` is the call's text while it may turn out to be content. With `is_marked_text` the key's
    mark makes the value a text. `value` is the value so far, unless `is_text`: then it is passed on
    as it comes.
    """

    phase: CallPart = CallPart.TEXT
    held: str = ""
    raw: str = ""
    name: str = ""
    key: str = ""
    is_marked_text: bool = False
    num_parameters: int = 0
    value: str = ""
    is_text: bool = False
    is_fresh: bool = False


Step = tuple[XmlState, tuple[Delta, ...]]


class XmlCalls(msgspec.Struct, frozen=True, kw_only=True):
    """Parser of one family. `schemas` are the functions' parameters by the function's name.

    A parameter without a type is a text with `untyped_is_text`, else the JSON value of its text.
    """

    marks: XmlMarks
    untyped_is_text: bool = False
    schemas: Mapping[str, Mapping[str, Any]] = msgspec.field(default_factory=dict)

    def start(self) -> XmlState:
        """The state before the first character."""
        return XmlState()

    def feed(
        self, state: XmlState, text: str, *, final: bool = False
    ) -> tuple[XmlState, tuple[Delta, ...]]:
        """The state after more text, and the deltas that the text made certain."""
        found: list[Delta] = []
        for start in range(0, len(text) or 1, PIECE_CHARACTERS):
            state = replace(state, held=state.held + text[start : start + PIECE_CHARACTERS])
            while state.held and (step := self._advance(state, final)) is not None:
                state, deltas = step
                found += deltas
        return state, tuple(found)

    def finish(self, state: XmlState) -> tuple[Delta, ...]:
        """The held text at the end. A call without its last marks ends, also inside a value."""
        state, found = self.feed(state, "", final=True)
        if state.phase in (CallPart.GROUP, CallPart.NAME):
            return (*found, ContentText(state.raw + state.held))
        is_whole = state.phase in (CallPart.PARAMETERS, CallPart.KEY, CallPart.BEFORE_VALUE)
        return (*found, CallArguments("}"), CallEnd("")) if is_whole else found

    def _advance(self, state: XmlState, final: bool) -> Step | None:
        """One step on the held text. None if it needs more text."""
        match state.phase:
            case CallPart.TEXT:
                return self._text(state, final)
            case CallPart.GROUP | CallPart.AFTER | CallPart.BEFORE_VALUE:
                return self._skip_expected(state, final)
            case CallPart.NAME:
                return self._name(state, final)
            case CallPart.PARAMETERS:
                return self._parameters(state)
            case CallPart.KEY:
                return self._key(state)
            case CallPart.VALUE:
                return self._value(state, final)

    def _text(self, state: XmlState, final: bool) -> Step | None:
        cut = cut_at(state.held, self.marks.openings)
        text = cut.before + (cut.after if final and cut.marker is None else "")
        found = (ContentText(text),) if text else ()
        if cut.marker is None:
            return (replace(state, held="" if final else cut.after), found) if text else None
        is_outer = cut.marker == self.marks.opening and self.marks.name_begin
        phase = CallPart.GROUP if is_outer else CallPart.NAME
        return XmlState(phase=phase, held=cut.after, raw=cut.marker), found

    def _skip_expected(self, state: XmlState, final: bool) -> Step | None:
        """Skip blanks and the expected mark. Without it, continue with the possible next part."""
        marks, is_group = self.marks, state.phase is CallPart.GROUP
        text = state.held.lstrip()
        raw = state.raw + state.held[: len(state.held) - len(text)] if is_group else ""
        expected: tuple[str, ...] = (marks.name_begin, marks.closing)
        otherwise = XmlState(held=state.held)
        if len(raw) > MAX_NAME_CHARACTERS:
            expected = ()
        elif state.phase is CallPart.BEFORE_VALUE:
            expected, otherwise = (marks.value_begin,), replace(state, phase=CallPart.PARAMETERS)
        for mark in expected:
            if text.startswith(mark) and not (is_group and mark == marks.closing):
                return self._after_mark(state, mark, raw + mark, text.removeprefix(mark))
        if not final and any(mark.startswith(text) for mark in expected):
            return None if text == state.held else (replace(state, held=text, raw=raw), ())
        return otherwise, (ContentText(state.raw),) if is_group else ()

    def _after_mark(self, state: XmlState, mark: str, raw: str, held: str) -> Step:
        if mark == self.marks.value_begin:
            return self._begin_value(replace(state, held=held))
        if mark == self.marks.closing:
            return XmlState(held=held), ()
        return XmlState(phase=CallPart.NAME, held=held, raw=raw), ()

    def _name(self, state: XmlState, final: bool) -> Step | None:
        marks = self.marks
        cut = cut_at(state.held, marks.name_ends)
        name = cut.before.strip()
        is_bad = "<" in name or len(cut.before) > MAX_NAME_CHARACTERS
        if cut.marker is None and not is_bad:
            return None
        ends = marks.name_ends[:1] if marks.name_begin else marks.name_ends
        if is_bad or not name or cut.marker not in ends:
            return XmlState(held=state.held), (ContentText(state.raw),)
        held = cut.after if cut.marker in (">", '">', "\n") else cut.marker + cut.after
        named = XmlState(phase=CallPart.PARAMETERS, held=held, name=name)
        return named, (CallName(name), CallArguments("{"))

    def _parameters(self, state: XmlState) -> Step | None:
        """Skip text up to a parameter or the end of the call."""
        marks = self.marks
        ends = tuple(filter(None, (marks.call_end, marks.closing)))
        cut = cut_at(state.held, (marks.key_begin, *ends))
        if cut.marker is None:
            return (replace(state, held=cut.after), ()) if cut.before else None
        if cut.marker == marks.key_begin:
            return replace(state, phase=CallPart.KEY, held=cut.after), ()
        phase = CallPart.AFTER if cut.marker == marks.call_end else CallPart.TEXT
        return XmlState(phase=phase, held=cut.after), (CallArguments("}"), CallEnd(""))

    def _key(self, state: XmlState) -> Step | None:
        cut = cut_at(state.held, self.marks.key_ends)
        key = cut.before.strip()
        if "<" in key or "\n" in key or len(cut.before) > MAX_NAME_CHARACTERS:
            return replace(state, phase=CallPart.PARAMETERS), ()
        if cut.marker is None:
            return None
        is_marked_text = cut.marker == self.marks.text_key_end
        keyed = replace(state, held=cut.after, key=key, is_marked_text=is_marked_text)
        if self.marks.value_begin:
            return replace(keyed, phase=CallPart.BEFORE_VALUE), ()
        return self._begin_value(keyed)

    def _begin_value(self, state: XmlState) -> Step:
        kinds = self._kinds(state)
        is_text = kinds == {"string"} or (not kinds and self.untyped_is_text)
        state = replace(state, phase=CallPart.VALUE, value="", is_text=is_text, is_fresh=True)
        return state, (CallArguments(head(state) + '"'),) if is_text else ()

    def _value(self, state: XmlState, final: bool) -> Step | None:
        if state.is_fresh:
            trimmed = state.held.removeprefix("\n") if self.marks.trims_lines else state.held
            return replace(state, held=trimmed, is_fresh=False), ()
        cut = cut_at(state.held, self.marks.value_ends)
        if cut.marker is None:
            text = cut.before + (cut.after if final else "")
            more = replace(state, held="" if final else cut.after)
            return self._more(more, text) if text else None
        mark = cut.marker.strip()
        is_own = mark not in (self.marks.key_begin, self.marks.call_end)
        held = cut.after if is_own else cut.marker + cut.after
        state, found = self._more(replace(state, held=held), cut.before)
        if state.is_text:
            end = '"'
        else:
            end = head(state) + encode_value(convert_text(state.value, self._kinds(state)))
        done = replace(
            state, phase=CallPart.PARAMETERS, value="", num_parameters=state.num_parameters + 1
        )
        return done, (*found, CallArguments(end))

    def _more(self, state: XmlState, text: str) -> Step:
        """Take more of a value. It is passed on as text if it is a text, or too long to be kept."""
        if state.is_text:
            return state, (CallArguments(encode_value(text)[1:-1]),) if text else ()
        value = state.value + text
        if len(value) <= MAX_VALUE_CHARACTERS:
            return replace(state, value=value), ()
        begun = replace(state, value="", is_text=True)
        return begun, (CallArguments(head(state) + encode_value(value)[:-1]),)

    def _kinds(self, state: XmlState) -> Collection[str]:
        """The JSON types of the present parameter. Empty if nothing says them."""
        if state.is_marked_text:
            return {"string"}
        properties = self.schemas.get(state.name, {}).get("properties")
        schema = properties.get(state.key) if isinstance(properties, dict) else None
        return find_kinds(schema)


def head(state: XmlState) -> str:
    """The JSON text before a parameter's value."""
    return (", " if state.num_parameters else "") + encode_value(state.key) + ": "


def encode_value(value: Any) -> str:
    """A value as JSON text."""
    return json.dumps(value, ensure_ascii=False)


def find_kinds(schema: Any) -> Collection[str]:
    """The types that a schema names, also in the choices of anyOf and oneOf."""
    if not isinstance(schema, dict):
        return ()
    named = schema.get("type")
    found = {it for it in (named if isinstance(named, list) else [named]) if isinstance(it, str)}
    for choices in (schema.get("anyOf"), schema.get("oneOf")):
        for choice in choices if isinstance(choices, list) else ():
            one = choice.get("type") if isinstance(choice, dict) else None
            found |= {one} if isinstance(one, str) else set()
    return found


def convert_text(text: str, kinds: Collection[str]) -> Any:
    """A parameter's text as a value of one of `kinds` (all if empty), or else as a text."""
    stripped = text.strip()
    if "null" in kinds and stripped.lower() in ("null", "none"):
        return None
    if "string" in kinds:
        return text
    value = read_value(stripped)
    if isinstance(value, float) and value.is_integer() and "integer" in kinds:
        value = int(value)
    for kind in kinds or _TYPES:
        if isinstance(value, _TYPES.get(kind, ())) and (
            kind == "boolean" or not isinstance(value, bool)
        ):
            return value
    return text


def read_value(text: str) -> Any:
    """Read the text as JSON, or as a Python literal (which models mix in), or else as a text."""
    if text == "null":
        return None
    value = decode_json(text)
    try:
        if value is None:
            value = literal(ast.parse(text, mode="eval").body, 0)
        json.dumps(value, ensure_ascii=False, allow_nan=False).encode()
    except (SyntaxError, ValueError, MemoryError, RecursionError):  # infinity, half characters too
        return text
    return value
