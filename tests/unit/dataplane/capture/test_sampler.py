"""Sampling of the requests that are captured."""

import random

import pytest

from hostelry.dataplane.capture.sampler import Sampler


@pytest.mark.parametrize("percent", [0, 1, 20, 50, 99, 100])
@pytest.mark.parametrize("seed", range(5))
def test_exactly_the_percentage_of_each_hundred_is_taken(percent: int, seed: int) -> None:
    draw, sampler = random.Random(seed).random, Sampler(percent)
    for _ in range(3):
        assert sum(sampler.takes(draw()) for _ in range(100)) == percent


def test_every_place_of_a_hundred_is_as_likely() -> None:
    draw, sampler, taken = random.Random(1).random, Sampler(50), [0] * 100
    for number in range(100 * 400):
        taken[number % 100] += sampler.takes(draw())
    assert all(140 < it < 260 for it in taken), "200 of 400 on average, within six deviations"


@pytest.mark.parametrize(("percent", "is_taken"), [(0, False), (100, True)])
@pytest.mark.parametrize("draw", [0.0, 0.5, 1.0 - 2**-53])
def test_none_and_all_depend_on_no_draw(percent: int, is_taken: bool, draw: float) -> None:
    sampler = Sampler(percent)
    assert {sampler.takes(draw) for _ in range(250)} == {is_taken}
