"""How long samples are kept at which width, and how that shrinks where memory is short.

Pressure 0 is what CloudWatch keeps. Each further degree first moves the oldest of the finest
samples into coarser buckets, later drops the oldest of all, and last the series that were not
written for longest: what alarms and policies read, the newest minutes, goes last.
"""

import math
from dataclasses import dataclass

from hostelry.metrics.series import DAY_S, HOUR_S, RETENTION_S

DEFAULT_MAX_BYTES = 256 * 1024 * 1024
HARD_SHARE = 1.1
"""Of the budget: no write leaves more than that."""
FREED_SHARE = 0.9
"""Of the budget: what is left once it was exceeded."""
RELAXED_SHARE = 0.75
"""Below this share of the budget the pressure falls again by one degree a round."""
MINUTE_S = 60


@dataclass(frozen=True, slots=True)
class Pressure:
    """Seconds: of each width's buckets, and how long a series may go unwritten."""

    horizons_s: tuple[float, ...]
    idle_s: float


def _degree(fine: float, minutes: float, fives: float, hours: float, idle: float) -> Pressure:
    return Pressure((fine, minutes, fives, hours), idle)


DEGREES: tuple[Pressure, ...] = (
    Pressure(tuple(float(it) for it in RETENTION_S), RETENTION_S[-1]),
    _degree(2 * HOUR_S, 15 * DAY_S, 63 * DAY_S, 455 * DAY_S, 455 * DAY_S),
    _degree(HOUR_S, 15 * DAY_S, 63 * DAY_S, 455 * DAY_S, 90 * DAY_S),
    _degree(30 * MINUTE_S, 7 * DAY_S, 63 * DAY_S, 455 * DAY_S, 30 * DAY_S),
    _degree(20 * MINUTE_S, 3 * DAY_S, 30 * DAY_S, 200 * DAY_S, 15 * DAY_S),
    _degree(20 * MINUTE_S, DAY_S, 14 * DAY_S, 90 * DAY_S, 7 * DAY_S),
    _degree(20 * MINUTE_S, 6 * HOUR_S, 7 * DAY_S, 30 * DAY_S, 2 * DAY_S),
    _degree(16 * MINUTE_S, 3 * HOUR_S, 2 * DAY_S, 14 * DAY_S, DAY_S),
    _degree(16 * MINUTE_S, HOUR_S, DAY_S, 7 * DAY_S, 6 * HOUR_S),
    _degree(10 * MINUTE_S, 30 * MINUTE_S, 6 * HOUR_S, 2 * DAY_S, 2 * HOUR_S),
    _degree(5 * MINUTE_S, 20 * MINUTE_S, 2 * HOUR_S, DAY_S, HOUR_S),
    _degree(3 * MINUTE_S, 20 * MINUTE_S, HOUR_S, 6 * HOUR_S, 20 * MINUTE_S),
    _degree(MINUTE_S, 10 * MINUTE_S, 30 * MINUTE_S, HOUR_S, 5 * MINUTE_S),
    _degree(MINUTE_S, 5 * MINUTE_S, 10 * MINUTE_S, HOUR_S, 90.0),
    _degree(30.0, MINUTE_S, 5 * MINUTE_S, HOUR_S, 20.0),
    _degree(0.0, 0.0, 0.0, 0.0, -math.inf),  # everything, whatever the clock says
)
