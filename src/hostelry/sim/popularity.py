"""Shares of requests by model and by adapter."""

from itertools import pairwise

import numpy as np

from hostelry.sim.trace import FloatArray


def zipf_shares(num: int, exponent: float) -> FloatArray:
    """Shares of calls by rank, after Zipf's law."""
    weights = 1.0 / np.arange(1, num + 1) ** exponent
    shares: FloatArray = weights / weights.sum()
    return shares


def shares_through(num: int, points: tuple[tuple[float, float], ...]) -> FloatArray:
    """Shares by rank such that the first ranks have the share that `points` say.

    Args:
        num: how many models there are.
        points: (share of the models, share of the calls that they get), rising to (1.0, 1.0).
    """
    shares = np.empty(num)
    for (from_models, from_calls), (to_models, to_calls) in pairwise(((0.0, 0.0), *points)):
        first, end = round(from_models * num), round(to_models * num)
        falling = zipf_shares(end - first, 0.5)
        shares[first:end] = (to_calls - from_calls) * falling
    shares /= shares.sum()
    return shares


# Source: Aegaeon's market of models (SOSP 2025): 94.1 % of the models get 1.35 % of the calls.
LONGTAIL_SHARES = shares_through(1000, ((0.059, 0.9865), (1.0, 1.0)))
# Source: Alibaba's GenTD26 (2026), groups of adapters: 1 % get 27.7 % of the calls, 10 % get 57 %.
ADAPTER_SHARES = shares_through(400, ((0.01, 0.277), (0.1, 0.57), (1.0, 1.0)))
