"""Rolling updates of model endpoints: batches, bounds, the way back, and faults in each stage."""

import dataclasses
from collections import Counter

import pytest
from msgspec.structs import replace
from tests.cases import case, cases
from tests.selection import thorough
from tests.unit.reconcile.samples import Town, model, variant
from tests.unit.reconcile.test_reconcile_guards import set_alarm
from tests.unit.reconcile.test_reconcile_shifts import (
    ALARM,
    IN_SERVICE,
    OK,
    ONE,
    ROLLING,
    UPDATING,
    WAIT_S,
    coming,
    config,
    reason,
    route,
    serving,
    share,
    update,
)

from hostelry.base.errors import RetryableError
from hostelry.domain.copy import Copy, CopyPhase, InstanceState, LastEnd
from hostelry.domain.endpoint import EndpointStatus, Shift, ShiftStage, UpdateGuard
from hostelry.domain.traffic import FleetSize, FleetUnit, TrafficPolicy
from hostelry.reconcile.census import take_census
from hostelry.reconcile.plan.guards import find_guarding_alarms
from hostelry.reconcile.plan.plan import next_plan_at
from hostelry.reconcile.record import load_all

GUARD = UpdateGuard(alarm_names=("errors",), traffic=ROLLING)
TWO = replace(ONE, value=2)
BACK_BY_ONE = replace(GUARD, traffic=replace(ROLLING, rollback_size=ONE))


def shift(town: Town) -> Shift | None:
    return town.endpoint.shift


def generations(town: Town) -> list[int]:
    """Of the instances that are not on their way out."""
    return sorted(it.generation for it in town.instance_records())


def is_baking(town: Town, batch: int) -> bool:
    found = shift(town)
    return found is not None and (found.step, found.stage) == (batch, ShiftStage.BAKING)


def turn_until_baking(town: Town, batch: int) -> None:
    for _ in range(100):
        if is_baking(town, batch):
            return
        town.turn(seconds=0.2)
    raise AssertionError(f"batch {batch} does not bake: {town.endpoint}")


def to_batch(town: Town, batch: int, guard: UpdateGuard = GUARD, count: int = 4) -> None:
    """Into the bake of that batch, of one instance each."""
    serving(town, variant(model="m", count=count))
    update(town, guard, variant(model="m2", count=count))
    for number in range(1, batch):
        turn_until_baking(town, number)
        town.clock.advance(WAIT_S)
    turn_until_baking(town, batch)


def watch(town: Town, seconds: float = 0.2, turns: int = 150) -> tuple[int, int]:
    """Turn until the endpoint is in service. Return the most machines, the fewest routed copies."""
    most, fewest = 0, 1_000
    for _ in range(turns):
        town.turn(seconds=seconds)
        most = max(most, len(town.fleet.machines))
        fewest = min(fewest, len(route(town).copies))
        if town.status() is IN_SERVICE:
            break
    return most, fewest


def is_back(town: Town, count: int = 4) -> bool:
    found = town.endpoint
    town.settle()
    return (
        (found.status, found.pending, found.shift) == (IN_SERVICE, None, None)
        and found.active.config.name == "config-1"
        and share(town) == 0.0
        and len(town.fleet.machines) == len(route(town).copies) == count
    )


def new_copy(town: Town) -> Copy:
    """The copy of the oldest new instance."""
    new = next(it for it in town.instance_records() if it.generation == 2)
    return next(it for it in town.copy_records(None) if it.instance_id == new.id)  # type: ignore[arg-type] # a model's


def test_the_fleet_is_replaced_batch_by_batch(town: Town) -> None:
    serving(town)
    update(town, GUARD)
    for batch in (1, 2, 3, 4):
        turn_until_baking(town, batch)
        assert generations(town) == [1] * (5 - batch) + [2] * batch
        assert share(town) == batch / 4, "the share of the new capacity"
        (counted,) = take_census(load_all(town.state), town.facts()).variants.values()
        rooms = Counter(it.config_name for it in counted.instances)
        assert rooms == {"config-1": 5 - batch, "config-2": batch}, "metrics are of both"
        found = route(town).shift
        assert found is not None
        assert len(found.new_ids) == batch
        (state,) = load_all(town.state)
        assert find_guarding_alarms(state) == {"errors"}
        town.turn(3)
        before = town.state.store.revision()
        town.turn(3)
        assert town.state.store.revision() == before, "a bake is not written again and again"
        following = next_plan_at(state, town.context())
        assert following is not None
        assert following <= town.clock.now() + WAIT_S
        town.clock.advance(WAIT_S)
    town.settle()
    assert (town.status(), config(town), reason(town)) == (IN_SERVICE, "config-2", "")
    assert route(town).shift is None
    assert generations(town) == [2] * 4
    assert len(town.fleet.machines) == 4


@cases(
    "old, new, size, most",
    case("one by one", 4, 4, ONE, 5),
    case("by halves", 4, 4, TWO, 6),
    case("a shorter last batch", 5, 5, TWO, 7),
    case("33 %", 10, 10, FleetSize(unit=FleetUnit.CAPACITY_PERCENT, value=33), 13),
    case("to a larger fleet", 3, 4, TWO, 6),
    case("to a smaller fleet", 4, 3, ONE, 5),
    case("to a much smaller one", 10, 4, TWO, 12),
    case("a fleet of one", 1, 1, ONE, 2),
)
def test_a_fleet_and_one_batch_are_machines_enough(
    town: Town, old: int, new: int, size: FleetSize, most: int
) -> None:
    serving(town, variant(model="m", count=old))
    town.switches.max_instances = most
    guard = UpdateGuard(traffic=replace(ROLLING, size=size, wait_s=1.0))
    town.change_endpoint(
        status=UPDATING,
        pending=coming(guard, town, variant(model="m2", count=new)),
        deadline_at=None,
    )
    machines, copies = watch(town)
    assert (town.status(), config(town), reason(town)) == (IN_SERVICE, "config-2", "")
    assert machines <= most
    assert copies >= min(old, new), "the capacity is never less than that of both fleets"
    assert all(it.facts.problem is None for it in town.drivers.values()), "no launch was refused"
    town.settle()
    assert len(town.fleet.machines) == len(route(town).copies) == new


def test_the_next_batch_waits_for_the_machines_of_the_last(town: Town) -> None:
    to_batch(town, 1)
    old = [it for it in town.copy_records(None) if it.generation == 1]  # type: ignore[arg-type] # a model's
    town.switches.open_connections = {it.spec.id: 1 for it in old}
    town.clock.advance(WAIT_S)
    town.turn(20, seconds=1.0)
    found = shift(town)
    assert found is not None
    assert found.stage is ShiftStage.LEAVING, "a long stream is under way"
    assert generations(town) == [1, 1, 1, 2]
    assert share(town) == 0.25
    town.switches.open_connections = {}
    for machine in town.fleet.machines.values():
        town.fleet.apply(machine, machine.desired)
    turn_until_baking(town, 2)


def test_an_old_instance_that_cannot_be_terminated_holds_nothing_up_for_ever(town: Town) -> None:
    to_batch(town, 1)
    town.switches.terminate_error = RetryableError("busy")
    town.clock.advance(WAIT_S)
    town.turn(20, seconds=1.0)
    found = town.endpoint
    assert found.shift is not None
    assert found.shift.stage is ShiftStage.LEAVING
    assert found.deadline_at is not None
    town.clock.advance(found.deadline_at - town.clock.now())
    turn_until_baking(town, 2)


@pytest.mark.parametrize("batch", [1, 2, 3, 4], ids=["first", "second", "third", "last"])
@pytest.mark.parametrize("guard", [GUARD, BACK_BY_ONE], ids=["at once", "in batches"])
@pytest.mark.parametrize(
    "killed",
    [pytest.param(False, id="control lives"), thorough(True, id="control is killed")],
)
def test_an_alarm_in_any_batch_brings_the_old_fleet_back(
    town: Town, batch: int, guard: UpdateGuard, killed: bool
) -> None:
    to_batch(town, batch, guard)
    town.switches.max_instances = 5
    if killed:
        town.restart_control()
    set_alarm(town, ALARM)
    town.pass_once()
    assert share(town) == (batch - 1) / 4, "the last batch has no traffic any more"
    set_alarm(town, OK)
    machines, copies = watch(town)
    assert machines <= 5
    assert copies >= 4, "at no time fewer instances serve than before the update"
    assert is_back(town)
    assert '"errors" went into ALARM' in reason(town)


def test_a_rollback_without_batches_brings_the_old_fleet_back_at_once(town: Town) -> None:
    to_batch(town, 4)
    set_alarm(town, ALARM)
    town.pass_once()
    assert generations(town) == [1] * 4 + [2] * 3


def test_a_rollback_in_batches_brings_back_one_after_the_other(town: Town) -> None:
    to_batch(town, 4, BACK_BY_ONE)
    set_alarm(town, ALARM)
    seen: list[float] = []
    for _ in range(200):
        town.turn(seconds=0.2)
        if town.status() is IN_SERVICE:
            assert share(town) == 0.0
            break
        launching = [it for it in town.instance_records() if it.state is InstanceState.LAUNCHING]
        assert len(launching) <= 1
        now = share(town)
        if seen[-1:] != [now]:
            seen.append(now)
    assert seen == [0.75, 0.5, 0.25]
    assert is_back(town)


def test_a_batch_that_does_not_come_up_in_time_takes_the_update_back(town: Town) -> None:
    to_batch(town, 2)
    town.switches.slow = True
    town.clock.advance(WAIT_S)
    town.turn(20, seconds=0.5)
    found = town.endpoint
    assert found.shift is not None
    assert found.shift.stage is ShiftStage.COMING
    assert share(town) == 0.5, "the batch that comes up has no traffic"
    assert found.deadline_at is not None
    town.clock.advance(found.deadline_at - town.clock.now())
    town.turn(2)
    town.switches.slow = False
    for _ in range(20):
        town.fleet.tick()
        town.turn(seconds=0.5)
    assert is_back(town)
    assert "variant AllTraffic: 2 of 3 copies ready" in reason(town)


@pytest.mark.parametrize("batch", [1, 3])
def test_a_first_batch_that_cannot_start_leaves_the_fleet_as_it_is(town: Town, batch: int) -> None:
    if batch > 1:
        to_batch(town, batch - 1)
    else:
        serving(town)
    town.switches.broken_images["v2"] = "no such file"
    pending = town.endpoint.pending or coming(GUARD, town)
    (wanted,) = pending.variants
    broken = replace(wanted, model=model("m2", "v2"))
    town.change_endpoint(status=UPDATING, pending=replace(pending, variants=(broken,)))
    town.clock.advance(WAIT_S)
    _, copies = watch(town)
    assert copies >= 4
    assert is_back(town)
    assert "no such file" in reason(town)


STAGES = [
    pytest.param(ShiftStage.BAKING, id="as it bakes"),
    pytest.param(ShiftStage.LEAVING, id="as old instances leave"),
    pytest.param(ShiftStage.COMING, id="as the next batch comes up"),
]


def to_stage(town: Town, stage: ShiftStage, guard: UpdateGuard = GUARD) -> None:
    """Into that stage of the second batch."""
    to_batch(town, 2, guard)
    if stage is not ShiftStage.BAKING:
        town.switches.slow = True
        town.clock.advance(WAIT_S)
        town.turn(3 if stage is ShiftStage.LEAVING else 30, seconds=0.2)
    found = shift(town)
    assert found is not None
    assert found.stage is stage


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("how", ["stops", "ended and serves again", "its instance is lost"])
def test_a_new_copy_that_dies_takes_the_update_back(
    town: Town, stage: ShiftStage, how: str
) -> None:
    to_stage(town, stage)
    copy = new_copy(town)
    if how == "stops":
        town.fleet.set_phase(copy.spec.id, CopyPhase.UNHEALTHY)
    elif how == "its instance is lost":
        town.switches.slow = True
        town.fleet.lose(copy.instance_id)
    else:
        copies = town.fleet.machines[copy.instance_id].copies
        end = LastEnd(at=town.clock.now(), cause="killed by signal 9")
        copies[copy.spec.id] = dataclasses.replace(copies[copy.spec.id], last_end=end)
        town.fleet.set_phase(copy.spec.id, CopyPhase.READY)
    town.turn(10, seconds=0.2)
    town.switches.slow = False
    for _ in range(30):
        town.fleet.tick()
        town.turn(seconds=0.5)
    assert is_back(town)
    assert "no longer serves on all new instances" in reason(town)


@pytest.mark.parametrize("stage", STAGES)
def test_the_time_limit_ends_any_stage(town: Town, stage: ShiftStage) -> None:
    to_stage(town, stage, replace(GUARD, max_execution_s=2 * WAIT_S + 30.0))
    town.switches.slow = False
    town.clock.advance(2 * WAIT_S)
    watch(town)
    assert is_back(town)
    assert "MaximumExecutionTimeoutInSeconds, 230" in reason(town)


@pytest.mark.parametrize("stage", STAGES)
def test_an_old_copy_that_dies_stops_nothing(town: Town, stage: ShiftStage) -> None:
    to_stage(town, stage)
    copy = next(it for it in town.copy_records(None) if it.generation == 1)  # type: ignore[arg-type] # a model's
    town.fleet.set_phase(copy.spec.id, CopyPhase.STARTING)
    town.turn(2)
    found = shift(town)
    assert found is not None
    assert found.failure is None


@pytest.mark.parametrize("dead", [1, 4], ids=["one", "all"])
def test_an_old_copy_that_restarts_does_not_prolong_the_way_back(town: Town, dead: int) -> None:
    to_batch(town, 1)
    old = [it for it in town.copy_records(None) if it.generation == 1]  # type: ignore[arg-type] # a model's
    for copy in old[:dead]:
        town.fleet.set_phase(copy.spec.id, CopyPhase.STARTING)
    town.turn(2)
    town.switches.slow = True
    set_alarm(town, ALARM)
    town.turn(3)
    if dead == 4:
        assert town.status() is UPDATING
        assert len(route(town).copies) == 1, "the new one serves until an old one can"
        town.fleet.set_phase(old[0].spec.id, CopyPhase.READY)
        town.turn(3)
    assert (town.status(), config(town)) == (IN_SERVICE, "config-1")


@cases(
    "batch, name",
    case("half of the old one is there: it serves", 3, "config-1"),
    case("most is new: the new one serves", 4, "config-2"),
)
def test_where_the_old_fleet_cannot_come_up_again_what_serves_most_is_kept(
    town: Town, batch: int, name: str
) -> None:
    to_batch(town, batch)
    town.switches.launch_error = RetryableError("the machine is gone")
    set_alarm(town, ALARM)
    town.turn(10)
    found = town.endpoint
    assert (found.status, share(town)) == (UPDATING, (batch - 1) / 4)
    assert len(route(town).copies) == 4
    assert found.deadline_at is not None
    town.clock.advance(found.deadline_at - town.clock.now())
    town.turn(2)
    assert (town.status(), config(town)) == (IN_SERVICE, name)
    assert '"errors" went into ALARM' in reason(town)
    assert ("did not come up again in time" in reason(town)) is (name == "config-2")
    assert len(route(town).copies) >= 2
    town.switches.launch_error = None
    for _ in range(60):
        town.turn(seconds=5.0)
    assert len(town.fleet.machines) == len(route(town).copies) == 4


def test_a_bake_that_ran_out_unwatched_lasts_until_alarms_were_evaluated(town: Town) -> None:
    to_batch(town, 2)
    town.clock.advance(3600.0)
    town.restart_control()
    town.watched_since = town.clock.now()
    town.turn(2)
    assert is_baking(town, 2)
    town.clock.advance(80.0)
    town.turn(2)
    assert is_baking(town, 2), "an alarm may still come"
    town.clock.advance(10.0)
    turn_until_baking(town, 3)


def test_a_clock_set_back_prolongs_no_bake(town: Town) -> None:
    to_batch(town, 2)
    town.clock.advance(-7200.0)
    town.turn(2)
    assert is_baking(town, 2)
    town.clock.advance(WAIT_S)
    turn_until_baking(town, 3)


@pytest.mark.parametrize("stage", STAGES)
def test_an_endpoint_is_deleted_in_any_stage(town: Town, stage: ShiftStage) -> None:
    to_stage(town, stage)
    town.change_endpoint(status=EndpointStatus.DELETING, deadline_at=None)
    town.settle()
    assert town.find_endpoint() is None
    assert town.fleet.machines == {}


def test_each_variant_moves_by_its_own_batches(town: Town) -> None:
    small, large = variant(model="a", count=2, name="A"), variant(model="b", count=4, name="B")
    serving(town, small, replace(large, weight=3.0))
    half = FleetSize(unit=FleetUnit.CAPACITY_PERCENT, value=25)
    policy = TrafficPolicy(type=ROLLING.type, size=half, wait_s=WAIT_S)
    update(town, UpdateGuard(traffic=policy), small, replace(large, weight=3.0))
    expected = [(0.5, 0.25), (1.0, 0.5), (1.0, 0.75), (1.0, 1.0)]
    for batch, shares in enumerate(expected, start=1):
        turn_until_baking(town, batch)
        shifts = [route(town, it).shift for it in "AB"]
        assert tuple(it and it.share for it in shifts) == shares
        assert [route(town, it).weight for it in "AB"] == pytest.approx([0.25, 0.75])
        town.clock.advance(WAIT_S)
    town.settle()
    assert (town.status(), config(town)) == (IN_SERVICE, "config-2")
    assert len(town.fleet.machines) == 6
