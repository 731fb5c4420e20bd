"""Base components: placement, capacity, scaling, updates and their rollback, deletes."""

import pytest
from msgspec.structs import replace
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

from hostelry.domain.component import ComponentStatus
from hostelry.domain.copy import CopyPhase
from hostelry.domain.endpoint import EndpointStatus

IN_SERVICE = ComponentStatus.IN_SERVICE
UPDATING = ComponentStatus.UPDATING


def reason(town: Town, name: str = "base") -> str:
    found = town.component(name)
    return found.failure_reason or ""


def update(town: Town, *, image: str | None = None, accelerators: float = 1) -> None:
    """A new specification, as UpdateInferenceComponent records it."""
    found = town.component()
    assert found.spec is not None
    spec = component_spec(
        needs(accelerators), image or found.spec.container.image, found.spec.generation + 7
    )
    town.change_component(status=UPDATING, spec=spec, previous_spec=found.spec)


def generations(town: Town) -> set[int]:
    routed = set(town.routed_copies())
    copies = [it.value for it in town.state.copies.list()]
    return {it.generation for it in copies if it.spec.id in routed}


def test_traffic_goes_to_the_copies_that_are_up_while_others_start(town: Town) -> None:
    town.switches.slow = True
    town.add(endpoint(deployment(variant())), component(copies=2))
    town.turn(3)
    first, _ = sorted(town.running_copies())
    town.fleet.set_phase(first, CopyPhase.PROVING)
    town.turn(2)
    assert town.routed_copies() == ()
    town.fleet.tick()
    town.fleet.set_phase(first, CopyPhase.READY)
    town.turn(2)
    assert town.routed_copies() == (first,)
    assert town.component_status() is ComponentStatus.CREATING


def test_a_copy_that_can_never_fit_fails_at_once(town: Town) -> None:
    town.add(
        endpoint(deployment(variant(instance_type="ml.small", max_instances=5))),
        component(requirements=needs(2)),
    )
    town.turn(3)
    assert town.component_status() is ComponentStatus.FAILED
    assert reason(town) == (
        "CapacityError: a copy needs 2 accelerators, 1024 MB and 1 CPU; "
        "an empty ml.small has 1 accelerator, 16384 MB and 4 CPUs"
    )
    town.settle()
    assert len(town.fleet.machines) == 1, "no instance is added for what can never fit"


def test_partial_placement_serves_and_fails_with_a_capacity_error_at_the_deadline(
    town: Town,
) -> None:
    town.add(endpoint(deployment(variant(instance_type="ml.small"))), component(copies=2))
    town.settle()
    assert town.component_status() is ComponentStatus.CREATING
    assert len(town.routed_copies()) == 1
    town.clock.advance(10_000)
    town.turn()
    assert town.component_status() is ComponentStatus.FAILED
    assert reason(town).startswith(
        "CapacityError: a copy needs 1 accelerator, 1024 MB and 1 CPU; no accelerator is free on i-"
    )
    assert "1 of 2 copies ready" in reason(town)
    town.settle()
    assert town.running_copies() == {}


def test_managed_scaling_adds_instances_up_to_its_bound_and_never_beyond(town: Town) -> None:
    scaled = variant(instance_type="ml.small", max_instances=3)
    town.add(endpoint(deployment(scaled)), component(copies=2))
    town.settle()
    assert town.component_status() is IN_SERVICE
    assert len(town.fleet.machines) == 2
    assert town.endpoint.active.variants[0].desired_instance_count == 2
    town.change_component(status=UPDATING, desired_copies=5)
    town.settle()
    assert len(town.fleet.machines) == 3
    assert len(town.routed_copies()) == 3
    assert town.component_status() is UPDATING
    town.clock.advance(10_000)
    town.settle()
    assert town.component_status() is IN_SERVICE
    assert reason(town).startswith("CapacityError: ")
    assert len(town.routed_copies()) == 3
    town.check_integrity()


def test_managed_scaling_adds_as_many_instances_as_are_needed_and_no_more(town: Town) -> None:
    town.add(
        endpoint(deployment(variant(max_instances=100))),
        component(copies=210),
        component("other", copies=2),
    )
    town.settle()
    assert len(town.fleet.machines) == 53
    assert len(town.routed_copies()) == 210
    assert town.component_status("other") is IN_SERVICE
    town.check_integrity()


def test_copies_scale_out_and_in(town: Town) -> None:
    town.add(endpoint(deployment(variant())), component(copies=1))
    town.settle()
    (first,) = town.routed_copies()
    town.change_component(status=UPDATING, desired_copies=4)
    town.settle()
    assert len(town.routed_copies()) == 4
    assert first in town.routed_copies(), "nothing moves without need"
    town.change_component(status=UPDATING, desired_copies=2)
    town.turn()
    assert len(town.routed_copies()) == 2
    assert len(town.running_copies()) == 4, "copies drain before they stop"
    town.settle()
    assert len(town.running_copies()) == 2
    assert first in town.routed_copies()
    town.change_component(status=UPDATING, desired_copies=0)
    town.settle()
    assert town.component_status() is IN_SERVICE
    assert town.routed_copies() == ()
    assert town.find_component_route() is not None


@pytest.mark.parametrize("takes_s", [0, 45], ids=["at once", "after the pause between tries"])
def test_a_failed_copy_fails_the_creation_with_its_reason(town: Town, takes_s: int) -> None:
    town.switches.broken_images["bad"] = 'No rule for the image "bad".'
    town.switches.slow = takes_s > 0
    town.add(endpoint(deployment(variant())), component(image="bad", copies=2))
    town.turn(takes_s, seconds=1.0)
    for _ in range(3):
        town.fleet.tick()
        town.turn()
    town.switches.slow = False
    assert town.component_status() is ComponentStatus.FAILED
    assert reason(town) == (
        'No rule for the image "bad". See the log stream AllTraffic/i-001/c-002 of group '
        "/aws/sagemaker/InferenceComponents/base."
    )
    town.settle()
    assert town.running_copies() == {}
    assert town.status() is EndpointStatus.IN_SERVICE


def test_an_update_starts_before_it_stops_where_both_fit(town: Town) -> None:
    town.add(endpoint(deployment(variant())), component(copies=2), adapter())
    town.settle()
    update(town)
    seen: list[set[int]] = []
    for _ in range(60):
        town.turn()
        assert len(town.routed_copies()) >= 2
        assert len(town.routed_copies("spanish")) >= 2
        seen.append(generations(town))
        town.check_integrity()
    assert seen[-1] == {8}
    assert town.component_status() is IN_SERVICE
    assert len(town.running_copies()) == 2
    found = town.component()
    assert found.previous_spec is None


def test_an_update_stops_as_many_old_copies_as_needed_where_both_do_not_fit(town: Town) -> None:
    town.add(endpoint(deployment(variant())), component(copies=4))
    town.settle()
    update(town)
    least = 4
    for _ in range(150):
        town.turn()
        least = min(least, len(town.routed_copies()))
        town.check_integrity()
    assert least == 3, "one at a time"
    assert generations(town) == {8}
    assert town.component_status() is IN_SERVICE
    assert len(town.running_copies()) == 4


@pytest.mark.parametrize("copies", [2, 4], ids=["beside the old", "in place of the old"])
@pytest.mark.parametrize("late", [False, True], ids=["a copy fails", "the deadline passes"])
def test_a_failed_update_rolls_back_and_keeps_the_reason(
    town: Town, copies: int, late: bool
) -> None:
    town.add(endpoint(deployment(variant())), component(copies=copies))
    town.settle()
    if late:
        town.switches.slow = True
    town.switches.broken_images["bad"] = "cannot read the weights"
    update(town, image="bad")
    town.turn(40)
    if late:
        assert town.component_status() is UPDATING
        town.clock.advance(10_000)
        town.turn()
        town.switches.slow = False
    town.settle()
    assert town.component_status() is IN_SERVICE
    assert reason(town).startswith("Timed out" if late else "cannot read the weights")
    assert generations(town) == {1}
    assert len(town.routed_copies()) == len(town.running_copies()) == copies


def test_an_update_to_what_can_never_fit_is_rolled_back_before_anything_stops(town: Town) -> None:
    town.add(endpoint(deployment(variant())), component(copies=4))
    town.settle()
    before = town.routed_copies()
    update(town, accelerators=5)
    town.turn(2)
    assert town.component_status() is IN_SERVICE
    assert reason(town).startswith("CapacityError: a copy needs 5 accelerators")
    town.settle()
    assert town.routed_copies() == before


@pytest.mark.parametrize("turns", range(8))
def test_a_delete_works_at_any_moment_of_a_creation(town: Town, turns: int) -> None:
    town.switches.slow = True
    town.add(endpoint(deployment(variant())), component(copies=2), adapter())
    for _ in range(turns):
        town.turn()
        town.fleet.tick()
    for name in ("base", "spanish"):
        town.change_component(name, status=ComponentStatus.DELETING, modified_at=town.clock.now())
    town.pass_once()
    assert town.routed_copies() == ()
    town.switches.slow = False
    town.settle()
    assert town.find_component() is None
    assert town.find_component("spanish") is None
    assert town.running_copies() == {}
    assert town.state.copies.list() == []
    assert town.status() is EndpointStatus.IN_SERVICE


def test_a_delete_drains_for_two_seconds_and_is_done_within_three(town: Town) -> None:
    town.add(endpoint(deployment(variant())), component())
    town.settle()
    town.change_component(status=ComponentStatus.DELETING)
    town.turn(seconds=1.0)
    assert len(town.running_copies()) == 1
    assert town.find_component_route() is None
    town.turn(3, seconds=1.0)
    assert town.running_copies() == {}
    assert town.find_component() is None


def test_a_delete_does_not_wait_for_an_agent_that_is_out_of_reach(town: Town) -> None:
    town.add(endpoint(deployment(variant())), component())
    town.settle()
    town.switches.hang = True
    town.change_component(status=ComponentStatus.DELETING)
    town.turn(5, seconds=4.0)
    assert town.find_component() is None
    town.switches.hang = False
    town.settle()
    assert town.running_copies() == {}, "the agent stops them once it answers again"


def test_a_component_on_an_endpoint_that_failed_or_went_fails_and_can_be_deleted(
    town: Town,
) -> None:
    town.switches.max_instances = 0
    town.add(endpoint(deployment(variant())), component(), adapter())
    town.turn(2)
    town.change_endpoint(status=EndpointStatus.FAILED)
    town.turn(2)
    assert reason(town) == "Endpoint ep is Failed."
    assert reason(town, "spanish") == "Base inference component base is Failed."
    town.change_endpoint(status=EndpointStatus.DELETING)
    town.settle()
    assert town.find_endpoint() is None
    for name in ("spanish", "base"):
        town.change_component(name, status=ComponentStatus.DELETING)
    town.settle()
    assert town.state.components.list() == []


def test_the_tags_of_what_is_gone_are_gone(town: Town) -> None:
    town.add(endpoint(deployment(variant())), component())
    found = town.component()
    town.add_tags(found.arn, {"team": "a"})
    town.settle()
    town.change_component(status=ComponentStatus.DELETING)
    town.settle()
    assert town.state.tags.list() == []


def test_two_components_share_an_instance_and_stay_where_they_are(town: Town) -> None:
    town.add(
        endpoint(deployment(variant(count=2))),
        component(copies=2),
        replace(component("other", copies=3), desired_copies=3),
    )
    town.settle()
    before = town.routed_copies(), town.routed_copies("other")
    assert [len(it) for it in before] == [2, 3]
    town.restart_control()
    town.settle()
    assert (town.routed_copies(), town.routed_copies("other")) == before
    town.check_integrity()
