"""Confidence sequences: bounds that hold at every look, however often one looks.

A usual confidence interval holds for one number of requests that was fixed before. These hold for
all numbers at once with probability 1 - alpha, so that a decision may be made as soon as they allow
it. For each candidate p of a proportion, take the likelihood of the counts under a mixture of all
proportions, divided by the likelihood under p. This is a martingale that begins at 1 if p is the
truth. By Ville's inequality it ever reaches 1 / alpha with probability alpha at most. The
candidates that have not reached it stay.

A quantile is bounded through the proportion of requests below it, which is known.

Both assume that requests are alike and independent: see `docs/comparison.md`.

Sources: H. Robbins, "Statistical Methods Related to the Law of the Iterated Logarithm", Annals of
Mathematical Statistics 41, 1970. S. Howard and A. Ramdas, "Sequential estimation of quantiles with
applications to A/B testing and best-arm identification", Bernoulli 28, 2022.
"""

import math
from collections.abc import Callable

import msgspec

from hostelry.domain.load import Distribution

STEPS = 60  # of a bisection: more than a double has bits


class Bounds(msgspec.Struct, frozen=True, kw_only=True):
    """What is between `low` and `high`, both included."""

    low: float
    high: float


def log_evidence_against(p: float, successes: int, trials: int) -> float:
    """Logarithm of the martingale of `p`: the uniform mixture's likelihood over that under `p`."""
    failures = trials - successes
    mixture = math.lgamma(successes + 1) + math.lgamma(failures + 1) - math.lgamma(trials + 2)
    if (p <= 0.0 and successes) or (p >= 1.0 and failures):
        return math.inf
    likelihood = successes * math.log(p) if successes else 0.0
    likelihood += failures * math.log1p(-p) if failures else 0.0
    return mixture - likelihood


def proportion_bounds(successes: int, trials: int, alpha: float) -> Bounds:
    """Bounds of a proportion, wrong at any look with probability `alpha` at most."""
    if not trials:
        return Bounds(low=0.0, high=1.0)
    seen, limit = successes / trials, -math.log(alpha)

    def is_possible(p: float) -> bool:
        return log_evidence_against(p, successes, trials) < limit

    low = 0.0 if is_possible(0.0) else _last(is_possible, seen, 0.0)
    high = 1.0 if is_possible(1.0) else _last(is_possible, seen, 1.0)
    return Bounds(low=low, high=high)


def get_quantile_bounds(seen: Distribution, quantile: float, alpha: float) -> Bounds:
    """Bounds of a quantile of the distribution that values were drawn from. Infinity: no bound.

    Values of one bucket count as equal.
    """
    trials, limit = sum(seen.counts), -math.log(alpha)
    most_likely = round(quantile * trials)

    def is_possible(rank: int) -> bool:
        return log_evidence_against(quantile, rank, trials) < limit

    least = _last_rank(is_possible, most_likely, 0)
    most = _last_rank(is_possible, most_likely, trials)
    return Bounds(
        low=0.0 if least == 0 else _value_at(seen, least),
        high=math.inf if most == trials else _value_at(seen, most + 1),
    )


def get_quantile(seen: Distribution, quantile: float) -> float:
    """The quantile of the values themselves. 0 without any."""
    trials = sum(seen.counts)
    return _value_at(seen, max(1, math.ceil(quantile * trials))) if trials else 0.0


def _last(is_possible: Callable[[float], bool], inside: float, outside: float) -> float:
    """The last possible number on the way from one that is possible to one that is not."""
    for _ in range(STEPS):
        middle = (inside + outside) / 2
        if is_possible(middle):
            inside = middle
        else:
            outside = middle
    return outside


def _last_rank(is_possible: Callable[[int], bool], inside: int, outside: int) -> int:
    """The last possible rank on the way from a possible one to the end, the end included."""
    if is_possible(outside):
        return outside
    while abs(outside - inside) > 1:
        middle = (inside + outside) // 2
        if is_possible(middle):
            inside = middle
        else:
            outside = middle
    return inside


def _value_at(seen: Distribution, rank: int) -> float:
    """The value of the `rank`-th request, by size, from 1."""
    passed = 0
    for value, count in zip(seen.values, seen.counts, strict=True):
        passed += count
        if passed >= rank:
            return value
    raise ValueError(f"there are {passed} values, and no {rank}th")
