"""The fleet that a request is offered to first, and the one that it falls back on."""

from collections import Counter

import pytest
from msgspec.structs import replace
from tests.cases import case, cases
from tests.unit.dataplane.routes_sample import HERE, variant

from hostelry.aws.runtime import InvokeRequest
from hostelry.dataplane.balancing.destination import TrafficSplit, find_destination
from hostelry.dataplane.balancing.sessions import pinned_copy
from hostelry.dataplane.route_table import Destination, RouteTable
from hostelry.domain.routes import CopyRoute, EndpointRoute, FleetShift, RouteSnapshot
from hostelry.routing.session import copy_mark

OLD = (CopyRoute(id="old-1", address="http://o1"), CopyRoute(id="old-2", address="http://o2"))
NEW = (CopyRoute(id="new", address="http://n"),)


def table(
    share: float,
    old: tuple[CopyRoute, ...] = OLD,
    new: tuple[CopyRoute, ...] = NEW,
    name: str = "a",
) -> RouteTable:
    shift = FleetShift(share=share, new_ids=tuple(it.id for it in new))
    route = replace(variant(name, 1, (*old, *new)), shift=shift)
    endpoint = EndpointRoute(scope=HERE, name="e", takes_components=False, variants=(route,))
    return RouteTable(RouteSnapshot(version="v", endpoints=(endpoint,)))


def destination(
    share: float,
    old: tuple[CopyRoute, ...] = OLD,
    new: tuple[CopyRoute, ...] = NEW,
    name: str = "a",
) -> Destination:
    routes = table(share, old, new, name)
    endpoint = routes.endpoint(HERE, "e")
    assert endpoint is not None
    return routes.variant(endpoint, endpoint.variants[0])


def offered(split: TrafficSplit, to: Destination) -> list[tuple[str, ...]]:
    """The ids of the copies that a request is offered to, fleet by fleet."""
    return [tuple(it.id for it in fleet.copies) for fleet in split.in_order(to)]


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 1.0])
def test_the_first_fleet_is_the_one_by_share_and_the_other_follows(share: float) -> None:
    split, first = TrafficSplit(lambda: 0.7), Counter[str]()
    for _ in range(1000):
        fleets = offered(split, destination(share))
        assert sorted(fleets) == [("new",), ("old-1", "old-2")]
        first[fleets[0][0]] += 1
    assert first["new"] == pytest.approx(1000 * share, abs=3)


@cases(
    "old, new, expected",
    case("no old copy", (), NEW, [("new",)]),
    case("no new copy", OLD, (), [("old-1", "old-2")]),
    case("none at all", (), (), []),
)
@pytest.mark.parametrize("share", [0.0, 1.0])
def test_a_fleet_without_copies_is_offered_nothing(
    old: tuple[CopyRoute, ...],
    new: tuple[CopyRoute, ...],
    expected: list[tuple[str, ...]],
    share: float,
) -> None:
    assert offered(TrafficSplit(lambda: 0.0), destination(share, old, new)) == expected


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("copy", [*OLD, *NEW], ids=lambda copy: copy.id)
def test_a_session_stays_with_its_copy_of_either_fleet(share: float, copy: CopyRoute) -> None:
    asked = InvokeRequest(endpoint_name="e", stream=False, session_id="s", target_variant="a")
    found = find_destination(table(share), HERE, asked, 0.5, copy_mark(copy.id))
    assert pinned_copy(found, "s", copy_mark(copy.id)) == copy


def test_without_a_shift_all_copies_are_one_fleet() -> None:
    plain = replace(destination(0.5), fleets=None)
    assert offered(TrafficSplit(lambda: 0.0), plain) == [("old-1", "old-2", "new")]


def test_a_growing_share_and_other_variants_keep_the_order_even() -> None:
    split, first = TrafficSplit(lambda: 0.0), Counter[tuple[str, float]]()
    for number in range(3000):
        share = 0.2 if number < 1500 else 0.4
        for name in ("a", "b"):
            to = destination(share, name=name)
            first[name, share] += offered(split, to)[0] == ("new",)
    for name in ("a", "b"):
        assert first[name, 0.2] == pytest.approx(300, abs=4)
        assert first[name, 0.4] == pytest.approx(600, abs=4)
