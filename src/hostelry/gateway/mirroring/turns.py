"""The requests of a worker that are a shadow's share."""

from collections.abc import Callable

from hostelry.dataplane.balancing.even_positions import EvenPositions
from hostelry.dataplane.route_table import Shadow
from hostelry.routing.traffic_split import takes_new


class ShadowTurns:
    """Turns of each shadow, evenly spread; `draw` are uniform random numbers in [0, 1)."""

    def __init__(self, draw: Callable[[], float]) -> None:
        self._positions = EvenPositions(draw)

    def is_turn(self, shadow: Shadow) -> bool:
        """Whether the next request is one of the shadow's share."""
        if shadow.share >= 1:
            return True
        return takes_new(self._positions.take(shadow.key), shadow.share)
