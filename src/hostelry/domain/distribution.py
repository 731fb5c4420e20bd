"""Distribution: counts by value."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Distribution:
    """Counts by value; `values` are the middles of logarithmic buckets."""

    values: tuple[float, ...] = ()
    counts: tuple[int, ...] = ()


EMPTY = Distribution()


def joined(one: Distribution, other: Distribution) -> Distribution:
    """Both distributions as one, smallest value first."""
    if not other.values or not one.values:
        return one if one.values else other
    counts = dict(zip(one.values, one.counts, strict=True))
    for value, count in zip(other.values, other.counts, strict=True):
        counts[value] = counts.get(value, 0) + count
    values = sorted(counts)
    return Distribution(values=tuple(values), counts=tuple(counts[it] for it in values))
