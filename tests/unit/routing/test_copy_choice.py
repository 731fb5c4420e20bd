from hypothesis import given
from hypothesis import strategies as st
from tests.cases import case, cases

from hostelry.domain.endpoint_config import RoutingStrategy
from hostelry.routing.copy_choice import GatewayShare, choose_copy

LEAST = RoutingStrategy.LEAST_OUTSTANDING_REQUESTS
RANDOM = RoutingStrategy.RANDOM


@cases(
    "strategy, outstanding, draw, expected",
    case("random ignores how busy a copy is", RANDOM, [9, 0, 0], 0.0, 0),
    case("random follows the draw", RANDOM, [0, 0, 0], 0.34, 1),
    case("random reaches the last copy", RANDOM, [0, 0, 0], 0.999, 2),
    case("the idlest copy wins whatever the draw", LEAST, [3, 1, 2], 0.99, 1),
    case("a tie goes to the first for a low draw", LEAST, [1, 0, 0], 0.0, 1),
    case("a tie goes to the second for a high draw", LEAST, [1, 0, 0], 0.5, 2),
    case("a single copy is always it", LEAST, [7], 0.7, 0),
)
def test_choose_copy(
    strategy: RoutingStrategy, outstanding: list[int], draw: float, expected: int
) -> None:
    assert choose_copy(strategy, outstanding, draw) == expected


@cases(
    "outstanding, rank, expected",
    case("of idle copies each gateway takes its own", [0, 0, 0, 0], 0, {0, 2}),
    case("and the other gateway the others", [0, 0, 0, 0], 1, {1, 3}),
    case("a copy with fewer requests comes before its own", [1, 0, 1, 0], 0, {1, 3}),
    case("its own among the idlest", [0, 1, 0, 0], 1, {3}),
    case("one idlest copy is it for all", [2, 1, 2, 2], 0, {1}),
)
def test_gateways_of_several_hosts_prefer_different_copies_among_equals(
    outstanding: list[int], rank: int, expected: set[int]
) -> None:
    share = GatewayShare(rank, 2)
    assert {choose_copy(LEAST, outstanding, it / 16, share) for it in range(16)} == expected


@given(
    st.sampled_from(RoutingStrategy),
    st.lists(st.integers(0, 1000), min_size=1, max_size=50),
    st.floats(0, 1, exclude_max=True),
)
def test_some_copy_is_always_chosen_and_least_means_least(
    strategy: RoutingStrategy, outstanding: list[int], draw: float
) -> None:
    chosen = choose_copy(strategy, outstanding, draw)
    assert 0 <= chosen < len(outstanding)
    if strategy is LEAST:
        assert outstanding[chosen] == min(outstanding)
