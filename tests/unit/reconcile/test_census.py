"""The census: what serves, how much of it, and what it uses."""

from collections.abc import Iterator
from dataclasses import replace

import pytest
from tests.unit.reconcile.samples import (
    GB,
    SCOPE,
    Town,
    adapter,
    component,
    deployment,
    endpoint,
    needs,
    variant,
)

from hostelry.domain.endpoint import EndpointStatus
from hostelry.domain.load import LoadKey
from hostelry.metrics.census import Census
from hostelry.reconcile.census import take_census
from hostelry.reconcile.record import load_all

HOSTS = LoadKey(scope=SCOPE, endpoint_name="ep", variant_name="AllTraffic")
BASE = replace(HOSTS, component_name="base")
ADAPTER = replace(HOSTS, component_name="spanish")


@pytest.fixture
def town() -> Iterator[Town]:
    found = Town()
    yield found
    found.close()


def census_of(town: Town) -> Census:
    return take_census(load_all(town.state), town.facts(), 0.5)


def test_an_endpoint_for_components_has_its_copies_and_what_they_reserve(town: Town) -> None:
    town.add(endpoint(deployment(variant())), component(copies=2, requirements=needs(1, 2, 3)))
    town.add(adapter())
    town.settle()
    found = census_of(town)
    base, spanish, hosts = (
        found.components[BASE],
        found.components[ADAPTER],
        found.variants[HOSTS],
    )
    assert (base.num_copies, base.base, base.reserved.memory_bytes) == (2, None, 2 * GB)
    assert (spanish.num_copies, spanish.base) == (2, BASE)
    assert (hosts.config_name, hosts.takes_components) == ("config-1", True)
    (room,) = hosts.instances
    assert (room.shape.cpus, room.reserved.cpus, room.reserved.accelerators) == (48, 6, 2)
    assert {it.copy_id for it in base.copies} == {it.copy_id for it in hosts.copies}


def test_a_models_instances_are_those_that_serve(town: Town) -> None:
    town.add(endpoint(deployment(variant(model="m", count=3))))
    town.settle()
    found = census_of(town)
    assert len(found.variants[HOSTS].instances) == 3
    assert found.components == {}


def test_a_component_at_zero_copies_is_in_service(town: Town) -> None:
    town.add(endpoint(deployment(variant())), component(copies=1))
    town.settle()
    town.change_component(desired_copies=0)
    town.settle()
    assert census_of(town).components[BASE].num_copies == 0


def test_an_endpoint_that_leaves_is_not_in_service(town: Town) -> None:
    town.add(endpoint(deployment(variant())), component())
    town.settle()
    town.change_endpoint(status=EndpointStatus.DELETING)
    assert census_of(town) == Census(disk_use=0.5)


def test_memory_and_cpu_are_as_the_agents_told_last(town: Town) -> None:
    town.add(endpoint(deployment(variant())), component())
    town.settle()
    town.switches.memory_bytes["component/base"] = 7 * GB
    for machine in town.fleet.machines.values():
        for copy_id, status in machine.copies.items():
            machine.copies[copy_id] = replace(status, cpu_s=5.0, cpu_at=50.0)
    town.turn()
    (use,) = census_of(town).components[BASE].copies
    assert (use.memory_bytes, use.cpu_s, use.cpu_at) == (7 * GB, 5.0, 50.0)
