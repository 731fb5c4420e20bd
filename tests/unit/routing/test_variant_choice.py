import pytest
from hypothesis import given
from hypothesis import strategies as st

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


@pytest.mark.parametrize(
    ("variants", "draw", "expected"),
    [
        pytest.param(
            [variant("a", 1), variant("b", 3)], 0.24, "a", id="below its share: the first"
        ),
        pytest.param([variant("a", 1), variant("b", 3)], 0.25, "b", id="above it: the second"),
        pytest.param([variant("a", 0), variant("b", 1)], 0.0, "b", id="weight 0 gets no request"),
        pytest.param([variant("a", 1), variant("b", 0)], 0.999, "a", id="not even the last one"),
        pytest.param([variant("a", 0), variant("b", 0)], 0.6, "b", id="all 0: equal shares"),
        pytest.param([variant("a", 9, False), variant("b", 1)], 0.1, "b", id="no copy, no share"),
        pytest.param([variant("a", 1, False)], 0.5, None, id="none where no copy is ready"),
        pytest.param([], 0.5, None, id="none where there are no variants"),
    ],
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
