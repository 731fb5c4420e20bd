"""Detection of a rise in arrivals: since when, and to what rate.

CUSUM's statistic is the largest log likelihood ratio, over all instants at which a change may have
been, of a higher rate against the base rate. Here it is computed as just that, a maximum over
windows that end now, because arrivals are not Poisson: each window is then judged by the dispersion
that counts of its own length have. The higher rate is the likeliest one, but at least a doubling,
and at least what the capacity cannot carry: a lesser rise needs no act.

Source: Page, Continuous inspection schemes, Biometrika 41 (1954); Lai, Sequential changepoint
detection in quality control and dynamical systems, J. Royal Statistical Society B 57 (1995), for
windows; the scaling is quasi-likelihood, exact in its tail for Gamma times between arrivals.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from hostelry.scaling.decide.responsive.dispersion import Dispersion
from hostelry.scaling.decide.responsive.rates import MEMORY_S, Rates

WINDOWS_S = (*range(1, 17), 20, 24, 32)
LEAST_RATIO = 2.0
MOST_RATIO = 64.0
LEAST_EVIDENT = (LEAST_RATIO - 1.0) / math.log(LEAST_RATIO)  # x the base: no evidence below
# One arrival adds up to ln(ratio) at once: a threshold that is reached is overshot by some of it.
# Tuned as options.TESTS_PER_HOUR was; the burstier, the less it matters.
OVERSHOT = 1.2
_REMEMBERED = {it: math.exp(-it / (2.0 * MEMORY_S)) for it in WINDOWS_S}


@dataclass(frozen=True, slots=True, kw_only=True)
class Rise:
    """The likeliest rise: `evidence` is its log likelihood ratio, `since_s` how long ago it began.

    `base_per_s` is the rate before it, `per_s` the rate since, drawn towards the base by what is
    not known yet.
    """

    evidence: float
    since_s: float
    base_per_s: float
    per_s: float


def likeliest_rise(
    counts: Sequence[float], rates: Rates, dispersion: Dispersion, carried_per_s: float
) -> Rise | None:
    """The window with the most evidence of arrivals by second, newest last; None without any.

    `carried_per_s` is the rate that the capacity can carry. The base rate is taken as high as it
    may well be, by its standard error.
    """
    best: Rise | None = None
    mean_per_s = rates.per_s
    error_per_s = rates.error_per_s(dispersion.index[-1])
    reached, num = 0, 0.0
    for window_s in WINDOWS_S:
        if window_s > len(counts):
            break
        while reached < window_s:
            reached += 1
            num += counts[-reached]
        if num <= mean_per_s * window_s:
            continue  # no more than usual: the quick way out, as in most seconds
        base = _before(num, window_s, rates) + error_per_s
        if num <= LEAST_EVIDENT * base * window_s:
            continue
        found = _of_window(num, window_s, base, dispersion.of(window_s), carried_per_s)
        if found is not None and (best is None or found.evidence > best.evidence):
            best = found
    return best


def _of_window(
    num: float, window_s: int, base: float, dispersion: float, carried_per_s: float
) -> Rise | None:
    least = max(LEAST_RATIO, min(MOST_RATIO, carried_per_s / base))
    ratio = max(least, min(MOST_RATIO, num / (base * window_s)))
    likelihood = num * math.log(ratio) - base * window_s * (ratio - 1.0)
    evidence = (likelihood + OVERSHOT) / dispersion
    if likelihood <= 0.0:
        return None
    drawn_s = math.sqrt(dispersion)
    return Rise(
        evidence=evidence,
        since_s=float(window_s),
        base_per_s=base,
        per_s=(num + drawn_s * base) / (window_s + drawn_s),
    )


def _before(num: float, window_s: int, rates: Rates) -> float:
    """The base rate without the window itself."""
    remembered = _REMEMBERED[window_s]
    weight = max(rates.weight - window_s * remembered, 1.0)
    return (max(rates.arrivals - num * remembered, 0.0) + 0.5) / weight
