"""Responses in OpenAI's completion and chat completion schemas, as JSON values."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from hostelry.containers.lmi.request.invocation import AnswerForm, Schema
from hostelry.containers.lmi.response.generated import GeneratedSequence, Piece
from hostelry.containers.lmi.response.lmi_form import lmi_finish, openai_finish
from hostelry.containers.lmi.response.logprobs_form import (
    chat_logprobs,
    completion_logprobs,
    prompt_logprobs,
    scored_piece,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenAIForm:
    """Form of one response; `id` and `created` (seconds since the epoch) are in every chunk.

    With `lmi_names` finish reasons have LMI's names, as in its rolling batch.
    """

    form: AnswerForm
    id: str
    created: int
    token_text: Callable[[int], str]
    lmi_names: bool = False

    @property
    def _chat(self) -> bool:
        return self.form.schema is Schema.CHAT

    def whole(
        self, sequences: Sequence[GeneratedSequence], generated: Sequence[GeneratedSequence] = ()
    ) -> dict[str, Any]:
        """The body of a response that is not streamed; usage counts all that were `generated`."""
        kind = "chat.completion" if self._chat else "text_completion"
        choices = [self._choice(index, each) for index, each in enumerate(sequences)]
        whole = {**self._head(kind), "choices": choices, "usage": usage(generated or sequences)}
        return {**whole, **self._prompt_logprobs(sequences[0])} if self._chat else whole

    def opening(self, sequences: Sequence[GeneratedSequence]) -> list[dict[str, Any]]:
        """The chunks before the first token."""
        if self._chat:
            role = {"delta": {"role": "assistant", "content": ""}}
            return [self._chunk(index, role, None) for index in range(len(sequences))]
        if not self.form.full_text or self.form.scores.is_echoed:
            return []
        texts = enumerate(each.prompt_text for each in sequences)
        return [self._chunk(index, {"text": text}, None) for index, text in texts]

    def chunk(self, index: int, piece: Piece, sequence: GeneratedSequence) -> dict[str, Any]:
        """One chunk of a stream."""
        content: dict[str, Any] = (
            {"delta": {"content": piece.text}} if self._chat else {"text": piece.text}
        )
        if self.form.num_top_tokens is not None:
            offset = len(sequence.text) - len(piece.text)
            content["logprobs"] = self._logprobs([piece], sequence, offset=offset)
        if self.form.scores.is_echoed and piece is sequence.pieces[0]:
            content["text"] = self._prefix(sequence) + piece.text
        return self._chunk(index, content, self._finish(piece))

    def closing(self, sequences: Sequence[GeneratedSequence]) -> list[dict[str, Any]]:
        """The chunks after the last token."""
        if not self.form.include_usage:
            return []
        return [{**self._head(self._chunk_kind), "choices": [], "usage": usage(sequences)}]

    @property
    def _chunk_kind(self) -> str:
        return "chat.completion.chunk" if self._chat else "text_completion"

    def _head(self, kind: str) -> dict[str, Any]:
        return {"id": self.id, "object": kind, "created": self.created, "model": self.form.model}

    def _chunk(self, index: int, content: dict[str, Any], finish: str | None) -> dict[str, Any]:
        choice = {"index": index, **content, "finish_reason": finish}
        chunk = {**self._head(self._chunk_kind), "choices": [choice]}
        return {**chunk, "usage": None} if self.form.include_usage else chunk

    def _choice(self, index: int, sequence: GeneratedSequence) -> dict[str, Any]:
        content: dict[str, Any]
        if self._chat:
            content = {"message": {"role": "assistant", "content": sequence.text}}
        else:
            content = {"text": self._prefix(sequence) + sequence.text}
            content.update(self._prompt_logprobs(sequence))
        finish = self._finish(sequence.pieces[-1]) if sequence.pieces else None
        logprobs = self._logprobs(sequence.pieces, sequence, offset=0)
        return {"index": index, **content, "logprobs": logprobs, "finish_reason": finish}

    def _prompt_logprobs(self, sequence: GeneratedSequence) -> dict[str, Any]:
        """The member that vLLM adds to a completion's choice, or to a chat's response."""
        num_top = self.form.scores.reported
        if num_top is None:
            return {}
        return {"prompt_logprobs": prompt_logprobs(sequence, num_top, self.token_text)}

    def _finish(self, piece: Piece) -> str | None:
        name = lmi_finish if self.lmi_names else openai_finish
        return name(piece.finish_reason)

    def _logprobs(
        self, pieces: Sequence[Piece], sequence: GeneratedSequence, *, offset: int
    ) -> dict[str, Any] | None:
        """The logprobs of some tokens; `offset` is where their text begins in the answer."""
        num_top = self.form.num_top_tokens
        if num_top is None:
            return None
        tokens = [piece for piece in pieces if piece.token_id is not None]
        scored = [scored_piece(piece) for piece in tokens]
        if self._chat:
            return {"content": chat_logprobs(scored, num_top, self.token_text)}
        offset += len(self._prefix(sequence))
        offsets = list(accumulate((len(piece.text) for piece in tokens[:-1]), initial=offset))
        offsets = offsets[: len(tokens)]
        if self.form.scores.is_echoed and (not pieces or pieces[0] is sequence.pieces[0]):
            scored = [*sequence.scored_prompt, *scored]
            offsets = [*sequence.prompt_offsets, *offsets]
        return completion_logprobs(scored, offsets, num_top, self.token_text)

    def _prefix(self, sequence: GeneratedSequence) -> str:
        return sequence.prompt_text if self.form.full_text and not self._chat else ""


def usage(sequences: Sequence[GeneratedSequence]) -> dict[str, int]:
    """Token counts over all sequences of a response."""
    prompt = sum(len(each.prompt_token_ids) for each in sequences if not each.shares_prompt)
    completion = sum(each.num_tokens for each in sequences)
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
    }
