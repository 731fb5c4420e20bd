"""Draws in [0, 1) that fill it evenly: shares that are exact over short windows, too.

Of n draws in a row, the number that falls into an interval is off its share of n by a few at most,
as with a round robin, but whatever the intervals are and however they change.

Source: the additive recurrence of the golden ratio, the sequence of its kind with the least
discrepancy (Niederreiter, "Random Number Generation and Quasi-Monte Carlo Methods", 1992, ch. 3).
"""

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
