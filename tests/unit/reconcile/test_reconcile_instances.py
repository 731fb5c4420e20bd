"""Instances follow copies: out at once, in after a while, from the first pool available."""

import pytest
from msgspec.structs import replace
from tests.cases import case, cases
from tests.unit.reconcile.samples import (
    GB,
    Town,
    component,
    deployment,
    endpoint,
    needs,
    variant,
)

from hostelry.base.errors import TerminalError
from hostelry.domain.component import ComponentStatus
from hostelry.domain.copy import CopyPhase, InstanceState
from hostelry.domain.endpoint import EndpointStatus
from hostelry.reconcile.plan.scale_in import IDLE_S

IN_SERVICE = EndpointStatus.IN_SERVICE
UPDATING = ComponentStatus.UPDATING
COOLDOWN_S = 1200.0


def scale(town: Town, copies: int, name: str = "base") -> None:
    town.change_component(
        name, status=UPDATING, desired_copies=copies, modified_at=town.clock.now()
    )


def types(town: Town) -> list[str]:
    return sorted(it.instance_type for it in town.instance_records())


def test_new_instances_go_to_the_zones_in_turn(town: Town) -> None:
    town.add(endpoint(deployment(variant(count=5))))
    town.settle()
    zones = [it.zone[-1] for it in town.instance_records()]
    assert sorted(zones) == ["a", "a", "b", "b", "c"]
    assert {it.zone[:-1] for it in town.instance_records()} == {"us-west-2"}


def test_an_endpoint_is_updating_while_its_instances_come_and_serves_on(town: Town) -> None:
    town.add(endpoint(deployment(variant(instance_type="ml.small", max_instances=4))), component())
    town.settle()
    town.switches.hang = True
    scale(town, 3)
    town.turn(2)
    assert town.status() is EndpointStatus.UPDATING
    assert town.endpoint.deadline_at is not None
    assert len(town.routed_copies()) == 1
    town.switches.hang = False
    town.settle()
    assert town.status() is IN_SERVICE
    assert len(town.routed_copies()) == len(town.instance_records()) == 3


def test_to_zero_and_back(town: Town) -> None:
    scaled = variant(instance_type="ml.small", max_instances=2, min_instances=0)
    town.add(endpoint(deployment(scaled)), component())
    town.settle()
    scale(town, 0)
    town.settle()
    assert len(town.instance_records()) == 1, "it stays a while: copies may come back"
    town.clock.advance(IDLE_S)
    town.settle()
    assert town.fleet.machines == {}
    assert town.status() is IN_SERVICE
    assert town.component_status() is ComponentStatus.IN_SERVICE
    route = town.component_route()
    assert (route.copies, route.desired_copies) == ((), 0)
    scale(town, 2)
    town.settle()
    assert len(town.routed_copies()) == len(town.fleet.machines) == 2
    assert town.status() is IN_SERVICE


@cases("least, left", case("the minimum", 1, 1), case("no fewer", 3, 3))
def test_idle_instances_go_down_to_the_minimum(town: Town, least: int, left: int) -> None:
    scaled = variant(instance_type="ml.small", max_instances=5, min_instances=least)
    town.add(endpoint(deployment(scaled)), component(copies=5))
    town.settle()
    assert len(town.instance_records()) == 5
    scale(town, 1)
    town.turn(2)
    kept = town.routed_copies()
    town.settle()
    town.clock.advance(IDLE_S)
    town.settle()
    assert len(town.fleet.machines) == left
    assert town.routed_copies() == kept, "the copy that serves is not moved"
    assert town.endpoint.active.variants[0].desired_instance_count == left


def test_an_operator_s_pace_shortens_the_wait(town: Town) -> None:
    town.pace = 60.0
    town.add(endpoint(deployment(variant(count=1, max_instances=2, min_instances=0))))
    town.settle()
    town.clock.advance(IDLE_S / 60)
    town.settle()
    assert town.fleet.machines == {}


def test_without_managed_scaling_instances_stay(town: Town) -> None:
    town.add(endpoint(deployment(variant(count=2))))
    town.settle()
    town.clock.advance(10 * IDLE_S)
    town.settle()
    assert len(town.fleet.machines) == 2
    assert all(it.idle_since is None for it in town.instance_records())


def test_a_type_without_capacity_is_passed_over_for_a_while(town: Town) -> None:
    town.switches.no_capacity["ml.small"] = "all ml.small are taken"
    pools = variant(pools=["ml.small", "ml.big"], max_instances=3)
    town.add(endpoint(deployment(pools)), component())
    town.settle()
    assert types(town) == ["ml.big"]
    assert town.status() is IN_SERVICE
    assert town.component_status() is ComponentStatus.IN_SERVICE
    (passed,) = town.endpoint.active.variants[0].passed_over
    assert (passed.instance_type, passed.problem) == ("ml.small", "all ml.small are taken")
    scale(town, 5)
    town.settle()
    assert types(town) == ["ml.big", "ml.big"]
    town.switches.no_capacity.clear()
    town.clock.advance(400)
    scale(town, 9)
    town.settle()
    assert types(town) == ["ml.big", "ml.big", "ml.small"]
    town.check_integrity()


def test_a_type_whose_instances_do_not_come_up_in_time_is_passed_over(town: Town) -> None:
    town.add(endpoint(deployment(variant(pools=["ml.small", "ml.big"], max_instances=3))))
    town.switches.hang = True
    town.turn(3)
    assert types(town) == ["ml.small"]
    town.clock.advance(600)
    town.turn(1)
    assert types(town) == ["ml.big"]
    town.switches.hang = False
    town.settle()
    assert types(town) == ["ml.big"]
    assert town.status() is IN_SERVICE


def test_a_pace_makes_no_machine_start_faster(town: Town) -> None:
    town.pace = 600.0
    town.add(endpoint(deployment(variant(pools=["ml.small", "ml.big"], max_instances=3))))
    town.switches.hang = True
    town.turn(3)
    town.clock.advance(50)
    town.turn(1)
    assert types(town) == ["ml.small"]
    town.clock.advance(10)
    town.turn(1)
    assert types(town) == ["ml.big"]


def test_where_no_type_has_capacity_the_last_is_tried_on(town: Town) -> None:
    town.switches.no_capacity = {"ml.small": "no small", "ml.big": "no big"}
    town.add(endpoint(deployment(variant(pools=["ml.small", "ml.big"], max_instances=3))))
    town.settle()
    seen = len(town.state.instances.list())
    before = town.instance_records()
    town.settle()
    assert seen == 1
    assert town.instance_records() == before
    town.switches.no_capacity.clear()
    town.settle()
    assert town.status() is IN_SERVICE


def test_a_type_that_cannot_start_is_passed_over_and_fails_where_it_is_the_only_one(
    town: Town,
) -> None:
    town.add(endpoint(deployment(variant(pools=["ml.small", "ml.big"]))))
    town.switches.launch_error = TerminalError("no driver")
    town.turn(6)
    assert town.status() is EndpointStatus.FAILED
    assert "no driver" in (town.endpoint.failure_reason or "")


def half_empty(town: Town) -> None:
    """Two instances, a copy of "other" on one and one of "base" on the other."""
    scaled = variant(max_instances=4, count=2, consolidate=True)
    town.add(
        endpoint(deployment(scaled)),
        component("a filler", requirements=needs(3)),
        component("base", requirements=needs(2)),
        component("other", requirements=needs(1)),
    )
    town.settle()
    town.change_component("a filler", status=ComponentStatus.DELETING)
    town.settle()
    assert len({it.value.instance_id for it in town.state.copies.list()}) == 2


def test_consolidation_moves_copies_before_it_stops_them(town: Town) -> None:
    half_empty(town)
    town.clock.advance(COOLDOWN_S)
    for _ in range(60):
        town.turn(seconds=0.2)
        assert len(town.routed_copies()) >= 1
        assert len(town.routed_copies("other")) >= 1
        town.check_integrity()
    assert len(town.fleet.machines) == 1
    assert len(town.running_copies()) == 2
    assert town.status() is IN_SERVICE
    assert {it.replaces for it in town.copy_records() + town.copy_records("other")} == {None}


@pytest.mark.parametrize(("small", "large"), [("base", "other"), ("other", "base")])
def test_the_copy_that_moves_is_the_one_seen_to_hold_less_memory(
    town: Town, small: str, large: str
) -> None:
    half_empty(town)
    town.switches.memory_bytes = {f"component/{small}": GB, f"component/{large}": 5 * GB}
    for machine in town.fleet.machines.values():
        town.fleet.measure(machine)
    town.turn(2)
    stays = town.routed_copies(large)
    town.clock.advance(COOLDOWN_S)
    town.settle()
    assert len(town.fleet.machines) == 1
    assert town.routed_copies(large) == stays


def test_nothing_moves_before_the_cooldown_is_over_or_while_something_is_updated(
    town: Town,
) -> None:
    half_empty(town)
    town.clock.advance(COOLDOWN_S - 60)
    town.settle()
    assert len(town.copy_records()) == 1
    town.switches.slow = True
    scale(town, 2, "other")
    town.clock.advance(COOLDOWN_S)
    town.settle()
    assert len(town.copy_records()) == 1
    assert len(town.fleet.machines) == 2


def test_pinned_components_keep_their_instances(town: Town) -> None:
    scaled = variant(max_instances=4, count=2, consolidate=True)
    pinned = replace(component(copies=2), pinned=True)
    town.add(endpoint(deployment(scaled)), pinned)
    town.settle()
    before = {it.instance_id for it in town.copy_records()}
    assert len(before) == 2
    town.clock.advance(COOLDOWN_S)
    town.settle()
    assert {it.instance_id for it in town.copy_records()} == before


def test_a_move_whose_new_copy_fails_is_given_up_until_the_cooldown_is_over(town: Town) -> None:
    half_empty(town)
    before = (town.routed_copies(), town.routed_copies("other"))
    for instance in town.instance_records():
        town.switches.broken_instances[instance.id] = "no room in its page cache"
    town.clock.advance(COOLDOWN_S)
    started = town.fleet.num_copies_started
    town.settle()
    assert town.fleet.num_copies_started == started + 1
    assert (town.routed_copies(), town.routed_copies("other")) == before
    assert len(town.running_copies()) == 2
    town.settle()
    assert town.fleet.num_copies_started == started + 1
    town.switches.broken_instances.clear()
    town.clock.advance(COOLDOWN_S)
    town.settle()
    assert len(town.fleet.machines) == 1


@pytest.mark.parametrize("moment", range(6))
def test_a_delete_in_the_middle_of_a_move_leaves_nothing(town: Town, moment: int) -> None:
    half_empty(town)
    town.clock.advance(COOLDOWN_S)
    town.turn(moment, seconds=1.0)
    town.change_component(status=ComponentStatus.DELETING, modified_at=town.clock.now())
    town.turn(moment, seconds=1.0)
    town.check_integrity()
    town.settle()
    assert town.find_component() is None
    assert len(town.routed_copies("other")) == 1
    assert len(town.running_copies()) == 1


def test_copies_on_an_instance_out_of_reach_are_replaced_and_its_surplus_goes_when_it_is_back(
    town: Town,
) -> None:
    town.add(endpoint(deployment(variant(count=2))), component(copies=2, requirements=needs(4)))
    town.settle()
    town.change_component(desired_copies=1, status=UPDATING)
    town.settle()
    (kept,) = town.copy_records()
    town.switches.hung_instances.add(kept.instance_id)
    town.settle()
    assert town.routed_copies() == (kept.spec.id,), "it may serve on: only its agent is silent"
    town.clock.advance(60)
    town.settle()
    (after,) = town.routed_copies()
    assert after != kept.spec.id
    town.switches.hung_instances.clear()
    town.settle()
    assert town.routed_copies() == (after,)
    assert list(town.running_copies()) == [after]


def test_copies_on_the_only_instance_out_of_reach_have_its_silence_as_their_reason(
    town: Town,
) -> None:
    town.add(endpoint(deployment(variant(count=1))), component())
    town.settle()
    (copy,) = town.copy_records()
    town.switches.hung_instances.add(copy.instance_id)
    town.settle()
    town.clock.advance(60)
    town.turn(2)
    found = town.component()
    assert f"instance {copy.instance_id} is lost: " in (found.placement_note or "")
    assert "there is no instance" not in (found.placement_note or "")
    town.switches.hung_instances.clear()
    town.settle()
    found = town.component()
    assert found.placement_note is None


def test_what_follows_a_failed_copy_is_tried_on_another_instance(town: Town) -> None:
    town.add(endpoint(deployment(variant(count=2))), component())
    town.settle()
    (first,) = town.copy_records()
    town.switches.broken_instances[first.instance_id] = "its disk is read-only"
    town.fleet.crash_copy(first.spec.id, "its disk is read-only", "OSError: [Errno 30]")
    town.turn(2)
    found = town.component()
    assert "its disk is read-only" in (found.placement_note or "")
    assert "Errno 30" in (found.placement_note or "")
    town.clock.advance(40)
    town.settle()
    (second,) = town.copy_records()
    assert second.instance_id != first.instance_id
    assert second.status.phase is CopyPhase.READY
    found = town.component()
    assert found.placement_note is None


def test_a_component_notes_why_some_of_its_copies_have_no_place(town: Town) -> None:
    town.add(endpoint(deployment(variant(instance_type="ml.small"))), component(copies=3))
    town.settle()
    found = town.component()
    assert len(town.routed_copies()) == 1
    assert "a copy needs 1 accelerator" in (found.placement_note or "")
    town.change_component(desired_copies=1)
    town.settle()
    found = town.component()
    assert found.placement_note is None


def test_instances_that_are_launched_are_not_idle_for_ever(town: Town) -> None:
    scaled = variant(instance_type="ml.small", max_instances=3, min_instances=0)
    town.add(endpoint(deployment(scaled)))
    town.settle()
    town.switches.max_instances = 1
    town.add(component(copies=3))
    town.turn(5)
    town.change_component(status=ComponentStatus.DELETING, modified_at=town.clock.now())
    town.settle()
    town.clock.advance(IDLE_S)
    town.settle()
    town.clock.advance(2_000)
    town.settle()
    town.clock.advance(2_000)
    town.settle()
    assert [state for _, state in town.instances() if state is InstanceState.LAUNCHING] == []
    assert town.status() is IN_SERVICE
