"""Tokens that would write half of a UTF-16 surrogate pair, which no text has.

In UTF-8 these are the bytes ED A0 to ED BF and one more. xgrammar takes them for a character of a
JSON text, but decoders replace each byte, so that a string grows beyond the length it may have.
"""

from collections.abc import Sequence

import msgspec
import numpy as np
import numpy.typing as npt

_LEAD = 0xED
_TRAILS = range(0xA0, 0xC0)


class SurrogateTokens(msgspec.Struct, frozen=True):
    """Tokens that end in the first byte, and those that begin with a second that is wrong."""

    ending: tuple[int, ...]
    beginning: tuple[int, ...]


def surrogate_tokens(texts: Sequence[bytes]) -> SurrogateTokens:
    """The tokens among `texts`, the bytes of each token by its id."""
    return SurrogateTokens(
        tuple(number for number, text in enumerate(texts) if text[-1:] == bytes((_LEAD,))),
        tuple(number for number, text in enumerate(texts) if text and text[0] in _TRAILS),
    )


class SurrogateMask:
    """Forbids the second byte after the first; `words` is the number of words of a mask."""

    def __init__(self, tokens: SurrogateTokens, num_words: int) -> None:
        self._ending = frozenset(tokens.ending)
        allowed_W = np.full(num_words, 0xFFFFFFFF, np.uint32)
        for token_id in tokens.beginning:
            allowed_W[token_id // 32] &= np.uint32(0xFFFFFFFF ^ (1 << token_id % 32))
        self._allowed_W = allowed_W.view(np.int32)

    def apply(self, last_token: int | None, allowed_W: npt.NDArray[np.int32]) -> None:
        """Take the wrong tokens out of `allowed_W` where `last_token` is a first byte."""
        if last_token in self._ending:
            allowed_W &= self._allowed_W
