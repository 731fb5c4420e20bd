"""Chooses a variant, a fleet during an update, and a copy."""

from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

from hostelry.domain.endpoint_config import RoutingStrategy
from hostelry.domain.routes import VariantRoute

GOLDEN = (5**0.5 - 1) / 2


def next_position(position: float) -> float:
    """Compute the draw after `position`. Both are in [0, 1), which the draws fill evenly.

    Of n draws in a row, the number that falls into an interval differs from its share of n by a few
    at most. A round robin has this property as well, but here the intervals may have any size and
    may change at any time.

    Source: the additive recurrence of the golden ratio, the sequence of its kind with the least
    discrepancy (Niederreiter, "Random Number Generation and Quasi-Monte Carlo Methods", 1992,
    ch. 3).
    """
    return (position + GOLDEN) % 1.0


class EvenDraws:
    """Returns the next draw at each call. Two sequences differ by their `start` in [0, 1)."""

    def __init__(self, start: float) -> None:
        self._last = start

    def __call__(self) -> float:
        """Return a number in [0, 1)."""
        self._last = next_position(self._last)
        return self._last


def takes_new(position: float, share: float) -> bool:
    """True if the request at `position` goes to the new fleet, whose `share` is from 0 to 1.

    The position is the variant's next even draw (`next_position`). So after any number of requests,
    each fleet has its share within a few requests. The same is true for every second or third
    request alone: if a client alternates between two kinds of requests, both fleets get both kinds.
    """
    return position < share


def named_variant(variants: Sequence[VariantRoute], name: str) -> VariantRoute | None:
    """Find the variant that TargetVariant names, with any weight. None if it does not exist."""
    return next((variant for variant in variants if variant.name == name), None)


def choose_variant(variants: Sequence[VariantRoute], draw: float) -> VariantRoute | None:
    """Choose the variant into whose share `draw` falls. None if no variant has a ready copy.

    variants                                   shares
    without a ready copy                       0
    with a ready copy, and a weight above 0    by weight
    with a ready copy, all weights are 0       equal

    Args:
        variants: the endpoint's variants.
        draw: a uniform random number in [0, 1).

    Source: SageMaker API reference, ProductionVariant.InitialVariantWeight.
    """
    ready = [variant for variant in variants if variant.copies]
    if len(ready) <= 1:
        return ready[0] if ready else None
    weights = [max(variant.weight, 0.0) for variant in ready]
    if not sum(weights):
        weights = [1.0] * len(ready)
    mark = draw * sum(weights)
    for variant, upper in zip(ready, accumulate(weights), strict=True):
        if mark < upper:
            return variant
    return next(v for v, weight in zip(reversed(ready), reversed(weights), strict=True) if weight)


class GatewayShare(NamedTuple):
    """This gateway host among all that serve: number `rank`, from 0, of `num`."""

    rank: int
    num: int


def choose_copy(
    strategy: RoutingStrategy,
    outstanding: Sequence[int],
    draw: float,
    share: GatewayShare | None = None,
) -> int:
    """Choose the copy that gets the request, and return its index.

    strategy                      copy
    RANDOM                        by `draw`, all alike
    LEAST_OUTSTANDING_REQUESTS    fewest requests in flight, then (among equals) a copy of the
                                  gateway's share, then by `draw`

    The counts of other hosts are a moment old. Several gateways would therefore send to the same
    idle copy. So the copies are divided among the gateways in turn, and among equals each gateway
    prefers the copies of its share.

    Args:
        strategy: the variant's strategy.
        outstanding: requests in flight on each copy. There must be at least one copy.
        draw: a uniform random number in [0, 1). It decides RANDOM, and ties of the other strategy.
        share: this gateway's share, if there are several hosts.

    Source: SageMaker API reference, ProductionVariant.RoutingConfig.
    """
    if strategy is RoutingStrategy.RANDOM:
        return int(draw * len(outstanding))
    least = min(outstanding)
    idlest = [index for index, count in enumerate(outstanding) if count == least]
    if share is not None and len(idlest) > 1:
        idlest = [it for it in idlest if it % share.num == share.rank] or idlest
    return idlest[int(draw * len(idlest))]
