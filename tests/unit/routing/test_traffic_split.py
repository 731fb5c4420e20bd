"""The split of requests between two fleets is even at every length, and for every second one."""

import random

import pytest

from hostelry.routing.copy_choice import next_position, takes_new

SHARES = [0.0, 0.01, 0.1, 1 / 3, 0.5, 0.9, 1.0]


def split(share: float, first: float, num: int) -> list[bool]:
    found, position = [], first
    for _ in range(num):
        found.append(takes_new(position, share))
        position = next_position(position)
    return found


@pytest.mark.parametrize("share", SHARES)
@pytest.mark.parametrize("seed", range(5))
def test_every_number_of_requests_is_split_within_a_few(share: float, seed: int) -> None:
    taken = split(share, random.Random(seed).random(), 1000)
    for num in range(1, 1001):
        assert abs(sum(taken[:num]) - share * num) <= 3
    assert sum(taken) == pytest.approx(share * 1000, abs=3), "a thousand: within 0.3 per cent"


@pytest.mark.parametrize("share", SHARES)
@pytest.mark.parametrize("every", [2, 3, 4, 5])
def test_each_kind_of_a_clients_alternating_requests_is_split_alike(
    share: float, every: int
) -> None:
    taken = split(share, 0.3, 1000 * every)
    for kind in range(every):
        assert sum(taken[kind::every]) == pytest.approx(share * 1000, abs=12)
