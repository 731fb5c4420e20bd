r"""Calls that a model writes as a name and a JSON object of arguments.

The families differ in their markers only:

    hermes       <tool_call>{"name": "f", "arguments": {...}}</tool_call>, again and again
    llama3_json  {"name": "f", "parameters": {...}}; {...}          as the first of the answer
    mistral      [TOOL_CALLS][{"name": "f", "arguments": {...}}, {...}], or [TOOL_CALLS]f[ARGS]{...}
    granite      <|tool_call|>[{"name": "f", "arguments": {...}}, {...}]
    deepseek_v3  <calls begin><call begin>function<sep>f\n```json\n{...}\n```<call end><calls end>

A group of calls begins with a marker, or (`bare`) at the beginning of the text. It holds objects or
named objects, sometimes in a list. It ends with a marker, or with text that is not a call.
"""

import re
from enum import Enum
from typing import Any

import msgspec
from msgspec.structs import replace

from hostelry.containers.lmi.tools.deltas import (
    BEGIN,
    CallArguments,
    CallEnd,
    CallName,
    ContentText,
    Delta,
    Nesting,
    cut_at,
    json_end,
)

MAX_HEAD_CHARACTERS = 4096  # of a call before its arguments begin, and after they end

# A call up to its arguments, the name first. Other orders are read once the object is complete.
_HEAD = re.compile(
    r'\{\s*"name"\s*:\s*("(?:[^"\\]|\\.)+")\s*,\s*"(?:arguments|parameters)"\s*:\s*(?=\{)'
)
_FIRST_KEY = re.compile(r'\{\s*(?:"([^"]*)"|[^\s"])')
_KEYS = frozenset({"name", "arguments", "parameters", "type", "id"})


class Phase(Enum):
    """The part that the held text begins."""

    START = "start"  # the whole text
    TEXT = "text"  # content
    GROUP = "group"  # a call, or the end of the group
    HEAD = "head"  # a call
    ARGUMENTS = "arguments"  # the rest of the arguments
    TAIL = "tail"  # the end of a call


class JsonCallsState(msgspec.Struct, frozen=True, kw_only=True):
    """The phase, the undecided text, and the present call's text so far."""

    phase: Phase
    held: str = ""
    raw: str = ""
    nesting: Nesting = BEGIN
    named: bool = False
    in_list: bool = False
    num_calls: int = 0  # of the group


Step = tuple[JsonCallsState, tuple[Delta, ...]]


class JsonCalls(msgspec.Struct, frozen=True, kw_only=True):
    """Parser of one family.

    `openings` begin a group, and `closing` ends it. The characters `bare` begin a group at the
    beginning of the text. `item` begins a call that has its name before its arguments, as `head`
    matches it (group 1 is the name). `item_end` ends such a call.
    """

    openings: tuple[str, ...] = ()
    closing: str = ""
    bare: str = ""
    item: str = ""
    head: re.Pattern[str] | None = None
    item_end: str = ""

    def start(self) -> JsonCallsState:
        """The state before the first character."""
        return JsonCallsState(phase=Phase.START if self.bare else Phase.TEXT)

    def feed(
        self, state: JsonCallsState, text: str, *, final: bool = False
    ) -> tuple[JsonCallsState, tuple[Delta, ...]]:
        """The state after more text, and the deltas that the text made certain."""
        state = replace(state, held=state.held + text)
        found: list[Delta] = []
        while state.held or final:
            step = self._advance(state, final)
            if step is None:
                break
            state, deltas = step
            found += deltas
        return state, tuple(found)

    def finish(self, state: JsonCallsState) -> tuple[Delta, ...]:
        """The held text at the end. A call without its arguments is content."""
        return self.feed(state, "", final=True)[1]

    def _advance(self, state: JsonCallsState, final: bool) -> Step | None:
        """One step on the held text. None if it needs more text."""
        match state.phase:
            case Phase.START:
                return self._start(state, final)
            case Phase.TEXT:
                return self._text(state, final)
            case Phase.GROUP:
                return self._group(state, final)
            case Phase.HEAD:
                return self._read_name(state, final) if state.named else self._object(state, final)
            case Phase.ARGUMENTS:
                return self._arguments(state)
            case Phase.TAIL:
                return self._tail(state, final)

    def _start(self, state: JsonCallsState, final: bool) -> Step | None:
        first = state.held.lstrip()[:1]
        if not first and not final:
            return None
        is_call = bool(first) and first in self.bare
        return replace(state, phase=Phase.GROUP if is_call else Phase.TEXT), ()

    def _text(self, state: JsonCallsState, final: bool) -> Step | None:
        cut = cut_at(state.held, self.openings)
        if cut.marker is not None:
            opened = JsonCallsState(phase=Phase.GROUP, held=cut.after, raw=cut.marker)
            return opened, content(cut.before)
        if final:
            return (replace(state, held=""), content(state.held)) if state.held else None
        return (replace(state, held=cut.after), content(cut.before)) if cut.before else None

    def _group(self, state: JsonCallsState, final: bool) -> Step | None:
        text = state.held.lstrip()
        space = state.held[: len(state.held) - len(text)]
        if not text and not final:
            return None
        for marker in filter(None, (self.closing, self.item)):
            if not text.startswith(marker) and marker.startswith(text) and not final:
                return None
        if self.closing and text.startswith(self.closing):
            return self._close(state, space + self.closing, text.removeprefix(self.closing))
        if self.item and text.startswith(self.item):
            return self._begin(state, space + self.item, text.removeprefix(self.item), named=True)
        return self._group_member(state, space, text)

    def _group_member(self, state: JsonCallsState, space: str, text: str) -> Step:
        """A bracket, a separator or the beginning of a call. Anything else ends the group."""
        first = text[:1]
        if first == "[" and not state.in_list and not state.num_calls:
            return self._skip(state, space + first, text[1:], in_list=True)
        if first == "]" and state.in_list and state.num_calls:
            return self._skip(state, space + first, text[1:], in_list=False)
        if first in (",", ";") and state.num_calls:
            return self._skip(state, space + first, text[1:], in_list=state.in_list)
        if first == "{":
            return self._begin(state, space, text, named=False)
        is_name = first.isalnum() or first == "_"
        if self.head and not self.item and not state.in_list and not state.num_calls and is_name:
            return self._begin(state, space, text, named=True)
        return self._give_up(state, "")

    def _close(self, state: JsonCallsState, marker: str, after: str) -> Step:
        """The state after a group. A group without a call is content."""
        text = "" if state.num_calls else state.raw + marker
        return JsonCallsState(phase=Phase.TEXT, held=after), content(text)

    def _begin(self, state: JsonCallsState, before: str, held: str, *, named: bool) -> Step:
        raw = state.raw + before
        return replace(state, phase=Phase.HEAD, raw=raw, held=held, named=named), ()

    def _skip(self, state: JsonCallsState, text: str, held: str, *, in_list: bool) -> Step:
        return replace(state, raw=state.raw + text, held=held, in_list=in_list), ()

    def _give_up(self, state: JsonCallsState, malformed: str) -> Step:
        """The end of a group that has no call here. Text that is not a call is content.

        `malformed` is the part of the held text that belongs to the group. The rest is text again.
        """
        only_separators = bool(state.num_calls) and not malformed
        text = "" if only_separators and not state.raw.strip(" \n\t,;]") else state.raw + malformed
        held = state.held[len(malformed) :]
        return JsonCallsState(phase=Phase.TEXT, held=held), content(text)

    def _object(self, state: JsonCallsState, final: bool) -> Step | None:
        region, closed = self._head_region(state.held)
        head = _HEAD.match(region)
        name = decode_json(head.group(1)) if head else None
        if head and isinstance(name, str):
            return self._announce(state, name, head.end())
        first_key = _FIRST_KEY.match(region)
        if first_key and first_key.group(1) not in _KEYS:
            return self._give_up(state, "")
        _, end = json_end(BEGIN, region)
        if end is not None:
            return self._whole_object(state, end)
        if closed or final or len(state.held) >= MAX_HEAD_CHARACTERS:
            return self._give_up(state, region + self.closing if closed else "")
        return None

    def _read_name(self, state: JsonCallsState, final: bool) -> Step | None:
        assert self.head is not None
        region, closed = self._head_region(state.held)
        brace = region.find("{")
        head = self.head.fullmatch(region[:brace]) if brace >= 0 else None
        if head:
            return self._announce(state, head.group(1), brace)
        if brace >= 0 or closed or final or len(state.held) >= MAX_HEAD_CHARACTERS:
            return self._give_up(state, region + self.closing if closed else "")
        return None

    def _head_region(self, held: str) -> tuple[str, bool]:
        """The part of the held text that may hold the beginning of a call, and if it was closed."""
        region = held[:MAX_HEAD_CHARACTERS]
        if self.closing and (end := region.find(self.closing)) >= 0:
            return region[:end], True
        return region, False

    def _announce(self, state: JsonCallsState, name: str, head_length: int) -> Step:
        """The call by its name. Its arguments begin behind `head_length` characters."""
        raw, held = state.raw + state.held[:head_length], state.held[head_length:]
        begun = replace(state, phase=Phase.ARGUMENTS, raw=raw, held=held, nesting=BEGIN)
        return begun, (CallName(name),)

    def _whole_object(self, state: JsonCallsState, end: int) -> Step:
        """A call whose members come in another order, or whose arguments are missing or text."""
        text = state.held[:end]
        call = named_call(decode_json(text))
        if call is None:
            return self._give_up(state, text)
        name, arguments = call
        ended = self._close_call(state, text, state.held[end:])
        return ended, (CallName(name), CallArguments(arguments), CallEnd(state.raw + text))

    def _arguments(self, state: JsonCallsState) -> Step | None:
        if not state.held:
            return None
        nesting, end = json_end(state.nesting, state.held)
        text = state.held[:end]
        held = "" if end is None else state.held[end:]
        phase = Phase.ARGUMENTS if end is None else Phase.TAIL
        state = replace(state, phase=phase, held=held, raw=state.raw + text, nesting=nesting)
        return state, (CallArguments(text),)

    def _tail(self, state: JsonCallsState, final: bool) -> Step | None:
        """Past the rest of a call: an object's other members, or a named call's end marker."""
        if state.named and not self.item_end:
            return self._end_call(state, 0)
        marker = self.item_end if state.named else self.closing
        at = state.held.find(marker) if marker else -1
        end = None if state.named else json_end(Nesting(depth=1), state.held)[1]
        if end is not None and (at < 0 or end <= at):
            return self._end_call(state, end)
        if at >= 0:
            return self._end_call(state, at + len(marker) if state.named else at)
        if final or len(state.held) >= MAX_HEAD_CHARACTERS:
            return self._end_call(state, 0)
        return None

    def _end_call(self, state: JsonCallsState, length: int) -> Step:
        tail = state.held[:length]
        return self._close_call(state, tail, state.held[length:]), (CallEnd(state.raw + tail),)

    def _close_call(self, state: JsonCallsState, text: str, held: str) -> JsonCallsState:
        return replace(
            state, phase=Phase.GROUP, raw="", held=held, named=False, num_calls=state.num_calls + 1
        )


def content(text: str) -> tuple[Delta, ...]:
    """The delta of a text. No delta for an empty text."""
    return (ContentText(text),) if text else ()


def decode_json(text: str) -> Any:
    """The JSON value of `text`. None if it is invalid JSON."""
    try:
        return msgspec.json.decode(text)
    except (msgspec.MsgspecError, RecursionError, UnicodeError):
        return None


def named_call(value: Any) -> tuple[str, str] | None:
    """Name and JSON text of the arguments of a call's object. None for any other value."""
    if not isinstance(value, dict):
        return None
    name = value.get("name")
    arguments = value.get("arguments", value.get("parameters"))
    if isinstance(arguments, str):
        arguments = decode_json(arguments)
    if arguments is None and not value.keys() & {"arguments", "parameters"}:
        arguments = {}
    if not isinstance(name, str) or not name or not isinstance(arguments, dict):
        return None
    return name, msgspec.json.encode(arguments).decode()
