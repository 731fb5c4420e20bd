"""Calls that Gemma 4 writes: <|tool_call>call:NAME{key:<|"|>text<|"|>,n:1}<tool_call|>.

Keys are bare and texts stand between special marks. The arguments are known as JSON once the
call is complete, so a stream has each call at once. Source: vLLM's parser of this name.
"""

import json
import re
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

OPENING, CLOSING, QUOTE = "<|tool_call>", "<tool_call|>", '<|"|>'
MAX_CALL_CHARACTERS = 65_536
MAX_VALUE_DEPTH = 64

_HEAD = re.compile(r"\s*call:([\w.:/-]{1,128})\s*\{")
_BARE = re.compile(r"[^,{}\[\]]*")
_GAP = re.compile(r"[\s,]*")
_NOTHING = ("null", "none", "nil")


class GemmaState(msgspec.Struct, frozen=True, kw_only=True):
    """The undecided text. In a call, its text so far, and whether a text in the call is open."""

    held: str = ""
    raw: str = ""
    in_call: bool = False
    in_text: bool = False


Step = tuple[GemmaState, tuple[Delta, ...]]


class GemmaCalls(msgspec.Struct, frozen=True):
    """Parser of calls anywhere in the text."""

    def start(self) -> GemmaState:
        """The state before the first character."""
        return GemmaState()

    def feed(
        self, state: GemmaState, text: str, *, final: bool = False
    ) -> tuple[GemmaState, tuple[Delta, ...]]:
        """The state after more text, and the deltas that the text made certain."""
        found: list[Delta] = []
        for start in range(0, len(text) or 1, PIECE_CHARACTERS):
            state = replace(state, held=state.held + text[start : start + PIECE_CHARACTERS])
            while state.held:
                step = self._call(state) if state.in_call else self._text(state, final)
                if step is None:
                    break
                state, deltas = step
                found += deltas
        return state, tuple(found)

    def finish(self, state: GemmaState) -> tuple[Delta, ...]:
        """The held text at the end. An incomplete call is content."""
        state, found = self.feed(state, "", final=True)
        rest = OPENING + state.raw + state.held if state.in_call else ""
        return (*found, ContentText(rest)) if rest else found

    def _text(self, state: GemmaState, final: bool) -> Step | None:
        cut = cut_at(state.held, (OPENING,))
        is_open = cut.marker is not None
        text = cut.before if is_open or not final else state.held
        if not text and not is_open:
            return None
        held = "" if final and not is_open else cut.after
        return GemmaState(held=held, in_call=is_open), (ContentText(text),) if text else ()

    def _call(self, state: GemmaState) -> Step | None:
        """Read to the next mark in a call. Texts may hold any other mark."""
        cut = cut_at(state.held, (QUOTE,) if state.in_text else (QUOTE, CLOSING))
        raw = state.raw + cut.before
        if len(raw) > MAX_CALL_CHARACTERS:
            return GemmaState(held=state.held), (ContentText(OPENING + state.raw),)
        if cut.marker is None:
            return (replace(state, held=cut.after, raw=raw), ()) if cut.before else None
        if cut.marker == QUOTE:
            raw += QUOTE
            return replace(state, held=cut.after, raw=raw, in_text=not state.in_text), ()
        whole = OPENING + raw + CLOSING
        call = gemma_call(raw)
        found: tuple[Delta, ...] = (ContentText(whole),)
        if call is not None:
            found = CallName(call[0]), CallArguments(call[1]), CallEnd(whole)
        return GemmaState(held=cut.after), found


def gemma_call(text: str) -> tuple[str, str] | None:
    """Name and JSON arguments of a call. None if the text is not a call."""
    head = _HEAD.match(text)
    if head is None:
        return None
    try:
        arguments, end = members(text, head.end(), 0)
        if text[end:].strip():
            return None
        return head[1], json.dumps(arguments, ensure_ascii=False, allow_nan=False)
    except ValueError:
        return None


def members(text: str, at: int, depth: int) -> tuple[dict[str, Any], int]:
    """The members of an object from `at` on, and the index after its brace. Raises ValueError."""
    found: dict[str, Any] = {}
    while True:
        at = skip_gap(text, at)
        if text.startswith("}", at):
            return found, at + 1
        end = text.index(":", at)
        key = text[at:end].strip().removeprefix(QUOTE).removesuffix(QUOTE)
        found[key], at = value_at(text, end + 1, depth + 1)


def value_at(text: str, at: int, depth: int) -> tuple[Any, int]:
    """The value from `at` on, and the index after it. Raises ValueError."""
    if depth > MAX_VALUE_DEPTH:
        raise ValueError("the value nests too deep")
    while text[at : at + 1].isspace():
        at += 1
    if text.startswith(QUOTE, at):
        start = at + len(QUOTE)
        end = text.index(QUOTE, start)
        return text[start:end], end + len(QUOTE)
    if text.startswith("{", at):
        return members(text, at + 1, depth)
    if text.startswith("[", at):
        return elements(text, at + 1, depth)
    bare = _BARE.match(text, at)
    if bare is None or not bare[0].strip():
        raise ValueError("there is no value")
    return bare_value(bare[0].strip()), bare.end()


def elements(text: str, at: int, depth: int) -> tuple[list[Any], int]:
    """The elements of a list from `at` on, and the index after its bracket. Raises ValueError."""
    found: list[Any] = []
    while True:
        at = skip_gap(text, at)
        if text.startswith("]", at):
            return found, at + 1
        value, at = value_at(text, at, depth + 1)
        found.append(value)


def skip_gap(text: str, at: int) -> int:
    """The index after blanks and commas."""
    gap = _GAP.match(text, at)
    return gap.end() if gap else at


def bare_value(text: str) -> Any:
    """A number, truth, nothing, or the text itself."""
    if text.lower() in _NOTHING:
        return None
    value = decode_json(text)
    return text if value is None else value
