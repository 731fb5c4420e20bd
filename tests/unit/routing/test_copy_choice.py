import pytest
from hypothesis import given
from hypothesis import strategies as st

from hostelry.domain.endpoint_config import RoutingStrategy
from hostelry.routing.copy_choice import GatewayShare, choose_copy

LEAST = RoutingStrategy.LEAST_OUTSTANDING_REQUESTS
RANDOM = RoutingStrategy.RANDOM


@pytest.mark.parametrize(
    ("strategy", "outstanding", "draw", "expected"),
    [
        pytest.param(RANDOM, [9, 0, 0], 0.0, 0, id="random ignores how busy a copy is"),
        pytest.param(RANDOM, [0, 0, 0], 0.34, 1, id="random follows the draw"),
        pytest.param(RANDOM, [0, 0, 0], 0.999, 2, id="random reaches the last copy"),
        pytest.param(LEAST, [3, 1, 2], 0.99, 1, id="the idlest copy wins whatever the draw"),
        pytest.param(LEAST, [1, 0, 0], 0.0, 1, id="a tie goes to the first for a low draw"),
        pytest.param(LEAST, [1, 0, 0], 0.5, 2, id="a tie goes to the second for a high draw"),
        pytest.param(LEAST, [7], 0.7, 0, id="a single copy is always it"),
    ],
)
def test_choose_copy(
    strategy: RoutingStrategy, outstanding: list[int], draw: float, expected: int
) -> None:
    assert choose_copy(strategy, outstanding, draw) == expected


@pytest.mark.parametrize(
    ("outstanding", "rank", "expected"),
    [
        pytest.param([0, 0, 0, 0], 0, {0, 2}, id="of idle copies each gateway takes its own"),
        pytest.param([0, 0, 0, 0], 1, {1, 3}, id="and the other gateway the others"),
        pytest.param([1, 0, 1, 0], 0, {1, 3}, id="a copy with fewer requests comes before its own"),
        pytest.param([0, 1, 0, 0], 1, {3}, id="its own among the idlest"),
        pytest.param([2, 1, 2, 2], 0, {1}, id="one idlest copy is it for all"),
    ],
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
