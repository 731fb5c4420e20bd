"""The interface between sampling and a grammar, which knows the tokens that may come next."""

from typing import Protocol

import numpy as np
import numpy.typing as npt


class GrammarError(ValueError):
    """A structure that cannot be used.

    The message has the reason, or the missing library. An error of the request, or of the
    installation, never of the engine.
    """


class Grammar(Protocol):
    """The state of one text in its structure. Only `accept` changes it.

    # R rows, W words of 32 tokens
    """

    def fill(self, allowed_RW: npt.NDArray[np.int32], row: int) -> None:
        """Write the tokens that may come next into a row: token t is bit t % 32 of word t // 32.

        Once the structure is complete they include the tokens that end the text. After one of these
        no token is allowed.
        """
        ...

    def accept(self, token_id: int) -> bool:
        """Advance by a token. False, changing nothing, if it is not allowed."""
        ...
