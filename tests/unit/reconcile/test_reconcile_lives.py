"""Whole lives of endpoints, components and adapters on the fake fleet."""

from tests.unit.reconcile.samples import Town, adapter, component, deployment, endpoint, variant

from hostelry.domain.component import ComponentStatus
from hostelry.domain.endpoint import EndpointStatus


def test_a_model_endpoint_is_in_service_once_a_copy_on_each_instance_is_ready(town: Town) -> None:
    town.add(endpoint(deployment(variant(model="m", count=2))))
    town.switches.slow = True
    town.turn(3)
    assert town.status() is EndpointStatus.CREATING
    assert town.endpoint_route() is None
    for _ in range(5):
        town.fleet.tick()
        town.turn()
    assert town.status() is EndpointStatus.IN_SERVICE
    route = town.endpoint_route()
    assert route is not None
    assert len(route.variants[0].copies) == 2


def test_a_component_and_its_adapter_come_into_service(town: Town) -> None:
    town.add(endpoint(deployment(variant())), component(), adapter())
    town.settle()
    assert town.status() is EndpointStatus.IN_SERVICE
    assert town.component_status() is ComponentStatus.IN_SERVICE
    assert town.component_status("spanish") is ComponentStatus.IN_SERVICE
    assert town.routed_copies() == town.routed_copies("spanish") != ()
    route = town.component_route("spanish")
    assert route is not None
    assert route.adapter_id == "spanish--g1"
    assert route.serves_llm
