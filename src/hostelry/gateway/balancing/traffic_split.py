"""Order in which a request is offered to the two fleets of a variant whose traffic shifts."""

from collections.abc import Callable, Iterator
from dataclasses import replace

from hostelry.domain.load import LoadKey
from hostelry.gateway.route_table import Destination
from hostelry.routing.traffic_split import next_position, takes_new

MAX_POSITIONS = 4096  # of variants; those of updates that are over go with the rest


class TrafficSplit:
    """The position of each variant's next request, of one worker.

    Args:
        draw: uniform random numbers in [0, 1), for the first position.
    """

    def __init__(self, draw: Callable[[], float]) -> None:
        self._draw = draw
        self._positions: dict[LoadKey, float] = {}

    def in_order(self, destination: Destination) -> Iterator[Destination]:
        """The destination with the copies of one fleet, then with those of the other.

        The first is the one whose turn it is. A fleet without copies is left out. Without a shift
        it is the destination itself.
        """
        fleets = destination.fleets
        if fleets is None:
            yield destination
            return
        position = self._positions.pop(destination.key, None)
        if position is None:
            position = self._draw()
            if len(self._positions) >= MAX_POSITIONS:
                self._positions.clear()
        self._positions[destination.key] = next_position(position)
        order = (fleets.old, fleets.new)
        for copies in reversed(order) if takes_new(position, fleets.share) else order:
            if copies:
                yield replace(destination, copies=copies, fleets=None)
