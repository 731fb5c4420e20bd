"""One series: a metric in one unit, with its samples in four columns by age.

A sample is in exactly one column, the finest that its age and resolution allow, and moves to the
next one as it ages. So no sample counts twice, and a query merges the columns whose width divides
its period.
"""

import math
from collections.abc import Iterator
from itertools import groupby
from sys import intern
from typing import Any

from hostelry.domain.metric import Metric, Sample
from hostelry.domain.scope import Scope
from hostelry.metrics.series.bucket import Bucket, build_bucket, merge_buckets
from hostelry.metrics.series.budget import RETENTION_S, WIDTHS_S, Pressure
from hostelry.metrics.series.column import Column

FINE_S = RETENTION_S[0]
LATEST_AT = 4_000_000_000.0  # indices are 32 bits wide
SERIES_BYTES = 680  # of one without columns, with its places in the store's tables

Dimensions = tuple[tuple[str, str], ...]


class Series:
    """Samples of one metric in one unit, guarded by the store's lock."""

    __slots__ = (
        "columns",
        "dimensions",
        "name",
        "namespace",
        "number",
        "position",
        "scope",
        "segment",
        "sequence",
        "size_bytes",
        "unit",
        "written_at",
    )  # fmt: skip

    def __init__(self, scope: Scope, metric: Metric, unit: str) -> None:
        self.scope = scope
        self.namespace = intern(metric.namespace)
        self.name = intern(metric.name)
        self.dimensions: Dimensions = metric.dimensions
        self.unit = intern(unit)
        self.columns: list[Column | None] = [None, None, None, None]
        self.written_at = 0.0
        self.size_bytes = SERIES_BYTES
        self.position = -1  # in the store's list of all
        self.segment = -1  # the journal segment that knows it by `number`
        self.number = -1
        self.sequence = 0  # the last journal entry that is in a snapshot of it

    @property
    def metric(self) -> Metric:
        """The metric's identity."""
        return Metric(namespace=self.namespace, name=self.name, dimensions=self.dimensions)

    @property
    def is_empty(self) -> bool:
        """True if the series has no data."""
        return not any(self.columns)

    @property
    def newest_at(self) -> float:
        """The end of the newest bucket, in seconds since the epoch. 0 if the series is empty."""
        ends = [(it.newest + 1) * it.width_s for it in self.columns if it]
        return float(max(ends, default=0))

    def add(self, sample: Sample, now: float, bucket: Bucket | None = None) -> int:
        """Add a valid sample, and return the bytes by which the series grew.

        `bucket` is the sample's bucket, if the caller has built it.
        """
        if len(sample.values) == 1 and not sample.counts:
            return self.add_value(sample.at, sample.values[0], sample.resolution_s, now)
        bucket = bucket or build_bucket(sample)
        tier = self._tier(sample.at, sample.resolution_s, now)
        if tier is None or bucket is None:
            return 0
        column, grown = self._column(tier)
        return self._note_growth(grown + column.add(int(sample.at // column.width_s), bucket), now)

    def add_value(self, at: float, value: float, resolution_s: int, now: float) -> int:
        """Add one finite value, and return the bytes by which the series grew."""
        tier = self._tier(at, resolution_s, now)
        if tier is None:
            return 0
        column, grown = self._column(tier)
        return self._note_growth(grown + column.add_value(int(at // column.width_s), value), now)

    def age(self, kept: Pressure, now: float) -> int:
        """Move or drop buckets that are older than `kept` allows.

        Returns the bytes by which the series grew, mostly a negative number.
        """
        is_changed = False
        for tier, column in enumerate(self.columns):
            if column is None:
                continue
            is_changed |= self._age_column(tier, column, kept, now)
            if not len(column):
                is_changed = True
                self.columns[tier] = None
        if not is_changed:
            return 0
        before = self.size_bytes
        self.size_bytes = SERIES_BYTES + sum(it.size_bytes() for it in self.columns if it)
        return self.size_bytes - before

    def buckets(
        self, period_s: int, start: float, end: float, now: float, *, with_sketch: bool
    ) -> Iterator[tuple[float, Bucket]]:
        """Yield (instant, bucket) of each bucket that begins in [start, end).

        Both ends are multiples of the period. Buckets wider than the period are left out. Without
        `with_sketch` the buckets of a period may be merged.
        """
        for column in self.columns:
            if column is None:
                continue
            width_s = column.width_s
            since = start
            if period_s % width_s:
                # A query finer than a standard metric sees its minutes at their start, while
                # CloudWatch would still keep seconds.
                if width_s != WIDTHS_S[1]:
                    continue
                since = max(start, now - FINE_S)
            first, last = _ceil(since, width_s), _ceil(end, width_s)
            ratio = period_s // width_s
            is_summed = not with_sketch and ratio > 1
            found = column.sums(first, last, ratio) if is_summed else column.buckets(first, last)
            for index, bucket in found:
                yield float(index * width_s), bucket

    def dump(self) -> list[Any]:
        """Convert the columns to plain values, for `load`."""
        return [None if it is None else it.dump() for it in self.columns]

    def load(self, dump: list[Any]) -> None:
        """Take the columns of a dump. Raises ValueError if they are inconsistent."""
        self.columns = [
            None if it is None else Column.load(width_s, it)
            for width_s, it in zip(WIDTHS_S, dump, strict=True)
        ]
        self.size_bytes = SERIES_BYTES + sum(it.size_bytes() for it in self.columns if it)

    def merge(self, other: "Series") -> int:
        """Take over the data of `other`, and return the bytes by which the series grew."""
        before = self.size_bytes
        for tier, column in enumerate(other.columns):
            mine = self.columns[tier]
            if column is None:
                continue
            if mine is None:
                self.columns[tier] = column
                continue
            for index, bucket in column.buckets(column.oldest, column.newest + 1):
                mine.add(index, bucket)
        self.written_at = max(self.written_at, other.written_at)
        self.size_bytes = SERIES_BYTES + sum(it.size_bytes() for it in self.columns if it)
        return self.size_bytes - before

    def _tier(self, at: float, resolution_s: int, now: float) -> int | None:
        """The index of the column for a sample. None if the sample is too old."""
        age_s = now - at
        for tier in range(0 if resolution_s < WIDTHS_S[1] else 1, len(WIDTHS_S)):
            if age_s < RETENTION_S[tier]:
                return tier
        return None

    def _column(self, tier: int) -> tuple[Column, int]:
        """A column, created if missing, and the bytes by which the series grew."""
        column = self.columns[tier]
        if column is not None:
            return column, 0
        column = self.columns[tier] = Column(WIDTHS_S[tier])
        return column, column.size_bytes()

    def _note_growth(self, grown: int, now: float) -> int:
        self.size_bytes += grown
        self.written_at = now
        return grown

    def _age_column(self, tier: int, column: Column, kept: Pressure, now: float) -> bool:
        """Move or drop the column's old buckets and sketches. False if nothing was old."""
        target = kept.targets[tier]
        # Aligned to the target's width, so that each of its buckets is merged once.
        step_s = column.width_s if target is None else WIDTHS_S[target]
        first = int((now - kept.horizons_s[tier]) // step_s) * step_s // column.width_s
        is_old = len(column) > 0 and column.oldest < first
        if is_old and target is None:
            column.drop_before(first)
        elif is_old and target is not None:
            self._move(column.take_before(first), target, column.width_s, kept)
        if kept.sketches_s < math.inf:
            return (
                column.drop_sketches_before(int((now - kept.sketches_s) // column.width_s))
                or is_old
            )
        return is_old

    def _move(
        self, taken: list[tuple[int, Bucket]], target: int, width_s: int, kept: Pressure
    ) -> None:
        column, _ = self._column(target)
        ratio = column.width_s // width_s
        for index, group in groupby(taken, lambda it: it[0] // ratio):
            buckets = [bucket for _, bucket in group]
            column.add(index, merge_buckets(buckets, with_sketch=kept.keeps_sketches))


def _ceil(at: float, width_s: int) -> int:
    return max(int(-(-at // width_s)), 0)
