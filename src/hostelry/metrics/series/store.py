"""Metric store in memory, within a byte budget."""

import threading
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from hostelry.base.clock import Clock
from hostelry.domain.metric import Datapoint, Metric, MetricStat, Sample
from hostelry.domain.scope import Scope
from hostelry.metrics.protocol import MetricFilter
from hostelry.metrics.series.bucket import Bucket, build_bucket, merge_buckets
from hostelry.metrics.series.budget import (
    DEFAULT_MAX_BYTES,
    DEGREES,
    FREED_SHARE,
    HARD_SHARE,
)
from hostelry.metrics.series.series import LATEST_AT, Dimensions, Series
from hostelry.metrics.series.sketch import LARGEST
from hostelry.metrics.series.statistic import is_simple, statistic

LEAST_AGED = 4  # minimum number of series aged with each write
AGED_SHARE = 4  # a further series is aged for this number of written samples
MOST_AGED = 5_000  # maximum, while memory is short

DROPPED = -1
FOUND_AT_ONCE = 1000

Family = tuple[Series, ...]  # one metric's series, by unit
Names = dict[str, dict[str, dict[Dimensions, Family]]]


class MetricStoreStats(msgspec.Struct, frozen=True, kw_only=True):
    """Sizes of the store. `pressure` is 0 while samples are kept as long as on AWS.

    Else it is the degree of `budget.DEGREES` at which the last shortage of memory ended.
    """

    num_series: int
    size_bytes: int
    max_bytes: int
    pressure: int
    num_samples: int
    num_dropped_series: int


class Share(msgspec.Struct, frozen=True, kw_only=True):
    """Usage of one account's metrics."""

    num_series: int
    size_bytes: int


class MemoryMetrics:
    """`MetricStore` in tables under one lock. Lost with the process.

    Memory use is an estimate from measured sizes (benchmarks/metric_load.py). Each write ages a few
    series in turn, so that no write pays for all of them, unless it finds the budget full.
    """

    def __init__(self, clock: Clock, *, max_bytes: int = DEFAULT_MAX_BYTES) -> None:
        if max_bytes < 1024 * 1024:
            raise ValueError(f"The metrics' budget is {max_bytes} bytes; it is at least 1 MiB.")
        self.lock = threading.RLock()
        self._clock = clock
        self._max_bytes = max_bytes
        self._tables: dict[Scope, Names] = {}
        self._all: list[Series] = []
        self._shared: dict[tuple[tuple[str, str], ...], Dimensions] = {}
        self._size_bytes = 0
        self._hand = 0
        self._pressure = 0
        self._is_short = False
        self._num_in_vain = 0  # series aged since memory got short, or pressure last rose
        self._num_samples = 0
        self._num_dropped = 0

    def record(self, scope: Scope, samples: Sequence[Sample]) -> None:
        """Record `samples`, all or none. Raises ValueError if a value is not finite."""
        buckets = [check_sample(sample) for sample in samples]
        now = self._clock.now()
        with self.lock:
            placed = [(self.get_series(scope, it.metric, it.unit), it) for it in samples]
            self.apply(placed, buckets, now)

    def emit(self, scope: Scope, samples: Sequence[Sample]) -> None:
        """Record samples as `record` does."""
        self.record(scope, samples)

    def datapoints(
        self, scope: Scope, stat: MetricStat, start: float, end: float
    ) -> Sequence[Datapoint]:
        """Datapoints by period, oldest first. Raises ValueError for an unknown statistic."""
        value_of, with_sketch = statistic(stat.statistic), not is_simple(stat.statistic)
        found = []
        for at, buckets in sorted(self._periods(scope, stat, start, end, with_sketch).items()):
            value = value_of(merge_buckets(buckets, with_sketch=with_sketch))
            if value is not None:
                found.append(Datapoint(at, value))
        return found

    def find(self, scope: Scope, metric_filter: MetricFilter) -> Sequence[Metric]:
        """Every matching metric with data, ordered by namespace, name and dimensions."""
        with self.lock:
            names = self._tables.get(scope, {})
            groups = [
                (namespace, name, list(names[namespace][name].items()))
                for namespace in _select_names(names, metric_filter.namespace)
                for name in _select_names(names[namespace], metric_filter.name)
            ]
        found = []
        for namespace, name, families in groups:
            fitting = [it for it in families if _fits(it[0], metric_filter)]
            found += [
                Metric(namespace=namespace, name=name, dimensions=dimensions)
                for dimensions in sorted(self._select_with_data(fitting, metric_filter.since))
            ]
        return found

    def units(self, scope: Scope, metric: Metric) -> Sequence[str]:
        """The units of the metric's samples, in order."""
        with self.lock:
            return sorted(it.unit for it in self._family(scope, metric) if not it.is_empty)

    def stats(self) -> MetricStoreStats:
        """Sizes of the store now."""
        with self.lock:
            return MetricStoreStats(
                num_series=len(self._all),
                size_bytes=self._size_bytes,
                max_bytes=self._max_bytes,
                pressure=self._pressure,
                num_samples=self._num_samples,
                num_dropped_series=self._num_dropped,
            )

    def shares(self) -> Mapping[str, Share]:
        """Usage by account over all regions. The time grows with the number of series."""
        series: Counter[str] = Counter()
        sizes: Counter[str] = Counter()
        for one in self.all_series():
            series[one.scope.account] += 1
            sizes[one.scope.account] += one.size_bytes
        return {
            account: Share(num_series=count, size_bytes=sizes[account])
            for account, count in sorted(series.items())
        }

    def get_series(self, scope: Scope, metric: Metric, unit: str) -> Series:
        """The series of a metric in a unit, created if missing. The caller holds the lock."""
        family = self._family(scope, metric)
        for series in family:
            if series.unit == unit:
                return series
        made = Series(scope, metric, unit)
        made.dimensions = self._shared.setdefault(made.dimensions, made.dimensions)
        made.position = len(self._all)
        made.written_at = self._clock.now()
        by_name = self._tables.setdefault(scope, {}).setdefault(metric.namespace, {})
        by_name.setdefault(metric.name, {})[made.dimensions] = (*family, made)
        self._all.append(made)
        self._size_bytes += made.size_bytes
        return made

    def apply(
        self,
        placed: Sequence[tuple[Series, Sample]],
        buckets: Iterable[Bucket | None],
        now: float,
    ) -> None:
        """Add samples and their buckets, from `check_sample`. The caller holds the lock."""
        for (series, sample), bucket in zip(placed, buckets, strict=True):
            self._size_bytes += series.add(sample, now, bucket)
        self._num_samples += len(placed)
        self.age(max(LEAST_AGED, len(placed) // AGED_SHARE), now)

    def restore(self, series: Series, grown: int) -> None:
        """Account for columns loaded into `series`. The caller holds the lock."""
        self._size_bytes += grown

    def take_over(self, read: Series) -> None:
        """Take over a series of another store. The caller holds the lock."""
        self._size_bytes += self.get_series(read.scope, read.metric, read.unit).merge(read)

    def all_series(self) -> list[Series]:
        """Every series now."""
        with self.lock:
            return list(self._all)

    def _family(self, scope: Scope, metric: Metric) -> Family:
        names = self._tables.get(scope)
        if names is None:
            return ()
        return names.get(metric.namespace, {}).get(metric.name, {}).get(metric.dimensions, ())

    def _select_with_data(
        self, families: Sequence[tuple[Dimensions, Family]], since: float | None
    ) -> list[Dimensions]:
        """Select families with data (after `since`). The lock is released between batches."""
        found = []
        for first in range(0, len(families), FOUND_AT_ONCE):
            with self.lock:
                for dimensions, family in families[first : first + FOUND_AT_ONCE]:
                    newest_at = max(it.newest_at for it in family)
                    if newest_at > (since or 0.0):
                        found.append(dimensions)
        return found

    def _periods(
        self, scope: Scope, stat: MetricStat, start: float, end: float, with_sketch: bool
    ) -> dict[float, list[Bucket]]:
        """Buckets by the start of their period."""
        period_s = stat.period_s
        first, last = -(-start // period_s) * period_s, -(-end // period_s) * period_s
        now = self._clock.now()
        found: dict[float, list[Bucket]] = {}
        with self.lock:
            for series in self._family(scope, stat.metric):
                if stat.unit not in (None, series.unit):
                    continue
                found_here = series.buckets(period_s, first, last, now, with_sketch=with_sketch)
                for at, bucket in found_here:
                    begin = at // period_s * period_s
                    found.setdefault(begin, []).append(bucket)
        return found

    def age(self, count: int, now: float) -> None:
        """Age the next `count` series, and more while memory is short. The caller holds the lock.

        size of the store                            aged series
        ------------------------------------------   ----------------------------------------------
        within the budget                            `count`, at pressure 0
        above it, until FREED_SHARE of it is used    up to MOST_AGED per write. The pressure rises
                                                     after each round that freed too little
        above HARD_SHARE of the budget               all that are needed to get below
        """
        self._is_short = self._is_short or self._size_bytes > self._max_bytes
        num_seen = 0
        while self._all and (num_seen < count or self._needs_more(num_seen)):
            num_seen += 1
            if self._is_short:
                self._raise_pressure()
            self._hand = self._hand if self._hand < len(self._all) else 0
            kept = DEGREES[self._pressure if self._is_short else 0]
            series = self._all[self._hand]
            self._size_bytes += series.age(kept, now)
            if now - series.written_at >= kept.idle_s or (
                series.is_empty and series.written_at < now
            ):
                self._drop(series)
            else:
                self._hand += 1

    def _needs_more(self, num_seen: int) -> bool:
        """True if memory is still short, and this write should age more series."""
        if self._is_short and self._size_bytes <= self._max_bytes * FREED_SHARE:
            self._is_short = False
            self._num_in_vain = 0
            # One degree less, to keep more next time, but at least 1, as shortages tend to recur.
            self._pressure = max(self._pressure - 1, 1)
        if not self._is_short:
            return False
        return num_seen < MOST_AGED or self._size_bytes > self._max_bytes * HARD_SHARE

    def _raise_pressure(self) -> None:
        """Raise the pressure by one degree after a round over all series freed too little."""
        self._num_in_vain += 1
        if self._num_in_vain > len(self._all) or not self._pressure:
            self._num_in_vain = 0
            self._pressure = min(self._pressure + 1, len(DEGREES) - 1)

    def _drop(self, series: Series) -> None:
        last = self._all.pop()
        if last is not series:
            self._all[series.position] = last
            last.position = series.position
        series.position = DROPPED
        self._size_bytes -= series.size_bytes
        self._num_dropped += self._is_short
        names = self._tables[series.scope]
        by_dimensions = names[series.namespace][series.name]
        rest = tuple(it for it in by_dimensions[series.dimensions] if it is not series)
        if rest:
            by_dimensions[series.dimensions] = rest
            return
        del by_dimensions[series.dimensions]
        if not by_dimensions:
            del names[series.namespace][series.name]
        if not names[series.namespace]:
            del names[series.namespace]


def check_sample(sample: Sample) -> Bucket | None:
    """Build a sample's bucket, None for a single value. Raises ValueError for invalid samples."""
    if not 0 <= sample.at < LATEST_AT:
        raise ValueError(f"A sample of {sample.metric.name} is of the instant {sample.at}.")
    if len(sample.values) != 1 or sample.counts or not abs(sample.values[0]) <= LARGEST:
        return build_bucket(sample)
    return None


def _select_names(names: Mapping[str, object], name: str | None) -> list[str]:
    if name is None:
        return sorted(names)
    return [name] if name in names else []


def _fits(dimensions: Dimensions, metric_filter: MetricFilter) -> bool:
    if metric_filter.dimensions is None:
        return True
    known, asked = dict(dimensions), metric_filter.dimensions
    if metric_filter.exact and len(known) != len(asked):
        return False
    return all(name in known and asked[name] in (None, known[name]) for name in asked)
