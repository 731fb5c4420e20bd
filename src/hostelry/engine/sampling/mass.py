"""Unnormalised probabilities of whole rows, their sums, and draws from them.

Sums have a fixed order: single precision inside blocks of 256 tokens, then double precision from
block to block. So a row's sums depend on the row alone, not on the rows computed with it.

# R rows, V vocabulary, B blocks, E tokens of a block
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]
Doubles = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

BLOCK_TOKENS = 256
_STEEPEST = 1e30  # inverse temperatures above are as good as greedy


@dataclass(frozen=True, slots=True)
class Mass:
    """exp((x - max x) / temperature) of every token: the most likely one has mass 1.

    `mass_RBE` holds V tokens a row in blocks, the last one filled up with zeros; `sums_RB` are the
    running sums at the end of each block.
    """

    mass_RBE: Floats
    sums_RB: Doubles

    @property
    def total_mass(self) -> Doubles:
        """The mass of all tokens, (R,)."""
        return self.sums_RB[:, -1]

    def flat(self, vocab: int) -> Floats:
        """The masses without blocks, (R, V); a view."""
        return self.mass_RBE.reshape(len(self.mass_RBE), -1)[:, :vocab]

    def draw(self, shares_R: Doubles) -> Ints:
        """The first token at which the running mass exceeds a share in [0, 1) of the total.

        Never a token without mass.
        """
        rows_R = np.arange(len(shares_R))
        drawn_R = shares_R * self.total_mass
        block_R = _first(self.sums_RB > drawn_R[:, None])
        before_R = np.where(block_R > 0, self.sums_RB[rows_R, block_R - 1], 0.0)
        mass_RE = self.mass_RBE[rows_R, block_R]
        within_RE = np.cumsum(mass_RE, axis=1, dtype=np.float64) + before_R[:, None]
        exceeds_RE = (within_RE > drawn_R[:, None]) & (mass_RE > 0)
        # Rounding may leave the block's own running sum short of its end: then its last token.
        last_R = BLOCK_TOKENS - 1 - _first(mass_RE[:, ::-1] > 0)
        chosen_R = np.where(exceeds_RE.any(axis=1), _first(exceeds_RE), last_R)
        return block_R * BLOCK_TOKENS + chosen_R


def mass_of(x_RV: Floats, largest_R: Floats, temperature_R: Doubles) -> Mass:
    """The masses of rows whose largest logit `largest_R` is finite; temperatures are positive."""
    rows, vocab = x_RV.shape
    blocks = -(-vocab // BLOCK_TOKENS)
    mass_RV = np.zeros((rows, blocks * BLOCK_TOKENS), np.float32)
    filled_RV = mass_RV[:, :vocab]
    with np.errstate(over="ignore", under="ignore"):
        steepness_R = np.minimum(1 / temperature_R, _STEEPEST).astype(np.float32)
        np.subtract(x_RV, largest_R[:, None], out=filled_RV)
        np.multiply(filled_RV, steepness_R[:, None], out=filled_RV)
        np.exp(filled_RV, out=filled_RV)
    mass_RBE = mass_RV.reshape(rows, blocks, BLOCK_TOKENS)
    sums_RB = np.cumsum(mass_RBE.sum(axis=2), axis=1, dtype=np.float64)
    return Mass(mass_RBE, sums_RB)


def group_maxima(x_RV: Floats) -> Floats:
    """The largest logit of each of V // 64 groups of 64 tokens; up to 63 tokens are left out."""
    rows, vocab = x_RV.shape
    groups = vocab // 64
    # Groups of tokens that lie far apart: the maximum of 64 long stretches, element by element.
    return np.asarray(x_RV[:, : groups * 64].reshape(rows, 64, groups).max(axis=1))


def _first(flags_RN: npt.NDArray[np.bool_]) -> Ints:
    """The index of the first True of each row; 0 where there is none."""
    first_R: Ints = np.argmax(flags_RN, axis=1)
    return first_R
