"""Load of each name in the last minute, and of one name by time, as documents. Pure."""

from collections.abc import Iterable, Sequence
from typing import Any

from hostelry.comparison.confidence import quantile_of
from hostelry.domain.distribution import Distribution
from hostelry.domain.load import LoadKey, SecondLoad

RATE_S = 10  # that rates and requests in flight are the means of
LATENCY_S = 60  # that percentiles are of
US_PER_MS = 1000.0
PERCENTILES = (("p50", 0.5), ("p90", 0.9), ("p99", 0.99))
COUNTS = ("arrivals", "errors_4xx", "errors_5xx", "no_capacity", "throttled", "delayed")
Seconds = Sequence[tuple[int, Sequence[SecondLoad]]]


def load_of_names(seconds: Seconds, endpoint: str | None) -> list[dict[str, Any]]:
    """What each name had in the last `LATENCY_S` seconds; `endpoint`: only the names of that one.

    `seconds` are closed ones, oldest first. Rates are a second's, times in milliseconds.
    """
    if not seconds:
        return []
    newest = seconds[-1][0]
    by_key: dict[LoadKey, list[SecondLoad]] = {}
    for at, loads in seconds:
        for load in loads if at > newest - LATENCY_S else ():
            if endpoint is None or load.key.endpoint_name == endpoint:
                by_key.setdefault(load.key, []).append(load)
    num_s = min(RATE_S, newest - seconds[0][0] + 1)
    return [
        {
            "endpoint": key.endpoint_name,
            "variant": key.variant_name,
            "component": key.component_name,
            **_rates([it for it in loads if it.second > newest - RATE_S], num_s),
            "held": loads[-1].held if loads[-1].second == newest else 0,
            "oldest_held_s": loads[-1].oldest_held_s if loads[-1].second == newest else 0.0,
            "latency_ms": _percentiles(it.model_latency_us for it in loads),
            "first_chunk_ms": _percentiles(it.first_chunk_latency_us for it in loads),
        }
        for key, loads in by_key.items()
    ]


def load_by_time(loads: Sequence[SecondLoad], bucket_s: int) -> list[dict[str, Any]]:
    """The rates of one name in each `bucket_s` seconds, oldest first.

    The newest bucket may be short: its rates are of the seconds that it has.
    """
    buckets: dict[int, list[SecondLoad]] = {}
    for load in loads:
        buckets.setdefault(load.second - load.second % bucket_s, []).append(load)
    return [
        {"at": at, **_rates(mine, len(mine)), "held": max(it.held_max for it in mine)}
        for at, mine in sorted(buckets.items())
    ]


def _rates(loads: Sequence[SecondLoad], num_s: int) -> dict[str, float]:
    found = {f"{it}_per_s": sum(getattr(load, it) for load in loads) / num_s for it in COUNTS}
    found["in_flight"] = sum(it.in_flight_mean for it in loads) / num_s
    return {name: round(value, 3) for name, value in found.items()}


def _percentiles(given: Iterable[Distribution]) -> dict[str, float] | None:
    """Percentiles in milliseconds; None without a sample."""
    counts: dict[float, int] = {}
    for one in given:
        for value, count in zip(one.values, one.counts, strict=True):
            counts[value] = counts.get(value, 0) + count
    if not counts:
        return None
    values = sorted(counts)
    seen = Distribution(values=tuple(values), counts=tuple(counts[it] for it in values))
    return {name: round(quantile_of(seen, share) / US_PER_MS, 3) for name, share in PERCENTILES}
