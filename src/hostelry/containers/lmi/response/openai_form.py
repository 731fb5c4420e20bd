"""Responses in OpenAI's completion and chat completion schemas, as JSON values."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from hostelry.containers.lmi.request.invocation import AnswerForm, Schema
from hostelry.containers.lmi.response.generated import GeneratedSequence, Piece
from hostelry.containers.lmi.response.lmi_form import lmi_finish, openai_finish
from hostelry.engine.request import TokenLogprob


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
        return {**self._head(kind), "choices": choices, "usage": usage(generated or sequences)}

    def opening(self, sequences: Sequence[GeneratedSequence]) -> list[dict[str, Any]]:
        """The chunks before the first token."""
        if self._chat:
            role = {"delta": {"role": "assistant", "content": ""}}
            return [self._chunk(index, role, None) for index in range(len(sequences))]
        if not self.form.full_text:
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
            content["logprobs"] = self._logprobs([piece], offset=offset)
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
            prefix = sequence.prompt_text if self.form.full_text else ""
            content = {"text": prefix + sequence.text}
        finish = self._finish(sequence.pieces[-1]) if sequence.pieces else None
        logprobs = self._logprobs(sequence.pieces, offset=0)
        return {"index": index, **content, "logprobs": logprobs, "finish_reason": finish}

    def _finish(self, piece: Piece) -> str | None:
        name = lmi_finish if self.lmi_names else openai_finish
        return name(piece.finish_reason)

    def _logprobs(self, pieces: Sequence[Piece], *, offset: int) -> dict[str, Any] | None:
        if self.form.num_top_tokens is None:
            return None
        tokens = [piece for piece in pieces if piece.token_id is not None]
        if self._chat:
            return {"content": [self._chat_logprob(piece) for piece in tokens]}
        return self._completion_logprobs(tokens, offset)

    def _chat_logprob(self, piece: Piece) -> dict[str, Any]:
        own = self._logprob_entry(piece.token_id or 0, piece.logprob)
        return {**own, "top_logprobs": [self._top_entry(each) for each in self._top(piece)]}

    def _top(self, piece: Piece) -> Sequence[TokenLogprob]:
        return piece.top_logprobs[: self.form.num_top_tokens or 0]

    def _top_entry(self, top: TokenLogprob) -> dict[str, Any]:
        return self._logprob_entry(top.token_id, top.logprob)

    def _logprob_entry(self, token_id: int, logprob: float | None) -> dict[str, Any]:
        text = self.token_text(token_id)
        return {"token": text, "logprob": logprob, "bytes": list(text.encode())}

    def _completion_logprobs(self, tokens: Sequence[Piece], offset: int) -> dict[str, Any]:
        offsets: list[int] = []
        for piece in tokens:
            offsets.append(offset)
            offset += len(piece.text)
        tops = [{self.token_text(it.token_id): it.logprob for it in self._top(p)} for p in tokens]
        return {
            "tokens": [self.token_text(piece.token_id or 0) for piece in tokens],
            "token_logprobs": [piece.logprob for piece in tokens],
            "top_logprobs": tops if self.form.num_top_tokens else None,
            "text_offset": offsets,
        }


def usage(sequences: Sequence[GeneratedSequence]) -> dict[str, int]:
    """Token counts over all sequences of a response."""
    prompt = sum(len(each.prompt_token_ids) for each in sequences if not each.shares_prompt)
    completion = sum(each.num_tokens for each in sequences)
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
    }
