"""Slow averages: the base rate of arrivals, what a call costs, how many are under way.

Expected concurrency is Little's law: arrivals a second x seconds of one call.
Source: Little, A proof for the queuing formula L = lambda W, Operations Research 9 (1961).
"""

import math
from dataclasses import dataclass, replace

MEMORY_S = 180.0
IN_FLIGHT_S = 15.0
PRIOR_CALLS = 5.0
FURTHEST = 8.0  # standard deviations by which one second may differ and count whole


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """Decayed sums: seconds (`weight`), arrivals in them, calls that finished and their seconds.

    `in_flight` is an average over some `IN_FLIGHT_S`, `in_flight_weight` how much of it is known.
    """

    weight: float = 0.0
    arrivals: float = 0.0
    finished: float = 0.0
    service_s: float = 0.0
    calls: float = 0.0
    in_flight: float = 0.0
    in_flight_weight: float = 0.0

    @property
    def per_s(self) -> float:
        """The base rate: arrivals a second."""
        return self.arrivals / self.weight if self.weight else 0.0

    @property
    def mean_service_s(self) -> float:
        """Seconds that a call takes; while few have finished, by the calls under way."""
        prior = min(PRIOR_CALLS, self.arrivals)
        prior_s = self.calls / self.arrivals if self.arrivals else 0.0
        num = self.finished + prior
        return (self.service_s + prior * prior_s) / num if num else 0.0

    @property
    def num_independent_s(self) -> float:
        """How many seconds of equal weight the base rate is as good as."""
        return self.weight * (1.0 + self.weight / MEMORY_S)

    def error_per_s(self, dispersion: float) -> float:
        """The base rate's standard error."""
        if not self.weight:
            return 0.0
        return math.sqrt(dispersion * (self.per_s + 0.5 / self.weight) / self.num_independent_s)

    def in_flight_error(self, dispersion: float) -> float:
        """The standard error of `in_flight` as a mean: calls last, so neighbours are alike."""
        lasts_s = self.mean_service_s
        share = lasts_s / (lasts_s + IN_FLIGHT_S)
        return math.sqrt(dispersion * self.in_flight * share)


@dataclass(frozen=True, slots=True, kw_only=True)
class Second:
    """What counts of one second's load; all finite and not negative."""

    arrivals: float
    finished: float
    service_s: float
    in_flight: float


_KEPT = math.exp(-1.0 / MEMORY_S)
_IN_FLIGHT_KEPT = math.exp(-1.0 / IN_FLIGHT_S)


def averaged(known: Rates, second: Second, dispersion: float) -> Rates:
    """`known` after one more second; `dispersion` is of seconds."""
    counted = second.arrivals
    if known.weight > 1.0:
        usual = known.per_s
        counted = min(counted, usual + FURTHEST * (1.0 + math.sqrt(dispersion * usual)))
    in_flight_weight = known.in_flight_weight * _IN_FLIGHT_KEPT + 1.0
    return Rates(
        weight=known.weight * _KEPT + 1.0,
        arrivals=known.arrivals * _KEPT + counted,
        finished=known.finished * _KEPT + second.finished,
        service_s=known.service_s * _KEPT + second.service_s,
        calls=known.calls * _KEPT + second.in_flight,
        in_flight=known.in_flight + (second.in_flight - known.in_flight) / in_flight_weight,
        in_flight_weight=in_flight_weight,
    )


def jumped(known: Rates, per_s: float, weight: float) -> Rates:
    """`known` at a new level of arrivals, which counts as `weight` seconds of having been seen.

    What a call costs is known as before.
    """
    share = per_s * weight / known.arrivals if known.arrivals else 0.0
    return replace(known, weight=weight, arrivals=per_s * weight, calls=known.calls * share)
