"""Scheduled actions fired on a clock that moves by hand."""

from typing import Any

import pytest
from msgspec.structs import replace
from tests.cases import case, cases
from tests.unit.reconcile.samples import NOW, SCOPE
from tests.unit.scaling.loop.scaling_town import NAME, RESOURCE, ScalingTown

from hostelry.domain.scaling import (
    ActivityStatus,
    Dimension,
    ScalableTarget,
    ScheduledAction,
    policy_key,
)
from hostelry.scaling.loop.schedule_watch import ScheduleWatch

# NOW is 2023-11-14T22:13:20Z.
EVERY_HOUR = "cron(0 * * * ? *)"
NEXT_HOUR = 1_699_999_200.0 + 3600.0


class Scheduled:
    """A town with a watch of its schedules."""

    def __init__(self, *, copies: int = 1) -> None:
        self.town = ScalingTown(copies=copies)
        self.watch = ScheduleWatch(self.town.state, self.town.clock, self.town.scaler.record_bounds)

    def put(self, schedule: str, name: str = "night", **fields: Any) -> None:
        action = ScheduledAction(
            scope=SCOPE,
            name=name,
            arn=f"arn:{name}",
            resource_id=RESOURCE,
            dimension=Dimension.COPIES,
            schedule=schedule,
            timezone="UTC",
            created_at=NOW,
        )
        key = policy_key(RESOURCE, Dimension.COPIES, name)
        changed = replace(action, **fields)
        self.town.state.scheduled_actions.put(SCOPE, key, changed, expect=None)

    def fire_at(self, at: float) -> None:
        self.town.clock.advance(at - self.town.now)
        self.watch.fire()

    @property
    def target(self) -> ScalableTarget:
        found = self.town.state.scalable_targets.get(SCOPE, NAME)
        assert found is not None
        return found.value

    @property
    def actions(self) -> list[ScheduledAction]:
        return [it.value for it in self.town.state.scheduled_actions.list(SCOPE)]


def test_a_scheduled_action_sets_bounds_and_moves_the_number_inside() -> None:
    # Source: "Scaling activities for Application Auto Scaling" (both texts).
    it = Scheduled()
    it.put(EVERY_HOUR, min_capacity=3, max_capacity=5)
    it.fire_at(NEXT_HOUR - 1)
    assert it.town.desired == 1
    assert it.watch.next_at() == NEXT_HOUR
    it.fire_at(NEXT_HOUR)
    assert it.town.desired == 3
    assert (it.target.min_capacity, it.target.max_capacity) == (3, 5)
    moved, bounds = it.town.activities
    assert bounds.description == "Setting min capacity to 3 and max capacity to 5"
    assert bounds.cause == "scheduled action name night was triggered"
    assert bounds.status is ActivityStatus.SUCCESSFUL
    assert moved.description == "Setting desired copy count to 3."
    assert moved.cause == "minimum capacity was set to 3"
    it.watch.fire()
    assert len(it.town.activities) == 2, "each firing is done once"


def test_firings_that_were_missed_are_made_up_for_once_by_the_newest() -> None:
    it = Scheduled()
    it.put(EVERY_HOUR, min_capacity=2)
    it.fire_at(NEXT_HOUR + 5 * 3600 + 10)
    assert [act.description for act in it.town.activities].count(
        "Setting min capacity to 2 and max capacity to 10"
    ) == 1
    assert it.actions[0].fired_at == NEXT_HOUR + 5 * 3600


def test_an_action_that_fires_once_goes_when_it_has() -> None:
    it = Scheduled()
    it.put("at(2023-11-14T23:00:00)", max_capacity=0, min_capacity=0)
    it.fire_at(NEXT_HOUR)
    assert it.actions == []
    assert it.town.desired == 0


@pytest.mark.parametrize("jump_s", [3600.0, -3600.0], ids=["forward", "back"])
def test_a_clock_that_jumps_fires_nothing_twice(jump_s: float) -> None:
    it = Scheduled()
    it.put("rate(2 hours)", min_capacity=2)
    it.fire_at(NOW + 7200)
    fired = len(it.town.activities)
    it.fire_at(it.town.now + jump_s)
    it.fire_at(it.town.now - jump_s)
    assert len(it.town.activities) == fired


def test_where_scheduled_scaling_is_suspended_a_firing_passes_without_effect() -> None:
    # Source: "Suspend and resume scaling": ScheduledScalingSuspended.
    it = Scheduled()
    it.put(EVERY_HOUR, min_capacity=3)
    it.town.register(scheduled=True)
    it.fire_at(NEXT_HOUR)
    assert it.town.desired == 1
    it.town.register()
    it.fire_at(NEXT_HOUR + 60)
    assert it.town.desired == 1, "it is not made up for"


@cases(
    "bounds, expected",
    case("a minimum above the maximum raises it", {"min_capacity": 20}, (20, 20)),
    case("a maximum below the minimum lowers it", {"max_capacity": 0}, (0, 0)),
)
def test_of_contradicting_bounds_the_one_given_holds(
    bounds: dict[str, Any], expected: tuple[int, int]
) -> None:
    it = Scheduled()
    it.put(EVERY_HOUR, **bounds)
    it.fire_at(NEXT_HOUR)
    assert (it.target.min_capacity, it.target.max_capacity) == expected


def test_a_record_that_cannot_be_read_holds_up_no_other() -> None:
    it = Scheduled()
    it.put("cron(at noon)", name="broken", min_capacity=9)
    it.put(EVERY_HOUR, min_capacity=2)
    it.fire_at(NEXT_HOUR)
    assert it.town.desired == 2
    assert it.watch.next_at() == NEXT_HOUR + 60, "a clock that is set is noticed within a minute"


def test_an_action_without_a_target_fires_into_nothing() -> None:
    it = Scheduled()
    it.put(EVERY_HOUR, min_capacity=2)
    found = it.town.state.scalable_targets.get(SCOPE, NAME)
    assert found is not None
    it.town.state.scalable_targets.delete(SCOPE, NAME, expect=found.version)
    it.fire_at(NEXT_HOUR)
    assert it.town.activities == []
    assert it.actions[0].fired_at == NEXT_HOUR


def test_an_action_that_came_due_since_the_last_look_is_looked_at_at_once() -> None:
    scheduled = Scheduled()
    scheduled.put(EVERY_HOUR, min_capacity=2)
    scheduled.watch.fire()
    scheduled.town.clock.advance(NEXT_HOUR - scheduled.town.now)
    assert scheduled.watch.next_at() <= scheduled.town.now
