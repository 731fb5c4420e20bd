"""Fewer instances: copies start on the remaining instances before an instance ends."""

from collections.abc import Sequence

import pytest
from msgspec.structs import replace
from tests.cases import case, cases
from tests.unit.reconcile.samples import Town, component, deployment, endpoint, needs, variant

from hostelry.domain.component import ComponentStatus, PlacementStrategy, Scheduling
from hostelry.domain.copy import Instance
from hostelry.domain.endpoint import EndpointStatus
from hostelry.domain.endpoint_config import Variant

UPDATING = EndpointStatus.UPDATING
IN_SERVICE = EndpointStatus.IN_SERVICE


def spread(town: Town, *, copies: int = 3, accelerators: float = 1, pinned: bool = False) -> None:
    """Three large instances with a copy on each. `copies` more may be on them."""
    base = replace(component(copies=copies, requirements=needs(accelerators)), pinned=pinned)
    town.add(endpoint(deployment(variant(count=3))), base)
    town.settle()
    assert len({it.instance_id for it in town.copy_records()}) == 3
    assert len(town.routed_copies()) == copies


def resize(town: Town, count: int) -> None:
    """Write the records as UpdateEndpointWeightsAndCapacities does."""
    active = town.endpoint.active
    fewer = tuple(replace(it, desired_instance_count=count) for it in active.variants)
    town.change_endpoint(
        active=replace(active, variants=fewer),
        status=UPDATING,
        deadline_at=town.clock.now() + 4000,
    )


def leaving(town: Town) -> Sequence[Instance]:
    return [it for it in town.instance_records() if it.leaving]


@cases(
    "count, copies",
    case("one less", 2, 3),
    case("two less", 1, 3),
    case("one less that holds several", 2, 7),
)
def test_copies_come_up_elsewhere_before_an_instance_goes(
    town: Town, count: int, copies: int
) -> None:
    spread(town, copies=copies)
    resize(town, count)
    for _ in range(60):
        town.turn(seconds=0.2)
        assert len(town.routed_copies()) >= copies
        town.check_integrity()
    assert len(town.fleet.machines) == len(town.instance_records()) == count
    assert len(town.routed_copies()) == len(town.running_copies()) == copies
    assert town.status() is IN_SERVICE
    assert town.component_status() is ComponentStatus.IN_SERVICE


def test_an_endpoint_is_updating_until_the_instance_has_gone(town: Town) -> None:
    spread(town)
    town.switches.slow = True
    resize(town, 2)
    town.turn(3)
    assert town.status() is UPDATING
    assert len(leaving(town)) == 1
    assert len(town.routed_copies()) == 3
    for _ in range(20):
        town.fleet.tick()
        town.turn(seconds=0.4)
    assert (town.status(), len(town.fleet.machines)) == (IN_SERVICE, 2)


def test_instances_without_copies_go_first_and_nothing_moves(town: Town) -> None:
    one = component(requirements=needs(4))
    town.add(endpoint(deployment(variant(count=3))), one)
    town.settle()
    before = town.routed_copies()
    resize(town, 1)
    town.settle()
    assert town.routed_copies() == before
    assert len(town.fleet.machines) == 1


def test_pinned_copies_go_where_their_instance_ends(town: Town) -> None:
    spread(town, pinned=True)
    resize(town, 1)
    for _ in range(60):
        town.turn(seconds=0.2)
        assert len(town.routed_copies()) >= 3
    assert len(town.fleet.machines) == 1


def test_what_has_no_place_elsewhere_serves_on(town: Town) -> None:
    spread(town, accelerators=4)
    resize(town, 2)
    for _ in range(60):
        town.turn(seconds=0.2)
        assert len(town.routed_copies()) == 3
    assert len(leaving(town)) == 1
    assert len(town.fleet.machines) == 3
    base = town.component()
    assert base.placement_note is not None
    town.change_component(desired_copies=2, status=ComponentStatus.UPDATING)
    town.settle()
    assert (len(town.fleet.machines), len(town.routed_copies())) == (2, 2)


def test_a_larger_count_again_keeps_the_instances(town: Town) -> None:
    spread(town)
    before = town.routed_copies()
    town.switches.slow = True
    resize(town, 1)
    town.turn(3)
    assert len(leaving(town)) == 2
    resize(town, 3)
    town.switches.slow = False
    town.settle()
    assert not leaving(town)
    assert set(before) <= set(town.routed_copies())
    assert len(town.routed_copies()) == len(town.fleet.machines) == 3


@pytest.mark.parametrize("moment", range(8))
def test_a_restart_of_control_at_any_moment_ends_the_same(town: Town, moment: int) -> None:
    spread(town)
    resize(town, 1)
    town.turn(moment, seconds=0.3)
    town.restart_control()
    for _ in range(60):
        town.turn(seconds=0.2)
        assert len(town.routed_copies()) >= 3
    assert len(town.fleet.machines) == 1
    assert town.status() is IN_SERVICE


@pytest.mark.parametrize("moment", range(8))
def test_a_delete_at_any_moment_leaves_nothing(town: Town, moment: int) -> None:
    spread(town)
    resize(town, 1)
    town.turn(moment, seconds=0.3)
    town.change_component(status=ComponentStatus.DELETING)
    town.turn(2)
    town.change_endpoint(status=EndpointStatus.DELETING, deadline_at=None)
    town.settle()
    assert town.find_endpoint() is None
    assert not town.fleet.machines


def test_packed_copies_are_packed_again(town: Town) -> None:
    packed = Scheduling(strategy=PlacementStrategy.BINPACK)
    base = component(copies=3, requirements=needs(2))
    assert base.spec is not None
    base = replace(base, spec=replace(base.spec, scheduling=packed))
    town.add(endpoint(deployment(variant(count=3))), base)
    town.settle()
    resize(town, 2)
    for _ in range(60):
        town.turn(seconds=0.2)
        assert len(town.routed_copies()) >= 3
    assert len(town.fleet.machines) == 2


def test_a_models_instances_go_at_once(town: Town) -> None:
    town.add(endpoint(deployment(variant(model="m", count=3))))
    town.settle()
    resize(town, 1)
    town.turn(2)
    assert not leaving(town)
    town.settle()
    assert len(town.fleet.machines) == 1


@cases(
    "then, stay",
    case("one more type", variant(count=3, pools=("ml.small", "ml.big")), True),
    case("another second", variant(count=3, pools=("ml.big", "ml.small")), True),
    case("another type only", variant(count=3, instance_type="ml.small"), False),
)
def test_instances_of_a_type_that_is_still_wanted_stay(
    town: Town, then: Variant, stay: bool
) -> None:
    spread(town)
    before = town.routed_copies()
    pending = deployment(then, generation=2)
    town.change_endpoint(status=UPDATING, pending=pending)
    for _ in range(60):
        town.turn(seconds=0.2)
        assert len(town.routed_copies()) >= 3
    assert town.status() is IN_SERVICE
    assert (town.routed_copies() == before) is stay
    assert town.endpoint.active.config == pending.config
