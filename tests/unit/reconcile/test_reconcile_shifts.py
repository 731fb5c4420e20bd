"""Updates whose traffic moves in steps: shares, waits, alarms, failures, and a killed control."""

import dataclasses
import random
from collections import Counter
from collections.abc import Callable

import pytest
from msgspec.structs import replace
from tests.cases import case, cases
from tests.selection import first_alone, numbers
from tests.unit.reconcile.life_events import canary_endpoint, go_on, roll_endpoint
from tests.unit.reconcile.samples import SCOPE, Town, deployment, endpoint, variant
from tests.unit.reconcile.test_reconcile_faults import (
    FaultyStore,
    Killed,
    crash_copy,
    create_model_endpoint,
    kill_agent,
    live,
    lose_instance,
    lose_reach,
    restart_control,
    restart_copy,
    turn_slow,
)
from tests.unit.reconcile.test_reconcile_guards import set_alarm

from hostelry.base.errors import Conflict
from hostelry.domain.alarm import AlarmState
from hostelry.domain.copy import CopyPhase, LastEnd
from hostelry.domain.endpoint import (
    Deployment,
    EndpointStatus,
    PastUpdate,
    UpdateGuard,
    UpdateOutcome,
)
from hostelry.domain.endpoint_config import Variant
from hostelry.domain.load import LoadKey
from hostelry.domain.routes import VariantRoute
from hostelry.domain.traffic import FleetSize, FleetUnit, TrafficPolicy, TrafficType
from hostelry.reconcile.census import take_census
from hostelry.reconcile.plan.guards import find_guarding_alarms
from hostelry.reconcile.plan.plan import next_plan_at
from hostelry.reconcile.record import load_all

KEY = LoadKey(scope=SCOPE, endpoint_name="ep", variant_name="AllTraffic")
ALARM, OK = AlarmState.ALARM, AlarmState.OK
UPDATING, IN_SERVICE = EndpointStatus.UPDATING, EndpointStatus.IN_SERVICE
WAIT_S = 100.0
ONE = FleetSize(unit=FleetUnit.INSTANCE_COUNT, value=1)
LINEAR = TrafficPolicy(type=TrafficType.LINEAR, size=ONE, wait_s=WAIT_S)
CANARY = replace(LINEAR, type=TrafficType.CANARY)
ROLLING = replace(LINEAR, type=TrafficType.ROLLING)
GUARD = UpdateGuard(alarm_names=("errors",), bake_s=60.0, traffic=LINEAR)


def serving(town: Town, *variants: Variant) -> None:
    town.add(endpoint(deployment(*(variants or (variant(model="m", count=4),)))))
    set_alarm(town, OK)
    town.settle()
    assert town.status() is IN_SERVICE


def coming(guard: UpdateGuard, town: Town, *variants: Variant) -> Deployment:
    wanted = variants or (variant(model="m2", count=4),)
    found = deployment(*wanted, generation=2)
    return replace(found, started_at=town.clock.now(), guard=guard)


def update(town: Town, guard: UpdateGuard = GUARD, *variants: Variant) -> None:
    town.change_endpoint(status=UPDATING, pending=coming(guard, town, *variants), deadline_at=None)
    town.turn(40, seconds=0.1)


def route(town: Town, name: str = "AllTraffic") -> VariantRoute:
    found = town.endpoint_route()
    return next(it for it in found.variants if it.name == name)


def share(town: Town) -> float:
    """The share of the new fleet. The old fleet's routes have no shift before and after."""
    found = route(town)
    if found.shift is not None:
        return found.shift.share
    generations = {it.generation for it in town.copy_records(None) if it.spec.id in ids(found)}  # type: ignore[arg-type] # a model's
    assert len(generations) == 1
    return float(generations == {2})


def ids(found: VariantRoute) -> set[str]:
    return {it.id for it in found.copies}


def config(town: Town) -> str:
    return town.endpoint.active.config.name


def updates(town: Town) -> tuple[PastUpdate, ...]:
    return town.endpoint.updates


def reason(town: Town) -> str:
    return town.endpoint.failure_reason or ""


def is_back(town: Town) -> bool:
    found = town.endpoint
    town.settle()
    return (
        (found.status, found.pending, found.shift, found.bake) == (IN_SERVICE, None, None, None)
        and found.active.config.name == "config-1"
        and share(town) == 0.0
        and len(town.fleet.machines) == 4
    )


def to_step(town: Town, step: int) -> None:
    """Into that step of four, the last of which is the trial."""
    serving(town)
    update(town)
    for _ in range(step - 1):
        town.clock.advance(WAIT_S)
        town.turn(2)
    assert share(town) == step / 4


@cases(
    "traffic, shares",
    case("linear", LINEAR, [0.25, 0.5, 0.75, 1.0]),
    case("a canary", CANARY, [0.25, 1.0]),
)
def test_traffic_moves_step_by_step_and_stays(
    town: Town, traffic: TrafficPolicy, shares: list[float]
) -> None:
    serving(town)
    update(town, replace(GUARD, traffic=traffic))
    seen = []
    for expected in shares:
        seen.append(share(town))
        found = route(town)
        if found.shift is not None:
            assert len(found.shift.new_ids) == expected * 4, "only those turned on are routed"
            assert len(found.copies) == 4 + expected * 4
        assert {it.config for it in found.copies} <= {"config-1", "config-2"}
        assert town.status() is UPDATING
        (state,) = load_all(town.state)
        counted = take_census([state], town.facts()).variants[KEY]
        both = ("config-1", "config-2") if found.shift else ("config-2",)
        assert counted.config_names == both
        rooms = Counter(it.config_name for it in counted.instances)
        assert rooms == Counter(dict.fromkeys(both, 4)), "turned on or not"
        assert len(counted.copies) == 4 * len(both)
        assert find_guarding_alarms(state) == {"errors"}
        before = town.state.store.revision()
        town.turn(3)
        assert town.state.store.revision() == before, "a step is not written again and again"
        following = next_plan_at(state, town.context())
        assert following is not None
        assert following <= town.clock.now() + WAIT_S
        town.clock.advance(WAIT_S)
        town.turn(2)
    assert seen == shares
    town.settle()
    assert (town.status(), config(town), reason(town)) == (IN_SERVICE, "config-2", "")
    assert route(town).shift is None
    (kept,) = updates(town)
    assert kept.outcome is UpdateOutcome.COMPLETE
    assert [it.most_share for it in kept.steps] == [0.0, *shares]
    ends = [it.ended_at for it in kept.steps]
    assert ends[:-1] == [it.began_at for it in kept.steps[1:]]
    assert ends[-1] == kept.ended_at
    assert {it.config for it in route(town).copies} == {None}
    assert len(town.fleet.machines) == 4


@pytest.mark.parametrize("step", [1, 2, 3, 4], ids=["first", "second", "third", "on trial"])
@pytest.mark.parametrize("killed", [False, True], ids=["control lives", "control is killed"])
def test_an_alarm_in_any_step_takes_all_traffic_back_at_once(
    town: Town, step: int, killed: bool
) -> None:
    to_step(town, step)
    if killed:
        town.restart_control()
    set_alarm(town, ALARM)
    town.pass_once()
    assert share(town) == 0.0
    assert is_back(town)
    assert '"errors" went into ALARM' in reason(town)
    (kept,) = updates(town)
    assert (kept.outcome, kept.cause) == (UpdateOutcome.ROLLED_BACK, reason(town))
    assert kept.steps[-1].name == f"step {step} of 4"


@pytest.mark.parametrize("step", [1, 3, 4], ids=["in the first", "in the third", "on trial"])
@pytest.mark.parametrize("how", ["a copy", "an instance"])
def test_a_new_copy_that_dies_takes_the_traffic_back(town: Town, step: int, how: str) -> None:
    to_step(town, step)
    new = [it for it in town.instance_records() if it.generation == 2]
    (copy,) = [it for it in town.copy_records(None) if it.instance_id == new[0].id]  # type: ignore[arg-type] # a model's
    if how == "a copy":
        town.fleet.set_phase(copy.spec.id, CopyPhase.STARTING)
    else:
        town.switches.slow = True
        town.fleet.lose(new[0].id)
    town.turn(10, seconds=0.5)
    town.switches.slow = False
    assert is_back(town)
    assert reason(town).startswith("Variant AllTraffic no longer serves on all new instances")


@cases("ago_s, goes_back", case("in this step", 1.0, True), case("long before", WAIT_S, False))
def test_a_new_copy_that_died_and_serves_again_takes_the_traffic_back(
    town: Town, ago_s: float, goes_back: bool
) -> None:
    to_step(town, 2)
    town.clock.advance(10.0)
    new = next(it for it in town.instance_records() if it.generation == 2)
    (copy,) = [it for it in town.copy_records(None) if it.instance_id == new.id]  # type: ignore[arg-type] # a model's
    copies = town.fleet.machines[new.id].copies
    end = LastEnd(at=town.clock.now() - ago_s, cause="killed by signal 9")
    copies[copy.spec.id] = dataclasses.replace(copies[copy.spec.id], last_end=end)
    town.fleet.set_phase(copy.spec.id, CopyPhase.READY)
    town.turn(2)
    assert (town.status() is IN_SERVICE) is goes_back
    assert ("killed by signal 9; the update was rolled back" in reason(town)) is goes_back


@pytest.mark.parametrize("fault", [Conflict("moved"), Killed()], ids=["a conflict", "a kill"])
@cases(
    "begin, limit_s",
    case("steps", canary_endpoint, 4.0),
    case("the second of two batches", roll_endpoint, 5.8),
)
def test_a_fault_at_each_write_of_an_update_that_is_taken_back(
    fault: Exception, begin: Callable[[Town], None], limit_s: float, pytestconfig: pytest.Config
) -> None:
    def given_up(town: Town) -> None:
        begin(town)
        found = town.endpoint
        assert found.pending is not None
        assert found.pending.guard is not None
        guard = replace(found.pending.guard, max_execution_s=limit_s)
        pending = replace(found.pending, started_at=town.clock.now(), guard=guard)
        town.change_endpoint(pending=pending)

    def led(fails_at: int | None) -> tuple[object, int, str]:
        store = FaultyStore(fault)
        store.fails_at = fails_at
        town = Town(store=store)
        try:
            end = live(town, [create_model_endpoint, given_up, go_on], store)
            return end, store.num_writes, config(town)
        finally:
            town.close()

    expected, num_writes, name = led(None)
    assert name == "config-1"
    for number in numbers(pytestconfig, num_writes):
        assert led(number)[0] == expected


def test_an_old_copy_that_dies_stops_nothing(town: Town) -> None:
    to_step(town, 2)
    old = [it for it in town.instance_records() if it.generation == 1]
    (copy,) = [it for it in town.copy_records(None) if it.instance_id == old[0].id]  # type: ignore[arg-type] # a model's
    town.fleet.set_phase(copy.spec.id, CopyPhase.STARTING)
    town.turn(2)
    assert (town.status(), share(town)) == (UPDATING, 0.5)


def test_an_update_that_takes_too_long_goes_back(town: Town) -> None:
    serving(town)
    update(town, replace(GUARD, max_execution_s=150.0))
    town.clock.advance(WAIT_S)
    town.turn(2)
    assert share(town) == 0.5
    town.clock.advance(50.0)
    town.turn(2)
    assert is_back(town)
    assert "MaximumExecutionTimeoutInSeconds, 150" in reason(town)


def all_old(town: Town, phase: CopyPhase) -> None:
    old = {it.id for it in town.instance_records() if it.generation == 1}
    for copy in town.copy_records(None):  # type: ignore[arg-type] # a model's
        if copy.instance_id in old:
            town.fleet.set_phase(copy.spec.id, phase)
    town.turn(2)


@pytest.mark.parametrize("comes_up", [True, False], ids=["in time", "not in time"])
def test_the_new_fleet_serves_until_the_old_one_can_again(town: Town, comes_up: bool) -> None:
    to_step(town, 2)
    all_old(town, CopyPhase.UNHEALTHY)
    set_alarm(town, ALARM)
    town.turn(3)
    found = town.endpoint
    assert found.shift is not None
    assert found.shift.failure is not None
    assert (found.status, share(town)) == (UPDATING, 0.0)
    assert len(route(town).copies) == 4, "all new ones, as they get all requests"
    set_alarm(town, OK)
    town.restart_control()
    town.turn(3)
    assert town.status() is UPDATING, "what has failed is not made good by an alarm that ends"
    if comes_up:
        all_old(town, CopyPhase.READY)
    else:
        assert found.deadline_at is not None
        town.clock.advance(found.deadline_at - town.clock.now())
        town.turn(2)
    assert (town.status(), config(town)) == (IN_SERVICE, "config-1")
    assert '"errors" went into ALARM' in reason(town)


def test_a_step_that_ran_out_unwatched_lasts_until_alarms_were_evaluated(town: Town) -> None:
    to_step(town, 1)
    town.clock.advance(3600.0)
    town.restart_control()
    town.watched_since = town.clock.now()
    town.turn(2)
    assert share(town) == 0.25
    town.clock.advance(80.0)
    town.turn(2)
    assert share(town) == 0.25, "an alarm may still come"
    town.clock.advance(10.0)
    town.turn(2)
    assert share(town) == 0.5, "and the next step lasts as long as any"
    town.clock.advance(80.0)
    town.turn(2)
    assert share(town) == 0.5


@pytest.mark.parametrize("step", [1, 4], ids=["a step", "the trial"])
def test_a_clock_set_back_prolongs_no_step(town: Town, step: int) -> None:
    to_step(town, step)
    town.clock.advance(-7200.0)
    town.turn(2)
    assert share(town) == step / 4
    town.clock.advance(WAIT_S)
    town.turn(3)
    assert share(town) == min(1.0, (step + 1) / 4)
    assert (town.status() is IN_SERVICE) == (step == 4)


def test_pace_shortens_the_steps(town: Town) -> None:
    town.pace = 100.0
    serving(town)
    update(town)
    town.settle()
    assert (town.status(), config(town)) == (IN_SERVICE, "config-2")


def test_steps_without_waits_are_one(town: Town) -> None:
    serving(town)
    update(town, UpdateGuard(traffic=replace(LINEAR, wait_s=0.0)))
    assert (town.status(), config(town)) == (IN_SERVICE, "config-2")


@pytest.mark.parametrize("step", [1, 2, 4], ids=["in a step", "in a later one", "on trial"])
def test_an_endpoint_is_deleted_in_any_step(town: Town, step: int) -> None:
    to_step(town, step)
    town.change_endpoint(status=EndpointStatus.DELETING, deadline_at=None)
    town.settle()
    assert town.find_endpoint() is None
    assert town.fleet.machines == {}


def test_each_variant_moves_by_its_own_fleet(town: Town) -> None:
    small, large = variant(model="a", count=2, name="A"), variant(model="b", count=4, name="B")
    serving(town, replace(small, weight=1.0), replace(large, weight=3.0))
    update(town, GUARD, replace(small, weight=1.0), replace(large, weight=3.0))
    shifts = [route(town, it).shift for it in "AB"]
    assert [it and it.share for it in shifts] == [0.5, 0.25]
    assert [route(town, it).weight for it in "AB"] == pytest.approx([0.25, 0.75])


def test_variants_of_one_side_have_what_their_fleet_has(town: Town) -> None:
    serving(town, variant(model="a", count=4, name="A"), variant(model="b", count=4, name="B"))
    guard = UpdateGuard(traffic=LINEAR)
    update(
        town, guard, variant(model="b", count=4, name="B"), variant(model="c", count=4, name="C")
    )
    assert [route(town, it).weight for it in "ABC"] == pytest.approx([0.375, 0.5, 0.125])
    assert [len(route(town, it).copies) for it in "ABC"] == [4, 5, 1]
    assert [route(town, it).shift is not None for it in "ABC"] == [False, True, False]
    town.change_endpoint(pending=coming(replace(guard, alarm_names=("errors",)), town))
    set_alarm(town, ALARM)
    town.turn(2)
    assert [route(town, it).weight for it in "AB"] == [1.0, 1.0]


def flip_alarm(town: Town, dice: random.Random) -> None:
    set_alarm(town, ALARM if dice.random() < 0.1 else OK)


def set_clock_back(town: Town, dice: random.Random) -> None:
    town.clock.advance(-dice.choice([1.0, 300.0]))


MISFORTUNES = (
    flip_alarm,
    set_clock_back,
    kill_agent,
    lose_instance,
    crash_copy,
    restart_copy,
    restart_control,
    turn_slow,
    lose_reach,
)


@pytest.mark.parametrize("seed", first_alone([*range(5), 30, 31, *range(5, 30), *range(32, 45)], 7))
def test_random_misfortune_ends_on_one_configuration(town: Town, seed: int) -> None:
    dice = random.Random(seed)
    serving(town)
    traffic = dice.choice([LINEAR, CANARY])
    if seed >= 30:
        traffic = replace(ROLLING, rollback_size=dice.choice([None, ONE]))
    update(town, replace(GUARD, traffic=traffic, bake_s=0.0 if traffic.is_rolling else 60.0))
    for _ in range(40):
        if dice.random() < 0.4:
            dice.choice(MISFORTUNES)(town, dice)
        routable = sum(it.status.phase is CopyPhase.READY for it in town.copy_records(None))  # type: ignore[arg-type] # a model's
        town.turn(dice.randint(1, 3), seconds=dice.choice([0.1, 5.0, 40.0]))
        town.endpoint_route()
        if routable == 8:
            assert route(town).copies, "with every copy ready there is one to send to"
    set_alarm(town, OK)
    town.switches.slow = False
    town.switches.hung_instances.clear()
    for _ in range(200):
        town.fleet.tick()
        town.turn(seconds=5.0)
    end = town.endpoint
    assert (end.status, end.pending, end.shift, end.bake) == (IN_SERVICE, None, None, None)
    is_kept = "did not come up again" in reason(town)
    assert (end.failure_reason is None or is_kept) == (config(town) == "config-2")
    assert len(town.fleet.machines) == len(route(town).copies) == 4
    assert share(town) == float(config(town) == "config-2")
