"""Verdict on a new version at the present look: is it worse than the old one?

what all bounds allow                                          outcome
------------------------------------------------------------   ------------------
one measure is worse than the old one's by more than allowed   WORSE
no measure can be worse than the old one's by that much        NO_WORSE
anything else                                                  UNDECIDED

Answers of a shadow that differ from production's to the same requests are a measure where
`divergence` is allowed: then the share of them must be no larger.

`alpha` bounds the probability that a version which is not worse by more than is allowed is ever
called WORSE, and of one that is worse by more that it is ever called NO_WORSE, at any of all looks:
it is shared out over the measures, and over the two versions of each.
"""

import math
from enum import Enum

import msgspec

from hostelry.comparison.confidence import (
    Bounds,
    get_quantile,
    get_quantile_bounds,
    proportion_bounds,
)
from hostelry.domain.load import (
    EMPTY,
    NO_DIVERGENCE,
    ConfigLoad,
    Distribution,
    Divergence,
    SecondLoad,
    merge,
)
from hostelry.domain.traffic import Allowance

QUANTILES = (0.5, 0.95)
MEASURES = ("errors", *(f"latency p{q * 100:g}" for q in QUANTILES))


class VersionOutcome(Enum):
    """What can be said of the new version."""

    WORSE = "worse"
    NO_WORSE = "no worse"
    UNDECIDED = "undecided"


class VersionEvidence(msgspec.Struct, frozen=True, kw_only=True):
    """Requests of one version: how many ended, how many in a model's error, how long answers took.

    Latencies are in microseconds, of whole answers, from the choice of the copy.
    """

    finished: int = 0
    errors: int = 0
    latency_us: Distribution = EMPTY

    def plus(self, load: SecondLoad | ConfigLoad, *, times: bool = True) -> "VersionEvidence":
        """The evidence with one more second, with the second's latencies if `times`."""
        latency_us = merge(self.latency_us, load.model_latency_us) if times else self.latency_us
        return VersionEvidence(
            finished=self.finished + load.finished,
            errors=self.errors + min(load.finished, load.errors_5xx + load.broken_streams),
            latency_us=latency_us,
        )


NO_REQUESTS = VersionEvidence()


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One measure: the observed value of each version, and its bounds."""

    measure: str
    old_seen: float
    new_seen: float
    old: Bounds
    new: Bounds
    outcome: VersionOutcome


class DivergenceFinding(msgspec.Struct, frozen=True, kw_only=True):
    """The share of answers that differ by more than the tolerance, and the median distance.

    `outcome`: None if any share is allowed.
    """

    seen: Divergence
    differing: float
    bounds: Bounds
    median_millionths: float
    median_bounds: Bounds
    outcome: VersionOutcome | None


class VersionVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome, and each measure's. `divergence`: None if no answers were compared."""

    outcome: VersionOutcome
    findings: tuple[Finding, ...]
    divergence: DivergenceFinding | None = None


def compare_versions(
    old: VersionEvidence,
    new: VersionEvidence,
    allowance: Allowance,
    answers: Divergence = NO_DIVERGENCE,
) -> VersionVerdict:
    """The verdict on the new version. `answers` compares pairs of answers of both versions."""
    bounded = 2 * len(MEASURES) + (allowance.divergence is not None)
    alpha = allowance.alpha / bounded
    findings = [_errors(old, new, allowance.errors, alpha)]
    findings += [_latency(old, new, it, allowance.latency, alpha) for it in QUANTILES]
    outcomes = {it.outcome for it in findings}
    divergence = _divergence(answers, allowance.divergence, alpha)
    if divergence is not None and divergence.outcome is not None:
        outcomes.add(divergence.outcome)
    if VersionOutcome.WORSE in outcomes:
        outcome = VersionOutcome.WORSE
    else:
        outcome = (
            VersionOutcome.NO_WORSE
            if outcomes == {VersionOutcome.NO_WORSE}
            else VersionOutcome.UNDECIDED
        )
    return VersionVerdict(outcome=outcome, findings=tuple(findings), divergence=divergence)


def _divergence(seen: Divergence, allowed: float | None, alpha: float) -> DivergenceFinding | None:
    if not seen.pairs and allowed is None:
        return None
    differing = seen.pairs - seen.close
    bounds = proportion_bounds(differing, seen.pairs, alpha)
    outcome = None if allowed is None else VersionOutcome.UNDECIDED
    if allowed is not None and bounds.low > allowed:
        outcome = VersionOutcome.WORSE
    elif allowed is not None and bounds.high <= allowed and seen.pairs:
        outcome = VersionOutcome.NO_WORSE
    return DivergenceFinding(
        seen=seen,
        differing=differing / max(1, seen.pairs),
        bounds=bounds,
        median_millionths=get_quantile(seen.distance_millionths, 0.5),
        median_bounds=get_quantile_bounds(seen.distance_millionths, 0.5, alpha),
        outcome=outcome,
    )


def _errors(old: VersionEvidence, new: VersionEvidence, allowed: float, alpha: float) -> Finding:
    bounds = [proportion_bounds(it.errors, it.finished, alpha) for it in (old, new)]
    seen = [it.errors / it.finished if it.finished else 0.0 for it in (old, new)]
    return _finding(MEASURES[0], seen, bounds, Bounds(low=allowed, high=allowed))


def _latency(
    old: VersionEvidence, new: VersionEvidence, quantile: float, allowed: float, alpha: float
) -> Finding:
    bounds = [get_quantile_bounds(it.latency_us, quantile, alpha) for it in (old, new)]
    seen = [get_quantile(it.latency_us, quantile) for it in (old, new)]
    margins = Bounds(low=allowed * bounds[0].low, high=allowed * bounds[0].high)
    return _finding(f"latency p{quantile * 100:g}", seen, bounds, margins)


def _finding(measure: str, seen: list[float], bounds: list[Bounds], margins: Bounds) -> Finding:
    """The measure. The old version's bounds with each margin added are the allowed range."""
    old, new = bounds
    if new.low > old.high + margins.high:
        outcome = VersionOutcome.WORSE
    elif new.high <= old.low + margins.low and math.isfinite(new.high):
        outcome = VersionOutcome.NO_WORSE
    else:
        outcome = VersionOutcome.UNDECIDED
    return Finding(
        measure=measure, old_seen=seen[0], new_seen=seen[1], old=old, new=new, outcome=outcome
    )
