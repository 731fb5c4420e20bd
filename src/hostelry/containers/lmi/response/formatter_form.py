"""Responses of the formatters `3p`, `3p_stream` and `none`: one text, counted or bare.

Source: djl-serving's output formatters, as of 0.36.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from hostelry.containers.lmi.response.generated import GeneratedSequence, Piece
from hostelry.containers.lmi.response.lmi_form import lmi_finish
from hostelry.containers.lmi.response.stream_form import JSON, JSONLINES, Pieces

TEXT = "text/plain"


def third_party(sequence: GeneratedSequence, full_text: bool) -> dict[str, Any]:
    """The body of `3p`."""
    prefix = sequence.prompt_text if full_text else ""
    num_prompt, num_tokens = sequence.num_prompt_tokens, sequence.num_tokens
    return {
        "body": {
            "generation": prefix + sequence.text,
            "prompt_token_count": num_prompt,
            "generation_token_count": num_tokens,
            "stop_reason": lmi_finish(sequence.finish_reason),
        },
        "metering": {"inputTokenCount": num_prompt, "outputTokenCount": num_tokens},
        "content_type": JSON,
    }


def third_party_line(sequence: GeneratedSequence, piece: Piece) -> dict[str, Any]:
    """A line of `3p_stream`; the first has the number of the prompt's tokens."""
    is_first = piece is sequence.pieces[0]
    num_prompt = sequence.num_prompt_tokens if is_first else None
    metering = {"outputTokenCount": sequence.num_tokens}
    return {
        "body": {
            "generation": piece.text,
            "prompt_token_count": num_prompt,
            "generation_token_count": sequence.num_tokens,
            "stop_reason": lmi_finish(piece.finish_reason),
        },
        "metering": metering if num_prompt is None else {**metering, "inputTokenCount": num_prompt},
        "content_type": JSONLINES,
    }


@dataclass(frozen=True, slots=True)
class OneTextStream:
    """A stream of one text: lines of `3p_stream`, or its bare pieces."""

    is_counted: bool
    full_text: bool

    @property
    def content_type(self) -> str:
        """By the formatter."""
        return JSONLINES if self.is_counted else TEXT

    def opening(self, sequences: Sequence[GeneratedSequence]) -> bytes:
        """The prompt, where the bare text begins with it."""
        is_shown = self.full_text and not self.is_counted
        return sequences[0].prompt_text.encode() if is_shown else b""

    def step(self, sequences: Sequence[GeneratedSequence], pieces: Pieces) -> bytes:
        """A line or a text per token."""
        if not self.is_counted:
            return "".join(piece.text for _, piece in pieces).encode()
        lines = [third_party_line(running.generated, piece) for running, piece in pieces]
        return b"".join(msgspec.json.encode(line) + b"\n" for line in lines)

    def closing(self, sequences: Sequence[GeneratedSequence]) -> bytes:
        """Nothing."""
        return b""

    def broken(self, sequences: Sequence[GeneratedSequence], status: int, message: str) -> bytes:
        """The error as a last line; a bare text has no place for one but a line of its own."""
        error = {"error_code": status, "error_msg": message}
        if not self.is_counted:
            return b"\n" + msgspec.json.encode({"error": error})
        return msgspec.json.encode({"error": error, "content_type": JSONLINES}) + b"\n"
