"""After any history of writes, snapshots and starts, disk and memory give the same answers."""

import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.journal_rows import MemoryRows

from hostelry.base.clock import ManualClock
from hostelry.domain.metric import Metric, MetricStat, Sample, StatisticSet
from hostelry.domain.scope import Scope
from hostelry.metrics.persistence.durable import DurableMetrics
from hostelry.metrics.persistence.shared import SharedMetrics
from hostelry.metrics.protocol import MetricFilter
from hostelry.metrics.series.store import MemoryMetrics

HERE = Scope("123456789012", "us-west-2")
T = 1_700_006_400.0
METRICS = [Metric.of("Mine", name, {"Endpoint": "e"}) for name in "ABC"]
WHOLE = st.integers(-20, 20).map(float)  # whole numbers, whose sums do not depend on their order


@st.composite
def samples(draw: st.DrawFn) -> Sample:
    values: tuple[float, ...] = ()
    counts: tuple[float, ...] = ()
    statistics = None
    if draw(st.integers(0, 4)) == 0:
        low, high = sorted((draw(WHOLE), draw(WHOLE)))
        statistics = StatisticSet(sample_count=3.0, sum=low + 2 * high, minimum=low, maximum=high)
    else:
        values = tuple(draw(st.lists(WHOLE, min_size=1, max_size=3)))
        if draw(st.booleans()):
            counts = tuple(float(draw(st.integers(0, 3))) for _ in values)
    return Sample(
        metric=draw(st.sampled_from(METRICS)),
        at=T + draw(st.integers(-20_000, 7000)),
        values=values,
        counts=counts,
        statistics=statistics,
        unit=draw(st.sampled_from(["None", "Count"])),
        resolution_s=draw(st.sampled_from([1, 60])),
    )


STEPS = st.lists(
    st.lists(samples(), min_size=1, max_size=4)
    | st.sampled_from(["snapshot", "start"])
    | st.integers(1, 9000),  # seconds that go by
    max_size=20,
)


@pytest.mark.parametrize("kind", ["a folder", "rows"])
@settings(max_examples=60, deadline=None)
@given(STEPS)
def test_what_is_kept_is_what_was_in_memory(
    kind: str, steps: list[list[Sample] | str | int]
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        clock = ManualClock(T)
        opened: Callable[[], DurableMetrics | SharedMetrics]
        opened = partial(SharedMetrics, MemoryRows(), clock, record_s=0.0)
        if kind == "a folder":
            opened = partial(DurableMetrics, Path(folder), clock)
        memory, disk = MemoryMetrics(clock), opened()
        for step in steps:
            if isinstance(step, list):
                memory.record(HERE, step)
                disk.record(HERE, step)
            elif isinstance(step, int):
                clock.advance(step)
            elif step == "snapshot":
                disk.compact()
            else:
                disk.close()
                disk = opened()
        disk.close()
        again = opened()
        assert again.find(HERE, MetricFilter()) == memory.find(HERE, MetricFilter())
        for metric in METRICS:
            assert again.units(HERE, metric) == memory.units(HERE, metric)
            for statistic in ("SampleCount", "Sum", "Minimum", "Maximum", "p50", "TC(-5:5)"):
                stat = MetricStat(metric=metric, period_s=3600, statistic=statistic)
                asked = (HERE, stat, T - 40_000, T + 20_000)
                assert again.datapoints(*asked) == memory.datapoints(*asked)
        again.close()
