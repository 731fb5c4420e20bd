"""Generated text as plain values: pieces, and whole sequences."""

from dataclasses import dataclass, field

from hostelry.engine.request import FinishReason, TokenLogprob


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """The text of one token; empty while a character or a stop string may be incomplete.

    `token_id` is None only for an end without a token.
    """

    token_id: int | None
    text: str
    logprob: float | None = None
    top_logprobs: tuple[TokenLogprob, ...] = ()
    finish_reason: FinishReason | None = None


@dataclass(slots=True, kw_only=True)
class GeneratedSequence:
    """One sequence so far; `shares_prompt` is set unless it is the first of its prompt.

    `adapter_version` is the content id of its adapter, known at its end.
    """

    prompt_text: str
    prompt_token_ids: tuple[int, ...]
    seed: int | None = None
    shares_prompt: bool = False
    adapter_version: str | None = None
    pieces: list[Piece] = field(default_factory=list)

    @property
    def text(self) -> str:
        """The generated text, without the prompt."""
        return "".join(piece.text for piece in self.pieces)

    @property
    def logprobs(self) -> list[float]:
        """The logprobs of its tokens, where known."""
        return [piece.logprob for piece in self.pieces if piece.logprob is not None]

    @property
    def num_tokens(self) -> int:
        """Number of generated tokens, including the one that ended the sequence."""
        return sum(piece.token_id is not None for piece in self.pieces)

    @property
    def finish_reason(self) -> FinishReason | None:
        """The finish reason; None while the sequence runs."""
        return self.pieces[-1].finish_reason if self.pieces else None
