"""OpenAI's Responses: the object, and the events of its stream.

Source: OpenAI API reference, Responses, Streaming events.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from hostelry.containers.lmi.request.invocation import AnswerForm
from hostelry.containers.lmi.response.forms import SSE, Pieces
from hostelry.containers.lmi.response.generated import GeneratedSequence, Piece
from hostelry.containers.lmi.response.openai_form import chat_logprobs, scored_piece
from hostelry.engine.request import FinishReason


class ResponsesForm(msgspec.Struct, frozen=True, kw_only=True):
    """Form of one response. `created` is in seconds since the epoch."""

    form: AnswerForm
    id: str
    message_id: str
    created: int
    token_text: Callable[[int], str]

    def whole(self, sequence: GeneratedSequence) -> dict[str, Any]:
        """The response once its sequence has ended."""
        is_cut = sequence.finish_reason is FinishReason.LENGTH
        return {
            **self.build_response("incomplete" if is_cut else "completed"),
            "incomplete_details": {"reason": "max_output_tokens"} if is_cut else None,
            "output": [self.message(sequence)],
            "usage": build_usage(sequence),
        }

    def build_response(self, status: str) -> dict[str, Any]:
        """The response without its output."""
        return {
            "id": self.id,
            "object": "response",
            "created_at": self.created,
            "status": status,
            "background": False,
            "error": None,
            "incomplete_details": None,
            "model": self.form.model,
            "output": [],
            "parallel_tool_calls": True,
            "previous_response_id": None,
            "reasoning": {"effort": None, "summary": None},
            "service_tier": "default",
            "store": False,
            "tool_choice": "auto",
            "tools": [],
            "truncation": "disabled",
            "usage": None,
            **self.form.repeated,
        }

    def build_failed_response(self, status: int, message: str) -> dict[str, Any]:
        """The response that broke off."""
        code = "server_error" if status >= 500 else "invalid_prompt"
        return {**self.build_response("failed"), "error": {"code": code, "message": message}}

    def message(self, sequence: GeneratedSequence) -> dict[str, Any]:
        """The only item of the output."""
        is_cut = sequence.finish_reason is FinishReason.LENGTH
        return {
            **self.empty_message("incomplete" if is_cut else "completed"),
            "content": [self.part(sequence.text, sequence.pieces)],
        }

    def empty_message(self, status: str) -> dict[str, Any]:
        """The item before its text."""
        return {
            "id": self.message_id,
            "type": "message",
            "status": status,
            "role": "assistant",
            "content": [],
        }

    def part(self, text: str, pieces: Sequence[Piece]) -> dict[str, Any]:
        """The only part of the item."""
        logprobs = self.logprobs(pieces)
        return {"type": "output_text", "text": text, "annotations": [], "logprobs": logprobs}

    def logprobs(self, pieces: Sequence[Piece]) -> list[dict[str, Any]]:
        """The tokens' log-probabilities, if they were asked for."""
        num_top = self.form.num_top_tokens
        if num_top is None:
            return []
        scored = [scored_piece(piece) for piece in pieces if piece.token_id is not None]
        return chat_logprobs(scored, num_top, self.token_text)


def build_usage(sequence: GeneratedSequence) -> dict[str, Any]:
    """Token counts by the names of this route."""
    prompt = sequence.num_prompt_tokens
    return {
        "input_tokens": prompt,
        "input_tokens_details": {"cached_tokens": sequence.num_cached_tokens},
        "output_tokens": sequence.num_tokens,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": prompt + sequence.num_tokens,
    }


@dataclass(slots=True)
class ResponsesStream:
    """The events of one response's stream, numbered."""

    form: ResponsesForm
    num_events: int = field(default=0, init=False)

    @property
    def content_type(self) -> str:
        """Server-sent events."""
        return SSE

    def opening(self, sequences: Sequence[GeneratedSequence]) -> bytes:
        """The response, its item and its part, all empty."""
        build_response = self.form.build_response("in_progress")
        return b"".join(
            (
                self._event("response.created", response=build_response),
                self._event("response.in_progress", response=build_response),
                self._event(
                    "response.output_item.added",
                    output_index=0,
                    item=self.form.empty_message("in_progress"),
                ),
                self._part_event("response.content_part.added", part=self.form.part("", ())),
            )
        )

    def step(self, sequences: Sequence[GeneratedSequence], pieces: Pieces) -> bytes:
        """An event per token with text."""
        return b"".join(
            self._part_event(
                "response.output_text.delta",
                delta=piece.text,
                logprobs=self.form.logprobs((piece,)),
            )
            for _, piece in pieces
            if piece.text
        )

    def closing(self, sequences: Sequence[GeneratedSequence]) -> bytes:
        """The ends of part, item and response."""
        (sequence,) = sequences
        whole = self.form.whole(sequence)
        (message,) = whole["output"]
        (part,) = message["content"]
        return b"".join(
            (
                self._part_event(
                    "response.output_text.done", text=part["text"], logprobs=part["logprobs"]
                ),
                self._part_event("response.content_part.done", part=part),
                self._event("response.output_item.done", output_index=0, item=message),
                self._event(f"response.{whole['status']}", response=whole),
            )
        )

    def broken(self, sequences: Sequence[GeneratedSequence], status: int, message: str) -> bytes:
        """The failed response as the last event."""
        return self._event(
            "response.failed", response=self.form.build_failed_response(status, message)
        )

    def _part_event(self, kind: str, **members: Any) -> bytes:
        place = {"item_id": self.form.message_id, "output_index": 0, "content_index": 0}
        return self._event(kind, **place, **members)

    def _event(self, kind: str, **members: Any) -> bytes:
        data = {"type": kind, "sequence_number": self.num_events, **members}
        self.num_events += 1
        return b"event: %b\ndata: %b\n\n" % (kind.encode(), msgspec.json.encode(data))
