"""The bytes of a streamed answer, step by step, whatever its schema."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import msgspec

from hostelry.containers.lmi.response.answer import Running
from hostelry.containers.lmi.response.error_form import openai_error
from hostelry.containers.lmi.response.generated import Generated, Piece
from hostelry.containers.lmi.response.lmi_form import LmiForm
from hostelry.containers.lmi.response.openai_form import OpenAIForm

JSON = "application/json"
JSONLINES = "application/jsonlines"
SSE = "text/event-stream"

Pieces = Sequence[tuple[Running, Piece]]


class StreamForm(Protocol):
    """Chunks of one answer's stream."""

    @property
    def content_type(self) -> str:
        """The stream's media type."""
        ...

    def opening(self, sequences: Sequence[Generated]) -> bytes:
        """What comes with the first step's chunk, before it."""
        ...

    def step(self, sequences: Sequence[Generated], pieces: Pieces) -> bytes:
        """What one step gave."""
        ...

    def closing(self, sequences: Sequence[Generated]) -> bytes:
        """What comes after the last step."""
        ...

    def broken(self, sequences: Sequence[Generated], status: int, message: str) -> bytes:
        """The last words of a stream that cannot go on."""
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

    def opening(self, sequences: Sequence[Generated]) -> bytes:
        """Nothing."""
        return b""

    def step(self, sequences: Sequence[Generated], pieces: Pieces) -> bytes:
        """A line a token, or for a list of inputs a line a step."""
        if self.form.form.listed:
            given = [(running.index, piece) for running, piece in pieces]
            return framed([self.form.step_line(len(sequences), given)], self.sse)
        lines = [self.form.line(piece, running.generated) for running, piece in pieces]
        return framed(lines, self.sse)

    def closing(self, sequences: Sequence[Generated]) -> bytes:
        """Nothing."""
        return b""

    def broken(self, sequences: Sequence[Generated], status: int, message: str) -> bytes:
        """The dialect's error line."""
        return framed([self.form.error_line(sequences[0], status, message)], self.sse)


@dataclass(frozen=True, slots=True)
class OpenAIStream:
    """OpenAI's chunks: server-sent events on the /v1 routes, bare lines on /invocations."""

    form: OpenAIForm
    sse: bool

    @property
    def content_type(self) -> str:
        """By the route."""
        return SSE if self.sse else JSONLINES

    def opening(self, sequences: Sequence[Generated]) -> bytes:
        """The assistant's role, or the echoed prompt."""
        return framed(self.form.opening(sequences), self.sse)

    def step(self, sequences: Sequence[Generated], pieces: Pieces) -> bytes:
        """A chunk a token; tokens that gave no text yet are left out unless they say more."""
        told = [
            self.form.chunk(running.index, piece, running.generated)
            for running, piece in pieces
            if piece.text or piece.finish_reason or self.form.form.num_top_tokens is not None
        ]
        return framed(told, self.sse)

    def closing(self, sequences: Sequence[Generated]) -> bytes:
        """Usage where it was asked for, and the end mark of server-sent events."""
        return framed(self.form.closing(sequences), self.sse) + self._end

    def broken(self, sequences: Sequence[Generated], status: int, message: str) -> bytes:
        """OpenAI's error object as the last event."""
        return framed([openai_error(status, message)], self.sse) + self._end

    @property
    def _end(self) -> bytes:
        return b"data: [DONE]\n\n" if self.sse else b""
