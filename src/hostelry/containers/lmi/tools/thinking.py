"""Reasoning in a model's answer: between two marks, or in the channels of gpt-oss's harmony format.

A message in the harmony format is a header, <|message|>, a body and an end marker. The header names
the channel: `analysis` is reasoning, `final` the answer. A recipient `to=functions.NAME` makes the
message a call. Source: OpenAI's harmony response format.
"""

import re
from enum import Enum

import msgspec
from msgspec.structs import replace

from hostelry.containers.lmi.tools.deltas import (
    CallArguments,
    CallEnd,
    CallName,
    ContentText,
    Delta,
    ReasoningText,
    cut_at,
)

MAX_HEADER_CHARACTERS = 1024
BODY, START, CHANNEL, CONSTRAIN = "<|message|>", "<|start|>", "<|channel|>", "<|constrain|>"
ENDS = ("<|end|>", "<|call|>", "<|return|>")
MARKERS = (BODY, START, CHANNEL, CONSTRAIN, *ENDS)

_RECIPIENT = re.compile(r"to=functions\.([^\s<]+)")
_CHANNEL = re.compile(r"<\|channel\|>\s*(\w+)")


class Thought(Enum):
    """The part of the answer that the text is in."""

    BEFORE = "before"
    INSIDE = "inside"
    AFTER = "after"


class ThinkingState(msgspec.Struct, frozen=True):
    """The part that the text is in, and the text that is not decided yet."""

    thought: Thought
    held: str = ""


class Thinking(msgspec.Struct, frozen=True, kw_only=True):
    """Parser of one family's marks, which have one or more spellings.

    With `assumed` text without a beginning mark is reasoning, too, up to the end mark, unless the
    prompt ended the reasoning (`closed`). `opened` says that the present prompt begins it.
    """

    begins: tuple[str, ...]
    ends: tuple[str, ...]
    assumed: bool = False
    opened: bool = False
    closed: bool = False

    def after_prompt(self, prompt: str) -> "Thinking":
        """The parser for the text behind `prompt`, which may begin or end the reasoning."""
        tail = prompt.rstrip()
        if tail.endswith(self.ends):
            return replace(self, opened=False, closed=True)
        return replace(self, opened=tail.endswith(self.begins) or self.assumed)

    def start(self) -> ThinkingState:
        """The state before the first character."""
        return ThinkingState(Thought.BEFORE)

    def feed(
        self, state: ThinkingState, text: str, *, final: bool = False
    ) -> tuple[ThinkingState, tuple[Delta, ...]]:
        """The state after more text, and the deltas that the text made certain."""
        state = replace(state, held=state.held + text)
        found: list[Delta] = []
        if state.thought is Thought.BEFORE:
            state = self._begin(state, final)
        if state.thought is Thought.INSIDE:
            cut = cut_at(state.held, self.ends)
            is_cut = final and cut.marker is None
            reasoning = cut.before + (cut.after if is_cut else "")
            found += [ReasoningText(reasoning)] if reasoning else []
            thought = Thought.INSIDE if cut.marker is None else Thought.AFTER
            state = ThinkingState(thought, "" if is_cut else cut.after)
        if state.thought is Thought.AFTER and state.held:
            found.append(ContentText(state.held))
            state = replace(state, held="")
        return state, tuple(found)

    def finish(self, state: ThinkingState) -> tuple[Delta, ...]:
        """The held text at the end. Reasoning without an end is reasoning."""
        return self.feed(state, "", final=True)[1]

    def _begin(self, state: ThinkingState, final: bool) -> ThinkingState:
        """Past the beginning mark, or on without one."""
        text = state.held.lstrip()
        for mark in self.begins:
            if text.startswith(mark):
                return ThinkingState(Thought.INSIDE, text.removeprefix(mark))
        if any(mark.startswith(text) for mark in self.begins) and not final:
            return state
        return replace(state, thought=Thought.INSIDE if self.opened else Thought.AFTER)


class HarmonyState(msgspec.Struct, frozen=True, kw_only=True):
    """Held text of a header, or a body of some `kind`: content, reasoning or call."""

    held: str = ""
    raw: str = ""
    kind: str = ""  # empty in a header


class Harmony(msgspec.Struct, frozen=True, kw_only=True):
    """Parser of the whole format. Without `with_calls` a call's body is content."""

    with_calls: bool = True

    def start(self) -> HarmonyState:
        """The state in the header of the assistant's first message."""
        return HarmonyState()

    def feed(
        self, state: HarmonyState, text: str, *, final: bool = False
    ) -> tuple[HarmonyState, tuple[Delta, ...]]:
        """The state after more text, and the deltas that the text made certain."""
        state = replace(state, held=state.held + text)
        found: list[Delta] = []
        while True:
            advance = self._body if state.kind else self._header
            step = advance(state, final)
            if step is None:
                return state, tuple(found)
            state, deltas = step
            found += deltas

    def finish(self, state: HarmonyState) -> tuple[Delta, ...]:
        """The held text at the end. A header without a body is not text."""
        state, found = self.feed(state, "", final=True)
        return (*found, CallEnd(state.raw)) if state.kind == "call" else found

    def _header(
        self, state: HarmonyState, final: bool
    ) -> tuple[HarmonyState, tuple[Delta, ...]] | None:
        held = state.held
        text = held.lstrip()
        marks = (START, CHANNEL, "to=")
        at = held.find(BODY, 0, MAX_HEADER_CHARACTERS) if text.startswith(marks) else -1
        if at < 0:
            is_open = text.startswith(marks) or any(mark.startswith(text) for mark in marks)
            if is_open and not final and len(held) < MAX_HEADER_CHARACTERS:
                return None
            return self._headless(state, final) if held else None
        header, rest = held[:at], held[at + len(BODY) :]
        begun = replace(state, held=rest, raw=held[: at + len(BODY)])
        recipient = _RECIPIENT.search(header)
        if recipient and self.with_calls:
            return replace(begun, kind="call"), (CallName(recipient.group(1)),)
        channel = _CHANNEL.search(header)
        is_reasoning = channel is not None and channel.group(1) == "analysis"
        return replace(begun, kind="reasoning" if is_reasoning else "content"), ()

    def _headless(
        self, state: HarmonyState, final: bool
    ) -> tuple[HarmonyState, tuple[Delta, ...]] | None:
        """Text without a header is content. A cut header is not shown."""
        text = state.held.lstrip()
        if final and text.startswith((START, CHANNEL)):
            return replace(state, kind="content", held=""), ()
        if text.startswith(START):  # of a header that is too long: no other message begins here
            shown = state.held[: len(state.held) - len(text) + len(START)]
            return replace(state, kind="content", held=text[len(START) :]), (ContentText(shown),)
        return replace(state, kind="content"), ()

    def _body(
        self, state: HarmonyState, final: bool
    ) -> tuple[HarmonyState, tuple[Delta, ...]] | None:
        cut = cut_at(state.held, (*ENDS, START))
        text = cut.before + (cut.after if final and cut.marker is None else "")
        if cut.marker is None:
            if not text:
                return None
            after = "" if final else cut.after
            return replace(state, held=after, raw=state.raw + text), build_deltas(state.kind, text)
        found = build_deltas(state.kind, text)
        if state.kind == "call":
            found = (*found, CallEnd(state.raw + text + cut.marker))
        held = cut.marker + cut.after if cut.marker == START else cut.after
        return HarmonyState(held=held), found


def build_deltas(kind: str, text: str) -> tuple[Delta, ...]:
    """The delta of a body's text."""
    if not text:
        return ()
    if kind == "reasoning":
        return (ReasoningText(text),)
    return (CallArguments(text),) if kind == "call" else (ContentText(text),)
