"""Popularity of models: the probability that the next request is for one of them.

Requests are counted with weights that halve in each of HALF_LIVES_S. A short half-life follows
bursts, a long one keeps the regular models through a scan. Each half-life predicts every request
before it is counted, and those that predict well gain weight, so there is nothing to set.

Source: exponentially weighted experts with a fixed share, Herbster and Warmuth 1998.
"""

from collections.abc import Iterable
from dataclasses import dataclass

HALF_LIVES_S = (8.0, 120.0, 1800.0, 28_800.0)
FADING_PER_S = tuple(-1 / half_life_s for half_life_s in HALF_LIVES_S)  # of 2 ** (rate * age)
NONE = (0.0,) * len(HALF_LIVES_S)
EQUAL = (1 / len(HALF_LIVES_S),) * len(HALF_LIVES_S)
LEAST_PROBABILITY = 1e-7  # of a request that no count foresaw
SHARED = 0.002  # of the weights, dealt out at each request, so that none is lost for good


@dataclass(frozen=True, slots=True)
class DecayedCounts:
    """Requests until `at_s`, one count for each of HALF_LIVES_S."""

    counts: tuple[float, ...] = NONE
    at_s: float = 0.0

    def as_of(self, now_s: float) -> tuple[float, ...]:
        """The counts at `now_s`; a clock that went back fades nothing."""
        age_s = max(now_s - self.at_s, 0.0)
        return tuple(
            count * 2.0 ** (rate * age_s)
            for count, rate in zip(self.counts, FADING_PER_S, strict=True)
        )

    def after_request(self, now_s: float) -> "DecayedCounts":
        """The counts with one request more, at `now_s`."""
        counts = tuple([count + 1.0 for count in self.as_of(now_s)])
        return DecayedCounts(counts, max(now_s, self.at_s))


@dataclass(frozen=True, slots=True)
class Demand:
    """Requests for all models of an instance together, and the weight of each half-life."""

    total: DecayedCounts = DecayedCounts()
    weights: tuple[float, ...] = EQUAL

    def after_request(self, model: DecayedCounts, now_s: float) -> "Demand":
        """The demand with one request more; `model` counts the requests for its model before it."""
        return Demand(self.total.after_request(now_s), self._learned(model, now_s))

    def factors(self, now_s: float) -> tuple[float, ...]:
        """Factors that make a model's counts at `now_s` a probability, by their scalar product."""
        totals = self.total.as_of(now_s)
        return tuple(
            weight / total if total > 0 else 0.0
            for weight, total in zip(self.weights, totals, strict=True)
        )

    def _learned(self, model: DecayedCounts, now_s: float) -> tuple[float, ...]:
        if model.counts is NONE:
            return self.weights  # a model without a past shows which half-life is best to none
        predicted = [
            weight * (count / total + LEAST_PROBABILITY if total > 0 else LEAST_PROBABILITY)
            for weight, count, total in zip(
                self.weights, model.as_of(now_s), self.total.as_of(now_s), strict=True
            )
        ]
        scale = (1 - SHARED) / sum(predicted)
        return tuple([weight * scale + SHARED / len(predicted) for weight in predicted])


def probabilities(models: Iterable[DecayedCounts], demand: Demand, now_s: float) -> list[float]:
    """For each model the probability that the next request is for it."""
    factor_a, factor_b, factor_c, factor_d = demand.factors(now_s)
    rate_a, rate_b, rate_c, rate_d = FADING_PER_S
    found = []
    for model in models:  # written out: this is the inner loop of an eviction
        age_s = now_s - model.at_s if now_s > model.at_s else 0.0
        count_a, count_b, count_c, count_d = model.counts
        found.append(
            factor_a * count_a * 2.0 ** (rate_a * age_s)
            + factor_b * count_b * 2.0 ** (rate_b * age_s)
            + factor_c * count_c * 2.0 ** (rate_c * age_s)
            + factor_d * count_d * 2.0 ** (rate_d * age_s)
        )
    return found
