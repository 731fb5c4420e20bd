"""Choice among the copies of a variant: RANDOM and LEAST_OUTSTANDING_REQUESTS."""

from collections.abc import Sequence

from hostelry.domain.endpoint_config import RoutingStrategy


def choose_copy(strategy: RoutingStrategy, outstanding: Sequence[int], draw: float) -> int:
    """Index of the copy that gets the request.

    strategy                      copy
    RANDOM                        by `draw`, all alike
    LEAST_OUTSTANDING_REQUESTS    fewest requests in flight; among equals by `draw`

    Args:
        strategy: the variant's.
        outstanding: requests in flight, per copy; at least one copy.
        draw: a uniform random number in [0, 1); decides RANDOM, and ties of the other.

    Source: SageMaker API reference, ProductionVariant.RoutingConfig.
    """
    if strategy is RoutingStrategy.RANDOM:
        return int(draw * len(outstanding))
    least = min(outstanding)
    idlest = [index for index, count in enumerate(outstanding) if count == least]
    return idlest[int(draw * len(idlest))]
