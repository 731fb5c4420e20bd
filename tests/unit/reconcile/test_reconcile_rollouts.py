"""Rolling updates: batch by batch, never fewer than the batch allows, and back when one fails."""

from collections.abc import Iterator

import pytest
from tests.cases import case, cases
from tests.selection import first_alone
from tests.unit.reconcile.samples import (
    NOW,
    Town,
    component,
    component_spec,
    deployment,
    endpoint,
    needs,
    variant,
)

from hostelry.domain.component import (
    CapacitySize,
    CapacityUnit,
    ComponentStatus,
    RollingUpdate,
    Rollout,
)
from hostelry.domain.copy import CopyPhase
from hostelry.domain.endpoint import EndpointStatus

IN_SERVICE, UPDATING = ComponentStatus.IN_SERVICE, ComponentStatus.UPDATING
WAIT_S = 5.0
NEW = 9


def copies(count: int) -> CapacitySize:
    return CapacitySize(unit=CapacityUnit.COPY_COUNT, value=count)


def percent(value: int) -> CapacitySize:
    return CapacitySize(unit=CapacityUnit.CAPACITY_PERCENT, value=value)


def roll(
    town: Town,
    batch: CapacitySize,
    *,
    image: str = "new:1",
    accelerators: float = 1,
    wait_s: float = WAIT_S,
    max_execution_s: float | None = None,
    rollback: CapacitySize | None = None,
) -> None:
    """A new specification with a RollingUpdatePolicy, as UpdateInferenceComponent records it."""
    found = town.component()
    policy = RollingUpdate(
        max_batch=batch, wait_s=wait_s, max_execution_s=max_execution_s, rollback_batch=rollback
    )
    town.change_component(
        status=UPDATING,
        spec=component_spec(needs(accelerators), image, NEW),
        previous_spec=found.spec,
        rollout=Rollout(policy=policy, started_at=town.clock.now()),
        modified_at=town.clock.now(),
    )


def serving(town: Town, count: int, instances: int = 2, max_instances: int | None = None) -> None:
    desired_variant = variant(count=instances, max_instances=max_instances)
    town.add(endpoint(deployment(desired_variant)), component(copies=count))
    town.settle()
    assert len(town.routed_copies()) == count


def ready(town: Town) -> tuple[int, int]:
    """How many copies are in the routes: of the generations before, and of the new one."""
    routed = set(town.routed_copies())
    mine = [it for it in town.copy_records() if it.spec.id in routed]
    new = sum(1 for it in mine if it.generation == NEW)
    return len(mine) - new, new


def watched(town: Town, *, at_most_s: float = 400.0, tick: bool = False) -> Iterator[None]:
    """Turns until the component is in service again."""
    ends_at = town.clock.now() + at_most_s
    while town.component_status() is UPDATING:
        assert town.clock.now() < ends_at, "the update does not end"
        if tick:
            town.fleet.tick()
        town.turn(seconds=0.5)
        town.check_integrity()
        yield


@cases(
    "count, batch, size",
    case("one copy at a time", 4, copies(1), 1),
    case("two at a time", 4, copies(2), 2),
    case("half of three, rounded down", 3, percent(50), 1),
    case("five per cent of four is one", 4, percent(5), 1),
    case("a single copy", 1, copies(1), 1),
)
def test_new_copies_come_in_batches_beside_the_old_ones(
    town: Town, count: int, batch: CapacitySize, size: int
) -> None:
    serving(town, count)
    roll(town, batch)
    seen: list[int] = []
    for _ in watched(town):
        old, new = ready(town)
        assert old + new >= count, "nothing is taken away that is not replaced"
        assert sum(1 for it in town.copy_records() if not it.draining) <= count + size
        if not seen or seen[-1] != new:
            seen.append(new)
    assert [it for it in seen if it] == list(range(size, count + 1, size))
    assert ready(town) == (0, count)
    town.settle()
    assert len(town.running_copies()) == count
    found = town.component()
    assert (found.rollout, found.previous_spec, found.failure_reason) == (None, None, None)


def test_each_batch_bakes_before_the_next(town: Town) -> None:
    serving(town, 2)
    roll(town, copies(1), wait_s=600.0)
    town.settle()
    assert ready(town) == (2, 1)
    town.clock.advance(600.0)
    town.settle()
    assert ready(town) == (1, 2)
    town.clock.advance(600.0)
    town.settle()
    assert ready(town) == (0, 2)
    assert town.component_status() is IN_SERVICE


def test_an_operator_s_pace_shortens_the_bake(town: Town) -> None:
    town.pace = 100.0
    serving(town, 2)
    roll(town, copies(1), wait_s=600.0)
    for _ in watched(town, at_most_s=30.0):
        assert sum(ready(town)) >= 2
    assert ready(town) == (0, 2)


@pytest.mark.parametrize("size", [1, 2])
def test_where_there_is_no_room_never_more_than_a_batch_is_missing(town: Town, size: int) -> None:
    serving(town, 4, instances=1)
    roll(town, copies(size), wait_s=1.0)
    for _ in watched(town):
        assert sum(ready(town)) >= 4 - size
    assert ready(town) == (0, 4)


def test_a_batch_that_needs_an_instance_gets_one(town: Town) -> None:
    serving(town, 4, instances=1, max_instances=2)
    roll(town, copies(1), accelerators=2, wait_s=1.0)
    for _ in watched(town):
        assert sum(ready(town)) >= 3
    assert ready(town) == (0, 4)
    assert len(town.fleet.machines) == 2


@cases(
    "rollback, instances",
    case("all at once beside", None, 2),
    case("one by one beside", copies(1), 2),
    case("all at once in place", None, 1),
    case("one by one in place", copies(1), 1),
)
def test_a_copy_that_fails_takes_the_update_back(
    town: Town, rollback: CapacitySize | None, instances: int
) -> None:
    serving(town, 4, instances=instances)
    roll(town, copies(1), image="bad", wait_s=1.0, rollback=rollback)
    while ready(town)[1] < 2:
        town.turn(seconds=0.5)
    town.switches.broken_images["bad"] = "cannot read the weights"
    for _ in watched(town):
        assert sum(ready(town)) >= 3
    found = town.component()
    assert (found.failure_reason or "").startswith("cannot read the weights")
    assert ready(town) == (4, 0)
    assert found.rollout is None
    town.settle()
    assert len(town.running_copies()) == 4


def test_an_update_that_takes_longer_than_its_policy_allows_goes_back(town: Town) -> None:
    serving(town, 4)
    roll(town, copies(1), wait_s=300.0, max_execution_s=700.0)
    town.settle()
    town.clock.advance(300.0)
    town.settle()
    assert ready(town)[1] == 2
    town.clock.advance(700.0)
    for _ in watched(town):
        assert sum(ready(town)) >= 4
    found = town.component()
    assert "MaximumExecutionTimeoutInSeconds, 700; 2 of 4" in (found.failure_reason or "")
    assert ready(town) == (4, 0)


def test_a_copy_that_hangs_in_its_start_takes_the_update_back_at_the_deadline(town: Town) -> None:
    serving(town, 2)
    town.switches.slow = True
    roll(town, copies(1))
    town.turn(10)
    found = town.component()
    assert found.deadline_at is not None
    town.clock.advance(found.deadline_at - town.clock.now())
    town.turn(3)
    assert ready(town) == (2, 0)
    town.settle()
    found = town.component()
    assert found.status is IN_SERVICE
    assert (found.failure_reason or "").startswith("Timed out")
    assert len(town.copy_records()) == 2


def test_what_can_never_fit_takes_nothing_away(town: Town) -> None:
    serving(town, 2)
    before = town.routed_copies()
    roll(town, copies(1), accelerators=5)
    town.settle()
    found = town.component()
    assert found.status is IN_SERVICE
    assert (found.failure_reason or "").startswith("CapacityError: a copy needs 5 accelerators")
    assert town.routed_copies() == before


def test_every_moment_of_a_rolling_update_has_a_deadline(town: Town) -> None:
    serving(town, 3)
    roll(town, copies(1), image="bad", wait_s=600.0, rollback=copies(1))
    town.pass_once()
    for number in range(200):
        found = town.component()
        if found.status is not UPDATING:
            break
        assert found.deadline_at is not None
        assert found.deadline_at > town.clock.now() - 100.0
        if number == 40:
            town.switches.broken_images["bad"] = "boom"
        town.turn(seconds=30.0)
    assert town.component_status() is IN_SERVICE


@pytest.mark.parametrize("turns", first_alone([0, 12, 24, 48, 6, 18, 30, 36, 42, 54], 4))
@pytest.mark.parametrize("broken", [False, True], ids=["on its way", "on its way back"])
def test_a_delete_at_any_moment_of_a_rolling_update(town: Town, turns: int, broken: bool) -> None:
    serving(town, 3, instances=1)
    roll(town, copies(1), image="bad", wait_s=1.0, rollback=copies(1))
    if broken:
        town.turn(20, seconds=0.5)
        town.switches.broken_images["bad"] = "boom"
    town.turn(turns, seconds=0.5)
    town.change_component(status=ComponentStatus.DELETING, modified_at=town.clock.now())
    town.settle()
    assert town.find_component() is None
    assert town.running_copies() == {}


def test_an_old_copy_that_dies_during_a_rolling_update_is_not_waited_for(town: Town) -> None:
    serving(town, 4)
    roll(town, copies(1), wait_s=1.0)
    town.turn(4)
    old = next(it for it in town.copy_records() if it.generation != NEW and not it.draining)
    town.fleet.crash_copy(old.spec.id, "gone")
    for _ in watched(town):
        assert sum(ready(town)) >= 3
    assert ready(town) == (0, 4)
    assert town.clock.now() > NOW


def test_a_new_copy_that_is_unhealthy_for_a_moment_only_delays_the_update(town: Town) -> None:
    serving(town, 2)
    roll(town, copies(1), wait_s=60.0)
    town.settle()
    new = next(it for it in town.copy_records() if it.generation == NEW)
    town.fleet.set_phase(new.spec.id, CopyPhase.UNHEALTHY)
    town.turn(2)
    town.clock.advance(60.0)
    town.turn(3)
    assert ready(town) == (2, 0)
    town.fleet.set_phase(new.spec.id, CopyPhase.READY)
    town.turn(3)
    assert ready(town) == (2, 1), "it bakes anew"
    for _ in watched(town):
        assert sum(ready(town)) >= 2
    assert ready(town) == (0, 2)


def test_an_endpoint_that_moves_meanwhile_takes_whole_components_along(town: Town) -> None:
    serving(town, 4)
    roll(town, copies(1), wait_s=1.0)
    town.turn(6, seconds=0.5)
    pending = deployment(variant(count=4, instance_type="ml.small"), generation=2)
    town.change_endpoint(status=EndpointStatus.UPDATING, pending=pending)
    for _ in range(100):
        town.turn(seconds=0.5)
        assert sum(ready(town)) >= 4
    assert town.status() is EndpointStatus.IN_SERVICE
    assert town.component_status() is IN_SERVICE
    assert ready(town) == (0, 4)
    assert {it.instance_type for it in town.instance_records()} == {"ml.small"}


def test_old_copies_that_die_are_replaced_by_new_ones_without_waiting_for_their_batch(
    town: Town,
) -> None:
    serving(town, 4)
    roll(town, copies(1), wait_s=600.0)
    town.settle()
    old = [it for it in town.copy_records() if it.generation != NEW]
    for copy in old[:3]:
        town.fleet.crash_copy(copy.spec.id, "gone")
    town.clock.advance(60.0)
    town.settle()
    assert sum(ready(town)) == 4
    assert town.component_status() is UPDATING
