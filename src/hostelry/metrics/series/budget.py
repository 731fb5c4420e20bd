"""Retention of samples by bucket width, and how it shrinks under memory pressure.

    pressure     old seconds              old minutes        old percentiles   silent series
    ----------   ----------------------   ----------------   ---------------   --------------
    0            minutes                  5 minutes, hours   kept              455 days
    1 to 5       minutes, no percentiles  hours              dropped           kept
    6 and more   minutes, no percentiles  dropped            dropped           dropped

Pressure 0 is CloudWatch's retention. Each further degree has shorter limits. The newest minutes,
which alarms and policies read, are dropped last.

Source of pressure 0: GetMetricStatistics, "CloudWatch metrics retention": periods under 60 s are
kept 3 hours, 60 s 15 days, 300 s 63 days, 3600 s 455 days.
"""

import math

import msgspec

DEFAULT_MAX_BYTES = 256 * 1024 * 1024
HARD_SHARE = 1.1
"""Part of the budget that no write may leave exceeded."""
FREED_SHARE = 0.9
"""Part of the budget to shrink to once it was exceeded."""

MINUTE_S = 60
HOUR_S = 3600
DAY_S = 24 * HOUR_S
WIDTHS_S = (1, MINUTE_S, 300, HOUR_S)
RETENTION_S = (3 * HOUR_S, 15 * DAY_S, 63 * DAY_S, 455 * DAY_S)
"""How long the buckets of each of WIDTHS_S are kept at that width."""
LAST = len(WIDTHS_S) - 1


class Pressure(msgspec.Struct, frozen=True, kw_only=True):
    """Limits in seconds: for each width's buckets, for percentiles, and for silence of a series.

    `targets` are the widths, as indices of WIDTHS_S, that older buckets move to. None drops them.
    With `keeps_sketches` moved buckets keep their percentiles.
    """

    horizons_s: tuple[float, ...]
    targets: tuple[int | None, ...]
    sketches_s: float = math.inf
    idle_s: float = math.inf
    keeps_sketches: bool = False


def _folding(fine_s: float, minutes_s: float, sketches_s: float) -> Pressure:
    """Old seconds become minutes, old minutes hours: a sixtieth of the buckets."""
    horizons_s = (fine_s, minutes_s, minutes_s, RETENTION_S[LAST])
    return Pressure(horizons_s=horizons_s, targets=(1, LAST, LAST, None), sketches_s=sketches_s)


def _dropping(fine_s: float, minutes_s: float, hours_s: float, idle_s: float) -> Pressure:
    """Old minutes and hours are dropped: with few buckets left, moving them saves nothing."""
    return Pressure(
        horizons_s=(fine_s, minutes_s, minutes_s, hours_s),
        targets=(1, None, None, None),
        sketches_s=minutes_s,
        idle_s=idle_s,
    )


DEGREES: tuple[Pressure, ...] = (
    Pressure(
        horizons_s=RETENTION_S,
        targets=(1, 2, 3, None),
        idle_s=RETENTION_S[LAST],
        keeps_sketches=True,
    ),
    _folding(HOUR_S, 15 * DAY_S, 7 * DAY_S),
    _folding(HOUR_S, 3 * DAY_S, DAY_S),
    _folding(30 * MINUTE_S, DAY_S, 6 * HOUR_S),
    _folding(20 * MINUTE_S, 6 * HOUR_S, HOUR_S),
    _folding(20 * MINUTE_S, 6 * HOUR_S, 30 * MINUTE_S),
    _dropping(20 * MINUTE_S, 6 * HOUR_S, 30 * DAY_S, 7 * DAY_S),
    _dropping(16 * MINUTE_S, 3 * HOUR_S, 7 * DAY_S, 2 * DAY_S),
    _dropping(16 * MINUTE_S, HOUR_S, 2 * DAY_S, 6 * HOUR_S),
    _dropping(16 * MINUTE_S, 45 * MINUTE_S, DAY_S, 2 * HOUR_S),
    _dropping(16 * MINUTE_S, 30 * MINUTE_S, 6 * HOUR_S, HOUR_S),
    _dropping(5 * MINUTE_S, 20 * MINUTE_S, 2 * HOUR_S, 30 * MINUTE_S),
    _dropping(2 * MINUTE_S, 10 * MINUTE_S, HOUR_S, 10 * MINUTE_S),
    _dropping(MINUTE_S, 5 * MINUTE_S, HOUR_S, 3 * MINUTE_S),
    _dropping(MINUTE_S, 2 * MINUTE_S, HOUR_S, MINUTE_S),
    _dropping(0.0, 0.0, 0.0, -math.inf),  # everything, whatever the clock says
)
