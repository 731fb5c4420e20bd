"""Random walks of many components on pools of instances, with invariants at every step."""

import random
from collections.abc import Callable

import pytest
from msgspec.structs import replace
from tests.selection import first_alone
from tests.unit.reconcile.samples import (
    GB,
    Town,
    component,
    component_spec,
    deployment,
    endpoint,
    variant,
)
from tests.unit.reconcile.test_reconcile_guards import set_alarm

from hostelry.domain.alarm import AlarmState
from hostelry.domain.component import (
    CapacitySize,
    CapacityUnit,
    ComponentSpec,
    ComponentStatus,
    InferenceComponent,
    PlacementStrategy,
    RollingUpdate,
    Rollout,
    Scheduling,
)
from hostelry.domain.copy import CopyPhase
from hostelry.domain.endpoint import EndpointStatus, UpdateGuard
from hostelry.domain.shape import Requirements
from hostelry.domain.status import is_final
from hostelry.reconcile.plan.endpoint_state import LIVE_COMPONENT

NAMES = ("alpha", "beta", "gamma", "delta")
NUM_STEPS = 40
PEACE_S = 3_000.0


def requirements(dice: random.Random) -> Requirements:
    return Requirements(
        min_memory_bytes=dice.randint(1, 6) * GB,
        cpus=dice.choice([0.25, 0.5, 1.0]),
        accelerators=dice.choice([0, 0, 1]),
    )


def spec(dice: random.Random, generation: int) -> ComponentSpec:
    strategy = dice.choice(list(PlacementStrategy))
    balance = dice.choice([None, 0, 1])
    return replace(
        component_spec(requirements(dice), f"image:{generation}", generation),
        scheduling=Scheduling(strategy=strategy, max_imbalance=balance),
    )


def found(town: Town, dice: random.Random) -> tuple[str, InferenceComponent | None]:
    name = dice.choice(NAMES)
    return name, town.find_component(name)


def create_or_delete(town: Town, dice: random.Random) -> None:
    name, one = found(town, dice)
    if one is None:
        new = component(name, copies=dice.randint(0, 3))
        town.add(replace(new, spec=spec(dice, 1), pinned=dice.random() < 0.2))
    elif dice.random() < 0.3:
        town.change_component(
            name, status=ComponentStatus.DELETING, modified_at=town.clock.now(), deadline_at=None
        )


def scale(town: Town, dice: random.Random) -> None:
    name, one = found(town, dice)
    if one is not None and one.status is ComponentStatus.IN_SERVICE:
        town.change_component(
            name,
            status=ComponentStatus.UPDATING,
            desired_copies=dice.randint(0, 4),
            modified_at=town.clock.now(),
        )


def roll(town: Town, dice: random.Random) -> None:
    name, one = found(town, dice)
    if one is None or one.status is not ComponentStatus.IN_SERVICE:
        return
    policy = RollingUpdate(
        max_batch=CapacitySize(unit=CapacityUnit.CAPACITY_PERCENT, value=dice.choice([5, 50])),
        wait_s=dice.choice([0.0, 10.0]),
    )
    town.change_component(
        name,
        status=ComponentStatus.UPDATING,
        spec=spec(dice, town.state.store.revision() + 1),
        previous_spec=one.spec,
        rollout=Rollout(policy=policy, started_at=town.clock.now()),
        modified_at=town.clock.now(),
    )


def wait(town: Town, dice: random.Random) -> None:
    town.clock.advance(dice.choice([10.0, 310.0, 1300.0]))


def turn_capacity(town: Town, dice: random.Random) -> None:
    lacks = town.switches.no_capacity
    if lacks:
        lacks.clear()
    else:
        lacks[dice.choice(["ml.small", "ml.big"])] = "all are taken"


def turn_connections(town: Town, dice: random.Random) -> None:
    for copy_id in town.running_copies():
        town.switches.open_connections[copy_id] = dice.choice([0, 0, 1])
    town.fleet.tick()


CALM: tuple[Callable[[Town, random.Random], None], ...] = (
    create_or_delete,
    create_or_delete,
    scale,
    roll,
    wait,
    turn_capacity,
    turn_connections,
)


def update_on_trial(town: Town, dice: random.Random) -> None:
    """Another configuration of the endpoint, that an alarm guards."""
    one = town.find_endpoint()
    if one is None or one.status is not EndpointStatus.IN_SERVICE:
        return
    generation = town.state.store.revision() + 1
    guard = UpdateGuard(bake_s=dice.choice([0.0, 5.0, 600.0]), alarm_names=("errors",))
    pending = deployment(one.active.config.variants[0], generation=generation)
    pending = replace(pending, guard=guard, started_at=town.clock.now())
    town.change_endpoint(status=EndpointStatus.UPDATING, pending=pending, deadline_at=None)


def turn_alarm(town: Town, dice: random.Random) -> None:
    set_alarm(town, dice.choice([AlarmState.OK, AlarmState.OK, AlarmState.ALARM]))


def break_and_mend(town: Town, dice: random.Random) -> None:
    """A copy is unhealthy, and those that were before are well again."""
    for copy_id, status in town.running_copies().items():
        if status.phase is CopyPhase.UNHEALTHY:
            town.fleet.set_phase(copy_id, CopyPhase.READY)
    ready = [it for it, status in town.running_copies().items() if status.phase is CopyPhase.READY]
    if ready:
        town.fleet.set_phase(dice.choice(sorted(ready)), CopyPhase.UNHEALTHY)


TRIALS = (*CALM, update_on_trial, update_on_trial, turn_alarm, break_and_mend)


def ready_of(town: Town, name: str) -> int:
    return len(town.routed_copies(name))


class Floors:
    """The fewest copies that must serve of each component that rolls, from when it began to."""

    def __init__(self) -> None:
        self._floors: dict[str, int] = {}

    def look(self, town: Town) -> None:
        for name in NAMES:
            one = town.find_component(name)
            if one is None or one.rollout is None or one.status is not ComponentStatus.UPDATING:
                self._floors.pop(name, None)
                continue
            batch = one.rollout.policy.max_batch.copies(one.desired_copies)
            began_with = self._floors.setdefault(name, ready_of(town, name))
            floor = min(began_with, one.desired_copies - batch)
            assert ready_of(town, name) >= floor, f"{name}: more than a batch is missing"


class Changes:
    """Compares serving copies while an endpoint changes its deployment: never fewer than before."""

    def __init__(self) -> None:
        self.num_seen = 0
        self._generation = 0
        self._served: dict[str, tuple[str, ...]] = {}
        self._late_at: float | None = None

    def look(self, town: Town) -> None:
        generation = town.endpoint.active.generation
        if self._generation not in (0, generation):
            self.num_seen += 1
            if self._late_at is None or town.clock.now() < self._late_at:
                self._check(town)
        self._generation = generation
        self._served = {name: town.routed_copies(name) for name in NAMES}
        bake = town.endpoint.bake
        is_returning = bake is not None and bake.failure is not None
        self._late_at = town.endpoint.deadline_at if is_returning else None

    def _check(self, town: Town) -> None:
        running = town.running_copies()
        for name, before in self._served.items():
            one = town.find_component(name)
            well = [it for it in before if running[it].phase is CopyPhase.READY]
            if one is not None and one.status in LIVE_COMPONENT:
                assert ready_of(town, name) >= min(one.desired_copies, len(well)), name


@pytest.mark.parametrize("seed", first_alone(range(10), 2))
def test_what_holds_at_every_step_of_a_walk_with_trials(town: Town, seed: int) -> None:
    dice = random.Random(seed)
    scaled = variant(
        pools=dice.choice([("ml.big",), ("ml.small", "ml.big")]), max_instances=dice.randint(2, 5)
    )
    town.add(endpoint(deployment(scaled)))
    set_alarm(town, AlarmState.OK)
    town.settle()
    changes = Changes()
    for step in range(5 * NUM_STEPS):
        if step >= NUM_STEPS and changes.num_seen >= 2:
            break
        dice.choice(TRIALS)(town, dice)
        for _ in range(dice.randint(1, 6)):
            town.pass_once()
            changes.look(town)
            town.step_instances()
            changes.look(town)
            town.clock.advance(dice.choice([0.5, 2.0]))
            town.check_integrity()
            check_deadlines(town)
    assert changes.num_seen >= 2
    set_alarm(town, AlarmState.OK)
    for copy_id in town.running_copies():
        town.fleet.set_phase(copy_id, CopyPhase.READY)
    end_in_peace(town)


@pytest.mark.parametrize("seed", first_alone(range(20), 3))
def test_what_holds_at_every_step_of_a_calm_walk(town: Town, seed: int) -> None:
    dice = random.Random(seed)
    scaled = variant(
        pools=dice.choice([("ml.big",), ("ml.small", "ml.big"), ("ml.big", "ml.small")]),
        count=dice.randint(1, 2),
        max_instances=dice.randint(2, 5),
        min_instances=dice.randint(0, 1),
        consolidate=dice.random() < 0.5,
    )
    town.add(endpoint(deployment(scaled)))
    town.settle()
    floors = Floors()
    for _ in range(NUM_STEPS):
        dice.choice(CALM)(town, dice)
        for _ in range(dice.randint(1, 6)):
            town.pass_once()
            revision = town.state.store.revision()
            town.pass_once()
            assert town.state.store.revision() == revision, "planned again, nothing changes"
            town.step_instances()
            town.clock.advance(dice.choice([0.5, 2.0]))
            town.check_integrity()
            check_deadlines(town)
            floors.look(town)
    end_in_peace(town)


def check_deadlines(town: Town) -> None:
    records = [town.find_endpoint(), *(town.find_component(name) for name in NAMES)]
    for record in records:
        if record is not None:
            assert (record.deadline_at is None) is is_final(record.status), record


def end_in_peace(town: Town) -> None:
    """Everything desired that fits serves, and nothing else runs. Then all of it is deleted."""
    town.switches.no_capacity.clear()
    town.switches.open_connections.clear()
    for _ in range(12):
        town.clock.advance(PEACE_S / 6)
        town.fleet.tick()
        town.turn(12, seconds=0.5)
        town.check_integrity()
    for name in NAMES:
        one = town.find_component(name)
        if one is None:
            continue
        assert is_final(one.status)
        assert one.rollout is None
        if one.status is ComponentStatus.IN_SERVICE and one.placement_note is None:
            assert ready_of(town, name) == one.desired_copies
        town.change_component(
            name, status=ComponentStatus.DELETING, modified_at=town.clock.now(), deadline_at=None
        )
    town.settle()
    assert town.running_copies() == {}
    assert town.state.copies.list() == []
    assert town.state.components.list() == []
