"""Guarded updates of endpoints with components: trial next to the old instances, rollback."""

from collections.abc import Callable

import pytest
from msgspec.structs import replace
from tests.cases import case, cases
from tests.selection import numbers
from tests.unit.reconcile.samples import (
    Town,
    adapter,
    component,
    component_spec,
    deployment,
    endpoint,
    needs,
    variant,
)
from tests.unit.reconcile.test_reconcile_faults import (
    FaultyStore,
    Killed,
    WatchedStore,
    create,
    live,
)
from tests.unit.reconcile.test_reconcile_guards import set_alarm

from hostelry.base.errors import Conflict
from hostelry.domain.alarm import AlarmState
from hostelry.domain.component import ComponentStatus
from hostelry.domain.copy import CopyPhase
from hostelry.domain.endpoint import EndpointStatus, UpdateGuard
from hostelry.domain.resize import is_only_resized
from hostelry.domain.routes import CopyRoute
from hostelry.reconcile.plan.guards import find_guarding_alarms
from hostelry.reconcile.plan.plan import next_plan_at
from hostelry.reconcile.record import load_all

ALARM, OK = AlarmState.ALARM, AlarmState.OK
UNHEALTHY = CopyPhase.UNHEALTHY
UPDATING, IN_SERVICE = EndpointStatus.UPDATING, EndpointStatus.IN_SERVICE
BAKE_S = 300.0
GUARD = UpdateGuard(bake_s=BAKE_S, alarm_names=("errors",))
TAKEN_BACK = 'CloudWatch alarm "errors" went into ALARM state; the update was rolled back.'
UpdateStep = Callable[[Town], None]


def serving(town: Town) -> None:
    """Two components on one instance, the first with an adapter, and an alarm in state OK."""
    town.add(endpoint(deployment(variant())), component(copies=2), adapter())
    town.add(component("other"))
    set_alarm(town, OK)
    town.settle()
    assert len(town.routed_copies()) == 2
    assert town.status() is IN_SERVICE


def update(
    town: Town, instance_type: str = "ml.big", count: int = 1, guard: UpdateGuard = GUARD
) -> None:
    pending = replace(
        deployment(variant(instance_type=instance_type, count=count), generation=2),
        started_at=town.clock.now(),
        guard=guard,
    )
    town.change_endpoint(status=UPDATING, pending=pending, deadline_at=None)


def on_trial(town: Town, guard: UpdateGuard = GUARD) -> None:
    serving(town)
    update(town, guard=guard)
    watched(town, 40)
    assert town.endpoint.bake is not None
    assert served_from(town) == {2}


def routes(town: Town) -> dict[str, tuple[CopyRoute, ...]]:
    route = town.endpoint_route()
    return {it.name: it.copies for it in route.components}


def watched(town: Town, turns: int, seconds: float = 0.2) -> None:
    """Turns in which every component, adapters too, has copies to send requests to."""
    for _ in range(turns):
        town.turn(seconds=seconds)
        found = routes(town)
        assert all(found.values()), f"nothing to route to: {found}"
        town.check_integrity()


def served_from(town: Town) -> set[int]:
    """The generations of the instances that requests go to."""
    routed = {it.id for copies in routes(town).values() for it in copies}
    hosts = {it.id: it.generation for it in town.instance_records()}
    copies = [it.value for it in town.state.copies.list()]
    return {hosts[it.instance_id] for it in copies if it.spec.id in routed}


def generations(town: Town) -> list[int]:
    return sorted(it.generation for it in town.instance_records())


def reason(town: Town) -> str:
    return town.endpoint.failure_reason or ""


def is_back(town: Town) -> bool:
    found = town.endpoint
    return (
        found.status is IN_SERVICE
        and found.active.config.name == "config-1"
        and found.bake is None
        and found.deadline_at is None
        and served_from(town) == {1}
    )


def test_old_instances_and_copies_are_kept_through_the_trial(town: Town) -> None:
    on_trial(town)
    assert generations(town) == [1, 2], "also where instances of the same type would have done"
    kept = [it for it in town.copy_records() if it.instance_id == town.instance_records()[0].id]
    assert [it.draining for it in kept] == [False, False]
    assert town.status() is UPDATING
    assert not is_only_resized(town.endpoint), "it cannot be scaled meanwhile"
    assert town.endpoint.bake is not None
    (state,) = load_all(town.state)
    assert find_guarding_alarms(state) == {"errors"}, "watched for as long as it lasts"
    all_observed = next_plan_at(state, town.context())
    assert all_observed is not None
    assert all_observed <= town.endpoint.bake.since + BAKE_S
    before = town.state.store.revision()
    town.turn(5)
    assert town.state.store.revision() == before, "a trial is not written again and again"
    town.clock.advance(BAKE_S)
    watched(town, 40)
    assert (town.status(), reason(town), generations(town)) == (IN_SERVICE, "", [2])
    assert len(town.fleet.machines) == 1


@cases(
    "instance_type, count",
    case("instances of the same type", "ml.big", 1),
    case("instances of another type", "ml.small", 3),
)
@cases("killed", case("control lives", False), case("control is killed", True))
def test_an_alarm_in_the_trial_takes_the_components_back(
    town: Town, instance_type: str, count: int, killed: bool
) -> None:
    serving(town)
    before = {name: {it.id for it in copies} for name, copies in routes(town).items()}
    started = town.fleet.num_copies_started
    update(town, instance_type, count)
    watched(town, 40)
    assert served_from(town) == {2}
    moved = town.fleet.num_copies_started - started
    town.clock.advance(BAKE_S - 20.0)
    if killed:
        town.restart_control()
    watched(town, 5)
    set_alarm(town, ALARM)
    watched(town, 1)
    assert is_back(town), "at once: the old copies were kept"
    watched(town, 40)
    assert reason(town) == TAKEN_BACK
    after = {name: {it.id for it in copies} for name, copies in routes(town).items()}
    assert after == before, "the very copies that served before the update"
    assert town.fleet.num_copies_started == started + moved
    assert generations(town) == [1]
    assert len(town.fleet.machines) == 1
    for name in before:
        assert town.component_status(name) is ComponentStatus.IN_SERVICE


@cases("state", case("well", OK), case("no data", AlarmState.INSUFFICIENT_DATA))
def test_an_alarm_that_does_not_alarm_lets_the_trial_pass(town: Town, state: AlarmState) -> None:
    on_trial(town)
    set_alarm(town, state)
    town.clock.advance(BAKE_S)
    watched(town, 5)
    set_alarm(town, ALARM)
    watched(town, 40)
    assert (town.status(), served_from(town), reason(town)) == (IN_SERVICE, {2}, "")


def test_an_alarm_at_the_start_takes_it_back_before_anything_moves(town: Town) -> None:
    serving(town)
    started = town.fleet.num_copies_started
    set_alarm(town, ALARM)
    update(town)
    watched(town, 40)
    assert is_back(town)
    assert reason(town) == TAKEN_BACK
    assert town.fleet.num_copies_started == started


def test_an_alarm_while_copies_move_takes_it_back(town: Town) -> None:
    serving(town)
    town.switches.slow = True
    update(town)
    watched(town, 5)
    assert generations(town) == [1, 2]
    set_alarm(town, ALARM)
    watched(town, 40)
    assert is_back(town)
    assert generations(town) == [1]


def set_copies(town: Town, generation: int, phase: CopyPhase, name: str = "base") -> None:
    """A component's copies on the instances of a deployment become healthy, or cease to be so."""
    hosts = {it.id for it in town.instance_records() if it.generation == generation}
    for copy in town.copy_records(name):
        if copy.instance_id in hosts:
            town.fleet.set_phase(copy.spec.id, phase)
    town.turn(2)


def test_the_new_instances_serve_until_the_old_ones_can_again(town: Town) -> None:
    on_trial(town)
    set_copies(town, 1, UNHEALTHY)
    set_alarm(town, ALARM)
    watched(town, 5)
    assert town.status() is UPDATING
    assert town.endpoint.bake is not None
    assert town.endpoint.bake.failure == TAKEN_BACK
    assert town.endpoint.deadline_at is not None
    assert served_from(town) == {2}
    set_alarm(town, OK)
    town.restart_control()
    watched(town, 5)
    assert town.status() is UPDATING, "what has failed is not made good by an alarm that ends"
    set_copies(town, 1, CopyPhase.READY)
    watched(town, 40)
    assert is_back(town)
    assert reason(town) == TAKEN_BACK


def test_old_instances_that_do_not_come_up_again_hold_nothing_up_for_good(town: Town) -> None:
    on_trial(town)
    set_copies(town, 1, UNHEALTHY)
    set_alarm(town, ALARM)
    watched(town, 5)
    deadline_at = town.endpoint.deadline_at
    assert deadline_at is not None
    town.clock.advance(deadline_at - town.clock.now())
    town.turn(2)
    assert (town.status(), reason(town)) == (IN_SERVICE, TAKEN_BACK)
    assert town.endpoint.active.config.name == "config-1"


def test_a_component_that_ceases_to_serve_on_trial_goes_back(town: Town) -> None:
    on_trial(town)
    set_copies(town, 2, UNHEALTHY, "other")
    town.turn(2)
    assert is_back(town)
    assert reason(town).startswith(
        "Inference component other does not serve on the new instances any more: 0 of 1 copies"
    )


def test_a_component_that_is_just_being_updated_is_not_taken_for_one_that_ceased(
    town: Town,
) -> None:
    on_trial(town)
    town.switches.slow = True
    town.change_component("other", status=ComponentStatus.UPDATING, desired_copies=2)
    set_copies(town, 2, UNHEALTHY, "other")
    assert town.status() is UPDATING
    assert served_from(town) == {2}


def test_a_component_that_serves_nowhere_holds_no_update_up(town: Town) -> None:
    on_trial(town)
    set_copies(town, 1, UNHEALTHY, "other")
    set_copies(town, 2, UNHEALTHY, "other")
    set_alarm(town, ALARM)
    town.turn(2)
    assert is_back(town)


def test_an_update_of_a_component_on_trial_goes_on_beside_it(town: Town) -> None:
    on_trial(town)
    found = town.component()
    spec = component_spec(needs(), "new:1", 9)
    town.change_component(status=ComponentStatus.UPDATING, spec=spec, previous_spec=found.spec)
    watched(town, 60)
    assert town.component_status() is ComponentStatus.IN_SERVICE
    assert town.status() is UPDATING
    set_alarm(town, ALARM)
    watched(town, 40)
    assert is_back(town)
    routed = set(town.routed_copies())
    kept = [it for it in town.copy_records() if it.spec.id in routed]
    assert {it.generation for it in kept} == {9}, "a component's update is its own"


def test_a_bad_update_of_a_component_takes_no_endpoint_back(town: Town) -> None:
    on_trial(town)
    town.switches.broken_images["bad:1"] = "no such model server"
    found = town.component()
    spec = component_spec(needs(), "bad:1", 9)
    town.change_component(status=ComponentStatus.UPDATING, spec=spec, previous_spec=found.spec)
    watched(town, 40)
    one = town.component()
    assert "no such model server" in (one.failure_reason or "")
    assert town.status() is UPDATING
    assert served_from(town) == {2}


def test_copies_that_are_added_on_trial_come_up_on_both(town: Town) -> None:
    on_trial(town)
    town.change_component(status=ComponentStatus.UPDATING, desired_copies=3)
    watched(town, 40)
    assert len(town.routed_copies()) == 3
    set_alarm(town, ALARM)
    watched(town, 1)
    assert is_back(town)
    assert len(town.routed_copies()) == 3


def test_an_update_of_components_that_takes_too_long_goes_back(town: Town) -> None:
    on_trial(town, replace(GUARD, max_execution_s=600.0, bake_s=550.0))
    town.clock.advance(520.0)
    watched(town, 2)
    assert served_from(town) == {2}
    assert town.endpoint.bake is not None
    started_at = town.endpoint.active.started_at
    # A clock that was set may make a trial longer than its policy allows.
    town.change_endpoint(bake=replace(town.endpoint.bake, since=town.clock.now()))
    town.clock.advance(started_at + 600.0 - town.clock.now())
    watched(town, 2)
    assert is_back(town)
    assert "MaximumExecutionTimeoutInSeconds, 600" in reason(town)


def test_pace_shortens_a_trial_of_components(town: Town) -> None:
    town.pace = 100.0
    serving(town)
    update(town)
    watched(town, 60)
    assert (town.status(), served_from(town), generations(town)) == (IN_SERVICE, {2}, [2])


@cases(
    "guard, fleets",
    case("alarms alone", UpdateGuard(alarm_names=("errors",)), 2),
    case("a limit alone", UpdateGuard(max_execution_s=600.0), 2),
    case("a policy that guards nothing", UpdateGuard(), 1),
)
def test_what_guards_an_update_needs_instances_to_go_back_to(
    town: Town, guard: UpdateGuard, fleets: int
) -> None:
    serving(town)
    update(town, guard=guard)
    seen = {it for it, _ in town.instances()}
    for _ in range(40):
        town.turn()
        seen |= {it for it, _ in town.instances()}
    assert len(seen) == fleets
    assert (town.status(), served_from(town)) == (IN_SERVICE, {2 if fleets == 2 else 1})


@cases(
    "bake_s, names, look_s",
    case("until each alarm was evaluated once", BAKE_S, ("errors",), 90.0),
    case("no longer than the trial itself", 20.0, ("errors",), 20.0),
    case("not at all without an alarm", BAKE_S, (), 0.0),
)
def test_alarms_are_looked_at_after_control_was_away_for_the_rest_of_a_trial(
    town: Town, bake_s: float, names: tuple[str, ...], look_s: float
) -> None:
    on_trial(town, UpdateGuard(bake_s=bake_s, alarm_names=names))
    town.clock.advance(3600.0)
    town.restart_control()
    town.watched_since = town.clock.now()
    town.turn(1, seconds=0.0)
    if look_s:
        assert town.status() is UPDATING
        (state,) = load_all(town.state)
        assert next_plan_at(state, town.context()) == town.watched_since + look_s
        town.clock.advance(look_s - 1.0)
        town.turn(1, seconds=1.0)
        assert town.status() is UPDATING
        town.turn(1)
    assert (town.status(), served_from(town)) == (IN_SERVICE, {2})


@pytest.mark.parametrize("returning", [False, True], ids=["on trial", "on its way back"])
def test_an_endpoint_of_components_is_deleted_in_the_middle(town: Town, returning: bool) -> None:
    on_trial(town)
    if returning:
        set_copies(town, 1, UNHEALTHY)
        set_alarm(town, ALARM)
        town.turn(2)
    for name in ("spanish", "base", "other"):
        town.change_component(
            name, status=ComponentStatus.DELETING, modified_at=town.clock.now(), deadline_at=None
        )
    town.turn(20)
    town.change_endpoint(status=EndpointStatus.DELETING, deadline_at=None)
    town.turn(40, seconds=1.0)
    assert town.find_endpoint() is None
    assert town.fleet.machines == {}
    assert town.state.copies.list() == []


def begin_trial(town: Town) -> None:
    set_alarm(town, OK)
    update(town)


def end_trial(town: Town) -> None:
    town.clock.advance(BAKE_S)


def take_back(town: Town) -> None:
    set_alarm(town, ALARM)


@pytest.mark.parametrize(
    "fault", [Conflict("moved"), Killed()], ids=["a conflict", "control is killed"]
)
@cases(
    "last, config",
    case("the trial passes", end_trial, "config-2"),
    case("the trial is taken back", take_back, "config-1"),
)
def test_a_fault_at_each_write_of_a_trial_changes_nothing_in_the_end(
    fault: Exception, last: UpdateStep, config: str, pytestconfig: pytest.Config
) -> None:
    def led(fails_at: int | None) -> tuple[object, int]:
        store = FaultyStore(fault)
        store.fails_at = fails_at
        town = Town(store=store)
        try:
            ends = live(town, [create, begin_trial, last], store)
            return (*ends, town.endpoint.active.config.name, reason(town)), store.num_writes
        finally:
            town.close()

    expected, num_writes = led(None)
    assert isinstance(expected, tuple)
    assert (expected[0], expected[-2]) == (IN_SERVICE, config)
    for number in numbers(pytestconfig, num_writes):
        assert led(number)[0] == expected, f"write {number}"


@pytest.mark.parametrize(
    "last", [end_trial, take_back], ids=["the trial passes", "the trial is taken back"]
)
def test_between_no_two_writes_of_a_trial_are_there_fewer_routes(last: UpdateStep) -> None:
    store = WatchedStore()
    town = Town(store=store)
    try:
        serving(town)
        least = {name: len(copies) for name, copies in routes(town).items()}

        def check() -> None:
            found = {name: len(copies) for name, copies in routes(town).items()}
            assert found == least

        store.after_write = check
        update(town)
        town.turn(40, seconds=0.3)
        assert served_from(town) == {2}
        last(town)
        town.turn(40, seconds=0.3)
        assert town.status() is IN_SERVICE
        assert len(town.fleet.machines) == 1
    finally:
        town.close()
