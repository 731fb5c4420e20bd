"""Occupancy over time: means over any span, from when each member came and went."""

import numpy as np
import numpy.typing as npt

from hostelry.sim.trace import FloatArray


class Occupancy:
    """The number of spans that cover a time, on average over an interval.

    Args:
        begins_s: when each began.
        ends_s: when each ended, in the same order.
    """

    def __init__(self, begins_s: FloatArray, ends_s: FloatArray) -> None:
        self._begins = _Ramp(begins_s)
        self._ends = _Ramp(ends_s)

    def means(self, edges_s: npt.ArrayLike) -> FloatArray:
        """The mean between each two neighbours of `edges_s`, which rise."""
        edges = np.asarray(edges_s, dtype=np.float64)
        passed = self._begins.at(edges) - self._ends.at(edges)
        means: FloatArray = np.diff(passed) / np.diff(edges)
        return means

    def mean(self, from_s: float, to_s: float) -> float:
        """The mean over one span; 0 where it is empty."""
        return float(self.means([from_s, to_s])[0]) if to_s > from_s else 0.0


class _Ramp:
    """Seconds since each of many instants, summed over those that are past."""

    def __init__(self, instants_s: FloatArray) -> None:
        self._sorted = np.sort(instants_s)
        self._summed = np.concatenate([[0.0], np.cumsum(self._sorted)])

    def at(self, times_s: FloatArray) -> FloatArray:
        past = np.searchsorted(self._sorted, times_s, side="right")
        seconds: FloatArray = past * times_s - self._summed[past]
        return seconds


def step_means(instants_s: FloatArray, values: FloatArray, edges_s: FloatArray) -> FloatArray:
    """Means of a step function, 0 before its first instant, between neighbours of `edges_s`."""
    if not len(instants_s):
        return np.zeros(len(edges_s) - 1)
    lasted = np.concatenate([[0.0], np.cumsum(np.diff(instants_s) * values[:-1])])
    place = np.searchsorted(instants_s, edges_s, side="right") - 1
    known = np.maximum(place, 0)
    area = lasted[known] + (edges_s - instants_s[known]) * values[known]
    area = np.where(place < 0, 0.0, area)
    means: FloatArray = np.diff(area) / np.diff(edges_s)
    return means
