"""Shadow variants start like any variant, and disturb nothing when they serve."""

from msgspec.structs import replace
from tests.cases import case, cases
from tests.unit.reconcile.samples import Town, deployment, endpoint, variant

from hostelry.domain.copy import CopyPhase
from hostelry.domain.data_capture import DataCapture
from hostelry.domain.endpoint import Deployment, EndpointStatus, UpdateGuard
from hostelry.domain.routes import EndpointRoute
from hostelry.domain.traffic import FleetSize, FleetUnit, TrafficPolicy, TrafficType

UPDATING, IN_SERVICE = EndpointStatus.UPDATING, EndpointStatus.IN_SERVICE
WAIT_S = 100.0
LINEAR = TrafficPolicy(
    type=TrafficType.LINEAR,
    size=FleetSize(unit=FleetUnit.INSTANCE_COUNT, value=1),
    wait_s=WAIT_S,
)


def with_shadow(
    *, generation: int = 1, count: int = 2, weight: float = 0.5, image: str = "good"
) -> Deployment:
    """A deployment of a variant and its shadow, whose model has `image`."""
    shadow = replace(variant(model="s", name="shadow"), is_shadow=True, weight=weight)
    found = deployment(variant(model="m", count=count), shadow, generation=generation)
    of_bad = deployment(shadow, image=image).variants
    return replace(found, variants=(*found.production, *of_bad))


def serving(town: Town) -> None:
    town.add(endpoint(with_shadow()))
    town.settle()
    assert town.status() is IN_SERVICE


def route(town: Town) -> EndpointRoute:
    return town.endpoint_route()


def shadow_id(town: Town) -> str:
    shadow = route(town).shadow
    assert shadow is not None
    (copy,) = shadow.copies
    return copy.id


def reason(town: Town) -> str:
    return town.endpoint.failure_reason or ""


def test_a_shadow_has_a_route_of_its_own(town: Town) -> None:
    serving(town)
    found = route(town)
    assert [(it.name, len(it.copies)) for it in found.variants] == [("AllTraffic", 2)]
    assert found.shadow is not None
    assert (found.shadow.name, found.shadow.share, len(found.shadow.copies)) == ("shadow", 0.5, 1)
    assert len(town.fleet.machines) == 3


def test_a_shadow_is_captured_as_production_is(town: Town) -> None:
    capture = DataCapture(percent=20, uri="s3://seen/here")
    town.add(endpoint(replace(with_shadow(), capture=capture)))
    town.settle()
    found = route(town)
    assert found.shadow is not None
    assert [it.capture for it in found.variants] == [capture]
    assert found.shadow.capture == capture


def test_a_shadow_without_weight_has_no_route(town: Town) -> None:
    town.add(endpoint(with_shadow(weight=0.0)))
    town.settle()
    assert (town.status(), route(town).shadow) == (IN_SERVICE, None)


def test_an_endpoint_whose_shadow_cannot_come_up_fails(town: Town) -> None:
    town.switches.broken_images["bad"] = "no such model server"
    town.add(endpoint(with_shadow(image="bad")))
    town.settle()
    assert town.status() is EndpointStatus.FAILED
    assert "no such model server" in reason(town)


def test_an_update_whose_shadow_cannot_come_up_is_rolled_back(town: Town) -> None:
    serving(town)
    before = route(town)
    town.switches.broken_images["bad"] = "no such model server"
    town.change_endpoint(status=UPDATING, pending=with_shadow(generation=2, image="bad"))
    town.settle()
    assert town.status() is IN_SERVICE
    assert "no such model server" in reason(town)
    assert route(town) == before


def test_the_shadow_of_an_update_is_mirrored_to_once_it_serves(town: Town) -> None:
    serving(town)
    before = shadow_id(town)
    town.switches.slow = True
    town.change_endpoint(status=UPDATING, pending=with_shadow(generation=2, weight=1.0))
    for _ in range(4):
        town.turn()
        assert shadow_id(town) == before
        town.fleet.tick()
    town.switches.slow = False
    town.turn(40)
    found = route(town).shadow
    assert town.status() is IN_SERVICE
    assert found is not None
    assert found.share == 1.0
    assert shadow_id(town) != before


def test_an_update_takes_the_shadow_away(town: Town) -> None:
    serving(town)
    alone = deployment(variant(model="m", count=2), generation=2)
    town.change_endpoint(status=UPDATING, pending=alone)
    town.settle()
    assert (town.status(), route(town).shadow) == (IN_SERVICE, None)
    assert len(town.fleet.machines) == 2


def test_a_shadow_that_dies_later_leaves_the_endpoint_in_service(town: Town) -> None:
    serving(town)
    before = route(town)
    town.fleet.set_phase(shadow_id(town), CopyPhase.FAILED)
    town.turn(5)
    assert (town.status(), reason(town)) == (IN_SERVICE, "")
    found = route(town)
    assert found.variants == before.variants
    assert found.shadow is not None
    assert found.shadow.copies == ()


def test_production_is_resized_beside_a_shadow_that_failed(town: Town) -> None:
    serving(town)
    town.fleet.set_phase(shadow_id(town), CopyPhase.FAILED)
    town.turn(2)
    active = town.endpoint.active
    larger = (
        *(replace(it, desired_instance_count=3) for it in active.production),
        *(it for it in active.variants if it.variant.is_shadow),
    )
    town.change_endpoint(status=UPDATING, active=replace(active, variants=larger))
    town.turn(40)
    assert (town.status(), reason(town)) == (IN_SERVICE, "")
    assert len(route(town).variants[0].copies) == 3


@cases(
    "guard",
    case("while traffic moves, step by step", UpdateGuard(bake_s=60.0, traffic=LINEAR)),
    case("while the new deployment is on trial", UpdateGuard(bake_s=60.0)),
)
def test_a_shadow_that_dies_rolls_no_update_back(town: Town, guard: UpdateGuard) -> None:
    serving(town)
    pending = replace(with_shadow(generation=2), guard=guard, started_at=town.clock.now())
    town.change_endpoint(status=UPDATING, pending=pending, deadline_at=None)
    town.turn(40, seconds=0.1)
    assert (town.endpoint.shift is None) is (town.endpoint.bake is not None)
    found = town.copy_records(None)  # type: ignore[arg-type] # a model's
    (mine,) = [it for it in found if (it.variant_name, it.generation) == ("shadow", 2)]
    town.fleet.set_phase(mine.spec.id, CopyPhase.FAILED)
    town.turn(2)
    for _ in range(4):
        town.clock.advance(WAIT_S)
        town.turn(3)
    assert (town.status(), reason(town)) == (IN_SERVICE, "")
    assert town.endpoint.active.config.name == "config-2"
