"""Calls that a model writes as a list of Python's calls: [f(a=1, b="x"), g()].

A call's arguments are literals. They are known as JSON once the call is complete, so a stream has
each call at once.
"""

import ast
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
    python_end,
)

MAX_CALL_CHARACTERS = 65_536
MAX_LITERAL_DEPTH = 64

_BEGIN = re.compile(r"[A-Za-z_][\w.]*\s*(\()?")


class Place(Enum):
    """The part that the held text begins."""

    START = "start"  # the whole text
    LIST = "list"  # a call, or the end of the list
    CALL = "call"  # the rest of a call
    TEXT = "text"  # content


class PythonicState(msgspec.Struct, frozen=True, kw_only=True):
    """The place, the undecided text, and the part of it that was searched for the call's end."""

    place: Place = Place.START
    held: str = ""
    raw: str = ""
    searched: int = 0
    nesting: Nesting = BEGIN
    num_calls: int = 0


PythonicStep = tuple[PythonicState, tuple[Delta, ...]]


class PythonicCalls(msgspec.Struct, frozen=True):
    """Parser of a list of calls at the beginning of the text."""

    def start(self) -> PythonicState:
        """The state before the first character."""
        return PythonicState()

    def feed(
        self, state: PythonicState, text: str, *, final: bool = False
    ) -> tuple[PythonicState, tuple[Delta, ...]]:
        """The state after more text, and the deltas that the text made certain."""
        state = replace(state, held=state.held + text)
        found: list[Delta] = []
        while state.held and (step := self._advance(state, final)) is not None:
            state, deltas = step
            found += deltas
        return state, tuple(found)

    def finish(self, state: PythonicState) -> tuple[Delta, ...]:
        """The held text at the end. An incomplete call is content."""
        state, found = self.feed(state, "", final=True)
        is_open = state.place is Place.LIST and not state.num_calls
        return (*found, ContentText(state.raw)) if is_open and state.raw else found

    def _advance(self, state: PythonicState, final: bool) -> PythonicStep | None:
        match state.place:
            case Place.TEXT:
                return replace(state, held=""), (ContentText(state.held),)
            case Place.START:
                return self._start(state, final)
            case Place.LIST:
                return self._list(state, final)
            case Place.CALL:
                return self._call(state, final)

    def _start(self, state: PythonicState, final: bool) -> PythonicStep | None:
        text = state.held.lstrip()
        if not text.startswith("["):
            return self._give_up(state) if text or final else None
        opened = state.held[: len(state.held) - len(text) + 1]
        return replace(state, place=Place.LIST, raw=opened, held=text[1:]), ()

    def _list(self, state: PythonicState, final: bool) -> PythonicStep | None:
        first = state.held[0]
        if first.isspace() or (first == "," and state.num_calls):
            return replace(state, raw=state.raw + first, held=state.held[1:]), ()
        if first == "]" and state.num_calls:
            return replace(state, place=Place.TEXT, raw="", held=state.held[1:]), ()
        begin = _BEGIN.match(state.held)
        if begin and begin.group(1):
            return replace(state, place=Place.CALL, searched=0, nesting=BEGIN), ()
        is_open = begin is not None and begin.end() == len(state.held) and not final
        return None if is_open and len(state.held) < MAX_CALL_CHARACTERS else self._give_up(state)

    def _call(self, state: PythonicState, final: bool) -> PythonicStep | None:
        room = state.held[state.searched : MAX_CALL_CHARACTERS]
        nesting, end = python_end(state.nesting, room)
        if end is None:
            if final or len(state.held) >= MAX_CALL_CHARACTERS:
                return self._give_up(state)
            if not room:
                return None
            return replace(state, searched=state.searched + len(room), nesting=nesting), ()
        length = state.searched + end
        text = state.held[:length]
        call = python_call(text)
        if call is None:
            return self._give_up(state)
        done = replace(
            state,
            place=Place.LIST,
            held=state.held[length:],
            raw="",
            num_calls=state.num_calls + 1,
        )
        return done, (CallName(call[0]), CallArguments(call[1]), CallEnd(text))

    def _give_up(self, state: PythonicState) -> PythonicStep:
        """Text outside calls is content."""
        text = state.raw + state.held
        found = (ContentText(text),) if text else ()
        return replace(state, place=Place.TEXT, raw="", held=""), found


def python_call(text: str) -> tuple[str, str] | None:
    """Name and JSON arguments of a call with keyword arguments. None if it is not such a call."""
    try:
        node = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, MemoryError, RecursionError):  # raised by the parser
        return None
    if not isinstance(node, ast.Call) or node.args:
        return None
    try:
        arguments = {each.arg: literal(each.value, 0) for each in node.keywords if each.arg}
        encoded = msgspec.json.encode(arguments).decode()
    except (ValueError, OverflowError, UnicodeError):
        return None
    name = join_dotted_name(node.func)
    if name is None or len(arguments) != len(node.keywords):
        return None
    return name, encoded


def join_dotted_name(node: ast.expr) -> str | None:
    """The text of a name, perhaps with dots."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return ".".join([node.id, *reversed(parts)]) if isinstance(node, ast.Name) else None


NAMED_VALUES = {"true": True, "false": False, "null": None}  # JSON's, which models mix in


def literal(node: ast.expr, depth: int) -> Any:
    """The value of a literal. Raises ValueError for anything else."""
    if depth > MAX_LITERAL_DEPTH:
        raise ValueError("the literal nests too deep")
    match node:
        case ast.Constant(value=None | bool() | int() | float() | str()):
            return node.value
        case ast.Name(id="true" | "false" | "null"):
            return NAMED_VALUES[node.id]
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as number)):
            return -number
        case ast.List(elts=elements) | ast.Tuple(elts=elements):
            return [literal(each, depth + 1) for each in elements]
        case ast.Dict(keys=keys, values=values):
            pairs = zip(keys, values, strict=True)
            return {text_key(key): literal(value, depth + 1) for key, value in pairs}
    raise ValueError("no literal")


def text_key(node: ast.expr | None) -> str:
    """A member's name. Raises ValueError for a name that JSON does not allow."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    raise ValueError("a member's name is no text")
