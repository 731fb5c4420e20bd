import pytest
from msgspec.structs import replace
from tests.cases import case, cases

from hostelry.domain.async_request import AsyncInference
from hostelry.domain.endpoint_config import RoutingStrategy
from hostelry.domain.routes import CopyRoute, EndpointRoute, FleetShift, VariantRoute
from hostelry.domain.scope import Scope
from hostelry.jobs.rules.copy_slots import CopyUse, choose_slot, count_copies, count_free_slots
from hostelry.routing.copy_choice import next_position

NOW = 1000.0


def variant(name: str, weight: float, *copies: str) -> VariantRoute:
    routes = tuple(CopyRoute(id=it, address=f"http://{it}") for it in copies)
    routing = RoutingStrategy.RANDOM
    return VariantRoute(name=name, weight=weight, routing=routing, copies=routes)


def endpoint(*variants: VariantRoute, limit: int = 2) -> EndpointRoute:
    settings = AsyncInference(output_uri="s3://out/x", max_concurrent_per_instance=limit)
    return EndpointRoute(
        scope=Scope("111122223333", "us-west-2"),
        name="queued",
        takes_components=False,
        variants=variants,
        async_inference=settings,
    )


ONE = endpoint(variant("a", 1, "c1", "c2"))
TWO = endpoint(variant("a", 1, "c1"), variant("b", 3, "c2"))


@cases(
    "route, in_flight, blocked, free",
    case("every copy takes up to the limit", ONE, {}, {}, 4),
    case("less what is in flight", ONE, {"c1": 1, "c2": 2}, {}, 1),
    case("a copy above a lowered limit takes none", ONE, {"c1": 5}, {}, 2),
    case("a copy that refused is left alone", ONE, {}, {"c1": NOW + 1}, 2),
    case("until its time has come", ONE, {}, {"c1": NOW}, 4),
    case("copies of all variants count", TWO, {"c1": 1}, {}, 3),
    case("without copies there is none", endpoint(variant("a", 1)), {}, {}, 0),
    case("an endpoint without a queue has none", replace(ONE, async_inference=None), {}, {}, 0),
)
def test_free_slots(
    route: EndpointRoute, in_flight: dict[str, int], blocked: dict[str, float], free: int
) -> None:
    assert count_free_slots(route, CopyUse(in_flight=in_flight, blocked_until=blocked), NOW) == free


@cases(
    "route, in_flight, draw, chosen",
    case("the copy with the fewest in flight", ONE, {"c1": 1}, 0.0, ("a", "c2")),
    case("below its limit", ONE, {"c1": 2, "c2": 1}, 0.9, ("a", "c2")),
    case("none where all are full", ONE, {"c1": 2, "c2": 2}, 0.0, None),
    case("a variant by its share", TWO, {}, 0.1, ("a", "c1")),
    case("and the other by its own", TWO, {}, 0.3, ("b", "c2")),
    case("not a variant whose copies are full", TWO, {"c2": 2}, 0.3, ("a", "c1")),
)
def test_choose_slot(
    route: EndpointRoute, in_flight: dict[str, int], draw: float, chosen: tuple[str, str] | None
) -> None:
    found = choose_slot(route, CopyUse(in_flight=in_flight, blocked_until={}), NOW, draw)
    assert (None if found is None else (found.variant_name, found.copy.id)) == chosen


def test_copies_of_all_variants_are_counted() -> None:
    assert (count_copies(ONE), count_copies(TWO), count_copies(endpoint())) == (2, 2, 0)


SHIFTING = endpoint(
    replace(
        variant("a", 1, "old-1", "old-2", "new"), shift=FleetShift(share=0.25, new_ids=("new",))
    )
)
NEW_TURN, OLD_TURN = 0.1, 0.5


@cases(
    "position, in_flight, blocked, chosen, free",
    case("the new fleet's turn", NEW_TURN, {}, {}, "new", 6),
    case("the old fleet's turn", OLD_TURN, {}, {}, "old-1", 5),
    case("a busy new copy: the old ones", NEW_TURN, {"new": 2}, {}, "old-1", 4),
    case("busy old copies: it waits", OLD_TURN, {"old-1": 2, "old-2": 2}, {}, None, 0),
    case("its share, while the others wait", NEW_TURN, {"old-1": 2, "old-2": 2}, {}, "new", 1),
    case(
        "old copies that refuse: the new one",
        OLD_TURN,
        {},
        {"old-1": NOW + 1, "old-2": NOW + 1},
        "new",
        2,
    ),
)
def test_a_shifting_variant_gives_the_new_fleet_its_share(
    position: float,
    in_flight: dict[str, int],
    blocked: dict[str, float],
    chosen: str | None,
    free: int,
) -> None:
    use = CopyUse(in_flight=in_flight, blocked_until=blocked, positions={"a": position})
    found = choose_slot(SHIFTING, use, NOW, 0.0)
    assert (found and found.copy.id) == chosen
    assert count_free_slots(SHIFTING, use, NOW) == free


def test_busy_fleets_get_their_shares() -> None:
    in_flight = dict.fromkeys(("old-1", "old-2", "new"), 2)
    position, taken = 0.0, {"old-1": 0, "old-2": 0, "new": 0}
    for number in range(4000):
        ended = ("old-1", "old-2", "new")[number % 3]
        in_flight[ended] = max(0, in_flight[ended] - 1)
        while True:
            use = CopyUse(in_flight=in_flight, blocked_until={}, positions={"a": position})
            found = choose_slot(SHIFTING, use, NOW, 0.0)
            if found is None:
                break
            taken[found.copy.id] += 1
            in_flight[found.copy.id] += 1
            position = next_position(position)
    assert taken["new"] / sum(taken.values()) == pytest.approx(0.25, abs=0.005)
