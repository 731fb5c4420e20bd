"""Tokens that a request may not choose next: those not allowed, ends of words, repeated n-grams.

`bad_words` as in vLLM: the last token of a word is banned where the tokens generated so far end
with those before it. `no_repeat_ngram_size` as in transformers: over the prompt too.
"""

from collections import deque
from collections.abc import Sequence

import numpy as np

from hostelry.engine.request import SamplingParams
from hostelry.engine.sampling.mass import Floats


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
    def of(cls, params: SamplingParams, prompt: Sequence[int]) -> "TokenBans | None":
        """The bans of a request; None where it has none."""
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
