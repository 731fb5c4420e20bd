"""Summary of the samples of one period, which can be merged with another."""

from collections.abc import Sequence

import msgspec

from hostelry.domain.metric import Sample
from hostelry.metrics.series import sketch


class Bucket(msgspec.Struct, frozen=True, kw_only=True):
    """A summary of samples. Without a `sketch` some came as statistic sets."""

    count: float
    sum: float
    minimum: float
    maximum: float
    sketch: bytes | None = None

    @property
    def is_uniform(self) -> bool:
        """True if all samples have the same value, so that every percentile is exact."""
        return self.minimum == self.maximum

    def distribution(self) -> bytes | None:
        """The sketch of the samples. None if their distribution is unknown."""
        if self.sketch is None and self.is_uniform:
            return sketch.build_sketch((self.minimum,), (self.count,))
        return self.sketch

    def merge(self, other: "Bucket") -> "Bucket":
        """Merge both buckets. The order of merges changes only the last bits of the sum."""
        return merge_buckets((self, other))


def merge_buckets(buckets: Sequence[Bucket], *, with_sketch: bool = True) -> Bucket:
    """Merge one or more buckets. Without `with_sketch` the costly merge of sketches is skipped."""
    if len(buckets) == 1:
        return buckets[0]
    minimum = min(it.minimum for it in buckets)
    maximum = max(it.maximum for it in buckets)
    both: bytes | None = None
    if with_sketch and minimum != maximum:
        known = [it.distribution() for it in buckets]
        both = None if None in known else sketch.merge([it for it in known if it is not None])
    return Bucket(
        count=sum(it.count for it in buckets),
        sum=sum(it.sum for it in buckets),
        minimum=minimum,
        maximum=maximum,
        sketch=both,
    )


def build_bucket(sample: Sample) -> Bucket | None:
    """Build the bucket of one sample. None if its counts are all 0.

    Raises ValueError for numbers outside CloudWatch's range, negative counts, and values and counts
    of different length.
    """
    if sample.statistics is not None:
        return _build_from_statistics(sample)
    values, counts = sample.values, sample.counts or (1.0,) * len(sample.values)
    if len(values) != len(counts):
        raise ValueError(f"{len(values)} values of {sample.metric.name} have {len(counts)} counts.")
    check_numbers(sample, (*values, *counts))
    if any(count < 0 for count in counts):
        raise ValueError(f"A count of {sample.metric.name} is below 0: {min(counts)}.")
    kept = [(value, count) for value, count in zip(values, counts, strict=True) if count > 0]
    if not kept:
        return None
    minimum, maximum = min(kept)[0], max(kept)[0]
    total = sum(value * count for value, count in kept)
    check_numbers(sample, (total,))
    return Bucket(
        count=sum(count for _, count in kept),
        sum=total,
        minimum=minimum,
        maximum=maximum,
        sketch=None if minimum == maximum else sketch.build_sketch(*zip(*kept, strict=True)),
    )


def _build_from_statistics(sample: Sample) -> Bucket | None:
    known = sample.statistics
    assert known is not None
    check_numbers(sample, (known.sample_count, known.sum, known.minimum, known.maximum))
    if known.sample_count < 0 or known.minimum > known.maximum:
        raise ValueError(
            f"The statistics of {sample.metric.name} contradict themselves: count"
            f" {known.sample_count}, minimum {known.minimum}, maximum {known.maximum}."
        )
    if known.sample_count == 0:
        return None
    return Bucket(
        count=known.sample_count, sum=known.sum, minimum=known.minimum, maximum=known.maximum
    )


def check_numbers(sample: Sample, numbers: tuple[float, ...]) -> None:
    """Raise ValueError for a number that is not finite, or beyond CloudWatch's range.

    The limit keeps sums of samples finite. Source: MetricDatum, Value.
    """
    odd = next((it for it in numbers if not abs(it) <= sketch.LARGEST), None)
    if odd is not None:
        raise ValueError(
            f"A sample of {sample.metric.name} holds {odd}; values are numbers from -2^360 to"
            " 2^360."
        )
