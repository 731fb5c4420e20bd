"""Counts of values by size."""

from bisect import bisect_left
from collections.abc import Sequence


class BucketCounts:
    """Counts of values up to each of `bounds`, ascending, and their sum."""

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = tuple(bounds)
        self._counts = [0] * (len(self._bounds) + 1)
        self.sum = 0.0

    def add(self, value: float) -> None:
        """Count one value."""
        self._counts[bisect_left(self._bounds, value)] += 1
        self.sum += value

    def buckets(self) -> list[tuple[str, float]]:
        """Each bound as text and the number of values up to it; the last bound is +Inf."""
        found: list[tuple[str, float]] = []
        below = 0
        for bound, count in zip((*self._bounds, float("inf")), self._counts, strict=True):
            below += count
            text = "+Inf" if bound == float("inf") else str(float(bound))
            found.append((text, float(below)))
        return found
