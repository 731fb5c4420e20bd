"""Burstiness of arrivals against Poisson, at several time scales, learnt as they come.

The index of dispersion of counts (variance over mean; 1 for Poisson) from differences of
neighbouring blocks, as Allan's variance is: a rate that drifts or jumps adds to one difference,
where it would spoil a variance around a mean for as long as that mean remembers.

Source: Allan, Statistics of atomic frequency standards, Proc. IEEE 54 (1966); Lowen and Teich,
Fractal-Based Point Processes (2005), section 3.4, for counts.
"""

import bisect
import math
from dataclasses import dataclass

SCALES_S = (1, 2, 4, 8, 16, 32)
MEMORY_S = 900.0
PRIOR_BLOCKS = 2.0  # a scale that has seen little is believed to be as the one below it
DOUBT_BLOCKS = 6.0  # and somewhat burstier than it looks: by this over the blocks seen
WIDEST = 25.0  # a difference counts as at most this many variances: no single second deafens


@dataclass(frozen=True, slots=True)
class Scale:
    """Of one block length: arrivals seen when the block began, the last block, the sums.

    `blocks` is how many differences the sums are of.
    """

    began_at: float = 0.0
    last: float | None = None
    squares: float = 0.0
    counts: float = 0.0
    blocks: float = 0.0


@dataclass(frozen=True, slots=True)
class Dispersion:
    """`num_seconds` and `seen` count from the last gap; `index` is by scale, each at least 1."""

    num_seconds: int = 0
    seen: float = 0.0
    scales: tuple[Scale, ...] = (Scale(),) * len(SCALES_S)
    index: tuple[float, ...] = (1.0,) * len(SCALES_S)

    def of(self, window_s: float) -> float:
        """How bursty counts over `window_s` seconds may well be: by the next longer scale."""
        place = bisect.bisect_left(SCALES_S, min(window_s, SCALES_S[-1]))
        return self.index[place] * (1.0 + DOUBT_BLOCKS / max(self.scales[place].blocks, 1.0))


def observed(known: Dispersion, arrivals: float) -> Dispersion:
    """`known` after one more second."""
    num_seconds, seen = known.num_seconds + 1, known.seen + arrivals
    scales, index = list(known.scales), list(known.index)
    below = 1.0
    for place, scale_s in enumerate(SCALES_S):
        if num_seconds % scale_s:
            break  # no longer block ends here either: each length divides the next
        scales[place] = scale = _with_block(scales[place], seen, scale_s, index[place])
        prior = PRIOR_BLOCKS * max(scale.counts, 1.0) * scale_s / MEMORY_S
        below = max(1.0, (scale.squares + prior * below) / (scale.counts + prior))
        index[place] = below
    return Dispersion(num_seconds, seen, tuple(scales), tuple(index))


def after_gap(known: Dispersion) -> Dispersion:
    """`known` where seconds are missing: new blocks begin, what was learnt stays."""
    scales = tuple(Scale(0.0, None, it.squares, it.counts, it.blocks) for it in known.scales)
    return Dispersion(0, 0.0, scales, known.index)


def _with_block(scale: Scale, seen: float, scale_s: int, index: float) -> Scale:
    block = seen - scale.began_at
    if scale.last is None:
        return Scale(seen, block, scale.squares, scale.counts, scale.blocks)
    mean = (block + scale.last) / 2.0
    kept = math.exp(-scale_s / MEMORY_S)
    square = min((block - scale.last) ** 2 / 2.0, WIDEST * index * max(mean, 1.0))
    return Scale(
        began_at=seen,
        last=block,
        squares=scale.squares * kept + square,
        counts=scale.counts * kept + mean,
        blocks=scale.blocks * kept + 1.0,
    )
