"""The seam between sampling and whatever knows which tokens a structured text may go on with."""

from typing import Protocol

import numpy as np
import numpy.typing as npt


class GrammarError(ValueError):
    """A structure that cannot be used; the message says what is wrong with it, or what is missing.

    A fault of the request, or of the installation, never of the engine.
    """


class Grammar(Protocol):
    """Where one text is in its structure; changed by `accept` alone.

    # R rows, W words of 32 tokens
    """

    def fill(self, allowed_RW: npt.NDArray[np.int32], row: int) -> None:
        """Write which tokens may come next into a row: token t is bit t % 32 of word t // 32.

        Once the structure is complete those that end the text are among them; after one of these
        nothing may come.
        """
        ...

    def accept(self, token_id: int) -> bool:
        """Go on by a token; False, and nothing changed, where it may not come."""
        ...
