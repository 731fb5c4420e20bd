from hypothesis import given
from hypothesis import strategies as st
from tests.cases import case, cases

from hostelry.domain.endpoint_config import RoutingStrategy
from hostelry.domain.routes import CopyRoute, VariantRoute
from hostelry.routing.copy_choice import choose_variant, named_variant

COPY = CopyRoute(id="c-1", address="http://127.0.0.1:1")


def variant(name: str, weight: float, ready: bool = True) -> VariantRoute:
    return VariantRoute(
        name=name,
        weight=weight,
        routing=RoutingStrategy.RANDOM,
        copies=(COPY,) if ready else (),
    )


@cases(
    "variants, draw, expected",
    case("below its share: the first", [variant("a", 1), variant("b", 3)], 0.24, "a"),
    case("above it: the second", [variant("a", 1), variant("b", 3)], 0.25, "b"),
    case("weight 0 gets no request", [variant("a", 0), variant("b", 1)], 0.0, "b"),
    case("not even the last one", [variant("a", 1), variant("b", 0)], 0.999, "a"),
    case("all 0: equal shares", [variant("a", 0), variant("b", 0)], 0.6, "b"),
    case("no copy, no share", [variant("a", 9, False), variant("b", 1)], 0.1, "b"),
    case("none where no copy is ready", [variant("a", 1, False)], 0.5, None),
    case("none where there are no variants", [], 0.5, None),
)
def test_choose_variant(variants: list[VariantRoute], draw: float, expected: str | None) -> None:
    chosen = choose_variant(variants, draw)
    assert (chosen.name if chosen else None) == expected


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=10), st.floats(0, 1, exclude_max=True))
def test_a_ready_variant_is_chosen_for_every_draw(weights: list[float], draw: float) -> None:
    variants = [variant(str(index), weight) for index, weight in enumerate(weights)]
    chosen = choose_variant(variants, draw)
    assert chosen is not None
    assert chosen.weight > 0 or sum(weights) == 0


def test_a_named_variant_is_found_whatever_its_weight() -> None:
    variants = [variant("a", 0, ready=False), variant("b", 1)]
    assert named_variant(variants, "a") is variants[0]
    assert named_variant(variants, "c") is None
