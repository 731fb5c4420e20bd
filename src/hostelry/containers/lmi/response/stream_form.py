"""Bytes of a streamed response, step by step, in each schema."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import msgspec

from hostelry.containers.lmi.response.error_form import openai_error
from hostelry.containers.lmi.response.generated import GeneratedSequence, Piece
from hostelry.containers.lmi.response.generation import RunningSequence
from hostelry.containers.lmi.response.lmi_form import LmiForm
from hostelry.containers.lmi.response.openai_form import OpenAIForm
from hostelry.containers.lmi.tools.reading import AnswerReading, ReadingState

JSON = "application/json"
JSONLINES = "application/jsonlines"
SSE = "text/event-stream"
EVENT_ENDS = {JSONLINES: b"\n", SSE: b"\n\n"}

Pieces = Sequence[tuple[RunningSequence, Piece]]


class StreamForm(Protocol):
    """Chunks of one response's stream."""

    @property
    def content_type(self) -> str:
        """The stream's media type."""
        ...

    def opening(self, sequences: Sequence[GeneratedSequence]) -> bytes:
        """The bytes before the first step."""
        ...

    def step(self, sequences: Sequence[GeneratedSequence], pieces: Pieces) -> bytes:
        """The bytes of one step."""
        ...

    def closing(self, sequences: Sequence[GeneratedSequence]) -> bytes:
        """The bytes after the last step."""
        ...

    def broken(self, sequences: Sequence[GeneratedSequence], status: int, message: str) -> bytes:
        """The bytes that end a stream after an error."""
        ...


def framed(values: Sequence[Any], sse: bool) -> bytes:
    """JSON values as server-sent events or as lines."""
    before, after = (b"data: ", b"\n\n") if sse else (b"", b"\n")
    return b"".join(before + msgspec.json.encode(value) + after for value in values)


@dataclass(frozen=True, slots=True)
class LmiStream:
    """LMI's schema as lines or as server-sent events."""

    form: LmiForm
    sse: bool

    @property
    def content_type(self) -> str:
        """By the formatter."""
        return SSE if self.sse else JSONLINES

    def opening(self, sequences: Sequence[GeneratedSequence]) -> bytes:
        """Nothing."""
        return b""

    def step(self, sequences: Sequence[GeneratedSequence], pieces: Pieces) -> bytes:
        """A line per token, or for a list of inputs a line per step."""
        if self.form.form.listed:
            given = [(running.index, piece) for running, piece in pieces]
            return framed([self.form.step_line(len(sequences), given)], self.sse)
        lines = [self.form.line(piece, running.generated) for running, piece in pieces]
        return framed(lines, self.sse)

    def closing(self, sequences: Sequence[GeneratedSequence]) -> bytes:
        """Nothing."""
        return b""

    def broken(self, sequences: Sequence[GeneratedSequence], status: int, message: str) -> bytes:
        """The dialect's error line."""
        return framed([self.form.error_line(sequences[0], status, message)], self.sse)


@dataclass(frozen=True, slots=True)
class OpenAIStream:
    """OpenAI's chunks: server-sent events on the /v1 routes, bare lines on /invocations.

    `states` are those of reading each choice for calls and reasoning.
    """

    form: OpenAIForm
    sse: bool
    states: dict[int, ReadingState] = field(default_factory=dict)

    @property
    def content_type(self) -> str:
        """By the route."""
        return SSE if self.sse else JSONLINES

    def opening(self, sequences: Sequence[GeneratedSequence]) -> bytes:
        """The assistant's role, or the repeated prompt."""
        return framed(self.form.opening(sequences), self.sse)

    def step(self, sequences: Sequence[GeneratedSequence], pieces: Pieces) -> bytes:
        """A chunk per token; tokens without text yet are left out unless they carry more."""
        reading = self.form.form.reading
        if reading is not None:
            return framed([chunk for it in pieces for chunk in self._read(reading, *it)], self.sse)
        chunks = [
            self.form.chunk(running.index, piece, running.generated)
            for running, piece in pieces
            if piece.text or piece.finish_reason or self.form.shows_tokens
        ]
        return framed(chunks, self.sse)

    def _read(
        self, reading: AnswerReading, running: RunningSequence, piece: Piece
    ) -> list[dict[str, Any]]:
        """The chunks of one token, by what is found in the text so far."""
        state = self.states.get(running.index) or reading.start()
        num_calls = state.num_calls
        state, deltas = reading.feed(state, piece.text)
        if piece.finish_reason:
            state, last = reading.finish(state)
            deltas += last
        self.states[running.index] = state
        has_calls = state.num_calls > 0
        return self.form.read_chunks(running, piece, deltas, num_calls, has_calls=has_calls)

    def closing(self, sequences: Sequence[GeneratedSequence]) -> bytes:
        """Usage where requested, and the end mark of server-sent events."""
        return framed(self.form.closing(sequences), self.sse) + self._end

    def broken(self, sequences: Sequence[GeneratedSequence], status: int, message: str) -> bytes:
        """OpenAI's error object as the last event."""
        return framed([openai_error(status, message)], self.sse) + self._end

    @property
    def _end(self) -> bytes:
        return b"data: [DONE]\n\n" if self.sse else b""
