"""A crash-looping copy starts on another instance."""

import dataclasses

import pytest
from msgspec.structs import replace
from tests.cases import case, cases
from tests.unit.reconcile.samples import Town, component, deployment, endpoint, needs, variant

from hostelry.domain.component import ComponentStatus
from hostelry.domain.copy import Copy, CopyPhase
from hostelry.reconcile.plan.model_copies import RETRY_S
from hostelry.reconcile.plan.moves import CRASH_LOOP_S


def serving(town: Town, *, instances: int = 2, pinned: bool = False) -> Copy:
    pinned_component = replace(component(), pinned=pinned)
    town.add(endpoint(deployment(variant(count=instances))), pinned_component)
    town.settle()
    (copy,) = town.copy_records()
    return copy


def loop(town: Town, copy: Copy, restarts: int = 5) -> None:
    """The copy's process has ended so often, and is being started once more."""
    machine = town.fleet.machines[copy.instance_id]
    machine.copies[copy.spec.id] = dataclasses.replace(
        machine.copies[copy.spec.id],
        phase=CopyPhase.UNHEALTHY,
        restarts=restarts,
        reason="The model server exited with code 7. It is started again in 32 s.",
        log_tail="RuntimeError: device 0 is gone",
    )
    town.turn(2)


@pytest.mark.parametrize("pinned", [False, True], ids=["not pinned", "pinned, which is of packing"])
def test_it_is_noted_and_moves_once_it_has_not_served_for_a_while(town: Town, pinned: bool) -> None:
    first = serving(town, pinned=pinned)
    loop(town, first)
    found = town.component()
    assert "after 5 restarts: The model server exited with code 7" in (found.placement_note or "")
    assert "device 0 is gone" in (found.placement_note or "")
    assert town.routed_copies() == ()
    town.clock.advance(CRASH_LOOP_S)
    town.settle()
    (second,) = town.copy_records()
    assert second.instance_id != first.instance_id
    assert town.routed_copies() == (second.spec.id,)
    found = town.component()
    assert found.placement_note is None
    assert second.replaces is None


@cases(
    "restarts, wait_s, instances",
    case("that was started again twice", 2, CRASH_LOOP_S, 2),
    case("that was not ready for a moment", 5, CRASH_LOOP_S / 2, 2),
    case("for which no other instance is there", 5, CRASH_LOOP_S, 1),
)
def test_a_copy_stays(town: Town, restarts: int, wait_s: float, instances: int) -> None:
    first = serving(town, instances=instances)
    loop(town, first, restarts)
    town.clock.advance(wait_s)
    town.settle()
    assert [it.spec.id for it in town.copy_records()] == [first.spec.id]


def test_one_that_serves_again_before_the_other_does_serves_until_then(town: Town) -> None:
    first = serving(town)
    loop(town, first)
    town.switches.slow = True
    town.clock.advance(CRASH_LOOP_S)
    town.turn(3)
    assert len(town.copy_records()) == 2
    town.fleet.set_phase(first.spec.id, CopyPhase.READY)
    town.turn(3)
    assert town.routed_copies() == (first.spec.id,)
    town.switches.slow = False
    for _ in range(10):
        town.fleet.tick()
        town.turn(10, seconds=0.5)
        assert len(town.routed_copies()) >= 1
    assert len(town.copy_records()) == 1
    town.check_integrity()


def test_where_the_other_fails_too_it_is_tried_again_after_a_while(town: Town) -> None:
    first = serving(town)
    loop(town, first)
    for instance in town.instance_records():
        town.switches.broken_instances[instance.id] = "no driver here either"
    town.clock.advance(CRASH_LOOP_S)
    started = town.fleet.num_copies_started
    town.turn(20, seconds=1.0)
    assert town.fleet.num_copies_started == started + 1, "no storm of attempts"
    town.turn(int(RETRY_S), seconds=1.0)
    assert town.fleet.num_copies_started == started + 2
    town.switches.broken_instances.clear()
    town.turn(60, seconds=1.0)
    (second,) = town.copy_records()
    assert second.instance_id != first.instance_id
    assert town.routed_copies() == (second.spec.id,)


def test_a_delete_meanwhile_leaves_nothing(town: Town) -> None:
    first = serving(town)
    loop(town, first)
    town.switches.slow = True
    town.clock.advance(CRASH_LOOP_S)
    town.turn(2)
    town.change_component(status=ComponentStatus.DELETING, modified_at=town.clock.now())
    town.settle()
    assert town.find_component() is None
    assert town.running_copies() == {}


def test_an_update_meanwhile_replaces_both(town: Town) -> None:
    first = serving(town)
    loop(town, first)
    town.switches.slow = True
    town.clock.advance(CRASH_LOOP_S)
    town.turn(2)
    found = town.component()
    assert found.spec is not None
    spec = replace(found.spec, generation=9, requirements=needs(2))
    town.change_component(status=ComponentStatus.UPDATING, spec=spec, previous_spec=found.spec)
    town.switches.slow = False
    for _ in range(6):
        town.fleet.tick()
        town.settle()
    (copy,) = town.copy_records()
    assert copy.generation == 9
    assert town.component_status() is ComponentStatus.IN_SERVICE
