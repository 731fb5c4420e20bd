"""The history of a target's load and capacity."""

import pytest
from tests.unit.scaling.loop.scaling_town import ScalingTown

from hostelry.domain.scaling import ScalableTarget
from hostelry.metrics.series.store import MemoryMetrics
from hostelry.scaling.loop.history import History, choose_period


class Remembered:
    def __init__(self) -> None:
        self.town = ScalingTown(copies=1)
        self.metrics = MemoryMetrics(self.town.clock)
        self.history = History(
            self.town.state, self.metrics, self.town.loads, self.town.scaler.capacities
        )

    @property
    def target(self) -> ScalableTarget:
        return self.town.state.scalable_targets.list()[0].value

    def write_for(self, seconds: int) -> None:
        for _ in range(seconds):
            self.history.write(self.town.now)
            self.town.clock.advance(1.0)

    def values(self, what: str) -> list[float]:
        points = self.history.points(self.target, what, self.town.now - 120, self.town.now)
        return [value for _, value in points]


def test_a_number_is_written_when_it_changes_and_every_ten_seconds() -> None:
    it = Remembered()
    it.write_for(12)
    assert it.values("desired") == [1.0, 1.0]
    it.town.change(desired_copies=3)
    it.write_for(2)
    assert it.values("desired") == [1.0, 1.0, 3.0]
    assert it.values("serving") == [1.0, 1.0, 1.0]


def test_each_second_of_load_is_written_once() -> None:
    it = Remembered()
    start = it.town.now
    for second in range(40):
        it.town.loads.add(start + second, arrivals=2, in_flight_mean=float(second + 1))
    it.write_for(45)
    assert it.values("in_flight") == [float(it) for it in range(1, 38)]
    assert set(it.values("arrivals")) == {2.0}


def test_a_quiet_target_costs_a_few_points_only() -> None:
    it = Remembered()
    for second in range(60):
        it.town.loads.add(it.town.now + second)
    it.write_for(60)
    assert len(it.values("in_flight")) <= 12
    assert set(it.values("in_flight")) == {0.0}


@pytest.mark.parametrize("jump_s", [3600.0, -3600.0], ids=["forward", "back"])
def test_a_clock_that_jumps_stops_nothing(jump_s: float) -> None:
    it = Remembered()
    it.write_for(12)
    it.town.clock.advance(jump_s)
    it.write_for(12)
    assert len(it.values("desired")) >= 2


@pytest.mark.parametrize(
    ("span_s", "period_s"),
    [(60, 1), (3600, 1), (7200, 5), (3 * 3600, 5), (3 * 3600 + 1, 60), (15 * 86400, 900)],
)
def test_a_span_has_a_bounded_number_of_points(span_s: float, period_s: int) -> None:
    assert choose_period(span_s) == period_s
