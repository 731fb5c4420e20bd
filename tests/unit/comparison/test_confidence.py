"""Bounds that hold at every look: their coverage, their width, their edges."""

import math
from random import Random

import pytest
from tests.cases import case, cases

from hostelry.comparison.confidence import (
    get_quantile,
    get_quantile_bounds,
    log_evidence_against,
    proportion_bounds,
)
from hostelry.domain.load import EMPTY, Distribution

ALPHA = 0.05


@cases(
    "successes, trials, low, high",
    case("nothing is known at first", 0, 0, 0.0, 1.0),
    case("no error of a thousand", 0, 1000, 0.0, 0.0099),
    case("errors alone", 1000, 1000, 0.9901, 1.0),
    case("one of two", 500, 1000, 0.444, 0.556),
)
def test_a_proportion_is_between_its_bounds(
    successes: int, trials: int, low: float, high: float
) -> None:
    found = proportion_bounds(successes, trials, ALPHA)
    assert (found.low, found.high) == pytest.approx((low, high), abs=2e-3)
    assert found.low <= (successes / trials if trials else 0.5) <= found.high


def test_the_evidence_is_the_ratio_of_likelihoods() -> None:
    # The uniform mixture gives 3 of 4 the likelihood 1 / (5 * C(4, 3)).
    assert log_evidence_against(0.5, 3, 4) == pytest.approx(math.log((1 / 20) / 0.5**4))
    assert log_evidence_against(0.0, 1, 4) == log_evidence_against(1.0, 3, 4) == math.inf
    assert log_evidence_against(0.0, 0, 4) == pytest.approx(math.log(1 / 5))


@pytest.mark.parametrize("truth", [0.001, 0.02, 0.5])
def test_bounds_that_are_looked_at_after_each_request_are_seldom_wrong(truth: float) -> None:
    random, runs, wrong = Random(7), 400, 0
    for _ in range(runs):
        successes, limit = 0, -math.log(ALPHA)
        for trials in range(1, 1001):
            successes += random.random() < truth
            if log_evidence_against(truth, successes, trials) >= limit:
                wrong += 1
                break
    assert wrong <= ALPHA * runs


def of(values: list[float]) -> Distribution:
    counts = {value: values.count(value) for value in sorted(set(values))}
    return Distribution(values=tuple(counts), counts=tuple(counts.values()))


def test_a_quantile_is_between_its_bounds() -> None:
    seen = of([float(it) for it in range(1, 1001)])
    found = get_quantile_bounds(seen, 0.5, ALPHA)
    assert found.low == pytest.approx(448, abs=4)
    assert found.high == pytest.approx(553, abs=4)
    assert get_quantile(seen, 0.95) == 950


@cases(
    "seen, low, high",
    case("no value", EMPTY, 0.0, math.inf),
    case("too few values", of([5.0] * 3), 0.0, math.inf),
    case("one value alone", of([5.0] * 1000), 5.0, 5.0),
)
def test_the_edges_of_a_quantile(seen: Distribution, low: float, high: float) -> None:
    found = get_quantile_bounds(seen, 0.5, ALPHA)
    assert (found.low, found.high) == (low, high)


def test_the_quantile_of_nothing_is_none() -> None:
    assert get_quantile(EMPTY, 0.5) == 0.0
