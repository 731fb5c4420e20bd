"""One series: a metric in one unit, its samples each in one of four columns by their age.

A sample lies in exactly one column, the finest that its age and resolution allow, and moves on to
the next as it ages: so nothing is counted twice, and a query merges whatever columns its period is
a multiple of.

Source: GetMetricStatistics, "CloudWatch metrics retention": periods under 60 s are kept 3 hours,
60 s 15 days, 300 s 63 days, 3600 s 455 days.
"""

from collections.abc import Iterator
from itertools import groupby
from typing import Any

from hostelry.domain.metric import Metric, Sample
from hostelry.domain.scope import Scope
from hostelry.metrics.bucket import Bucket, bucket_of, merged
from hostelry.metrics.column import Column

HOUR_S = 3600
DAY_S = 24 * HOUR_S
WIDTHS_S = (1, 60, 300, HOUR_S)
RETENTION_S = (3 * HOUR_S, 15 * DAY_S, 63 * DAY_S, 455 * DAY_S)
"""How long the buckets of each of WIDTHS_S are kept at that width."""
FINE_S = RETENTION_S[0]
LATEST_AT = 4_000_000_000.0  # indices are 32 bits wide
SERIES_BYTES = 560  # of one without columns, with its places in the store's tables

Dimensions = tuple[tuple[str, str], ...]


class Series:
    """Samples of one metric in one unit; its lock is the store's."""

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
        self.namespace = metric.namespace
        self.name = metric.name
        self.dimensions: Dimensions = metric.dimensions
        self.unit = unit
        self.columns: list[Column | None] = [None, None, None, None]
        self.written_at = 0.0
        self.size_bytes = SERIES_BYTES
        self.position = -1  # in the store's list of all
        self.segment = -1  # the journal segment that knows it by `number`
        self.number = -1
        self.sequence = 0  # the last journal entry that is in a snapshot of it

    @property
    def metric(self) -> Metric:
        """Whose samples they are."""
        return Metric(namespace=self.namespace, name=self.name, dimensions=self.dimensions)

    @property
    def is_empty(self) -> bool:
        """Whether nothing is left of it."""
        return not any(self.columns)

    @property
    def newest_at(self) -> float:
        """The end of the newest bucket, in seconds since the epoch; 0 where there is none."""
        ends = [(it.newest + 1) * it.width_s for it in self.columns if it]
        return float(max(ends, default=0))

    def add(self, sample: Sample, now: float, bucket: Bucket | None = None) -> int:
        """Keep a valid sample; how many bytes more the series takes.

        `bucket` is the sample's, where it is known already.
        """
        if len(sample.values) == 1 and not sample.counts:
            return self.add_value(sample.at, sample.values[0], sample.resolution_s, now)
        bucket = bucket or bucket_of(sample)
        tier = self._tier(sample.at, sample.resolution_s, now)
        if tier is None or bucket is None:
            return 0
        column, grown = self._column(tier)
        return self._written(grown + column.add(int(sample.at // column.width_s), bucket), now)

    def add_value(self, at: float, value: float, resolution_s: int, now: float) -> int:
        """Keep one finite value; how many bytes more the series takes."""
        tier = self._tier(at, resolution_s, now)
        if tier is None:
            return 0
        column, grown = self._column(tier)
        return self._written(grown + column.add_value(int(at // column.width_s), value), now)

    def age(self, horizons_s: tuple[float, ...], now: float) -> int:
        """Move what is older than each column's horizon to the next, the last's away.

        Returns how many bytes more (mostly less) the series takes.
        """
        before = self.size_bytes
        is_changed = False
        for tier, horizon_s in enumerate(horizons_s):
            column = self.columns[tier]
            if column is None:
                continue
            # Whole buckets of the next width at a time, so that each is merged there once.
            step_s = WIDTHS_S[min(tier + 1, len(WIDTHS_S) - 1)]
            first = int((now - horizon_s) // step_s) * step_s // column.width_s
            if column.oldest < first and len(column):
                is_changed = True
                self._move(column.take_before(first), tier)
            if not len(column):
                is_changed = True
                self.columns[tier] = None
        if is_changed:
            self.size_bytes = SERIES_BYTES + sum(it.size_bytes() for it in self.columns if it)
        return self.size_bytes - before

    def buckets(
        self, period_s: int, start: float, end: float, now: float
    ) -> Iterator[tuple[float, Bucket]]:
        """(instant, bucket) of those that lie in whole periods and begin in [start, end)."""
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
            for index, bucket in column.buckets(_ceil(since, width_s), _ceil(end, width_s)):
                yield float(index * width_s), bucket

    def dumped(self) -> list[Any]:
        """Its columns as plain values; `load` reads them."""
        return [None if it is None else it.dumped() for it in self.columns]

    def load(self, dump: list[Any]) -> None:
        """Take the columns of `dumped`; raises ValueError where they do not fit together."""
        self.columns = [
            None if it is None else Column.loaded(width_s, it)
            for width_s, it in zip(WIDTHS_S, dump, strict=True)
        ]
        self.size_bytes = SERIES_BYTES + sum(it.size_bytes() for it in self.columns if it)

    def _tier(self, at: float, resolution_s: int, now: float) -> int | None:
        """The column for a sample; None for one that is too old for any."""
        age_s = now - at
        for tier in range(0 if resolution_s < WIDTHS_S[1] else 1, len(WIDTHS_S)):
            if age_s < RETENTION_S[tier]:
                return tier
        return None

    def _column(self, tier: int) -> tuple[Column, int]:
        """A column, made if need be, and how many bytes that took."""
        column = self.columns[tier]
        if column is not None:
            return column, 0
        column = self.columns[tier] = Column(WIDTHS_S[tier])
        return column, column.size_bytes()

    def _written(self, grown: int, now: float) -> int:
        self.size_bytes += grown
        self.written_at = now
        return grown

    def _move(self, taken: list[tuple[int, Bucket]], tier: int) -> None:
        if tier + 1 == len(WIDTHS_S):
            return
        coarser = self.columns[tier + 1]
        if coarser is None:
            coarser = self.columns[tier + 1] = Column(WIDTHS_S[tier + 1])
        ratio = coarser.width_s // WIDTHS_S[tier]
        for index, group in groupby(taken, lambda it: it[0] // ratio):
            coarser.add(index, merged([bucket for _, bucket in group]))


def _ceil(at: float, width_s: int) -> int:
    return max(int(-(-at // width_s)), 0)
