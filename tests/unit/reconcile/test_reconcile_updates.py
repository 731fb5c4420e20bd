"""Endpoint updates start next to the old deployment and switch. Failures restore the old one."""

import pytest
from msgspec.structs import replace
from tests.unit.reconcile.samples import (
    Town,
    component,
    component_spec,
    deployment,
    endpoint,
    needs,
    variant,
)

from hostelry.domain.component import ComponentStatus
from hostelry.domain.endpoint import EndpointStatus

UPDATING = EndpointStatus.UPDATING


def serving(town: Town, count: int = 1) -> None:
    town.add(endpoint(deployment(variant(model="m", count=count))))
    town.settle()
    assert town.status() is EndpointStatus.IN_SERVICE


def routed(town: Town) -> list[str]:
    route = town.find_endpoint_route()
    assert route is not None, "an endpoint that is updated goes on serving"
    return [it.id for it in route.variants[0].copies]


def test_the_new_configuration_takes_over_once_all_of_it_is_ready(town: Town) -> None:
    serving(town)
    old = routed(town)
    town.switches.slow = True
    pending = deployment(variant(model="m2", count=2), generation=2)
    town.change_endpoint(status=UPDATING, pending=pending)
    for _ in range(4):
        town.turn()
        assert routed(town) == old
        town.fleet.tick()
    town.switches.slow = False
    for _ in range(40):
        town.turn()
        assert routed(town), "at no instant is there nothing to route to"
        town.check_integrity()
    assert town.status() is EndpointStatus.IN_SERVICE
    assert town.endpoint.active.config.name == "config-2"
    assert town.endpoint.pending is None
    assert len(routed(town)) == 2
    assert len(town.fleet.machines) == 2
    assert not set(routed(town)) & set(old)


@pytest.mark.parametrize("late", [False, True], ids=["a copy fails", "the deadline passes"])
def test_a_new_configuration_that_does_not_come_up_is_dropped(town: Town, late: bool) -> None:
    serving(town)
    old = routed(town)
    if late:
        town.switches.slow = True
    else:
        town.switches.broken_images["bad"] = "no such model server"
    pending = deployment(variant(model="m2"), generation=2, image="bad")
    town.change_endpoint(status=UPDATING, pending=pending)
    town.turn(5)
    if late:
        assert town.status() is UPDATING
        town.clock.advance(10_000)
    town.settle()
    assert town.status() is EndpointStatus.IN_SERVICE
    assert town.endpoint.active.config.name == "config-1"
    expected = (
        "Timed out; variant AllTraffic: 0 of 1 copies ready" if late else "no such model server"
    )
    assert (town.endpoint.failure_reason or "").startswith(expected)
    assert routed(town) == old
    assert len(town.fleet.machines) == 1


def test_the_instance_count_grows_and_shrinks(town: Town) -> None:
    serving(town)
    first = routed(town)

    def resize(count: int) -> None:
        active = town.endpoint.active
        sized = replace(active.variants[0], desired_instance_count=count)
        town.change_endpoint(status=UPDATING, active=replace(active, variants=(sized,)))

    resize(3)
    town.turn()
    assert town.status() is UPDATING
    town.settle()
    assert town.status() is EndpointStatus.IN_SERVICE
    assert len(routed(town)) == len(town.fleet.machines) == 3
    resize(1)
    town.turn()
    assert len(routed(town)) == 1, "a copy that goes leaves the routes first"
    assert len(town.running_copies()) == 3, "and runs until they have spread"
    town.settle()
    assert routed(town) == first
    assert len(town.fleet.machines) == 1


def test_a_count_that_cannot_be_reached_falls_back_to_what_is_up(town: Town) -> None:
    serving(town)
    town.switches.max_instances = 2
    active = town.endpoint.active
    sized = replace(active.variants[0], desired_instance_count=4)
    town.change_endpoint(status=UPDATING, active=replace(active, variants=(sized,)))
    town.settle()
    assert town.status() is UPDATING
    town.clock.advance(10_000)
    town.settle()
    assert town.status() is EndpointStatus.IN_SERVICE
    assert town.endpoint.active.variants[0].desired_instance_count == 2
    assert "CapacityError: timed out with 2 of 4 instances" in (town.endpoint.failure_reason or "")
    assert len(routed(town)) == 2


def test_a_component_endpoint_of_the_same_instance_type_keeps_its_copies(town: Town) -> None:
    town.add(endpoint(deployment(variant())), component(copies=2))
    town.settle()
    before, started = town.routed_copies(), town.fleet.num_copies_started
    pending = deployment(variant(count=2), generation=2)
    town.change_endpoint(status=UPDATING, pending=pending)
    for _ in range(30):
        town.turn()
        assert town.routed_copies() == before
    assert town.status() is EndpointStatus.IN_SERVICE
    assert town.endpoint.active.config.name == "config-2"
    assert town.fleet.num_copies_started == started
    assert len(town.fleet.machines) == 2


def test_an_update_keeps_the_instances_that_managed_scaling_added(town: Town) -> None:
    scaled = variant(instance_type="ml.small", max_instances=3)
    town.add(endpoint(deployment(scaled)), component(copies=3))
    town.settle()
    before = town.routed_copies()
    assert len(before) == 3
    pending = deployment(variant(instance_type="ml.small", max_instances=3), generation=2)
    town.change_endpoint(status=UPDATING, pending=pending)
    for _ in range(30):
        town.turn()
        assert town.routed_copies() == before
    assert town.status() is EndpointStatus.IN_SERVICE


def test_a_component_endpoint_of_another_type_moves_its_copies_first(town: Town) -> None:
    town.add(endpoint(deployment(variant())), component(copies=2))
    town.settle()
    before = town.routed_copies()
    pending = deployment(variant(count=2, instance_type="ml.small"), generation=2)
    town.change_endpoint(status=UPDATING, pending=pending)
    for _ in range(40):
        town.turn()
        assert len(town.routed_copies()) == 2
        assert town.component_status() is ComponentStatus.IN_SERVICE
    assert town.status() is EndpointStatus.IN_SERVICE
    assert not set(town.routed_copies()) & set(before)
    assert len(town.fleet.machines) == 2


def test_a_component_that_is_being_updated_moves_too_before_its_old_copies_go(town: Town) -> None:
    town.add(endpoint(deployment(variant())), component(copies=2))
    town.settle()
    found = town.component()
    assert found.spec is not None
    spec = component_spec(needs(), "another:1", generation=9)
    pending = deployment(variant(count=2, instance_type="ml.small"), generation=2)
    town.change_component(status=ComponentStatus.UPDATING, spec=spec, previous_spec=found.spec)
    town.change_endpoint(status=UPDATING, pending=pending)
    town.fleet.switches.slow = True
    for _ in range(60):
        town.turn()
        assert len(town.routed_copies()) >= 2
    assert town.status() is UPDATING
    town.fleet.switches.slow = False
    for _ in range(60):
        town.fleet.tick()
        town.turn()
        assert len(town.routed_copies()) >= 2
    assert town.status() is EndpointStatus.IN_SERVICE
    assert town.component_status() is ComponentStatus.IN_SERVICE
    assert len(town.fleet.machines) == 2


def test_a_type_that_cannot_hold_the_components_is_given_up_at_once(town: Town) -> None:
    town.add(endpoint(deployment(variant())), component(requirements=needs(2)))
    town.settle()
    before = town.routed_copies()
    pending = deployment(variant(instance_type="ml.small"), generation=2)
    town.change_endpoint(status=UPDATING, pending=pending)
    town.settle()
    assert town.status() is EndpointStatus.IN_SERVICE
    assert town.endpoint.active.generation == 1
    assert (town.endpoint.failure_reason or "").startswith(
        "CapacityError: inference component base: a copy needs 2 accelerators"
    )
    assert town.routed_copies() == before


def test_too_few_instances_of_another_type_are_given_up_at_the_deadline(town: Town) -> None:
    town.add(endpoint(deployment(variant())), component(copies=2))
    town.settle()
    before = town.routed_copies()
    pending = deployment(variant(instance_type="ml.small"), generation=2)
    town.change_endpoint(status=UPDATING, pending=pending)
    town.settle()
    assert town.status() is UPDATING
    town.clock.advance(10_000)
    town.settle()
    assert town.status() is EndpointStatus.IN_SERVICE
    assert town.endpoint.active.generation == 1
    assert (town.endpoint.failure_reason or "").startswith(
        "CapacityError: timed out; inference component base: 1 of 2 copies"
    )
    assert town.routed_copies() == before
