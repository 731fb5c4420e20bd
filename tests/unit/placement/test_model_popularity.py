"""Popularity: counts fade, half-lives that predict gain weight, probabilities are of one whole."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hostelry.placement.model_cache_values import (
    EQUAL,
    HALF_LIVES_S,
    DecayedCounts,
    Demand,
    probabilities,
)


def after(requests: list[tuple[float, str]]) -> tuple[dict[str, DecayedCounts], Demand]:
    models: dict[str, DecayedCounts] = {}
    demand = Demand()
    for at_s, key in requests:
        before = models.get(key, DecayedCounts())
        demand = demand.after_request(before, at_s)
        models[key] = before.after_request(at_s)
    return models, demand


@pytest.mark.parametrize("position", range(len(HALF_LIVES_S)))
def test_a_count_halves_in_each_half_life(position: int) -> None:
    counts = DecayedCounts().after_request(10.0)
    assert counts.decay_to(10.0 + HALF_LIVES_S[position])[position] == pytest.approx(0.5)
    assert counts.decay_to(1e9) == pytest.approx((0.0,) * 4)


def test_a_clock_that_goes_back_fades_nothing_and_moves_nothing() -> None:
    counts = DecayedCounts().after_request(100.0).after_request(50.0)
    assert counts == DecayedCounts((1.0, 2.0, 2.0, 2.0), 100.0)


def test_the_requests_to_expect_are_those_of_a_steady_past() -> None:
    counts = DecayedCounts()
    for n in range(1000):
        counts = counts.after_request(float(n) / 2)
    assert counts.expected_requests(60.0, 500.0) == pytest.approx(120, rel=0.1)


@given(
    requests=st.lists(
        st.tuples(st.floats(0, 1e6), st.sampled_from("abcdef")), min_size=1, max_size=60
    )
)
def test_the_probabilities_of_all_models_are_of_one_whole(
    requests: list[tuple[float, str]],
) -> None:
    models, demand = after(requests)
    now_s = max(at_s for at_s, _ in requests)
    assert sum(demand.weights) == pytest.approx(1.0)
    assert all(weight > 0 for weight in demand.weights)
    found = probabilities(models.values(), demand, now_s)
    assert all(0 <= it <= 1 + 1e-9 for it in found)
    # Ordered shares sum up to one. A clock that goes back can only make the sum smaller.
    assert sum(found) <= 1 + 1e-6
    if requests == sorted(requests):
        assert sum(found) == pytest.approx(1.0, abs=1e-6)


def test_bursts_give_weight_to_the_short_half_life_and_a_steady_mix_to_the_long_ones() -> None:
    bursts = [(60.0 * burst + 0.1 * n, f"m{burst % 40}") for burst in range(200) for n in range(20)]
    steady = [(1.0 * n, f"m{(n * n) % 37}") for n in range(4000)]
    assert after(bursts)[1].weights[0] > 0.8
    assert after(steady)[1].weights[0] < 0.05


def test_models_without_a_past_move_no_weight() -> None:
    assert after([(float(n), f"m{n}") for n in range(50)])[1].weights == EQUAL


def test_without_any_request_each_probability_is_zero() -> None:
    assert probabilities([DecayedCounts(), DecayedCounts()], Demand(), 5.0) == [0.0, 0.0]
