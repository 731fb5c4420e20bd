"""Faults in any write and any process, at any time: the result is the same."""

import random
from collections.abc import Callable, Sequence
from contextlib import closing
from functools import cache

import pytest
from msgspec.structs import replace
from tests.cases import case, cases
from tests.selection import first_alone, numbers
from tests.unit.reconcile import life_events as events
from tests.unit.reconcile.samples import (
    Town,
    adapter,
    adapter_spec,
    component,
    component_spec,
    deployment,
    endpoint,
    needs,
    variant,
)

from hostelry.base.errors import Conflict, HostelryError
from hostelry.domain.component import (
    CapacitySize,
    CapacityUnit,
    ComponentStatus,
    RollingUpdate,
    Rollout,
)
from hostelry.domain.copy import CopyPhase
from hostelry.domain.endpoint import EndpointStatus
from hostelry.store.memory import MemoryStore
from hostelry.store.protocol import Key, Record, StoreUnavailable

FINAL = {EndpointStatus.IN_SERVICE, EndpointStatus.FAILED, None}
FINAL_COMPONENT = {ComponentStatus.IN_SERVICE, ComponentStatus.FAILED, None}
TURNS, TURN_S = 20, 0.6


class Killed(Exception):  # noqa: N818 - not an error of the code under test
    """Control died here."""


class FaultyStore(MemoryStore):
    """A store whose write number `fails_at`, counted while `armed`, raises `fault`."""

    def __init__(self, fault: Exception) -> None:
        super().__init__()
        self.fault = fault
        self.fails_at: int | None = None
        self.armed = False
        self.num_writes = 0

    def put(self, key: Key, body: bytes, *, expect: int | None) -> Record:
        self._count()
        return super().put(key, body, expect=expect)

    def delete(self, key: Key, *, expect: int) -> None:
        self._count()
        super().delete(key, expect=expect)

    def _count(self) -> None:
        if not self.armed:
            return
        self.num_writes += 1
        if self.num_writes == self.fails_at:
            raise self.fault


def create(town: Town) -> None:
    town.add(endpoint(deployment(variant())), component(copies=2), adapter())


def create_model_endpoint(town: Town) -> None:
    town.add(endpoint(deployment(variant(model="m", count=2))))


def update_component(town: Town) -> None:
    found = town.component()
    town.change_component(
        status=ComponentStatus.UPDATING,
        spec=component_spec(generation=9),
        previous_spec=found.spec,
    )


def update_adapter(town: Town) -> None:
    found = town.component("spanish")
    town.change_component(
        "spanish",
        status=ComponentStatus.UPDATING,
        adapter=adapter_spec("s3://b/new.tar.gz", 9),
        previous_adapter=found.adapter,
        modified_at=town.clock.now(),
    )


def roll_component(town: Town) -> None:
    found = town.component()
    one = CapacitySize(unit=CapacityUnit.COPY_COUNT, value=1)
    town.change_component(
        status=ComponentStatus.UPDATING,
        spec=component_spec(generation=9),
        previous_spec=found.spec,
        rollout=Rollout(
            policy=RollingUpdate(max_batch=one, wait_s=1.0), started_at=town.clock.now()
        ),
    )


def create_managed(town: Town) -> None:
    scaled = variant(count=2, max_instances=4, min_instances=0, consolidate=True)
    town.add(
        endpoint(deployment(scaled)),
        component("filler", requirements=needs(3)),
        component(requirements=needs(2)),
    )


def thin_out(town: Town) -> None:
    """Reduce the load, so that the rest fits on fewer instances, and let the time to move begin."""
    for name in ("filler", "base"):
        if town.find_component(name) is not None:
            town.change_component(
                name, status=ComponentStatus.DELETING, modified_at=town.clock.now()
            )
            break
    town.turn(5, seconds=1.0)
    town.clock.advance(1200.0)


def scale_to_zero(town: Town) -> None:
    if town.component_status() is ComponentStatus.IN_SERVICE:
        town.change_component(
            status=ComponentStatus.UPDATING, desired_copies=0, modified_at=town.clock.now()
        )
    town.turn(5, seconds=1.0)
    town.clock.advance(1200.0)


def move(town: Town) -> None:
    pending = deployment(variant(instance_type="ml.small", count=2), generation=2)
    town.change_endpoint(status=EndpointStatus.UPDATING, pending=pending)


def keep(town: Town) -> None:
    pending = deployment(variant(count=2), generation=2)
    town.change_endpoint(status=EndpointStatus.UPDATING, pending=pending)


def create_wide(town: Town) -> None:
    town.add(endpoint(deployment(variant(count=3))), component(copies=3), adapter())


def shrink(town: Town) -> None:
    pending = deployment(variant(count=1), generation=2)
    town.change_endpoint(status=EndpointStatus.UPDATING, pending=pending)


def delete_components(town: Town) -> None:
    for name in ("spanish", "base", "filler"):
        if town.find_component(name) is not None:
            town.change_component(
                name, status=ComponentStatus.DELETING, modified_at=town.clock.now()
            )


def delete_endpoint(town: Town) -> None:
    town.change_endpoint(status=EndpointStatus.DELETING)


def delete_all(town: Town) -> None:
    delete_components(town)
    delete_endpoint(town)


LIVES = [
    pytest.param((create, update_component, update_adapter), id="component and adapter updates"),
    pytest.param((create, move, delete_all), id="moved to other instances and deleted"),
    pytest.param((create, keep, delete_components), id="kept by an update and deleted"),
    pytest.param((create, roll_component, update_adapter), id="a rolling update"),
    pytest.param((create_wide, shrink, delete_components), id="down to one instance"),
    pytest.param((create_managed, thin_out, scale_to_zero), id="consolidated and scaled to zero"),
    pytest.param((create, *events.ALL), id="restarted and drained"),
    pytest.param((create_model_endpoint, *events.ALL), id="restarted and drained by instances"),
    pytest.param((create_model_endpoint, *events.ON_TRIAL), id="model endpoint"),
    pytest.param((create_model_endpoint, *events.IN_STEPS), id="traffic in steps"),
    pytest.param((create_model_endpoint, *events.IN_BATCHES), id="a fleet in batches"),
]
Event = Callable[[Town], None]
Life = tuple[Event, ...]


def outcome(town: Town) -> tuple[object, ...]:
    """The parts of the final state that must not depend on faults in between."""
    statuses = [(it.value.name, it.value.status) for it in town.state.components.list()]
    route = town.find_endpoint_route()
    numbers = [] if route is None else [(it.name, len(it.copies)) for it in route.components]
    variants = [] if route is None else [(it.name, len(it.copies)) for it in route.variants]
    return (
        town.status(),
        statuses,
        numbers,
        variants,
        len(town.fleet.machines),
        len(town.running_copies()),
        len(town.state.copies.list()),
        len(town.state.instances.list()),
    )


def live(town: Town, life: Sequence[Event], store: FaultyStore) -> tuple[object, ...]:
    """Lead `life` with the store armed. Each time control is killed it starts again."""
    for event in life:
        store.armed = False
        event(town)
        store.armed = True
        for _ in range(TURNS):
            try:
                town.turn(seconds=TURN_S)
            except HostelryError:
                continue
            except Killed:
                town.restart_control()
            town.check_integrity()
    return outcome(town)


@cache
def calm_end(life: Life) -> tuple[tuple[object, ...], int]:
    """The end of a life in which nothing fails, and the number of its writes."""
    store = FaultyStore(Killed())
    with closing(Town(store=store)) as town:
        return live(town, life, store), store.num_writes


@pytest.mark.parametrize("life", LIVES)
@cases(
    "fault, first",
    case("a conflict at each write", Conflict("moved"), 1),
    case("a full disk at each write", StoreUnavailable("disk full"), 5),
    case("control killed at each write", Killed(), 9),
)
def test_a_fault_at_each_single_write_changes_nothing_in_the_end(
    life: Life, fault: Exception, first: int, pytestconfig: pytest.Config
) -> None:
    expected, num_writes = calm_end(life)
    assert num_writes > 10
    for fails_at in numbers(pytestconfig, num_writes, first):
        store = FaultyStore(fault)
        store.fails_at = fails_at
        with closing(Town(store=store)) as town:
            assert live(town, life, store) == expected, f"write {fails_at}"


class WatchedStore(MemoryStore):
    """A store that calls `after_write` after each write, as a watcher would see it."""

    def __init__(self) -> None:
        super().__init__()
        self.after_write: Callable[[], None] = lambda: None

    def put(self, key: Key, body: bytes, *, expect: int | None) -> Record:
        record = super().put(key, body, expect=expect)
        self.after_write()
        return record

    def delete(self, key: Key, *, expect: int) -> None:
        super().delete(key, expect=expect)
        self.after_write()


@cases(
    "begin, update, least",
    case("another configuration", create_model_endpoint, events.update_endpoint, 1),
    case("another one on trial", create_model_endpoint, events.bake_endpoint, 1),
    case("a canary", create_model_endpoint, events.canary_endpoint, 2),
    case("traffic in steps", create_model_endpoint, events.linear_endpoint, 2),
    case("a fleet in batches", create_model_endpoint, events.roll_endpoint, 2),
    case("an update that keeps the instances", create, keep, 4),
    case("an update that moves the copies", create, move, 4),
    case("an update to fewer instances", create_wide, shrink, 6),
    case("another specification", create, update_component, 4),
    case("a rolling update", create, roll_component, 4),
    case("another adapter", create, update_adapter, 4),
    case("a restart and a drain", create, events.restart_and_drain, 4),
    case("... by instances", create_model_endpoint, events.restart_and_drain, 2),
)
def test_between_no_two_writes_of_an_update_are_there_fewer_routes(
    begin: Event, update: Event, least: int
) -> None:
    store = WatchedStore()
    with closing(Town(store=store)) as town:
        begin(town)
        town.settle()

        def check() -> None:
            route = town.endpoint_route()
            copies = [it.copies for it in route.variants] + [it.copies for it in route.components]
            assert sum(len(it) for it in copies) >= least

        check()
        store.after_write = check
        update(town)
        town.turn(40, seconds=0.3)
        assert town.status() is EndpointStatus.IN_SERVICE


@pytest.mark.parametrize("life", LIVES)
def test_three_passes_equal_one_at_every_moment(town: Town, life: Life) -> None:
    for event in life:
        event(town)
        for _ in range(TURNS):
            town.pass_once()
            revision = town.state.store.revision()
            town.pass_once()
            town.pass_once()
            assert town.state.store.revision() == revision
            town.step_instances()
            town.clock.advance(TURN_S)


@pytest.mark.parametrize("turns", first_alone([3, 9, *range(0, 40, 6)], 2))
@pytest.mark.parametrize("life", LIVES)
def test_a_delete_at_any_moment_leaves_nothing(town: Town, life: Life, turns: int) -> None:
    life[0](town)
    town.turn(turns // 4, seconds=0.2)
    life[1](town)
    town.turn(turns, seconds=0.2)
    delete_all(town)
    town.turn(30, seconds=0.2)
    assert town.find_endpoint() is None
    assert town.state.components.list() == []
    assert town.state.instances.list() == []
    assert town.state.copies.list() == []
    assert town.fleet.machines == {}


def kill_agent(town: Town, dice: random.Random) -> None:
    if town.fleet.machines:
        town.fleet.kill_agent(dice.choice(sorted(town.fleet.machines)))


def lose_instance(town: Town, dice: random.Random) -> None:
    if town.fleet.machines:
        town.fleet.lose(dice.choice(sorted(town.fleet.machines)))


def crash_copy(town: Town, dice: random.Random) -> None:
    if town.running_copies():
        town.fleet.crash_copy(dice.choice(sorted(town.running_copies())), "crashed")


def restart_copy(town: Town, dice: random.Random) -> None:
    if town.running_copies():
        town.fleet.set_phase(dice.choice(sorted(town.running_copies())), CopyPhase.PENDING)


def restart_control(town: Town, dice: random.Random) -> None:
    town.restart_control()


def turn_slow(town: Town, dice: random.Random) -> None:
    town.switches.slow = dice.random() < 0.5


def tick(town: Town, dice: random.Random) -> None:
    town.fleet.tick()


def scale(town: Town, dice: random.Random) -> None:
    if town.component_status() is ComponentStatus.IN_SERVICE:
        town.change_component(status=ComponentStatus.UPDATING, desired_copies=dice.randint(0, 5))


def respecify(town: Town, dice: random.Random) -> None:
    found = town.find_component()
    if found is not None and found.status is ComponentStatus.IN_SERVICE:
        town.change_component(
            status=ComponentStatus.UPDATING,
            spec=component_spec(generation=town.state.store.revision() + 1),
            previous_spec=found.spec,
        )


def respecify_in_batches(town: Town, dice: random.Random) -> None:
    found = town.find_component()
    if found is not None and found.status is ComponentStatus.IN_SERVICE:
        size = CapacitySize(unit=CapacityUnit.COPY_COUNT, value=dice.randint(1, 2))
        rollback = dice.choice([None, size])
        policy = RollingUpdate(max_batch=size, wait_s=dice.choice([0.0, 5.0]))
        town.change_component(
            status=ComponentStatus.UPDATING,
            spec=component_spec(generation=town.state.store.revision() + 1),
            previous_spec=found.spec,
            rollout=Rollout(
                policy=replace(policy, rollback_batch=rollback), started_at=town.clock.now()
            ),
        )


def lose_reach(town: Town, dice: random.Random) -> None:
    hung = town.switches.hung_instances
    if hung or not town.fleet.machines:
        hung.clear()
    else:
        hung.add(dice.choice(sorted(town.fleet.machines)))


def long_wait(town: Town, dice: random.Random) -> None:
    town.clock.advance(dice.choice([60.0, 400.0, 1300.0]))


def readapt(town: Town, dice: random.Random) -> None:
    found = town.find_component("spanish")
    if found is not None and found.status is ComponentStatus.IN_SERVICE:
        town.change_component(
            "spanish",
            status=ComponentStatus.UPDATING,
            adapter=adapter_spec("s3://b/n", town.state.store.revision() + 1),
            previous_adapter=found.adapter,
            modified_at=town.clock.now(),
        )


MISFORTUNES = (
    *events.MISFORTUNES,
    kill_agent,
    lose_instance,
    crash_copy,
    restart_copy,
    restart_control,
    turn_slow,
    tick,
    scale,
    respecify,
    respecify_in_batches,
    readapt,
    lose_reach,
    long_wait,
)


@pytest.mark.parametrize("seed", first_alone(range(40), 6))
def test_random_misfortune_ends_in_peace(town: Town, seed: int) -> None:
    dice = random.Random(seed)
    town.add(
        endpoint(
            deployment(
                variant(
                    count=dice.randint(1, 2),
                    max_instances=3,
                    min_instances=dice.randint(0, 1),
                    consolidate=dice.random() < 0.5,
                )
            )
        ),
        component(copies=dice.randint(1, 4)),
        adapter(),
    )
    for _ in range(60):
        dice.choice(MISFORTUNES)(town, dice)
        town.turn(dice.randint(0, 3), seconds=dice.choice([0.1, 1.0, 5.0]))
        town.check_integrity()
    town.switches.slow = False
    town.switches.hung_instances.clear()
    for _ in range(80):
        town.fleet.tick()
        town.turn(seconds=5.0)
    assert town.status() in FINAL
    assert {it.value.status for it in town.state.components.list()} <= FINAL_COMPONENT
    recorded = {it.value.spec.id for it in town.state.copies.list()}
    assert set(town.running_copies()) == recorded
    base = town.component()
    if base.status is ComponentStatus.IN_SERVICE:
        assert len(town.routed_copies()) == min(base.desired_copies, 12)
        assert base.rollout is None
    else:
        assert recorded == set()
    delete_all(town)
    town.turn(20, seconds=1.0)
    assert town.find_endpoint() is None
    assert town.fleet.machines == {}
