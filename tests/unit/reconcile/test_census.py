"""The census: everything that serves, its numbers, and its usage."""

import dataclasses
from collections.abc import Iterator

import pytest
from msgspec.structs import replace
from tests.cases import case, cases
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
from tests.unit.reconcile.test_reconcile_guards import set_alarm
from tests.unit.reconcile.test_reconcile_trials import (
    ALARM,
    served_from,
    serving,
    update,
    watched,
)

from hostelry.domain.endpoint import EndpointStatus
from hostelry.domain.load import LoadKey
from hostelry.domain.metric import MetricsConfig
from hostelry.metrics.sagemaker.census import Census
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


def test_memory_and_cpu_are_those_the_agents_reported_last(town: Town) -> None:
    town.add(endpoint(deployment(variant())), component())
    town.settle()
    town.switches.memory_bytes["component/base"] = 7 * GB
    for machine in town.fleet.machines.values():
        for copy_id, status in machine.copies.items():
            machine.copies[copy_id] = dataclasses.replace(status, cpu_s=5.0, cpu_at=50.0)
    town.turn()
    (use,) = census_of(town).components[BASE].copies
    assert (use.memory_bytes, use.cpu_s, use.cpu_at) == (7 * GB, 5.0, 50.0)


@cases(
    "asked, found",
    case("nothing is asked for", None, MetricsConfig()),
    case(
        "enhanced, each ten seconds",
        {"EnableEnhancedMetrics": True, "MetricPublishFrequencyInSeconds": 10},
        MetricsConfig(is_enhanced=True, period_s=10),
    ),
    case(
        "an old record with a period that may not be",
        {"MetricPublishFrequencyInSeconds": 0},
        MetricsConfig(),
    ),
)
def test_metrics_follow_the_configuration_in_use(
    town: Town, asked: object, found: MetricsConfig
) -> None:
    active = deployment(variant())
    config = replace(active.config, given={"MetricsConfig": asked})
    town.add(endpoint(replace(active, config=config)), component())
    town.settle()
    assert census_of(town).variants[HOSTS].metrics == found


def test_metrics_of_the_new_fleet_are_there_from_its_first_traffic_on(town: Town) -> None:
    # api.md, deployment guardrails: EndpointConfigName distinguishes the new fleet from the old one
    def config_name() -> str:
        return census_of(town).variants[HOSTS].config_name

    serving(town)
    update(town)
    assert config_name() == "config-1"
    watched(town, 40)
    assert served_from(town) == {2}
    assert config_name() == "config-2"
    set_alarm(town, ALARM)
    watched(town, 40)
    assert served_from(town) == {1}
    assert config_name() == "config-1"
