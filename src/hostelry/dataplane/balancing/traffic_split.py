"""Order in which a request is offered to the two fleets of a variant whose traffic shifts."""

from collections.abc import Callable, Iterator
from dataclasses import replace

from hostelry.dataplane.balancing.even_positions import EvenPositions
from hostelry.dataplane.route_table import Destination
from hostelry.routing.traffic_split import takes_new


class TrafficSplit:
    """The position of each variant's next request, of one worker.

    Args:
        draw: uniform random numbers in [0, 1), for the first position.
    """

    def __init__(self, draw: Callable[[], float]) -> None:
        self._positions = EvenPositions(draw)

    def in_order(self, destination: Destination) -> Iterator[Destination]:
        """The destination with the copies of one fleet, then with those of the other.

        The first is the one whose turn it is. A fleet without copies is left out. Without a shift
        it is the destination itself.
        """
        fleets = destination.fleets
        if fleets is None:
            yield destination
            return
        order = (fleets.old, fleets.new)
        is_news_turn = takes_new(self._positions.take(destination.key), fleets.share)
        for copies in reversed(order) if is_news_turn else order:
            if copies:
                yield replace(destination, copies=copies, fleets=None)
