"""Position of each name's next request, of one worker: its share of requests is even by itself."""

from collections.abc import Callable

from hostelry.domain.load import LoadKey
from hostelry.routing.even_draws import next_position

MAX_NAMES = 4096  # beyond them all begin again


class EvenPositions:
    """Positions in [0, 1), one even step after the other for each name.

    Args:
        draw: uniform random numbers in [0, 1), for the first position of a name.
    """

    def __init__(self, draw: Callable[[], float]) -> None:
        self._draw = draw
        self._next: dict[LoadKey, float] = {}

    def take(self, key: LoadKey) -> float:
        """The position of the name's present request."""
        position = self._next.get(key)
        if position is None:
            position = self._draw()
            if len(self._next) >= MAX_NAMES:
                self._next.clear()
        self._next[key] = next_position(position)
        return position
