"""Choice among the copies of a variant: RANDOM and LEAST_OUTSTANDING_REQUESTS."""

from collections.abc import Sequence
from typing import NamedTuple

from hostelry.domain.endpoint_config import RoutingStrategy


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
