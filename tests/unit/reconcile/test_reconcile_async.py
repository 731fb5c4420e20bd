"""An asynchronous endpoint without instances: in service, in the routes, and up again."""

from msgspec.structs import replace
from tests.unit.reconcile.samples import Town, deployment, endpoint, variant

from hostelry.domain.async_request import AsyncInference
from hostelry.domain.endpoint import Deployment, EndpointStatus
from hostelry.domain.resize import replace_active, set_instances

SETTINGS = AsyncInference(output_uri="s3://out")


def queued(generation: int = 1) -> Deployment:
    made = deployment(variant(model="m"), generation=generation)
    return replace(made, config=replace(made.config, async_inference=SETTINGS))


def resize(town: Town, count: int) -> None:
    found = town.endpoint
    name = found.active.variants[0].variant.name
    after = replace_active(found, set_instances(found.active, name, count), town.clock.now())
    town.change_endpoint(active=after.active, status=after.status, deadline_at=after.deadline_at)


def num_routed(town: Town) -> int:
    """The copies of its route, which stays in every state."""
    route = town.endpoint_route()
    assert route.async_inference == SETTINGS
    (only,) = route.variants
    return len(only.copies)


def test_it_goes_to_no_instance_and_comes_up_again(town: Town) -> None:
    town.add(endpoint(queued()))
    town.settle()
    assert (town.status(), num_routed(town)) == (EndpointStatus.IN_SERVICE, 1)
    resize(town, 0)
    town.settle()
    assert (town.status(), num_routed(town)) == (EndpointStatus.IN_SERVICE, 0)
    assert town.instance_records() == []
    resize(town, 1)
    town.turn()
    assert (town.status(), num_routed(town)) == (EndpointStatus.UPDATING, 0)
    town.settle()
    assert (town.status(), num_routed(town)) == (EndpointStatus.IN_SERVICE, 1)


def test_an_update_at_no_instance_takes_over_with_those_it_asks_for(town: Town) -> None:
    town.add(endpoint(queued()))
    town.settle()
    resize(town, 0)
    town.settle()
    town.change_endpoint(pending=queued(generation=2), status=EndpointStatus.UPDATING)
    town.turn()
    assert (town.status(), num_routed(town)) == (EndpointStatus.UPDATING, 0)
    town.settle()
    found = town.endpoint
    assert found.active.generation == 2
    assert (town.status(), num_routed(town)) == (EndpointStatus.IN_SERVICE, 1)
