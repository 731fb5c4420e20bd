"""Reasoning that a model writes between two marks before its answer."""

from dataclasses import dataclass, replace
from enum import Enum

from hostelry.containers.lmi.tools.deltas import ContentText, Delta, ReasoningText
from hostelry.containers.lmi.tools.markers import cut_at


class Thought(Enum):
    """Where the text is."""

    BEFORE = "before"
    INSIDE = "inside"
    AFTER = "after"


@dataclass(frozen=True, slots=True)
class ThinkingState:
    """Where the text is, and what is not decided yet."""

    thought: Thought
    held: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Thinking:
    """Parser of one family's marks: each has one or more spellings.

    With `assumed` text without a beginning mark is reasoning too, up to the end mark, unless the
    prompt ended the reasoning (`closed`). `opened` says that it is, for the present prompt.
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
        """The state after more text, and what it made certain."""
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
        """What was held back; reasoning without an end is reasoning."""
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
