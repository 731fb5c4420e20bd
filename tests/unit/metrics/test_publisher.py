"""The loop from the board to the store: what is emitted once, whatever the disk does."""

from collections.abc import Sequence

import pytest
from tests.unit.metrics.census_sample import census
from tests.unit.metrics.load_sample import CHAT, SCOPE, T0, load, report

from hostelry.base.clock import ManualClock
from hostelry.base.errors import RetryableError
from hostelry.domain.metric import MODEL_NAMESPACE, Metric, MetricStat, Sample
from hostelry.domain.scope import Scope
from hostelry.metrics.load_board import LoadBoard
from hostelry.metrics.publisher import Publisher
from hostelry.metrics.store import MemoryMetrics

M0 = T0 - T0 % 60


class FullAtTimes(MemoryMetrics):
    """A store whose disk takes nothing while `is_full`."""

    is_full = False

    def record(self, scope: Scope, samples: Sequence[Sample]) -> None:
        if self.is_full:
            raise RetryableError("the disk is full")
        super().record(scope, samples)

    def emit(self, scope: Scope, samples: Sequence[Sample]) -> None:
        super().record(scope, samples)


class Rig:
    """A board that one worker reports to, and what publishes it."""

    def __init__(self) -> None:
        self.clock = ManualClock(M0 - 10.0)
        self.store = FullAtTimes(self.clock)
        self.board = LoadBoard(self.clock.now())
        self.publisher = Publisher(self.board, self.store, census, self.clock)
        self.sequence = 0
        self.clock.advance(10)

    def seconds(self, num: int, *, arrivals: int = 0, is_reported: bool = True) -> None:
        for _ in range(num):
            second = int(self.clock.now())
            self.clock.advance(1)
            if is_reported:
                self.sequence += 1
                told = [load(second, arrivals=arrivals, finished=arrivals, on_copies_max=2)]
                self.board.take(report("gateway-1", self.sequence, *told), self.clock.now())
            self.publisher.publish()

    def sums(self, name: str, period_s: int, statistic: str) -> dict[int, float]:
        metric = Metric.of(
            MODEL_NAMESPACE, name, {"InferenceComponentName": CHAT.component_name or ""}
        )
        stat = MetricStat(metric=metric, period_s=period_s, statistic=statistic)
        found = self.store.datapoints(SCOPE, stat, M0 - 60, M0 + 3600)
        return {int(it.at) - M0: it.value for it in found}


@pytest.fixture
def rig() -> Rig:
    return Rig()


def test_two_minutes_of_requests_are_there_by_minute_and_by_ten_seconds(rig: Rig) -> None:
    rig.seconds(60, arrivals=3)
    rig.seconds(60)
    assert rig.sums("Invocations", 60, "Sum") == {0: 180.0, 60: 0.0}
    assert rig.sums("InvocationsPerCopy", 60, "Sum") == {0: 90.0, 60: 0.0}
    by_period = rig.sums("ConcurrentRequestsPerCopy", 10, "Maximum")
    assert by_period == {it * 10: 1.0 for it in range(12)}


def test_no_gateway_no_datapoint(rig: Rig) -> None:
    rig.seconds(20, arrivals=1)
    rig.seconds(160, is_reported=False)
    rig.seconds(10)
    assert sorted(rig.sums("ConcurrentRequestsPerCopy", 10, "Maximum")) == [0, 10, 180]


def test_a_full_disk_does_not_keep_from_seeing_what_is_published(rig: Rig) -> None:
    rig.seconds(20, arrivals=1)
    rig.store.is_full = True
    rig.seconds(20, arrivals=1)
    assert rig.sums("Invocations", 60, "Sum") == {0: 40.0}
    rig.store.is_full = False
    rig.seconds(20, arrivals=1)
    assert rig.sums("Invocations", 60, "Sum") == {0: 60.0}


def test_what_a_worker_told_late_is_added(rig: Rig) -> None:
    rig.seconds(10, arrivals=1)
    rig.board.take(report("gateway-2", 1, load(M0, arrivals=5, finished=5)), rig.clock.now())
    rig.seconds(50, arrivals=1)
    assert rig.sums("Invocations", 60, "Sum") == {0: 65.0}
