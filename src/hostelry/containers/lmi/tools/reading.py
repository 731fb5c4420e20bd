"""The reading of one answer: reasoning first, then calls, and the rest is content."""

from typing import Any

import msgspec
from msgspec.structs import replace

from hostelry.containers.lmi.tools.deltas import (
    CallArguments,
    CallEnd,
    CallName,
    ContentText,
    Delta,
    ReasoningText,
    TextParser,
)
from hostelry.containers.lmi.tools.json_calls import decode_json
from hostelry.containers.lmi.tools.thinking import Thinking


class Channel(msgspec.Struct, frozen=True):
    """The kind of the last text, and its blanks, which are shown only if more of it follows."""

    kind: type[Delta] | None = None
    blanks: str = ""
    is_fresh: bool = True  # nothing of it was shown yet


class ReadingState(msgspec.Struct, frozen=True, kw_only=True):
    """The states of both parsers, the channel, and the number of calls so far."""

    thinking: Any = None
    calls: Any = None
    channel: Channel = Channel()
    num_calls: int = 0


class AnswerReading(msgspec.Struct, frozen=True, kw_only=True):
    """The way to read the text of one request's answers.

    Blanks between reasoning, calls and content are in none of them. With `most_calls` further
    calls are dropped. Without `shows_reasoning` reasoning is dropped. With `named_choice` the
    answer is the one call that the request named, and ends with "stop", as OpenAI has it.
    """

    thinking: TextParser[Any] | None = None
    calls: TextParser[Any] | None = None
    shows_reasoning: bool = True
    most_calls: int | None = None
    named_choice: bool = False
    call_id_length: int | None = None

    def after_prompt(self, prompt: str) -> "AnswerReading":
        """The reading of an answer to `prompt`, which may begin or end the reasoning."""
        if not isinstance(self.thinking, Thinking):
            return self
        return replace(self, thinking=self.thinking.after_prompt(prompt))

    def start(self) -> ReadingState:
        """The state before the first character."""
        return ReadingState(
            thinking=self.thinking.start() if self.thinking else None,
            calls=self.calls.start() if self.calls else None,
        )

    def feed(self, state: ReadingState, text: str) -> tuple[ReadingState, tuple[Delta, ...]]:
        """The state after more text, and the deltas that it made certain."""
        if self.thinking is None:
            return self._find_calls(state, (ContentText(text),))
        thinking, deltas = self.thinking.feed(state.thinking, text)
        return self._find_calls(replace(state, thinking=thinking), deltas)

    def finish(self, state: ReadingState) -> tuple[ReadingState, tuple[Delta, ...]]:
        """The state and the last deltas at the end of all text."""
        found: list[Delta] = []
        if self.thinking is not None:
            state, deltas = self._find_calls(state, self.thinking.finish(state.thinking))
            found += deltas
        if self.calls is not None:
            state, deltas = self._trim_deltas(state, self.calls.finish(state.calls))
            found += deltas
        channel = state.channel
        if channel.kind is ContentText and channel.blanks:
            found.append(ContentText(channel.blanks))
        return state, tuple(found)

    def _find_calls(
        self, state: ReadingState, deltas: tuple[Delta, ...]
    ) -> tuple[ReadingState, tuple[Delta, ...]]:
        """Calls in the content among `deltas`."""
        shown: list[Delta] = []
        for delta in deltas:
            inner: tuple[Delta, ...] = (delta,)
            if self.calls is not None and isinstance(delta, ContentText):
                calls, inner = self.calls.feed(state.calls, delta.text)
                state = replace(state, calls=calls)
            state, more = self._trim_deltas(state, inner)
            shown += more
        return state, tuple(shown)

    def _trim_deltas(
        self, state: ReadingState, deltas: tuple[Delta, ...]
    ) -> tuple[ReadingState, tuple[Delta, ...]]:
        """The deltas without blanks at the seams, further calls and unwanted reasoning."""
        shown: list[Delta] = []
        for delta in deltas:
            if isinstance(delta, ContentText | ReasoningText):
                state, text = add_text(state, delta)
                hidden = isinstance(delta, ReasoningText) and not self.shows_reasoning
                if text and not hidden:
                    shown.append(replace(delta, text=text))
                continue
            if isinstance(delta, CallName):
                channel = Channel(CallName)
                state = replace(state, channel=channel, num_calls=state.num_calls + 1)
            if self.most_calls is None or state.num_calls <= self.most_calls:
                shown.append(delta)
        return state, tuple(shown)


def add_text(state: ReadingState, delta: ContentText | ReasoningText) -> tuple[ReadingState, str]:
    """The state after a text, and the part of it that is shown now."""
    channel = state.channel
    kind = type(delta)
    if channel.kind is not kind:
        is_first = channel.kind is None and kind is ContentText
        channel = Channel(kind, is_fresh=not is_first)
    text = channel.blanks + delta.text
    if channel.is_fresh:
        text = text.lstrip()
    solid = text.rstrip()
    fresh = channel.is_fresh and not solid
    channel = Channel(kind, text[len(solid) :], is_fresh=fresh)
    return replace(state, channel=channel), solid


class FoundCall(msgspec.Struct):
    """One call: its function and its arguments as JSON text, as far as they came."""

    name: str
    arguments: str = ""


class ReadAnswer(msgspec.Struct):
    """A whole answer. Absent texts are not set."""

    content: str | None = None
    reasoning: str | None = None
    calls: list[FoundCall] = msgspec.field(default_factory=list)


def read_whole(reading: AnswerReading, text: str) -> ReadAnswer:
    """The parts of a whole text. A call whose arguments are not a JSON object is content.

    A call that the text breaks off in stays a call.
    """
    state, deltas = reading.feed(reading.start(), text)
    _, last = reading.finish(state)
    answer = ReadAnswer()
    for delta in (*deltas, *last):
        match delta:
            case ContentText():
                answer.content = (answer.content or "") + delta.text
            case ReasoningText():
                answer.reasoning = (answer.reasoning or "") + delta.text
            case CallName():
                answer.calls.append(FoundCall(delta.name))
            case CallArguments():
                answer.calls[-1].arguments += delta.text
            case CallEnd() if not isinstance(decode_json(answer.calls[-1].arguments), dict):
                answer.calls.pop()
                answer.content = (answer.content or "") + delta.raw
    return answer
