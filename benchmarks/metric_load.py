"""Cost of many metrics: 1,000 of each of 100 components, for an hour of virtual time.

Of every ten metrics, seven have a value for each period, two have a value with a count, and the
last is a latency with eight different values. The tables show the memory that the store accounts
for and the process really takes, the processor time of a sample and of the queries that alarms and
dashboards make, the longest single call, and how much a restart reads.

``python -m benchmarks.metric_load [--setting smoke|short|fine] [--no-disk]``
"""

import argparse
import resource
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from benchmarks.aims import Finding, finding_rows
from benchmarks.record import print_table, write_result
from hostelry.base.clock import ManualClock
from hostelry.domain.metric import Metric, MetricQuery, MetricStat, Sample
from hostelry.domain.scope import Scope
from hostelry.metrics.persistence.durable import DurableMetrics
from hostelry.metrics.protocol import MetricFilter
from hostelry.metrics.query.queries import evaluate
from hostelry.metrics.series.budget import HARD_SHARE
from hostelry.metrics.series.store import MemoryMetrics

SEED = 20261122
T = 1_700_006_400.0
HOUR_S = 3600
HERE = Scope("123456789012", "us-west-2")
MIB = 1024 * 1024
NUM_QUERIES = 2000
Store = MemoryMetrics | DurableMetrics


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """How much load there is: samples of `resolution_s` come every `period_s`."""

    num_metrics: int = 1000
    num_components: int = 100
    period_s: int = 60
    resolution_s: int = 60
    max_mib: int = 256


SETTINGS = {
    "smoke": Setting(num_metrics=20, num_components=10),
    "short": Setting(),
    "fine": Setting(period_s=10, resolution_s=1),
}


@dataclass(slots=True, kw_only=True)
class Recorded:
    """The cost of recording, in seconds of this machine."""

    num_samples: int = 0
    cpu_s: float = 0.0
    longest_s: float = 0.0
    most_accounted_bytes: int = 0
    most_resident_bytes: int = 0


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.metric_load", description=__doc__)
    parser.add_argument("--setting", choices=SETTINGS, default="short")
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--no-disk", action="store_true", help="in memory only")
    arguments = parser.parse_args()
    setting, random = SETTINGS[arguments.setting], Random(arguments.seed)
    with tempfile.TemporaryDirectory() as folder:
        measured = measure(setting, random, None if arguments.no_disk else Path(folder))
    print_table("An hour of load", measured["load"])
    print_table("Queries after it", measured["queries"])
    print_table("Aims", measured["aims"])
    write_result("metric_load", arguments.setting, arguments.seed, measured)


def measure(setting: Setting, random: Random, folder: Path | None) -> dict[str, Any]:
    """Measure everything, and return it as tables."""
    clock = ManualClock(T)
    base_bytes = resident_bytes()
    store = open_store(setting, clock, folder)
    recorded = record_an_hour(store, clock, setting, random)
    stats = store.stats()
    load = {
        "series": stats.num_series,
        "samples": recorded.num_samples,
        "us a sample": recorded.cpu_s / recorded.num_samples * 1e6,
        "samples a cpu-s": recorded.num_samples / recorded.cpu_s,
        "longest call ms": recorded.longest_s * 1e3,
        "accounted MiB": stats.size_bytes / MIB,
        "resident MiB": (resident_bytes() - base_bytes) / MIB,
        "most resident MiB": (recorded.most_resident_bytes - base_bytes) / MIB,
        "pressure": stats.pressure,
        "dropped series": stats.num_dropped_series,
    }
    queries = ask(store, clock, setting, random)
    if isinstance(store, DurableMetrics):
        store.close()
        num_series = stats.num_series
        del store
        load |= restart(num_series, clock, setting, folder)
    resident_mib = float(load["most resident MiB"])
    findings = [
        Finding(
            what="accounted MiB",
            value=recorded.most_accounted_bytes / MIB,
            at_most=setting.max_mib * HARD_SHARE,
        ),
        Finding(what="resident MiB", value=resident_mib, at_most=setting.max_mib * 1.25),
        Finding(
            what="share of a core for the samples",
            value=recorded.cpu_s / HOUR_S,
            at_most=0.25,
        ),
    ]
    return {"load": [load], "queries": queries, "aims": finding_rows(findings)}


def open_store(setting: Setting, clock: ManualClock, folder: Path | None) -> Store:
    """The store to be measured."""
    max_bytes = setting.max_mib * MIB
    if folder is None:
        return MemoryMetrics(clock, max_bytes=max_bytes)
    return DurableMetrics(folder, clock, max_bytes=max_bytes)


def record_an_hour(store: Store, clock: ManualClock, setting: Setting, random: Random) -> Recorded:
    """Record an hour of load. Each call has one component's samples of one period."""
    recorded = Recorded()
    for _ in range(HOUR_S // setting.period_s):
        for component in range(setting.num_components):
            samples = list(samples_of(component, clock.now(), setting, random))
            began, cpu_began = time.perf_counter(), time.process_time()
            store.record(HERE, samples)
            recorded.cpu_s += time.process_time() - cpu_began
            recorded.longest_s = max(recorded.longest_s, time.perf_counter() - began)
            recorded.num_samples += len(samples)
        accounted = store.stats().size_bytes
        recorded.most_accounted_bytes = max(recorded.most_accounted_bytes, accounted)
        recorded.most_resident_bytes = max(recorded.most_resident_bytes, resident_bytes())
        clock.advance(setting.period_s)
    return recorded


def samples_of(component: int, now: float, setting: Setting, random: Random) -> Iterator[Sample]:
    """One period's samples of one component."""
    for number in range(setting.num_metrics):
        metric = metric_of(number, component)
        values: tuple[float, ...] = (random.random(),)
        counts: tuple[float, ...] = ()
        if number % 10 == 0:
            values = tuple(random.lognormvariate(11.0, 0.8) for _ in range(8))
        elif number % 10 in (1, 2):
            counts = (float(random.randrange(1, 50)),)
        yield Sample(
            metric=metric,
            at=now,
            values=values,
            counts=counts,
            resolution_s=setting.resolution_s,
        )


def metric_of(number: int, component: int) -> Metric:
    """One of the metrics."""
    dimensions = {"InferenceComponentName": f"component-{component:03}"}
    return Metric.of("AWS/SageMaker", f"Metric{number:04}", dimensions)


def ask(store: Store, clock: ManualClock, setting: Setting, random: Random) -> list[dict[str, Any]]:
    """The cost of queries. Each row is one kind of query, with metrics chosen at random."""
    end = clock.now() // 60 * 60

    def stat(name: str, kind: int, period_s: int = 60) -> MetricStat:
        number = random.randrange(setting.num_metrics // 10) * 10 + kind
        component = random.randrange(setting.num_components)
        return MetricStat(metric=metric_of(number, component), period_s=period_s, statistic=name)

    def alarm() -> None:
        assert store.datapoints(HERE, stat("Average", 5), end - 300, end)

    def percentile() -> None:
        assert store.datapoints(HERE, stat("p99", 0), end - 900, end)

    def hour_of_latency() -> None:
        assert store.datapoints(HERE, stat("p90", 0, 300), end - HOUR_S, end)

    def ratio() -> None:
        queries = (
            MetricQuery(id="a", stat=stat("Sum", 1)),
            MetricQuery(id="b", stat=stat("Sum", 2)),
            MetricQuery(id="e", expression="IF(FILL(b, 0) > 0, a / b, 0)"),
        )
        assert evaluate(store, HERE, queries, end - 900, end)["e"][0].points

    def search() -> None:
        name = metric_of(random.randrange(setting.num_metrics), 0).name
        text = (
            f"""SEARCH('{{AWS/SageMaker,InferenceComponentName}} MetricName="{name}"','Sum',60)"""
        )
        queries = (MetricQuery(id="e", expression=f"SUM({text})"),)
        assert evaluate(store, HERE, queries, end - 900, end)["e"][0].points

    def find() -> None:
        number = random.randrange(setting.num_metrics)
        wanted = MetricFilter(namespace="AWS/SageMaker", name=metric_of(number, 0).name)
        assert len(store.find(HERE, wanted)) == setting.num_components

    kinds: list[tuple[str, Callable[[], None], int]] = [
        ("5 minutes' average, as an alarm", alarm, NUM_QUERIES),
        ("15 minutes' p99", percentile, NUM_QUERIES),
        ("an hour's p90 by 5 minutes", hour_of_latency, NUM_QUERIES // 4),
        ("15 minutes' ratio of two metrics", ratio, NUM_QUERIES // 4),
        (f"15 minutes of {setting.num_components} found by SEARCH", search, 4),
        (f"find {setting.num_components} by name", find, NUM_QUERIES // 10),
    ]
    return [time_query(name, run, count) for name, run, count in kinds]


def time_query(name: str, run: Callable[[], None], count: int) -> dict[str, Any]:
    """One row: the processor time of a query."""
    began = time.process_time()
    for _ in range(count):
        run()
    spent_s = time.process_time() - began
    return {"query": name, "ms each": spent_s / count * 1e3, "a second": count / spent_s}


def restart(
    num_series: int, clock: ManualClock, setting: Setting, folder: Path | None
) -> dict[str, Any]:
    """The cost of a restart."""
    assert folder is not None
    size_bytes = sum(path.stat().st_size for path in folder.iterdir())
    began = time.perf_counter()
    again = open_store(setting, clock, folder)
    took_s = time.perf_counter() - began
    assert again.stats().num_series == num_series
    assert isinstance(again, DurableMetrics)
    again.close()
    return {"disk MiB": size_bytes / MIB, "restart s": took_s}


def resident_bytes() -> int:
    """The memory that this process holds now."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()


if __name__ == "__main__":
    main()
