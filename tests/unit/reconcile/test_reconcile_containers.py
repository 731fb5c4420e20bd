"""Models with several containers: every instance has a copy of each, and routes follow."""

import pytest
from msgspec.structs import replace
from tests.cases import case, cases
from tests.unit.reconcile.samples import Town, deployment, endpoint, model, variant

from hostelry.domain.copy import CopyPhase
from hostelry.domain.endpoint import Deployment, EndpointStatus, UpdateGuard
from hostelry.domain.model import ExecutionMode
from hostelry.domain.routes import CopyRoute, VariantRoute
from hostelry.domain.traffic import FleetSize, FleetUnit, TrafficPolicy, TrafficType

DIRECT, SERIAL = ExecutionMode.DIRECT, ExecutionMode.SERIAL


def of_several(
    mode: ExecutionMode = SERIAL, *, instances: int = 1, count: int = 2, generation: int = 1
) -> Deployment:
    """A deployment whose model has `count` containers."""
    made = deployment(variant(model="m", count=instances), generation=generation)
    several = replace(model("m", count=count), execution=mode)
    return replace(made, variants=(replace(made.variants[0], model=several),))


def route_of(town: Town) -> VariantRoute:
    found = town.endpoint_route()
    (only,) = found.variants
    return only


def names(route: CopyRoute) -> list[str | None]:
    return [route.container, *(it.container for it in route.further)]


def by_container(town: Town) -> dict[str, str]:
    """The ids of the running copies by container and instance."""
    return {
        f"{machine.instance_id}/{spec.container.hostname}": spec.id
        for machine in town.fleet.machines.values()
        for spec in machine.desired
    }


def test_each_instance_runs_every_container_and_is_one_route_of_a_pipeline(town: Town) -> None:
    town.add(endpoint(of_several(instances=2, count=3)))
    town.settle()
    assert town.status() is EndpointStatus.IN_SERVICE
    assert len(town.running_copies()) == 6
    found = route_of(town)
    assert [names(it) for it in found.copies] == [["container-1", "container-2", "container-3"]] * 2
    streams = {it.log_stream for copy in found.copies for it in (copy, *copy.further)}
    places = [f"AllTraffic/{it}" for it in town.fleet.machines]
    assert streams == {f"{it}/container-{number}" for it in places for number in (1, 2, 3)}


@pytest.mark.parametrize("container", ["container-1", "container-2"])
def test_an_instance_of_a_pipeline_is_routed_while_all_containers_serve(
    town: Town, container: str
) -> None:
    town.add(endpoint(of_several(instances=2)))
    town.settle()
    (broken, other) = [it for name, it in by_container(town).items() if name.endswith(container)]
    town.fleet.set_phase(broken, CopyPhase.STARTING)
    town.turn(2)
    (left,) = route_of(town).copies
    assert other in [it.id for it in (left, *left.further)]
    town.fleet.set_phase(broken, CopyPhase.READY)
    town.turn(3)
    assert len(route_of(town).copies) == 2
    assert town.status() is EndpointStatus.IN_SERVICE


def test_containers_that_requests_name_are_routed_one_by_one(town: Town) -> None:
    town.add(endpoint(of_several(DIRECT)))
    town.settle()
    found = route_of(town)
    assert found.copies == ()
    assert [(it.hostname, len(it.copies)) for it in found.containers] == [
        ("container-1", 1),
        ("container-2", 1),
    ]
    broken = found.containers[0].copies[0].id
    town.fleet.set_phase(broken, CopyPhase.STARTING)
    town.turn(2)
    assert [len(it.copies) for it in route_of(town).containers] == [0, 1]


@pytest.mark.parametrize("mode", list(ExecutionMode))
def test_an_endpoint_is_in_service_once_every_container_is(town: Town, mode: ExecutionMode) -> None:
    town.switches.broken_images = {"broken": "it never starts"}
    made = of_several(mode)
    (only,) = made.variants
    assert only.model is not None
    first, second = only.model.containers
    broken = replace(only.model, containers=(first, replace(second, image="broken")))
    town.add(endpoint(replace(made, variants=(replace(only, model=broken),))))
    town.settle()
    assert town.status() is EndpointStatus.FAILED


def test_a_failed_container_is_replaced_alone(town: Town) -> None:
    town.add(endpoint(of_several()))
    town.settle()
    (first, second) = by_container(town).values()
    town.fleet.crash_copy(second, "it died for good")
    town.turn(200, seconds=0.5)
    (route,) = route_of(town).copies
    assert route.id == first
    assert [it.id for it in route.further] != [second]
    assert names(route) == ["container-1", "container-2"]


def test_containers_of_an_instance_drain_until_none_has_a_connection(town: Town) -> None:
    made = of_several(instances=2)
    town.add(endpoint(made))
    town.settle()
    for copy_id in town.running_copies():
        town.switches.open_connections[copy_id] = 0
    fewer = tuple(replace(it, desired_instance_count=1) for it in made.variants)
    before = by_container(town)
    town.change_endpoint(status=EndpointStatus.UPDATING, active=replace(made, variants=fewer))
    town.turn(2)
    (kept,) = route_of(town).copies
    going = set(before.values()) - {kept.id, *(it.id for it in kept.further)}
    busy = next(it for name, it in before.items() if it in going and name.endswith("container-1"))
    town.switches.open_connections[busy] = 1
    town.fleet.tick()
    town.turn(20, seconds=1.0)
    assert going <= set(town.running_copies())
    town.switches.open_connections[busy] = 0
    town.fleet.tick()
    town.turn(10, seconds=1.0)
    assert not going & set(town.running_copies())


@cases(
    "old, new",
    case("from one container to a pipeline", 1, 2),
    case("from a pipeline to one container", 3, 1),
)
def test_traffic_moves_in_steps_to_another_number_of_containers(
    town: Town, old: int, new: int
) -> None:
    policy = TrafficPolicy(
        type=TrafficType.CANARY,
        size=FleetSize(unit=FleetUnit.CAPACITY_PERCENT, value=50),
        wait_s=60.0,
    )
    town.add(endpoint(of_several(instances=2, count=old)))
    town.settle()
    pending = of_several(instances=2, count=new, generation=2)
    pending = replace(pending, guard=UpdateGuard(traffic=policy))
    town.change_endpoint(status=EndpointStatus.UPDATING, pending=pending)
    town.turn(30, seconds=0.5)
    found = route_of(town)
    assert found.shift is not None
    lengths = [1 + len(it.further) for it in found.copies]
    assert lengths == [old, old, new]
    town.turn(300, seconds=1.0)
    assert town.status() is EndpointStatus.IN_SERVICE
    assert [1 + len(it.further) for it in route_of(town).copies] == [new, new]
    assert len(town.running_copies()) == 2 * new
