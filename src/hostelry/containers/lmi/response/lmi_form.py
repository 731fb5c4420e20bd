"""Responses in LMI's own schema, in both dialects, as JSON values.

The rolling batch's dialect (LEGACY) calls a token's log-probability `log_prob`, the async
handler's `logprob`. Their details differ as well. `finish_reason` is the real reason in both.
"""

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from hostelry.containers.lmi.refusal import Surface
from hostelry.containers.lmi.request.invocation import AnswerForm
from hostelry.containers.lmi.response.forms import JSON, JSONLINES, SSE, Pieces, frame_values
from hostelry.containers.lmi.response.generated import GeneratedSequence, Piece
from hostelry.engine.request import FinishReason

TEXT = "text/plain"


class LmiForm(msgspec.Struct, frozen=True):
    """Form of one response. `token_text` decodes one token, `is_special` marks control tokens.

    With `is_tgi` the lines of a stream have TGI's members, null if they have no value yet.
    """

    form: AnswerForm
    dialect: Surface
    token_text: Callable[[int], str]
    is_special: Callable[[int], bool]
    is_tgi: bool = False

    @property
    def _legacy(self) -> bool:
        return self.dialect is Surface.LEGACY

    def whole(self, sequences: Sequence[GeneratedSequence]) -> Any:
        """The body of a response that is not streamed."""
        count = self.form.num_sequences
        answers = [
            self._answer(sequences[start], sequences[start + 1 : start + count])
            for start in range(0, len(sequences), count)
        ]
        return answers if self.form.listed or self.form.tgi_compat else answers[0]

    def line(self, piece: Piece, sequence: GeneratedSequence) -> dict[str, Any]:
        """One line of a stream of one sequence. The last line has the whole text."""
        ended = piece.finish_reason is not None
        line: dict[str, Any] = {} if self._legacy else {"index": 0}
        if self.is_tgi:
            line = {"index": sequence.num_tokens, "generated_text": None, "details": None}
        line["token"] = None if piece.token_id is None else self._token(piece)
        if self.form.num_top_tokens:
            line["top_tokens"] = self._top_tokens(piece)
        if ended or not self._legacy:
            line["generated_text"] = self._text(sequence) if ended else None
        if not self._legacy or (ended and self.form.details):
            line["details"] = self._stream_details(sequence) if ended else None
        return line

    def step_line(self, count: int, pieces: Sequence[tuple[int, Piece]]) -> dict[str, Any]:
        """One line of a stream of several sequences: the text that a step added to each."""
        outputs = [""] * count
        for index, piece in pieces:
            outputs[index] += piece.text
        return {"outputs": outputs}

    def error_line(self, sequence: GeneratedSequence, status: int, message: str) -> dict[str, Any]:
        """The last line of a stream that broke after its status was sent."""
        if self.is_tgi:
            return {"error": message, "error_type": "generation"}
        if not self._legacy:
            return {"code": status, "error": message}
        return {
            "token": {"id": -1, "text": "", "log_prob": -1, "special_token": True},
            "generated_text": self._text(sequence),
            "error": message,
            "code": status,
            "details": {"finish_reason": "error", "generated_tokens": sequence.num_tokens},
        }

    def _answer(
        self, sequence: GeneratedSequence, others: Sequence[GeneratedSequence]
    ) -> dict[str, Any]:
        answer: dict[str, Any] = {"generated_text": self._text(sequence)}
        if self.form.details:
            answer["details"] = self._details(sequence)
            if others:
                answer["details"]["best_of_sequences"] = [
                    {"generated_text": self._text(other), **self._details(other)}
                    for other in others
                ]
        return answer

    def _text(self, sequence: GeneratedSequence) -> str:
        prefix = sequence.prompt_text if self.form.full_text else ""
        return prefix + sequence.text

    def _details(self, sequence: GeneratedSequence) -> dict[str, Any]:
        tokens = [piece for piece in sequence.pieces if piece.token_id is not None]
        details: dict[str, Any] = {
            "finish_reason": lmi_finish(sequence.finish_reason),
            "generated_tokens": sequence.num_tokens,
            "tokens": [self._token(piece) for piece in tokens],
        }
        if not self._legacy or self.form.tgi_compat or self.form.scores.reported is not None:
            details["prefill"] = self._prefill(sequence)
        if self._legacy:
            details["inputs"] = sequence.prompt_text
        if not self._legacy or self.form.tgi_compat:
            details["seed"] = self.form.seed if sequence.seed is None else sequence.seed
        if self.form.num_top_tokens:
            details["top_tokens"] = [self._top_tokens(piece) for piece in tokens]
        return details

    def _stream_details(self, sequence: GeneratedSequence) -> dict[str, Any] | None:
        if not self.form.details:
            return None
        details: dict[str, Any] = {"generated_tokens": sequence.num_tokens}
        if self._legacy:
            details["finish_reason"] = lmi_finish(sequence.finish_reason)
            details["inputs"] = sequence.prompt_text
            if self.is_tgi:
                details |= {"seed": self.form.seed, "input_length": sequence.num_prompt_tokens}
            if self.form.scores.reported is not None:
                details["prefill"] = self._prefill(sequence)
        else:
            details["finish_reason"] = openai_finish(sequence.finish_reason)
            details["seed"] = self.form.seed
            details["input_length"] = sequence.num_prompt_tokens
        return details

    def _prefill(self, sequence: GeneratedSequence) -> list[dict[str, Any]]:
        """The prompt's tokens. The async handler leaves out the first, which has no logprob."""
        if self.form.scores.reported is None:
            return []
        tokens = list(sequence.scored_prompt)
        return [
            self._build_token(token.token_id, self.token_text(token.token_id), token.logprob)
            for token in (tokens if self._legacy else tokens[1:])
        ]

    def _token(self, piece: Piece) -> dict[str, Any]:
        return self._build_token(piece.token_id or 0, piece.text, piece.logprob)

    def _top_tokens(self, piece: Piece) -> list[dict[str, Any]]:
        top = piece.top_logprobs[: self.form.num_top_tokens or 0]
        return [
            self._build_token(token.token_id, self.token_text(token.token_id), token.logprob)
            for token in top
        ]

    def _build_token(self, token_id: int, text: str, logprob: float | None) -> dict[str, Any]:
        short = self.form.tgi_compat or not self._legacy
        token: dict[str, Any] = {"id": token_id, "text": text}
        token["logprob" if short else "log_prob"] = logprob
        if self.form.tgi_compat:
            token["special"] = self.is_special(token_id)
        return token


def lmi_finish(reason: FinishReason | None) -> str | None:
    """LMI's name of a finish reason."""
    return reason.value if reason else None


def openai_finish(reason: FinishReason | None) -> str | None:
    """OpenAI's name of a finish reason."""
    if reason in (FinishReason.EOS, FinishReason.STOP):
        return "stop"
    return lmi_finish(reason)


class LmiStream(msgspec.Struct, frozen=True):
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
            return frame_values([self.form.step_line(len(sequences), given)], self.sse)
        lines = [self.form.line(piece, running.generated) for running, piece in pieces]
        return frame_values(lines, self.sse)

    def closing(self, sequences: Sequence[GeneratedSequence]) -> bytes:
        """Nothing."""
        return b""

    def broken(self, sequences: Sequence[GeneratedSequence], status: int, message: str) -> bytes:
        """The dialect's error line."""
        return frame_values([self.form.error_line(sequences[0], status, message)], self.sse)


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
    """A line of `3p_stream`. The first line has the number of the prompt's tokens."""
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


class OneTextStream(msgspec.Struct, frozen=True):
    """A stream of one text: lines of `3p_stream`, or its bare pieces."""

    is_counted: bool
    full_text: bool

    @property
    def content_type(self) -> str:
        """By the formatter."""
        return JSONLINES if self.is_counted else TEXT

    def opening(self, sequences: Sequence[GeneratedSequence]) -> bytes:
        """The prompt, if the bare text begins with it."""
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
        """The error as a last line. A bare text has no other place for the error."""
        error = {"error_code": status, "error_msg": message}
        if not self.is_counted:
            return b"\n" + msgspec.json.encode({"error": error})
        return msgspec.json.encode({"error": error, "content_type": JSONLINES}) + b"\n"
