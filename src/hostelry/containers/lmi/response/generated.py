"""Generated text: pieces, whole sequences, and a running sequence's tokens to pieces."""

from collections.abc import Iterator, Sequence

import msgspec

from hostelry.containers.lmi.request.invocation import Repetition, TextOptions
from hostelry.containers.lmi.text_codec import TextCodec
from hostelry.engine.request import FinishReason, Output, PromptLogprobs, TokenLogprob
from hostelry.engine.text import IncrementalDetokenizer, StopResult, StopStrings


class Piece(msgspec.Struct, frozen=True, kw_only=True):
    """The text of one token. Empty while a character or a stop string may be incomplete.

    Only an end without a token has no `token_id`.
    """

    token_id: int | None
    text: str
    logprob: float | None = None
    top_logprobs: tuple[TokenLogprob, ...] = ()
    finish_reason: FinishReason | None = None


class ScoredToken(msgspec.Struct, frozen=True, kw_only=True):
    """A token of a prompt. The first token has no logprob, as nothing is before it."""

    token_id: int
    logprob: float | None = None
    rank: int = 0
    top: tuple[TokenLogprob, ...] = ()


class GeneratedSequence(msgspec.Struct, kw_only=True):
    """One sequence so far. `shares_prompt` is set unless it is the first of its prompt.

    `prompt_logprobs` are the scores of its prompt so far, `prompt_offsets` the places of the
    prompt's tokens in its text. Both are empty unless the request asks for them. `adapter_version`
    is the content id of its adapter, known at its end. `queued_s`, the time before its first
    computation, and `num_cached_tokens` of its prompt are known with its first token.
    `num_expanded_tokens` is the number of the prompt's tokens with its images.
    """

    prompt_text: str
    prompt_token_ids: tuple[int, ...]
    seed: int | None = None
    shares_prompt: bool = False
    adapter_version: str | None = None
    queued_s: float | None = None
    num_cached_tokens: int = 0
    num_expanded_tokens: int | None = None
    pieces: list[Piece] = msgspec.field(default_factory=list)
    prompt_offsets: tuple[int, ...] = ()
    prompt_logprobs: list[PromptLogprobs] = msgspec.field(default_factory=list)

    @property
    def num_prompt_tokens(self) -> int:
        """The tokens of its prompt, including the tokens of images."""
        expanded = self.num_expanded_tokens
        return len(self.prompt_token_ids) if expanded is None else expanded

    @property
    def text(self) -> str:
        """The generated text, without the prompt."""
        return "".join(piece.text for piece in self.pieces)

    @property
    def logprobs(self) -> list[float]:
        """The logprobs of its tokens, if known."""
        return [piece.logprob for piece in self.pieces if piece.logprob is not None]

    @property
    def token_ids(self) -> list[int]:
        """The generated tokens, including the one that ended the sequence."""
        return [piece.token_id for piece in self.pieces if piece.token_id is not None]

    @property
    def scored_prompt(self) -> Iterator[ScoredToken]:
        """The tokens of the prompt in order, once all their logprobs are known."""
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
        pieces = self.pieces
        return len(pieces) - (bool(pieces) and pieces[-1].token_id is None)

    @property
    def finish_reason(self) -> FinishReason | None:
        """The finish reason. None while the sequence runs."""
        return self.pieces[-1].finish_reason if self.pieces else None


class SequenceText:
    """Detokenizes one sequence and detects its stop strings."""

    def __init__(
        self, codec: TextCodec, prompt_token_ids: Sequence[int], texts: TextOptions
    ) -> None:
        def decode(token_ids: list[int]) -> str:
            if not texts.shown_tokens or not texts.skip_special_tokens:
                return codec.decode(token_ids, skip_special_tokens=texts.skip_special_tokens)
            shown = [it for it in token_ids if it in texts.shown_tokens or not codec.is_special(it)]
            return codec.decode(shown, skip_special_tokens=False)

        self._detokenizer = IncrementalDetokenizer(decode, prompt_token_ids)
        self._stops = StopStrings(texts.stop, include_stop=texts.include_stop)
        self._include_stop = texts.include_stop
        self._min_tokens = texts.min_tokens
        self._repetition = texts.repetition
        self._token_ids: list[int] = []
        self._num_tokens = 0

    def push(self, output: Output) -> Piece:
        """The piece of `output`. Its finish reason is STOP if a stop string is complete."""
        finish = output.finish_reason
        if finish is None and self._is_repeated(output.token_id):
            finish = FinishReason.REPETITION
        found = self._find_stop(self._new_text(output, finish))
        text = found.text
        if found.stop is not None:
            finish = FinishReason.STOP
        elif finish:
            text += self._stops.flush()
        return Piece(
            token_id=output.token_id,
            text=text,
            logprob=output.logprob,
            top_logprobs=output.top_logprobs,
            finish_reason=finish,
        )

    def _find_stop(self, text: str) -> StopResult:
        """The text that may be shown. Stop strings are found only after the fewest tokens."""
        self._num_tokens += 1
        if self._num_tokens > self._min_tokens:
            return self._stops.feed(text)
        return StopResult(self._stops.feed_unmatched(text))

    def _is_repeated(self, token_id: int | None) -> bool:
        """True if the answer now ends with a repeated pattern that ends it."""
        if self._repetition is None or token_id is None:
            return False
        self._token_ids.append(token_id)
        return len(self._token_ids) >= self._min_tokens and ends_in_repetition(
            self._token_ids, self._repetition
        )

    def _new_text(self, output: Output, finish: FinishReason | None) -> str:
        """The text that no later token can change. A token that only ends the sequence has none."""
        ends_only = output.finish_reason is FinishReason.EOS and not self._include_stop
        text = ""
        if output.token_id is not None and not ends_only:
            text = self._detokenizer.push(output.token_id)
        return text + (self._detokenizer.finish() if finish else "")


def ends_in_repetition(token_ids: Sequence[int], by: Repetition) -> bool:
    """True if `token_ids` end with `by.count` equal patterns in a row."""
    end = len(token_ids)
    for size in range(by.smallest, by.largest + 1):
        first = end - size * by.count
        if first < 0:
            return False
        is_likely = token_ids[-1] == token_ids[-1 - size]
        if is_likely and token_ids[first : end - size] == token_ids[first + size :]:
            return True
    return False
