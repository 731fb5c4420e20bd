"""Statistics by CloudWatch's names, as functions of a bucket.

Source: CloudWatch user guide, "CloudWatch statistics definitions": percentiles p, trimmed and
winsorized means tm and wm, trimmed count tc and sum ts, IQM, percentile rank PR. Bounds that end in
% are percentiles of the samples, other bounds are values.
"""

import re
from collections.abc import Callable, Mapping
from functools import lru_cache

import msgspec

from hostelry.metrics.series.bucket import Bucket
from hostelry.metrics.series.sketch import weighted_values

Statistic = Callable[[Bucket], float | None]
Weighted = list[tuple[float, float]]

SIMPLE: Mapping[str, Statistic] = {
    "SampleCount": lambda it: it.count,
    "Average": lambda it: it.sum / it.count,
    "Sum": lambda it: it.sum,
    "Minimum": lambda it: it.minimum,
    "Maximum": lambda it: it.maximum,
}
_NUMBER = r"\d{1,3}(?:\.\d{1,10})?"
_SHORT = re.compile(rf"(p|tm|wm|tc|ts)({_NUMBER})", re.IGNORECASE)
_BOUND = r"\s*(?:([-+]?\d{1,30}(?:\.\d{1,10})?%?)\s*)?"
_LONG = re.compile(rf"(TM|WM|TC|TS|PR)\({_BOUND}:{_BOUND}\)", re.IGNORECASE)
_KNOWN = (
    "SampleCount, Average, Sum, Minimum, Maximum, p0 to p100, IQM, and tm, wm, tc, ts or PR with a"
    " percentile or with bounds, as tm99, TM(10%:90%) or PR(:300)"
)


class Bound(msgspec.Struct, frozen=True):
    """An end of an interval: a share of the samples from 0 to 1, or a value."""

    at: float
    is_share: bool


@lru_cache(maxsize=1024)
def statistic(name: str) -> Statistic:
    """Return the function that computes the statistic. It returns None if that is impossible.

    A bucket of statistic sets has no percentiles. Raises ValueError for an unknown name.
    """
    if name in SIMPLE:
        return SIMPLE[name]
    if name.upper() == "IQM":
        return _build_interval("TM", Bound(0.25, is_share=True), Bound(0.75, is_share=True))
    short = _SHORT.fullmatch(name)
    if short:
        return _short(name, short[1].upper(), float(short[2]))
    long = _LONG.fullmatch(name)
    if long and (long[2] or long[3]):
        return _build_interval(
            long[1].upper(), _parse_bound(name, long[2]), _parse_bound(name, long[3])
        )
    raise ValueError(f"'{name:.100}' is not a statistic; there are {_KNOWN}.")


def is_simple(name: str) -> bool:
    """True if the statistic is defined for every bucket, even a bucket of statistic sets."""
    return name in SIMPLE


def percentile(bucket: Bucket, share: float) -> float | None:
    """The value that `share` (0 to 1) of the samples do not exceed. None if unknown."""
    weighted = _weigh(bucket)
    if weighted is None:
        return None
    if share >= 1.0 or share <= 0.0:
        return bucket.maximum if share >= 1.0 else bucket.minimum
    rank, seen = share * max(bucket.count - 1.0, 0.0), 0.0
    for value, count in weighted:
        seen += count
        if seen > rank:
            return min(max(value, bucket.minimum), bucket.maximum)
    return bucket.maximum


def _short(name: str, kind: str, percent: float) -> Statistic:
    if percent > 100:
        raise ValueError(f"'{name}' asks for more than 100 percent.")
    share = percent / 100
    if kind == "P":
        return lambda it: percentile(it, share)
    return _build_interval(kind, None, Bound(share, is_share=True))


def _parse_bound(name: str, text: str | None) -> Bound | None:
    if not text:
        return None
    if not text.endswith("%"):
        return Bound(float(text), is_share=False)
    share = float(text[:-1]) / 100
    if not 0 <= share <= 1:
        raise ValueError(f"'{name}' asks for {text} of the samples; the share is 0% to 100%.")
    return Bound(share, is_share=True)


def _build_interval(kind: str, low: Bound | None, high: Bound | None) -> Statistic:
    def of(bucket: Bucket) -> float | None:
        weighted = _weigh(bucket)
        if weighted is None:
            return None
        kept = _within(weighted, low, high)
        count = sum(weight for _, weight in kept)
        total = sum(value * weight for value, weight in kept)
        if kind in ("TC", "TS"):
            return count if kind == "TC" else total
        if kind == "PR":
            return 100.0 * count / bucket.count
        if count <= 0:
            return None
        return total / count if kind == "TM" else _winsorize(weighted, kept)

    return of


def _weigh(bucket: Bucket) -> Weighted | None:
    """Values and counts, within the bucket's minimum and maximum. None if unknown."""
    if bucket.is_uniform:
        return [(bucket.minimum, bucket.count)]
    if bucket.sketch is None:
        return None
    low, high = bucket.minimum, bucket.maximum
    return [(min(max(it, low), high), count) for it, count in weighted_values(bucket.sketch)]


def _within(weighted: Weighted, low: Bound | None, high: Bound | None) -> Weighted:
    """The part of each value's count that lies inside the bounds."""
    total = sum(count for _, count in weighted)
    first = low.at * total if low and low.is_share else 0.0
    last = high.at * total if high and high.is_share else total
    kept, seen = [], 0.0
    for value, count in weighted:
        part = min(seen + count, last) - max(seen, first)
        seen += count
        too_small = low is not None and not low.is_share and value <= low.at
        too_large = high is not None and not high.is_share and value > high.at
        if part > 0 and not too_small and not too_large:
            kept.append((value, part))
    return kept


def _winsorize(weighted: Weighted, kept: Weighted) -> float:
    """The mean after values outside the bounds are replaced by the nearest value inside."""
    low, high = kept[0][0], kept[-1][0]
    inside = sum(count for _, count in kept)
    total = sum(value * count for value, count in kept)
    all_series = sum(count for _, count in weighted)
    below = sum(count for value, count in weighted if value < low)
    at_low = sum(count for value, count in weighted if value == low)
    cut_low = at_low - kept[0][1] if low != high else 0.0
    left = below + max(cut_low, 0.0)
    right = all_series - inside - left
    return (total + left * low + max(right, 0.0) * high) / all_series
