"""Requests in measurements of routing: long-tailed service times and Zipf's adapters."""

import math
import random
from bisect import bisect
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate
from statistics import NormalDist


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    """Copies that are alike, and the distribution of their requests.

    Args:
        num_copies: copies behind one name.
        at_once: requests that a copy works on at a time, while the others queue.
        mean_ms: mean service time of a request, without any load.
        sigma: spread of the service times' logarithm. At 1.0, 1 % of requests take 6 x the mean.
        num_adapters: adapters, chosen by Zipf's law.
        exponent: of Zipf's law.
        held: maximum number of loaded adapters of a copy, which evicts the least recently used.
        load_ms: additional time of a request whose adapter is not loaded.
    """

    num_copies: int = 4
    at_once: int = 4
    mean_ms: float = 50.0
    sigma: float = 1.0
    num_adapters: int = 400
    exponent: float = 1.0
    held: int = 64
    load_ms: float = 40.0

    @property
    def capacity_per_s(self) -> float:
        """Requests a second that all copies together could serve without any load."""
        return self.num_copies * self.at_once / self.mean_ms * 1000

    @property
    def middle(self) -> float:
        """Mean of the service times' logarithm."""
        return math.log(self.mean_ms) - self.sigma**2 / 2

    @property
    def service_p99_ms(self) -> float:
        """p99 without any waits or loads."""
        return math.exp(self.middle + NormalDist().inv_cdf(0.99) * self.sigma)


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """One request: when it arrives, for which adapter, and how long it takes to serve."""

    at_ms: float
    adapter: str
    service_ms: float


def arrivals(fleet: Fleet, per_s: float, num_requests: int, seed: int) -> Iterator[Asked]:
    """Requests that arrive at random. Adapters and times are the same for every `per_s`."""
    source = random.Random(seed)
    shares = list(accumulate(1 / (n + 1) ** fleet.exponent for n in range(fleet.num_adapters)))
    at_ms = 0.0
    for _ in range(num_requests):
        at_ms += source.expovariate(1.0) * 1000 / per_s
        number = bisect(shares, source.random() * shares[-1])
        yield Asked(
            at_ms=at_ms,
            adapter=f"adapter-{number}",
            service_ms=source.lognormvariate(fleet.middle, fleet.sigma),
        )
