"""Generated text as plain values: pieces as they come, and whole sequences."""

from dataclasses import dataclass, field

from hostelry.engine.request import FinishReason, TokenLogprob


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """What one token added; `text` may be empty while a character or a stop string is open.

    `token_id` is None only for an end without a further token.
    """

    token_id: int | None
    text: str
    logprob: float | None = None
    top_logprobs: tuple[TokenLogprob, ...] = ()
    finish_reason: FinishReason | None = None


@dataclass(slots=True, kw_only=True)
class Generated:
    """One sequence so far; `shares_prompt` where it is not the first of its prompt.

    `adapter_version` is the content that its adapter had, known at its end.
    """

    prompt_text: str
    prompt_token_ids: tuple[int, ...]
    seed: int | None = None
    shares_prompt: bool = False
    adapter_version: str | None = None
    pieces: list[Piece] = field(default_factory=list)

    @property
    def text(self) -> str:
        """What was generated, without the prompt."""
        return "".join(piece.text for piece in self.pieces)

    @property
    def logprobs(self) -> list[float]:
        """The logprobs of its tokens, as far as they are known."""
        return [piece.logprob for piece in self.pieces if piece.logprob is not None]

    @property
    def num_tokens(self) -> int:
        """Generated tokens, the one that ended the sequence included."""
        return sum(piece.token_id is not None for piece in self.pieces)

    @property
    def finish_reason(self) -> FinishReason | None:
        """Why it ended; None while it runs."""
        return self.pieces[-1].finish_reason if self.pieces else None
