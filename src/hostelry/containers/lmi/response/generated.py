"""Generated text as plain values: pieces, and whole sequences."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from hostelry.engine.request import FinishReason, PromptLogprobs, TokenLogprob


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


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoredToken:
    """A token of a prompt; the first of a prompt has no logprob, as nothing is before it."""

    token_id: int
    logprob: float | None = None
    rank: int = 0
    top: tuple[TokenLogprob, ...] = ()


@dataclass(slots=True, kw_only=True)
class GeneratedSequence:
    """One sequence so far; `shares_prompt` is set unless it is the first of its prompt.

    `prompt_logprobs` are those of its prompt so far, `prompt_offsets` where the prompt's tokens
    begin in its text, both where the request asks for them. `adapter_version` is the content id of
    its adapter, known at its end; `queued_s`, the time before its first computation, and
    `num_cached_tokens` of its prompt, with its first token. `num_expanded_tokens` is what the
    prompt became where it has images.
    """

    prompt_text: str
    prompt_token_ids: tuple[int, ...]
    seed: int | None = None
    shares_prompt: bool = False
    adapter_version: str | None = None
    queued_s: float | None = None
    num_cached_tokens: int = 0
    num_expanded_tokens: int | None = None
    pieces: list[Piece] = field(default_factory=list)
    prompt_offsets: tuple[int, ...] = ()
    prompt_logprobs: list[PromptLogprobs] = field(default_factory=list)

    @property
    def num_prompt_tokens(self) -> int:
        """The tokens of its prompt, those of images included."""
        expanded = self.num_expanded_tokens
        return len(self.prompt_token_ids) if expanded is None else expanded

    @property
    def text(self) -> str:
        """The generated text, without the prompt."""
        return "".join(piece.text for piece in self.pieces)

    @property
    def logprobs(self) -> list[float]:
        """The logprobs of its tokens, where known."""
        return [piece.logprob for piece in self.pieces if piece.logprob is not None]

    @property
    def token_ids(self) -> list[int]:
        """The generated tokens, including the one that ended the sequence."""
        return [piece.token_id for piece in self.pieces if piece.token_id is not None]

    @property
    def scored_prompt(self) -> Iterator[ScoredToken]:
        """The tokens of a prompt whose logprobs are all there, in order."""
        yield ScoredToken(token_id=self.prompt_token_ids[0])
        for part in self.prompt_logprobs:
            num_top = len(part.top_ids) // len(part.logprobs)
            for number, logprob in enumerate(part.logprobs):
                top = range(number * num_top, (number + 1) * num_top)
                yield ScoredToken(
                    token_id=self.prompt_token_ids[part.start + number],
                    logprob=logprob,
                    rank=part.ranks[number],
                    top=tuple(
                        TokenLogprob(token_id=part.top_ids[place], logprob=part.top_logprobs[place])
                        for place in top
                    ),
                )

    @property
    def num_tokens(self) -> int:
        """Number of generated tokens, including the one that ended the sequence."""
        return sum(piece.token_id is not None for piece in self.pieces)

    @property
    def finish_reason(self) -> FinishReason | None:
        """The finish reason; None while the sequence runs."""
        return self.pieces[-1].finish_reason if self.pieces else None
