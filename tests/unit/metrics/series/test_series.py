"""The memory store against a naive model, and within its budget."""

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hostelry.base.clock import ManualClock
from hostelry.domain.metric import Metric, MetricStat, Sample
from hostelry.domain.scope import Scope
from hostelry.metrics.protocol import MetricFilter
from hostelry.metrics.series.budget import DEGREES, HARD_SHARE
from hostelry.metrics.series.store import MemoryMetrics

HERE = Scope("123456789012", "us-west-2")
T = 1_700_006_400.0  # a whole hour
LOAD = Metric.of("Mine", "Load", {})
MIB = 1024 * 1024
SAMPLES = st.lists(
    st.tuples(
        st.integers(-4 * 3600, 600),
        st.lists(st.integers(-50, 50), min_size=1, max_size=3),
        st.sampled_from([1, 60]),
    ),
    max_size=40,
)
NAIVE: dict[str, Callable[[list[float]], float]] = {
    "SampleCount": len,
    "Sum": sum,
    "Minimum": min,
    "Maximum": max,
    "Average": lambda values: sum(values) / len(values),
}


@settings(max_examples=60, deadline=None)
@given(SAMPLES, st.sampled_from([60, 300, 3600]), st.sampled_from(sorted(NAIVE)))
def test_statistics_are_those_of_the_samples(
    samples: list[tuple[int, list[int], int]], period_s: int, name: str
) -> None:
    clock = ManualClock(T)
    store = MemoryMetrics(clock)
    naive: dict[float, list[float]] = {}
    for after_s, values, resolution_s in samples:
        numbers = tuple(float(it) for it in values)
        sample = Sample(metric=LOAD, at=T + after_s, values=numbers, resolution_s=resolution_s)
        store.record(HERE, [sample])
        naive.setdefault((T + after_s) // period_s * period_s, []).extend(numbers)
        clock.advance(60)  # so that fine samples age while others arrive
    stat = MetricStat(metric=LOAD, period_s=period_s, statistic=name)
    found = store.datapoints(HERE, stat, T - 6 * 3600, T + 3600)
    assert [it.at for it in found] == sorted(naive)
    assert [it.value for it in found] == pytest.approx(
        [NAIVE[name](naive[at]) for at in sorted(naive)]
    )


def record_many(store: MemoryMetrics, clock: ManualClock, num_series: int, num_s: int) -> None:
    metrics = [Metric.of("Mine", "Load", {"Component": f"c{it}"}) for it in range(num_series)]
    for _ in range(num_s):
        now = clock.now()
        store.record(
            HERE, [Sample(metric=it, at=now, values=(now,), resolution_s=1) for it in metrics]
        )
        clock.advance(1)


def test_what_is_finest_and_oldest_goes_first_when_memory_is_short() -> None:
    clock = ManualClock(T)
    store = MemoryMetrics(clock, max_bytes=MIB)
    record_many(store, clock, num_series=60, num_s=2500)
    stats = store.stats()
    assert stats.size_bytes <= MIB
    assert stats.pressure > 0
    assert stats.num_dropped_series == 0
    assert stats.num_series == 60
    metric = Metric.of("Mine", "Load", {"Component": "c7"})
    # Every sample is still there by the minute, the newest minutes by the second.
    counted = MetricStat(metric=metric, period_s=3600, statistic="SampleCount")
    assert sum(it.value for it in store.datapoints(HERE, counted, T, T + 7200)) == 2500
    fine = MetricStat(metric=metric, period_s=10, statistic="SampleCount")
    newest = store.datapoints(HERE, fine, clock.now() - 120, clock.now())
    assert [it.value for it in newest] == [10.0] * 12


def test_what_was_not_written_for_longest_goes_when_nothing_else_helps() -> None:
    clock = ManualClock(T)
    store = MemoryMetrics(clock, max_bytes=MIB)
    for number in range(3000):
        metric = Metric.of("Mine", "Load", {"Component": f"c{number}"})
        store.record(HERE, [Sample(metric=metric, at=clock.now(), values=(1.0,))])
        clock.advance(10)
        assert store.stats().size_bytes <= HARD_SHARE * MIB
    kept = {it.dimensions[0][1] for it in store.find(HERE, MetricFilter())}
    assert 100 < len(kept) < 3000
    assert "c2999" in kept
    assert "c0" not in kept
    assert store.stats().num_dropped_series == 3000 - len(kept)


def test_the_account_of_bytes_is_that_of_every_series() -> None:
    clock = ManualClock(T)
    store = MemoryMetrics(clock)
    for number in range(300):
        values = (1.0, 2.0 + number % 3) if number % 2 else (float(number),)
        metric = Metric.of("Mine", f"Load{number % 5}", {})
        at = clock.now() - (number % 7) * 4000
        store.record(HERE, [Sample(metric=metric, at=at, values=values, resolution_s=1)])
        clock.advance(200)
    series = store.all_series()
    assert store.stats().size_bytes == sum(it.size_bytes for it in series)
    for one in series:
        held = one.size_bytes
        one.age(DEGREES[-1], T + 10**9)
        assert one.is_empty
        assert one.size_bytes < held


def test_a_clock_that_went_back_does_not_keep_the_budget_from_holding() -> None:
    clock = ManualClock(T)
    store = MemoryMetrics(clock, max_bytes=MIB)
    for number in range(2000):
        metric = Metric.of("Mine", "Load", {"Component": f"c{number}"})
        store.record(HERE, [Sample(metric=metric, at=clock.now(), values=(1.0,))])
        clock.advance(-3600)
    assert store.stats().size_bytes <= MIB


def test_a_budget_too_small_to_mean_anything_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 1 MiB"):
        MemoryMetrics(ManualClock(T), max_bytes=1000)
