"""Metrics in memory, within a budget of bytes."""

import threading
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from hostelry.base.clock import Clock
from hostelry.domain.metric import Datapoint, Metric, MetricStat, Sample
from hostelry.domain.scope import Scope
from hostelry.metrics.protocol import MetricFilter
from hostelry.metrics.series.bucket import Bucket, bucket_of, merged
from hostelry.metrics.series.budget import (
    DEFAULT_MAX_BYTES,
    DEGREES,
    FREED_SHARE,
    HARD_SHARE,
)
from hostelry.metrics.series.series import LATEST_AT, Dimensions, Series
from hostelry.metrics.series.sketch import LARGEST
from hostelry.metrics.series.statistic import is_simple, statistic

# Series looked at for ageing with each write: the least, and a share of the samples written.
LEAST_AGED = 4
AGED_SHARE = 4
# ... and the most while memory is short.
MOST_AGED = 5_000

DROPPED = -1
FOUND_AT_ONCE = 1000

Family = tuple[Series, ...]  # one metric's series, by unit
Names = dict[str, dict[str, dict[Dimensions, Family]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricStoreStats:
    """What the store holds; `pressure` is 0 while everything is kept as long as AWS keeps it.

    Else it is the degree of metrics.budget.DEGREES that the last shortage of memory ended below.
    """

    num_series: int
    size_bytes: int
    max_bytes: int
    pressure: int
    num_samples: int
    num_dropped_series: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """What one account's metrics take."""

    num_series: int
    size_bytes: int


class MemoryMetrics:
    """`MetricStore` in tables under one lock; gone with the process.

    Memory is an estimate by measured sizes (benchmarks/metric_load.py). Each write looks at a few
    series in turn and moves on what is over age, so that no write pays for all of them, except
    those that find the budget full.
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
        self._num_in_vain = 0  # series looked at since memory got short, or pressure last rose
        self._num_samples = 0
        self._num_dropped = 0

    def record(self, scope: Scope, samples: Sequence[Sample]) -> None:
        """Keep `samples`, all or none; raises ValueError for what is not finite."""
        buckets = [checked(sample) for sample in samples]
        now = self._clock.now()
        with self.lock:
            self.apply([(self.series(scope, it), it) for it in samples], buckets, now)

    def emit(self, scope: Scope, samples: Sequence[Sample]) -> None:
        """As `record`."""
        self.record(scope, samples)

    def datapoints(
        self, scope: Scope, stat: MetricStat, start: float, end: float
    ) -> Sequence[Datapoint]:
        """Periods that begin in [start, end), oldest first; raises ValueError for the statistic."""
        value_of, with_sketch = statistic(stat.statistic), not is_simple(stat.statistic)
        found = []
        for at, buckets in sorted(self._periods(scope, stat, start, end, with_sketch).items()):
            value = value_of(merged(buckets, with_sketch=with_sketch))
            if value is not None:
                found.append(Datapoint(at, value))
        return found

    def find(self, scope: Scope, wanted: MetricFilter) -> Sequence[Metric]:
        """Every metric with data that fits, by namespace, name and dimensions."""
        with self.lock:
            names = self._tables.get(scope, {})
            groups = [
                (namespace, name, list(names[namespace][name].items()))
                for namespace in _chosen(names, wanted.namespace)
                for name in _chosen(names[namespace], wanted.name)
            ]
        found = []
        for namespace, name, families in groups:
            fitting = [it for it in families if _fits(it[0], wanted)]
            found += [
                Metric(namespace=namespace, name=name, dimensions=dimensions)
                for dimensions in sorted(self._with_data(fitting, wanted.since))
            ]
        return found

    def units(self, scope: Scope, metric: Metric) -> Sequence[str]:
        """The units that the metric's samples have, in order."""
        with self.lock:
            return sorted(it.unit for it in self._family(scope, metric) if not it.is_empty)

    def stats(self) -> MetricStoreStats:
        """Sizes, for people and for tests."""
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
        """What each account's metrics take, of all regions; looks at every series."""
        series: Counter[str] = Counter()
        sizes: Counter[str] = Counter()
        for it in self.everything():
            series[it.scope.account] += 1
            sizes[it.scope.account] += it.size_bytes
        return {
            account: Share(num_series=count, size_bytes=sizes[account])
            for account, count in sorted(series.items())
        }

    def series(self, scope: Scope, sample: Sample) -> Series:
        """Where a sample belongs, made if need be; the caller holds the lock."""
        return self.series_of(scope, sample.metric, sample.unit)

    def series_of(self, scope: Scope, metric: Metric, unit: str) -> Series:
        """The series of a metric in a unit, made if need be; the caller holds the lock."""
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
        """Add checked samples, with what `checked` gave for each; the caller holds the lock."""
        for (series, sample), bucket in zip(placed, buckets, strict=True):
            self._size_bytes += series.add(sample, now, bucket)
        self._num_samples += len(placed)
        self.age(max(LEAST_AGED, len(placed) // AGED_SHARE), now)

    def restore(self, series: Series, grown: int) -> None:
        """Account for columns that were loaded into `series`; the caller holds the lock."""
        self._size_bytes += grown

    def take_over(self, read: Series) -> None:
        """Add what another store holds of a series, and gives up; the caller holds the lock."""
        self._size_bytes += self.series_of(read.scope, read.metric, read.unit).merge(read)

    def everything(self) -> list[Series]:
        """Every series at this moment."""
        with self.lock:
            return list(self._all)

    def _family(self, scope: Scope, metric: Metric) -> Family:
        names = self._tables.get(scope)
        if names is None:
            return ()
        return names.get(metric.namespace, {}).get(metric.name, {}).get(metric.dimensions, ())

    def _with_data(
        self, families: Sequence[tuple[Dimensions, Family]], since: float | None
    ) -> list[Dimensions]:
        """Those with data, after `since` if it is given; the lock is held for few at a time."""
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
        """The buckets of each period, by its start."""
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
        """Look at the next `count` series, and at more once the budget is exceeded.

        Then series are looked at until a tenth of the budget is free, with more pressure after
        each whole round that did not help; one write looks at so many only, the next one goes on,
        unless the budget is exceeded by a tenth. The caller holds the lock.
        """
        self._is_short = self._is_short or self._size_bytes > self._max_bytes
        num_seen = 0
        while self._all and (num_seen < count or self._must_go_on(num_seen)):
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

    def _must_go_on(self, num_seen: int) -> bool:
        """Whether memory is still short, and this write has not seen enough of it."""
        if self._is_short and self._size_bytes <= self._max_bytes * FREED_SHARE:
            self._is_short = False
            self._num_in_vain = 0
            # The next time may need less, or some more of the same.
            self._pressure = max(self._pressure - 1, 1)
        if not self._is_short:
            return False
        return num_seen < MOST_AGED or self._size_bytes > self._max_bytes * HARD_SHARE

    def _raise_pressure(self) -> None:
        """One degree more once a whole round over all series was in vain."""
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


def checked(sample: Sample) -> Bucket | None:
    """The sample's bucket, None for a plain value; raises ValueError for what cannot be kept."""
    if not 0 <= sample.at < LATEST_AT:
        raise ValueError(f"A sample of {sample.metric.name} is of the instant {sample.at}.")
    if len(sample.values) != 1 or sample.counts or not abs(sample.values[0]) <= LARGEST:
        return bucket_of(sample)
    return None


def _chosen(names: Mapping[str, object], name: str | None) -> list[str]:
    if name is None:
        return sorted(names)
    return [name] if name in names else []


def _fits(dimensions: Dimensions, wanted: MetricFilter) -> bool:
    if wanted.dimensions is None:
        return True
    known, asked = dict(dimensions), wanted.dimensions
    if wanted.exact and len(known) != len(asked):
        return False
    return all(name in known and asked[name] in (None, known[name]) for name in asked)
