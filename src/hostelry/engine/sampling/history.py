"""The inputs to the choice of a request's next token, apart from its logits."""

from collections import deque
from collections.abc import Collection, Sequence

import numpy as np
import numpy.typing as npt

from hostelry.engine.request import SamplingParams
from hostelry.engine.sampling.grammar import Grammar
from hostelry.engine.sampling.truncate import Floats

# `bad_words` as in vLLM: the last token of a word is banned if the generated tokens end with the
# tokens before it. `no_repeat_ngram_size` as in transformers: over the prompt too.


class TokenBans:
    """The bans of one request, by its parameters and the tokens so far."""

    def __init__(self, params: SamplingParams, prompt: Sequence[int]) -> None:
        self._allowed = np.array(sorted(set(params.allowed_token_ids)), np.int64)
        self._words = [(word[:-1], word[-1]) for word in params.bad_words]
        longest = max((len(before) for before, _ in self._words), default=0)
        self._generated: deque[int] = deque(maxlen=longest)
        self._size = params.no_repeat_ngram_size
        self._before: deque[int] = deque(maxlen=max(0, self._size - 1))
        self._followed: dict[tuple[int, ...], set[int]] = {}
        for token_id in prompt if self._size else ():
            self._note_ngram(token_id)

    @classmethod
    def build(cls, params: SamplingParams, prompt: Sequence[int]) -> "TokenBans | None":
        """The bans of a request, if it has any."""
        asked = params.allowed_token_ids or params.bad_words or params.no_repeat_ngram_size
        return cls(params, prompt) if asked else None

    def append(self, token_id: int) -> None:
        """Record a generated token."""
        self._generated.append(token_id)
        if self._size:
            self._note_ngram(token_id)

    def mask(self, x_V: Floats) -> None:
        """Set the logits of banned tokens to -inf, in place."""
        if len(self._allowed):
            kept_C = x_V[self._allowed]
            x_V[:] = -np.inf
            x_V[self._allowed] = kept_C
        generated = tuple(self._generated)
        for before, last in self._words:
            if generated[len(generated) - len(before) :] == before:
                x_V[last] = -np.inf
        for token_id in self._followed.get(tuple(self._before), ()):
            x_V[token_id] = -np.inf

    def _note_ngram(self, token_id: int) -> None:
        if len(self._before) == self._size - 1:
            self._followed.setdefault(tuple(self._before), set()).add(token_id)
        self._before.append(token_id)


_FIRST_CAPACITY = 64


class TokenCounts:
    """Distinct tokens and their counts, as arrays: one addition changes one element."""

    def __init__(self, tokens: Sequence[int] = ()) -> None:
        self._positions: dict[int, int] = {}
        self._tokens = np.zeros(_FIRST_CAPACITY, np.int64)
        self._counts = np.zeros(_FIRST_CAPACITY, np.float32)
        for token_id in tokens:
            self.add(token_id)

    def __len__(self) -> int:
        return len(self._positions)

    def add(self, token_id: int) -> None:
        """Count one occurrence."""
        position = self._positions.setdefault(token_id, len(self._positions))
        if position == len(self._tokens):
            self._tokens = np.concatenate((self._tokens, np.zeros_like(self._tokens)))
            self._counts = np.concatenate((self._counts, np.zeros_like(self._counts)))
        self._tokens[position] = token_id
        self._counts[position] += 1

    @property
    def tokens(self) -> npt.NDArray[np.int64]:
        """The distinct tokens, in order of their first occurrence."""
        return self._tokens[: len(self)]

    @property
    def counts(self) -> npt.NDArray[np.float32]:
        """The number of occurrences of each of `tokens`."""
        return self._counts[: len(self)]


class TokenHistory:
    """One request's parameters, seed, tokens so far, and the state of its grammar.

    `eos_token_ids` end the request unless its parameters ignore them. `grammar` is in the state
    after the tokens so far, and owned by this history. None allows every token. A preemption leaves
    a history unchanged: only keys and values are computed again.
    """

    def __init__(
        self,
        params: SamplingParams,
        seed: int,
        prompt: Sequence[int],
        *,
        eos_token_ids: Collection[int] = (),
        grammar: Grammar | None = None,
    ) -> None:
        self.params = params
        self.seed = seed
        self.num_generated = 0
        self.grammar = grammar
        self.seen = TokenCounts(prompt) if params.repetition_penalty != 1 else None
        has_count = params.presence_penalty != 0 or params.frequency_penalty != 0
        self.counts = TokenCounts() if has_count else None
        self.bias = _split_bias(params.logit_bias) if params.logit_bias else None
        self.bans = TokenBans.build(params, prompt)
        ends = {*params.stop_token_ids, *(() if params.ignore_eos else eos_token_ids)}
        self.end_token_ids = np.array(sorted(ends), np.int64)

    @property
    def is_plain(self) -> bool:
        """Whether only the most likely token is needed."""
        greedy = self.params.temperature == 0 and self.params.num_logprobs is None
        return greedy and not self.is_changed

    @property
    def is_changed(self) -> bool:
        """Whether the logits are changed or masked before a token is chosen."""
        return (
            bool(self.seen or self.counts)
            or self.bias is not None
            or self.grammar is not None
            or self.bans is not None
            or self.num_generated < self.params.min_new_tokens
        )

    def append(self, token_id: int) -> None:
        """Record a generated token.

        Raises RuntimeError if the grammar does not allow it: it was not sampled here.
        """
        self.num_generated += 1
        if self.seen is not None:
            self.seen.add(token_id)
        if self.counts is not None:
            self.counts.add(token_id)
        if self.bans is not None:
            self.bans.append(token_id)
        if self.grammar is not None and not self.grammar.accept(token_id):
            raise RuntimeError(f"token {token_id} is not one that the request's grammar allows")


def _split_bias(
    bias: tuple[tuple[int, float], ...],
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float32]]:
    tokens, values = zip(*sorted(dict(bias).items()), strict=True)
    return np.array(tokens, np.int64), np.array(values, np.float32)


def check_token_ids(params: SamplingParams, vocab_size: int) -> None:
    """Raise ValueError for a token id outside the model's vocabulary."""
    words = [token_id for word in params.bad_words for token_id in word]
    named = (
        ("logit_bias", dict(params.logit_bias)),
        ("stop_token_ids", params.stop_token_ids),
        ("allowed_token_ids", params.allowed_token_ids),
        ("bad_words", words),
    )
    for name, token_ids in named:
        largest = max(token_ids, default=0)
        if largest >= vocab_size:
            raise ValueError(
                f"{name} names token id {largest}; the model's vocabulary has {vocab_size}"
            )
