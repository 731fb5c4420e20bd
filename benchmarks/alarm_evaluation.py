"""Cost of evaluating many alarms, on a virtual clock.

Half of the alarms have periods of 10 s, half of a minute. All watch series with current data, and 2
% have a composite alarm above them. The table shows the processor time of an evaluation and of a
second of watching, its share of a core, and the time until all alarms have changed, on disk.

``python -m benchmarks.alarm_evaluation [--alarms 1000 5000 10000] [--minutes 3]``
"""

import argparse
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.record import print_table, write_result
from hostelry.base.clock import ManualClock
from hostelry.domain.alarm import (
    AlarmActions,
    AlarmRule,
    AlarmState,
    Comparison,
    CompositeAlarm,
    MetricAlarm,
    alarm_arn,
)
from hostelry.domain.load import Wake
from hostelry.domain.metric import Metric, MetricStat, Sample
from hostelry.domain.scope import Scope
from hostelry.metrics.series.store import MemoryMetrics
from hostelry.scaling.decide.alarm_events import build_status
from hostelry.scaling.decide.decision import Proposal, Trigger
from hostelry.scaling.loop.alarm_actions import Addresses, AlarmActionDeps
from hostelry.scaling.loop.alarm_watch import AlarmWatch, AlarmWatchDeps
from hostelry.store.memory import MemoryStore
from hostelry.store.records import State, open_state
from hostelry.store.sql import SqlStore
from hostelry.store.sqlite import SqliteFile

HERE = Scope("123456789012", "us-west-2")
START = 1_700_006_400.0
WARM_UP_S = 120
ALARMS_A_COMPOSITE = 50


class UnusedScaler:
    """A scaler that is never asked: no alarm here has a policy."""

    def trigger(self, trigger: Trigger) -> None:
        """Do nothing."""

    def propose(self, proposal: Proposal) -> None:
        """Do nothing."""

    def wake(self, wake: Wake) -> None:
        """Do nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """Processor seconds of `seconds` of watching, and the number of evaluations in them."""

    num_alarms: int
    seconds: int
    num_evaluations: int
    looked_s: float
    longest_s: float

    def row(self) -> dict[str, Any]:
        """A line of the table."""
        per_s = self.looked_s / self.seconds
        return {
            "alarms": self.num_alarms,
            "evaluations a second": self.num_evaluations / self.seconds,
            "us each": self.looked_s / self.num_evaluations * 1e6,
            "ms a second": per_s * 1e3,
            "% of a core": per_s * 100,
            "longest second, ms": self.longest_s * 1e3,
        }


class Counted(MemoryMetrics):
    """Metrics that count their queries. Each evaluation makes one query."""

    num_asked = 0

    def datapoints(self, scope: Scope, stat: MetricStat, start: float, end: float) -> Any:
        """The datapoints of the metrics, counted as a query."""
        self.num_asked += 1
        return super().datapoints(scope, stat, start, end)


class Bench:
    """`num_alarms` alarms on one clock."""

    def __init__(self, num_alarms: int, state: State) -> None:
        self.clock, self.steady = ManualClock(START), ManualClock(0.0)
        self.metrics = Counted(self.clock)
        self.state = state
        self.names = [f"alarm-{it:05d}" for it in range(num_alarms)]
        for number, name in enumerate(self.names):
            self._put(name, 10 if number % 2 else 60)
        for first in range(0, num_alarms, ALARMS_A_COMPOSITE):
            self._put_composite(self.names[first], self.names[first : first + 3])
        self.watch = AlarmWatch(
            AlarmWatchDeps(
                state=state,
                metrics=self.metrics,
                scaler=UnusedScaler(),
                clock=self.clock,
                steady=self.steady,
            ),
            AlarmActionDeps(
                state=state, clock=self.clock, addresses_of=Addresses().of, post=_never_posted
            ),
        )

    def measure(self, value: float) -> None:
        """Write a sample of every metric."""
        now = self.clock.now()
        self.metrics.record(
            HERE,
            [
                Sample(metric=_metric(name), at=now, values=(value,), resolution_s=1)
                for name in self.names
            ],
        )

    def second(self) -> float:
        """Processor seconds of all evaluations in one second."""
        self.clock.advance(1)
        self.steady.advance(1)
        began = time.process_time()
        self.watch.look()
        while self.watch.is_behind:
            self.watch.look()
        return time.process_time() - began

    def run(self, seconds: int, value: float) -> Cost:
        """The cost of `seconds` of watching while every metric has a sample each 10 s."""
        asked, took = self.metrics.num_asked, []
        for number in range(seconds):
            if number % 10 == 0:
                self.measure(value)
            took.append(self.second())
        return Cost(
            num_alarms=len(self.names),
            seconds=seconds,
            num_evaluations=self.metrics.num_asked - asked,
            looked_s=sum(took),
            longest_s=max(took),
        )

    def _put(self, name: str, period_s: int) -> None:
        rule = AlarmRule(
            evaluation_periods=3,
            datapoints_to_alarm=3,
            threshold=5.0,
            comparison=Comparison.GREATER,
            stat=MetricStat(metric=_metric(name), period_s=period_s, statistic="Maximum"),
        )
        alarm = MetricAlarm(
            scope=HERE,
            name=name,
            arn=alarm_arn(HERE, name),
            rule=rule,
            actions=AlarmActions(),
            status=build_status(START),
            configured_at=START,
            given={},
        )
        self.state.metric_alarms.put(HERE, name, alarm, expect=None)

    def _put_composite(self, name: str, children: Sequence[str]) -> None:
        name = f"above-{name}"
        alarm = CompositeAlarm(
            scope=HERE,
            name=name,
            arn=alarm_arn(HERE, name),
            expression=" OR ".join(f'ALARM("{it}")' for it in children),
            actions=AlarmActions(),
            status=build_status(START),
            configured_at=START,
            given={},
        )
        self.state.composite_alarms.put(HERE, name, alarm, expect=None)


async def _never_posted(address: str, headers: Any, body: bytes) -> int:
    raise AssertionError(address)


def _metric(name: str) -> Metric:
    return Metric(namespace="Own", name="Load", dimensions=(("Of", name),))


def watching(num_alarms: int, seconds: int) -> Cost:
    """The cost of watching alarms of which none changes."""
    bench = Bench(num_alarms, open_state(MemoryStore()))
    bench.run(WARM_UP_S, 1.0)
    return bench.run(seconds, 1.0)


def storm(num_alarms: int) -> dict[str, float]:
    """Wall seconds until every alarm has moved, is written to disk and has a history record."""
    with tempfile.TemporaryDirectory() as folder:
        store = SqlStore(SqliteFile(Path(folder) / "state.db"))
        bench = Bench(num_alarms, open_state(store))
        bench.run(WARM_UP_S + 140, 1.0)
        bench.measure(9.0)
        began = time.perf_counter()
        for _ in range(400):
            if bench.clock.now() % 10 == 0:
                bench.measure(9.0)
            bench.second()
            found = [it.value.status.state for it in bench.state.metric_alarms.list()]
            if all(it is AlarmState.ALARM for it in found):
                break
        took_s = time.perf_counter() - began
        store.close()
    return {"num_alarms": num_alarms, "took_s": took_s, "moves_per_s": num_alarms / took_s}


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--alarms", type=int, nargs="+", default=[1000, 2000, 5000, 10_000])
    parser.add_argument("--minutes", type=float, default=3.0, help="of virtual time")
    parser.add_argument("--storm", type=int, default=500, help="alarms that change at once")
    options = parser.parse_args()
    rows = [watching(it, int(options.minutes * 60)).row() for it in options.alarms]
    print_table("Watching alarms of which none changes", rows)
    moved = storm(options.storm)
    print_table("Alarms that change at once, with their histories on disk", [moved])
    setting = f"{options.minutes:g} minutes of virtual time"
    write_result("alarm_evaluation", setting, 0, {"watching": rows, "storm": moved})


if __name__ == "__main__":
    main()
