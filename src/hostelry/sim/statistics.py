"""Statistics that arrivals are compared by: rate, and burstiness on several scales."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from hostelry.sim.trace import FloatArray

SCALES_S = (1, 10, 60)


@dataclass(frozen=True, slots=True, kw_only=True)
class ArrivalStatistics:
    """How arrivals come.

    `cv` is the coefficient of variation of the time between two; by scale (1, 10, 60 s): `idc`, the
    variance of counts over their mean (1: Poisson), `peak`, the largest count over the mean, and
    `silent`, the share of empty ones.
    """

    rate: float
    cv: float
    idc: Mapping[int, float]
    peak: Mapping[int, float]
    silent: Mapping[int, float]

    def by_name(self) -> dict[str, float]:
        """Every figure by one name: rate, cv, idc@1, peak@60 ..."""
        scaled = {"idc": self.idc, "peak": self.peak, "silent": self.silent}
        figures = {f"{name}@{it}": by[it] for name, by in scaled.items() for it in SCALES_S}
        return {"rate": self.rate, "cv": self.cv, **figures}


def arrival_statistics(at_s: FloatArray, lasts_s: float) -> ArrivalStatistics:
    """The statistics of arrivals within `lasts_s` seconds; whole bins alone are counted.

    Raises ValueError where there are fewer than two arrivals, or less than a bin of 60 s.
    """
    if len(at_s) < 2 or lasts_s < SCALES_S[-1]:
        raise ValueError("statistics need two arrivals and a minute")
    gaps_s = np.diff(at_s)
    counts = {it: _counts(at_s, lasts_s, it) for it in SCALES_S}
    return ArrivalStatistics(
        rate=len(at_s) / lasts_s,
        cv=float(gaps_s.std() / gaps_s.mean()),
        idc={it: float(found.var() / found.mean()) for it, found in counts.items()},
        peak={it: float(found.max() / found.mean()) for it, found in counts.items()},
        silent={it: float((found == 0).mean()) for it, found in counts.items()},
    )


def _counts(at_s: FloatArray, lasts_s: float, width_s: int) -> npt.NDArray[np.int64]:
    num_bins = int(lasts_s // width_s)
    places = (at_s / width_s).astype(np.int64)
    return np.bincount(places[places < num_bins], minlength=num_bins)


def worst_deviation(found: Mapping[str, float], wanted: Mapping[str, float]) -> float:
    """The largest relative difference from what is wanted; 0.1 is ten percent."""
    return max(abs(found[name] / value - 1.0) for name, value in wanted.items())
