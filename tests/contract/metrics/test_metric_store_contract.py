"""Contract of every MetricStore: in memory, on disk or in a database, and after it was reopened."""

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.cases import case, cases
from tests.postgres_rig import postgres_database

from hostelry.base.clock import ManualClock
from hostelry.control.data import MetricRows
from hostelry.domain.metric import Datapoint, Metric, MetricStat, Sample, StatisticSet
from hostelry.domain.scope import Scope
from hostelry.metrics.persistence.durable import DurableMetrics
from hostelry.metrics.persistence.shared import SharedMetrics
from hostelry.metrics.protocol import MetricFilter, MetricStore
from hostelry.metrics.series.store import MemoryMetrics
from hostelry.store.database import open_database

HERE = Scope("123456789012", "us-west-2")
THERE = Scope("123456789012", "eu-west-1")
T = 1_700_000_040.0  # a whole minute, 40 s after the clock's own
HOUR_S = 3600
DAY_S = 24 * HOUR_S
LOAD = Metric.of("Mine", "Load", {"Endpoint": "e", "Variant": "v"})


class Reopened:
    """A store that is closed and opened again before every question."""

    def __init__(self, make: Callable[[], DurableMetrics | SharedMetrics]) -> None:
        self._make = make
        self._store = make()
        self._num_asked = 0

    def record(self, scope: Scope, samples: Sequence[Sample]) -> None:
        self._store.record(scope, samples)

    def emit(self, scope: Scope, samples: Sequence[Sample]) -> None:
        self._store.emit(scope, samples)

    def datapoints(
        self, scope: Scope, stat: MetricStat, start: float, end: float
    ) -> Sequence[Datapoint]:
        return self._again().datapoints(scope, stat, start, end)

    def find(self, scope: Scope, filters: MetricFilter) -> Sequence[Metric]:
        return self._again().find(scope, filters)

    def units(self, scope: Scope, metric: Metric) -> Sequence[str]:
        return self._again().units(scope, metric)

    def close(self) -> None:
        self._store.close()

    def _again(self) -> DurableMetrics | SharedMetrics:
        self._num_asked += 1
        if self._num_asked % 2:
            self._store.compact()
        self._store.close()
        self._store = self._make()
        return self._store


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(T + 30)


@pytest.fixture(params=["memory", "disk", "disk, reopened", "PostgreSQL, reopened"])
def store(request: Any, tmp_path: Path, clock: ManualClock) -> Iterator[MetricStore]:
    if request.param == "memory":
        yield MemoryMetrics(clock)
        return
    with contextlib.ExitStack() as stack:
        if request.param.startswith("disk"):
            make: Callable[[], Any] = partial(DurableMetrics, tmp_path / "metrics", clock)
        else:
            url = stack.enter_context(postgres_database())
            database = stack.enter_context(contextlib.closing(open_database(url)))
            make = partial(SharedMetrics, MetricRows(database), clock, record_s=0.0)
        made = Reopened(make) if request.param.endswith("reopened") else make()
        stack.callback(made.close)
        yield made


def sample(at: float, *values: float, metric: Metric = LOAD, **more: Any) -> Sample:
    return Sample(metric=metric, at=at, values=values, **more)


def asked(
    store: MetricStore,
    statistic: str,
    period_s: int = 60,
    start: float = T - 600,
    end: float = T + 600,
    **more: Any,
) -> list[tuple[float, float]]:
    stat = MetricStat(metric=LOAD, period_s=period_s, statistic=statistic, **more)
    return [(it.at - T, it.value) for it in store.datapoints(HERE, stat, start, end)]


def test_a_period_sums_up_what_came_in_it(store: MetricStore) -> None:
    store.record(HERE, [sample(T, 1.0), sample(T + 59.9, 2.0), sample(T + 60, 5.0)])
    store.record(HERE, [sample(T + 10, 3.0)])
    assert asked(store, "Sum") == [(0, 6.0), (60, 5.0)]
    assert asked(store, "Average") == [(0, 2.0), (60, 5.0)]
    assert asked(store, "Minimum") == [(0, 1.0), (60, 5.0)]
    assert asked(store, "Maximum") == [(0, 3.0), (60, 5.0)]
    assert asked(store, "SampleCount") == [(0, 3.0), (60, 1.0)]


def test_what_the_platform_emits_is_kept_as_what_is_put(store: MetricStore) -> None:
    store.record(HERE, [sample(T, 1.0)])
    store.emit(HERE, [sample(T, 2.0)])
    store.emit(HERE, [])
    stat = MetricStat(metric=LOAD, period_s=60, statistic="Sum")
    assert [(it.at, it.value) for it in store.datapoints(HERE, stat, T, T + 60)] == [(T, 3.0)]


def test_values_count_as_often_as_their_counts_say(store: MetricStore) -> None:
    store.record(HERE, [sample(T, 10.0, 20.0, 99.0, counts=(3.0, 1.0, 0.0))])
    assert asked(store, "SampleCount") == [(0, 4.0)]
    assert asked(store, "Sum") == [(0, 50.0)]
    assert asked(store, "Maximum") == [(0, 20.0)]
    assert [value for _, value in asked(store, "p50")] == [pytest.approx(10.0, rel=0.01)]


# Source: PutMetricData, StatisticValues, and user guide, "Percentiles": summaries have none, unless
# all their samples have one value.
def test_a_summary_has_every_statistic_but_percentiles(store: MetricStore) -> None:
    summary = StatisticSet(sample_count=4.0, sum=20.0, minimum=2.0, maximum=9.0)
    alike = StatisticSet(sample_count=3.0, sum=21.0, minimum=7.0, maximum=7.0)
    store.record(HERE, [sample(T, statistics=summary), sample(T + 60, statistics=alike)])
    assert asked(store, "Average") == [(0, 5.0), (60, 7.0)]
    assert asked(store, "Maximum") == [(0, 9.0), (60, 7.0)]
    assert asked(store, "p90") == [(60, 7.0)]
    store.record(HERE, [sample(T + 60, 1.0), sample(T + 1, 5.0)])
    assert asked(store, "p0") == [(60, 1.0)]


@cases(
    "start, end, found",
    case("the end is not in it", 0, 180, [0, 60, 120]),
    case("a period that begins before the end is", 0, 181, [0, 60, 120, 180]),
    case("a period that began before the start is not", 1, 120, [60]),
    case("no period begins between", 61, 119, []),
    case("an end before the start", 120, 0, []),
)
def test_periods_that_begin_in_the_time_asked_for(
    store: MetricStore, start: float, end: float, found: list[int]
) -> None:
    store.record(HERE, [sample(T + 60 * it + 7, 1.0) for it in range(6)])
    assert [at for at, _ in asked(store, "Sum", start=T + start, end=T + end)] == found


@pytest.mark.parametrize("period_s", [1, 5, 10, 30, 60, 300, 3600])
def test_periods_begin_at_multiples_of_their_length(store: MetricStore, period_s: int) -> None:
    store.record(HERE, [sample(T + it / 4, 1.0, resolution_s=1) for it in range(80)])
    found = asked(store, "SampleCount", period_s, start=T - 2 * HOUR_S)
    assert all((T + at) % period_s == 0 for at, _ in found)
    assert sum(count for _, count in found) == 80


# Source: GetMetricStatistics: seconds are kept 3 hours, minutes 15 days, 5 minutes 63 days.
@cases(
    "age_s, kept",
    case("seconds within three hours", 2 * HOUR_S, {10, 60, 300, 3600}),
    case("minutes after three hours", 4 * HOUR_S, {60, 300, 3600}),
    case("five minutes after fifteen days", 16 * DAY_S, {300, 3600}),
    case("hours after 63 days", 64 * DAY_S, {3600}),
    case("nothing after 455 days", 456 * DAY_S, set()),
)
def test_what_is_old_is_kept_in_longer_periods(
    store: MetricStore, clock: ManualClock, age_s: float, kept: set[int]
) -> None:
    store.record(HERE, [sample(T + it, 1.0, resolution_s=1) for it in (0, 1, 20)])
    for _ in range(20):  # as many writes as it needs for everything to be looked at
        store.record(HERE, [sample(T, 1.0, metric=Metric.of("Mine", "Other", {}))])
    clock.advance(age_s)
    for _ in range(20):
        store.record(HERE, [sample(clock.now(), 1.0, metric=Metric.of("Mine", "Other", {}))])
    for period_s in (10, 60, 300, 3600):
        found = asked(store, "Sum", period_s, start=T - HOUR_S)
        assert sum(value for _, value in found) == (3.0 if period_s in kept else 0.0), period_s


# Source: PutMetricAlarm, Period: if a metric without sub-minute resolution is read at a shorter
# period, only the periods at the full minute have data.
def test_a_standard_metric_asked_by_seconds_shows_at_the_minute(store: MetricStore) -> None:
    store.record(HERE, [sample(T + 33, 4.0), sample(T + 47, 2.0)])
    assert asked(store, "Sum", 10) == [(0, 6.0)]


def test_late_samples_land_in_their_own_buckets(store: MetricStore, clock: ManualClock) -> None:
    store.record(HERE, [sample(T, 1.0, resolution_s=1)])
    clock.advance(14 * DAY_S - 60)
    store.record(HERE, [sample(T + 5, 2.0, resolution_s=1), sample(T - 61, 3.0, resolution_s=1)])
    assert asked(store, "Sum") == [(-120, 3.0), (0, 3.0)]
    assert asked(store, "SampleCount") == [(-120, 1.0), (0, 2.0)]


# Source: GetMetricData, Unit: only data that was collected with that unit.
def test_a_query_with_a_unit_sees_only_that_unit(store: MetricStore) -> None:
    store.record(HERE, [sample(T, 1.0, unit="Count"), sample(T, 5.0, unit="Bytes")])
    store.record(HERE, [sample(T, 2.0)])
    assert asked(store, "Sum", unit="Count") == [(0, 1.0)]
    assert asked(store, "Sum", unit="Bytes") == [(0, 5.0)]
    assert asked(store, "Sum", unit="None") == [(0, 2.0)]
    assert asked(store, "Sum", unit="Seconds") == []
    assert asked(store, "Sum") == [(0, 8.0)]
    assert store.units(HERE, LOAD) == ["Bytes", "Count", "None"]
    assert store.units(THERE, LOAD) == []


# Source: user guide, "Dimensions": another combination of dimensions is another metric.
def test_scopes_and_dimensions_do_not_mix(store: MetricStore) -> None:
    fewer = Metric.of("Mine", "Load", {"Endpoint": "e"})
    store.record(HERE, [sample(T, 1.0), sample(T, 10.0, metric=fewer)])
    store.record(THERE, [sample(T, 100.0)])
    assert asked(store, "Sum") == [(0, 1.0)]


@cases(
    "filters, found",
    case("all", {}, ["Mine/A/", "Mine/B/x=1", "Mine/B/x=1,y=2", "Your/A/x=3"]),
    case("a namespace", {"namespace": "Your"}, ["Your/A/x=3"]),
    case("a name", {"name": "A"}, ["Mine/A/", "Your/A/x=3"]),
    case("a name that is nobody's", {"name": "C"}, []),
    case("a dimension, or more", {"dimensions": {"x": "1"}}, ["Mine/B/x=1", "Mine/B/x=1,y=2"]),
    case("just these", {"dimensions": {"x": "1"}, "exact": True}, ["Mine/B/x=1"]),
    case("any value", {"dimensions": {"y": None}}, ["Mine/B/x=1,y=2"]),
    case("no dimension at all", {"dimensions": {}, "exact": True}, ["Mine/A/"]),
    case("only what has newer data", {"since": T + 100}, ["Your/A/x=3"]),
)
def test_metrics_are_found(store: MetricStore, filters: dict[str, Any], found: list[str]) -> None:
    made: list[tuple[str, str, dict[str, str], float]] = [
        ("Your", "A", {"x": "3"}, T + 120),
        ("Mine", "B", {"y": "2", "x": "1"}, T),
        ("Mine", "B", {"x": "1"}, T),
        ("Mine", "A", {}, T),
    ]
    for namespace, name, dimensions, at in made:
        metric = Metric.of(namespace, name, dimensions)
        store.record(HERE, [sample(at, 1.0, metric=metric)])
    shown = [
        f"{metric.namespace}/{metric.name}/{','.join('='.join(pair) for pair in metric.dimensions)}"
        for metric in store.find(HERE, MetricFilter(**filters))
    ]
    assert shown == found
    assert store.find(THERE, MetricFilter()) == []


@cases(
    "bad",
    case("NaN", sample(T, float("nan"))),
    case("infinity", sample(T, float("inf"))),
    case("minus infinity among others", sample(T, 1.0, float("-inf"))),
    case("NaN as a count", sample(T, 1.0, counts=(float("nan"),))),
    case("a negative count", sample(T, 1.0, counts=(-1.0,))),
    case("fewer counts than values", sample(T, 1.0, 2.0, counts=(1.0,))),
    case("a sum beyond all numbers", sample(T, 1e308, 1e308)),
    case("an instant that is none", sample(float("nan"), 1.0)),
    case("an instant before the epoch", sample(-1.0, 1.0)),
    case("an instant of milliseconds", sample(1e12, 1.0)),
    case(
        "NaN in a summary",
        sample(T, statistics=StatisticSet(sample_count=1, sum=1, minimum=float("nan"), maximum=1)),
    ),
    case(
        "a summary whose minimum is over its maximum",
        sample(T, statistics=StatisticSet(sample_count=2, sum=1, minimum=3, maximum=1)),
    ),
)
def test_what_is_no_number_is_refused_with_all_that_came_with_it(
    store: MetricStore, bad: Sample
) -> None:
    with pytest.raises(ValueError, match="Load"):
        store.record(HERE, [sample(T, 1.0), bad])
    assert asked(store, "Sum") == []
    assert store.find(HERE, MetricFilter()) == []


def test_an_unknown_statistic_is_refused(store: MetricStore) -> None:
    with pytest.raises(ValueError, match="'Median' is not a statistic"):
        asked(store, "Median")


def test_a_clock_that_jumps_an_hour_loses_nothing(store: MetricStore, clock: ManualClock) -> None:
    store.record(HERE, [sample(clock.now(), 1.0, resolution_s=1)])
    for jump_s in (HOUR_S, -2 * HOUR_S, HOUR_S):
        clock.advance(jump_s)
        store.record(HERE, [sample(clock.now(), 1.0, resolution_s=1)])
    found = asked(store, "Sum", 10, start=T - 2 * HOUR_S, end=T + 2 * HOUR_S)
    assert found == [(-3570, 1.0), (30, 2.0), (3630, 1.0)]


def test_writers_and_readers_do_not_disturb_each_other(tmp_path: Path, clock: ManualClock) -> None:
    store = DurableMetrics(tmp_path, clock, least_journal_bytes=20_000)
    errors: list[BaseException] = []

    def write(number: int) -> None:
        try:
            for at in range(200):
                metric = Metric.of("Mine", f"M{number}-{at % 7}", {})
                store.record(HERE, [sample(T, 1.0, metric=metric), sample(T, 1.0)])
                store.find(HERE, MetricFilter(namespace="Mine"))
                asked(store, "Sum")
        except Exception as error:  # noqa: BLE001 - whatever it is, the test shows it
            errors.append(error)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert asked(store, "Sum") == [(0, 800.0)]
    store.close()
    again = DurableMetrics(tmp_path, clock)
    assert asked(again, "Sum") == [(0, 800.0)]
    assert len(again.find(HERE, MetricFilter())) == 29
    again.close()
