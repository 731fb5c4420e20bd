"""Choice of a variant, of a fleet during an update, and of a copy."""

from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

from hostelry.domain.endpoint_config import RoutingStrategy
from hostelry.domain.routes import VariantRoute

# Draws in [0, 1) that fill it evenly: shares that are exact over short windows, too.
#
# Of n draws in a row, the number that falls into an interval is off its share of n by a few at
# most, as with a round robin, but whatever the intervals are and however they change.
#
# Source: the additive recurrence of the golden ratio, the sequence of its kind with the least
# discrepancy (Niederreiter, "Random Number Generation and Quasi-Monte Carlo Methods", 1992, ch. 3).


GOLDEN = (5**0.5 - 1) / 2


def next_position(position: float) -> float:
    """The draw that follows `position`, which is in [0, 1), too."""
    return (position + GOLDEN) % 1.0


class EvenDraws:
    """Each call is the next draw; `start`, in [0, 1), keeps two sequences apart."""

    def __init__(self, start: float) -> None:
        self._last = start

    def __call__(self) -> float:
        """A number in [0, 1)."""
        self._last = next_position(self._last)
        return self._last


# Split of a variant's requests between its old and its new fleet, evenly and without randomness.
#
# Each request has a position in [0, 1), an even draw after the one before (`even_draws`); positions
# below the share are the new fleet's. So after any number of requests the count is right within a
# few, and so it is for every second or third request alone: a client whose requests alternate has
# both kinds on both fleets.


def takes_new(position: float, share: float) -> bool:
    """Whether the request at `position` is one of the new fleet's `share`, from 0 to 1."""
    return position < share


def named_variant(variants: Sequence[VariantRoute], name: str) -> VariantRoute | None:
    """The variant that TargetVariant names, whatever its weight; None where there is none."""
    return next((variant for variant in variants if variant.name == name), None)


def choose_variant(variants: Sequence[VariantRoute], draw: float) -> VariantRoute | None:
    """The variant whose share of the weights `draw` falls into; None where none has a ready copy.

    variants                          shares
    without a ready copy              none: theirs goes to the others
    with one, and a weight above 0    by weight
    with one, all weights 0           equal

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
    """Index of the copy that gets the request.

    strategy                      copy
    RANDOM                        by `draw`, all alike
    LEAST_OUTSTANDING_REQUESTS    fewest requests in flight; among equals those of the gateway's
                                  share, if any; among these by `draw`

    Counts of other hosts are a moment old, so that several gateways would send to the same idle
    copy. The copies are divided among the gateways in turn: each prefers its own among equals.

    Args:
        strategy: the variant's.
        outstanding: requests in flight, per copy; at least one copy.
        draw: a uniform random number in [0, 1); decides RANDOM, and ties of the other.
        share: the gateway's, where there are several hosts.

    Source: SageMaker API reference, ProductionVariant.RoutingConfig.
    """
    if strategy is RoutingStrategy.RANDOM:
        return int(draw * len(outstanding))
    least = min(outstanding)
    idlest = [index for index, count in enumerate(outstanding) if count == least]
    if share is not None and len(idlest) > 1:
        idlest = [it for it in idlest if it % share.num == share.rank] or idlest
    return idlest[int(draw * len(idlest))]
