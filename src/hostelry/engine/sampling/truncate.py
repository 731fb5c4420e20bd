"""Truncation to the most likely tokens by top_k, top_p and min_p, and draws among them.

All three keep a beginning of the tokens ordered by likelihood (of equal ones the smaller id
first), so that only candidates are ordered: tokens above a bound that no kept token can be below.

# R rows, V vocabulary, B blocks, E tokens of a block, G groups of tokens, C candidates of all rows,
# N candidates of the row with most
"""

import msgspec
import numpy as np
import numpy.typing as npt

# Sums of probabilities have a fixed order: single precision inside blocks of 256 tokens, then
# double precision from block to block. So a row's sums depend on the row alone.


Floats = npt.NDArray[np.float32]
Doubles = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

BLOCK_TOKENS = 256
STEEPEST = 1e30  # inverse temperatures above are as good as greedy


class Mass(msgspec.Struct, frozen=True):
    """exp((x - max x) / temperature) of every token: the most likely token has mass 1.

    `mass_RBE` holds V tokens of each row in blocks, the last one filled up with zeros. `sums_RB`
    are the running sums at the end of each block.
    """

    mass_RBE: Floats
    sums_RB: Doubles

    @property
    def total_mass(self) -> Doubles:
        """The mass of all tokens, (R,)."""
        return self.sums_RB[:, -1]

    def flat(self, vocab: int) -> Floats:
        """The masses without blocks, a view (R, V)."""
        return self.mass_RBE.reshape(len(self.mass_RBE), -1)[:, :vocab]

    def draw(self, shares_R: Doubles) -> Ints:
        """The first token at which the running mass exceeds a share in [0, 1) of the total.

        Never a token without mass.
        """
        rows_R = np.arange(len(shares_R))
        drawn_R = shares_R * self.total_mass
        block_R = _find_first(self.sums_RB > drawn_R[:, None])
        before_R = np.where(block_R > 0, self.sums_RB[rows_R, block_R - 1], 0.0)
        mass_RE = self.mass_RBE[rows_R, block_R]
        within_RE = np.cumsum(mass_RE, axis=1, dtype=np.float64) + before_R[:, None]
        exceeds_RE = (within_RE > drawn_R[:, None]) & (mass_RE > 0)
        # Rounding may leave the block's own running sum short of its end: then its last token.
        last_R = BLOCK_TOKENS - 1 - _find_first(mass_RE[:, ::-1] > 0)
        chosen_R = np.where(exceeds_RE.any(axis=1), _find_first(exceeds_RE), last_R)
        return block_R * BLOCK_TOKENS + chosen_R


def compute_mass(x_RV: Floats, largest_R: Floats, temperature_R: Doubles) -> Mass:
    """The masses of rows with a finite largest logit `largest_R`. Temperatures are positive."""
    rows, vocab = x_RV.shape
    blocks = -(-vocab // BLOCK_TOKENS)
    mass_RV = np.zeros((rows, blocks * BLOCK_TOKENS), np.float32)
    filled_RV = mass_RV[:, :vocab]
    with np.errstate(over="ignore", under="ignore"):
        steepness_R = np.minimum(1 / temperature_R, STEEPEST).astype(np.float32)
        np.subtract(x_RV, largest_R[:, None], out=filled_RV)
        np.multiply(filled_RV, steepness_R[:, None], out=filled_RV)
        np.exp(filled_RV, out=filled_RV)
    mass_RBE = mass_RV.reshape(rows, blocks, BLOCK_TOKENS)
    sums_RB = np.cumsum(mass_RBE.sum(axis=2), axis=1, dtype=np.float64)
    return Mass(mass_RBE, sums_RB)


def compute_group_maxima(x_RV: Floats) -> Floats:
    """The largest logit of each of V // 64 groups of 64 tokens. Up to 63 tokens are left out."""
    rows, vocab = x_RV.shape
    groups = vocab // 64
    # Groups of tokens that lie far apart: the maximum of 64 long stretches, element by element.
    return np.asarray(x_RV[:, : groups * 64].reshape(rows, 64, groups).max(axis=1))


def _find_first(flags_RN: npt.NDArray[np.bool_]) -> Ints:
    """The index of the first True of each row. 0 without any."""
    first_R: Ints = np.argmax(flags_RN, axis=1)
    return first_R


class TruncationLimits(msgspec.Struct, frozen=True):
    """Each row's top_k (0: off), top_p (1: off) and min_p (0: off)."""

    top_k_R: Ints
    top_p_R: Doubles
    min_p_R: Doubles


class Kept(msgspec.Struct, frozen=True):
    """Each row's kept tokens, most likely first.

    `tokens_RN` beyond `num_R` are padding. `sums_RN` are running sums of masses.
    """

    tokens_RN: Ints
    sums_RN: Doubles
    num_R: Ints

    def draw(self, shares_R: Doubles) -> Ints:
        """The first token at which the running mass exceeds a share in [0, 1) of the kept mass."""
        rows_R = np.arange(len(shares_R))
        wanted_R = shares_R * self.sums_RN[rows_R, self.num_R - 1]
        position_R = (self.sums_RN <= wanted_R[:, None]).sum(axis=1)
        return np.asarray(self.tokens_RN[rows_R, np.minimum(position_R, self.num_R - 1)])


def keep(x_RV: Floats, mass: Mass, limits: TruncationLimits) -> Kept:
    """The tokens that `limits` keep of rows with logits `x_RV`, at least one each.

    top_k also keeps tokens as likely as its last token. top_p keeps the fewest tokens whose share
    of the mass left by top_k reaches it. min_p keeps tokens at least that many times as likely as
    the first.
    """
    rows, vocab = x_RV.shape
    mass_RV = mass.flat(vocab)
    bound_R = np.maximum(_bound_likelihood(mass, limits, vocab), np.finfo(np.float32).tiny)
    likely_RV = mass_RV >= np.minimum(bound_R, 1.0).astype(np.float32)[:, None]
    _drop_below_top_k(x_RV, likely_RV, limits.top_k_R)
    rows_C, tokens_C = _find_places(likely_RV)
    has_k_R = limits.top_k_R > 0
    wanted_R = np.where(has_k_R | (limits.top_p_R >= 1), np.inf, limits.top_p_R * mass.total_mass)
    is_near_C = _select_nearest(mass_RV[rows_C, tokens_C], rows_C, wanted_R)
    tokens_RN, num_R = _order_candidates(x_RV, rows_C[is_near_C], tokens_C[is_near_C])
    rows_R1 = np.arange(rows)[:, None]
    held_RN = np.arange(tokens_RN.shape[1]) < num_R[:, None]
    sorted_RN = np.where(held_RN, mass_RV[rows_R1, tokens_RN], 0).astype(np.float64)
    sums_RN = np.cumsum(sorted_RN, axis=1)
    before_RN = np.concatenate((np.zeros((rows, 1)), sums_RN[:, :-1]), axis=1)
    is_top_k_RN = held_RN & _is_top_k(x_RV[rows_R1, tokens_RN], limits.top_k_R, num_R)
    last_R = is_top_k_RN.sum(axis=1) - 1
    total_R = np.where(has_k_R, sums_RN[np.arange(rows), last_R], mass.total_mass)
    reached_RN = before_RN < (limits.top_p_R * total_R)[:, None]
    reached_RN |= (limits.top_p_R >= 1)[:, None]
    likely_RN = sorted_RN >= limits.min_p_R[:, None]
    kept_R = (is_top_k_RN & reached_RN & likely_RN).sum(axis=1)
    return Kept(tokens_RN, sums_RN, np.maximum(kept_R, 1))


def largest(x_RV: Floats, count: int) -> Ints:
    """The `count` most likely tokens of each row in order, (R, count), at most V."""
    wanted_R = np.full(len(x_RV), count, np.int64)
    likely_RV = np.ones(x_RV.shape, np.bool_)
    _drop_below_top_k(x_RV, likely_RV, wanted_R)
    tokens_RN, _ = _order_candidates(x_RV, *_find_places(likely_RV))
    return tokens_RN[:, :count]


def _bound_likelihood(mass: Mass, limits: TruncationLimits, vocab: int) -> Doubles:
    """A mass that every kept token reaches.

    Tokens below (1 - top_p) / V of the total have together at most the mass that top_p leaves out.
    With top_k, top_p is a share of a smaller mass, so that all tokens must be considered.
    """
    is_part_R = (limits.top_k_R > 0) & (limits.top_p_R < 1)
    by_top_p_R = (1 - limits.top_p_R) * mass.total_mass / vocab
    bound_R = np.where(is_part_R, 0.0, np.maximum(by_top_p_R, limits.min_p_R))
    return 0.99 * bound_R  # a little less, for what rounding adds to sums


def _drop_below_top_k(x_RV: Floats, likely_RV: npt.NDArray[np.bool_], top_k_R: Ints) -> None:
    """Drop tokens below the top_k largest maxima of groups: at least top_k tokens remain."""
    maxima_RG = compute_group_maxima(x_RV)
    groups = maxima_RG.shape[1]
    bounded = np.flatnonzero((top_k_R > 0) & (top_k_R <= groups))
    if not len(bounded):
        return
    ordered_RG = np.sort(maxima_RG[bounded], axis=1)
    bound_R = ordered_RG[np.arange(len(bounded)), groups - top_k_R[bounded]]
    likely_RV[bounded] &= x_RV[bounded] >= bound_R[:, None]


def _find_places(flags_RV: npt.NDArray[np.bool_]) -> tuple[Ints, Ints]:
    """Row and token of every flag, row after row and in order of tokens."""
    rows, vocab = flags_RV.shape
    places_C = np.flatnonzero(flags_RV)
    ends = np.searchsorted(places_C, np.arange(rows + 1) * vocab)
    rows_C = np.repeat(np.arange(rows), np.diff(ends))
    return rows_C, places_C - rows_C * vocab


def _select_nearest(mass_C: Floats, rows_C: Ints, wanted_R: Doubles) -> npt.NDArray[np.bool_]:
    """Candidates above a power of two such that those above it have the wanted mass.

    All of a row whose candidates do not reach it.
    """
    rows = len(wanted_R)
    exponent_C = mass_C.view(np.int32) >> 23  # of numbers in (0, 1]: 0 to 127
    bins = np.bincount(rows_C * 128 + exponent_C, weights=mass_C, minlength=rows * 128)
    from_top = np.cumsum(bins.reshape(rows, 128)[:, ::-1], axis=1)
    enough = from_top >= wanted_R[:, None] * (1 + 1e-9)  # more than what rounding adds
    lowest_R = np.where(enough.any(axis=1), 127 - np.argmax(enough, axis=1), 0)
    return np.asarray(exponent_C >= lowest_R[rows_C])


def _order_candidates(x_RV: Floats, rows_C: Ints, tokens_C: Ints) -> tuple[Ints, Ints]:
    """The candidates of each row, most likely first, and their number."""
    num_R = np.bincount(rows_C, minlength=len(x_RV))
    held_RN = np.arange(num_R.max()) < num_R[:, None]
    keys_RN = np.full(held_RN.shape, np.iinfo(np.int64).max)
    # Each candidate's sort key, the smaller the likelier: its logit's bits, then its id. Turning
    # around the bits of negative numbers makes bits order like logits. (0.0 for -0.0)
    bits_C = (x_RV[rows_C, tokens_C] + np.float32(0)).view(np.int32)
    rank_C = (bits_C ^ ((bits_C >> 31) & np.int32(0x7FFFFFFF))).astype(np.int64)
    keys_RN[held_RN] = (-rank_C << 32) + tokens_C
    keys_RN.sort(axis=1)
    return np.where(held_RN, keys_RN & 0xFFFFFFFF, 0), num_R


def _is_top_k(x_RN: Floats, top_k_R: Ints, num_R: Ints) -> npt.NDArray[np.bool_]:
    """Which of the ordered candidates are as likely as the row's top_k-th, or likelier."""
    last_R = np.minimum(np.maximum(top_k_R, 1), num_R) - 1
    bound_R = x_RN[np.arange(len(x_RN)), last_R]
    is_top_k_RN: npt.NDArray[np.bool_] = (x_RN >= bound_R[:, None]) | (top_k_R <= 0)[:, None]
    return is_top_k_RN
