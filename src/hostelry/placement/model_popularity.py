"""Popularity of models: the probability that the next request is for one of them.

Requests are counted with weights that halve in each of HALF_LIVES_S. A short half-life follows
bursts, a long one keeps the regular models through a scan. A request is taken to come from one of
these counts, picked by their weights; the weights are learned from the requests, so that there is
nothing to set. Of the shortest half-life only a model's last request counts, as a burst's length
says little about whether it is over.

Source: the weights are those of a mixture by online EM, Cappe and Moulines 2009.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from math import log

HALF_LIVES_S = (8.0, 120.0, 1800.0, 28_800.0)
FADING_PER_S = tuple(-1 / half_life_s for half_life_s in HALF_LIVES_S)  # of 2 ** (rate * age)
NONE = (0.0,) * len(HALF_LIVES_S)
EQUAL = (1 / len(HALF_LIVES_S),) * len(HALF_LIVES_S)
LEARNED = 0.005  # of a weight, at each request: the last 200 requests decide
SHARED = 0.01  # of what is learned goes to all alike, so that no weight is lost for good
LEAST_PROBABILITY = 1e-9
LN_2 = log(2)


@dataclass(frozen=True, slots=True)
class DecayedCounts:
    """Requests until `at_s`, one count for each of HALF_LIVES_S."""

    counts: tuple[float, ...] = NONE
    at_s: float = 0.0

    def as_of(self, now_s: float) -> tuple[float, ...]:
        """The counts at `now_s`; a clock that went back fades nothing."""
        age_s = max(now_s - self.at_s, 0.0)
        return tuple(
            [
                count * 2.0 ** (rate * age_s)
                for count, rate in zip(self.counts, FADING_PER_S, strict=True)
            ]
        )

    def after_request(self, now_s: float) -> "DecayedCounts":
        """The counts of a model with one request more, at `now_s`."""
        _, *longer = self.as_of(now_s)
        return DecayedCounts((1.0, *[count + 1.0 for count in longer]), max(now_s, self.at_s))

    def expected_requests(self, within_s: float, now_s: float) -> float:
        """How many requests to expect `within_s` seconds, by those of the last minutes."""
        return self.as_of(now_s)[1] * LN_2 / HALF_LIVES_S[1] * within_s


@dataclass(frozen=True, slots=True)
class Demand:
    """Counts of all models of an instance together, and the weight of each half-life."""

    total: DecayedCounts = DecayedCounts()
    weights: tuple[float, ...] = EQUAL

    def after_request(self, model: DecayedCounts, now_s: float) -> "Demand":
        """The demand with one request more; `model` counts the requests for its model before it."""
        now_s = max(now_s, self.total.at_s)
        before, totals = model.as_of(now_s), self.total.as_of(now_s)
        _, *longer = totals
        counts = (totals[0] - before[0] + 1.0, *[total + 1.0 for total in longer])
        return Demand(DecayedCounts(counts, now_s), self._learned(before, totals))

    @property
    def burstiness(self) -> float:
        """Share of the requests that come from bursts of seconds, 0 to 1."""
        return self.weights[0]

    def factors(self, now_s: float) -> tuple[float, ...]:
        """Factors that make a model's counts at `now_s` a probability, by their scalar product."""
        totals = self.total.as_of(now_s)
        return tuple(
            weight / total if total > 0 else 0.0
            for weight, total in zip(self.weights, totals, strict=True)
        )

    def _learned(self, before: tuple[float, ...], totals: tuple[float, ...]) -> tuple[float, ...]:
        if not any(before):
            return self.weights  # a model without a past says nothing about the half-lives
        origins = [
            weight * (count / total + LEAST_PROBABILITY if total > 0 else LEAST_PROBABILITY)
            for weight, count, total in zip(self.weights, before, totals, strict=True)
        ]
        kept, scale = 1 - LEARNED, LEARNED * (1 - SHARED) / sum(origins)
        floor = LEARNED * SHARED / len(origins)
        return tuple(
            [
                kept * weight + scale * origin + floor
                for weight, origin in zip(self.weights, origins, strict=True)
            ]
        )


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
