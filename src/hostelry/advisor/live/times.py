"""Service times from recorded times: seconds of a call alone, their spread, the overhead. PURE.

Calls that wait for others in a model server take longer there. So the times are from the
periods with the fewest calls, which have a quarter of all calls.
"""

from collections.abc import Iterable, Mapping

import msgspec
import numpy as np

from hostelry.advisor.live.records import SHARES, NameRecords, PeriodTimes
from hostelry.advisor.live.stretch import Span
from hostelry.sim.trace import FloatArray

QUIET_SHARE = 0.25
LEAST_S = 1e-6
GRID = np.linspace(0.0025, 0.9975, 200)
SPREAD_SHARES = (0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 1.0)


class ServiceTimes(msgspec.Struct, frozen=True, kw_only=True):
    """Times of a model. `source` is their origin."""

    seconds: float
    spread: tuple[tuple[float, float], ...]
    overhead_s: float
    source: str


def measure_times(records: NameRecords, span: Span) -> ServiceTimes | None:
    """The times in a span. None without a call."""
    within = _select(records.model_s, span, records.times_period_s)
    if not within:
        return None
    quiet = _select_quiet(within)
    seconds = max(LEAST_S, _quantile(quiet, 0.5))
    factors = np.maximum.accumulate([_quantile(quiet, it) / seconds for it in SPREAD_SHARES])
    overhead = _select(records.overhead_s, span, records.times_period_s)
    return ServiceTimes(
        seconds=seconds,
        spread=tuple(
            (share, round(max(LEAST_S, float(factor)), 4))
            for share, factor in zip(SPREAD_SHARES, factors, strict=True)
        ),
        overhead_s=_quantile(overhead, 0.5) if overhead else 0.0,
        source=f"measured: median ModelLatency of the {len(quiet)} quietest of {len(within)} "
        f"periods with calls",
    )


def get_latency(records: Iterable[NameRecords], span: Span, share: float) -> float | None:
    """A quantile of the time of calls as the gateway saw them. None without a call.

    Model time and overhead are recorded apart. A slow call is slow in one of them, so the larger
    counts of: slow in the model and usual around it, or the other way round.
    """
    model: list[PeriodTimes] = []
    overhead: list[PeriodTimes] = []
    for one in records:
        model += _select(one.model_s, span, one.times_period_s)
        overhead += _select(one.overhead_s, span, one.times_period_s)
    if not model:
        return None
    if not overhead:
        return _quantile(model, share)
    return max(
        _quantile(model, share) + _quantile(overhead, 0.5),
        _quantile(model, 0.5) + _quantile(overhead, share),
    )


def _select(times: Mapping[float, PeriodTimes], span: Span, period_s: float) -> list[PeriodTimes]:
    """The periods that lie within the span, or those that overlap it if none does."""
    within = [it for at, it in times.items() if span.since <= at and at + period_s <= span.until]
    if within:
        return within
    return [it for at, it in times.items() if at < span.until and at + period_s > span.since]


def _select_quiet(periods: list[PeriodTimes]) -> list[PeriodTimes]:
    wanted = QUIET_SHARE * sum(it.num for it in periods)
    quiet: list[PeriodTimes] = []
    for one in sorted(periods, key=lambda it: it.num):
        quiet.append(one)
        if sum(it.num for it in quiet) >= wanted:
            break
    return quiet


def _quantile(periods: list[PeriodTimes], share: float) -> float:
    """A quantile of the calls of several periods, each by its own quantiles."""
    values, weights = [], []
    for one in periods:
        drawn: FloatArray = np.interp(GRID, SHARES, one.values)
        values.append(drawn)
        weights.append(np.full(len(GRID), one.num / len(GRID)))
    flat, weight = np.concatenate(values), np.concatenate(weights)
    order = np.argsort(flat, kind="stable")
    passed = np.cumsum(weight[order])
    place = int(np.searchsorted(passed, share * passed[-1]))
    return float(flat[order][min(place, len(flat) - 1)])
