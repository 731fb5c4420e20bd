"""Shares of variants by even draws: exact over thousands of requests, and over a hundred."""

from collections import Counter
from collections.abc import Sequence

from tests.cases import case, cases

from hostelry.domain.endpoint_config import RoutingStrategy
from hostelry.domain.routes import CopyRoute, VariantRoute
from hostelry.routing.copy_choice import EvenDraws, choose_variant

COPY = CopyRoute(id="c-1", address="http://127.0.0.1:1")


def variants(weights: Sequence[float]) -> list[VariantRoute]:
    return [
        VariantRoute(name=str(number), weight=it, routing=RoutingStrategy.RANDOM, copies=(COPY,))
        for number, it in enumerate(weights)
    ]


def counts(draws: EvenDraws, weights: Sequence[float], num: int) -> list[int]:
    there = variants(weights)
    chosen = (choose_variant(there, draws()) for _ in range(num))
    found = Counter(it.name for it in chosen if it is not None)
    return [found[it.name] for it in there]


@cases(
    "weights",
    case("three alike", (1, 1, 1)),
    case("three that differ", (5, 3, 2)),
    case("a canary of one in a hundred", (99, 1)),
    case("one without a share", (0.5, 0.25, 0.25, 0)),
)
def test_shares_are_exact_over_long_and_short_windows(weights: Sequence[float]) -> None:
    for start in (0.0, 0.3, 0.999):
        draws = EvenDraws(start)
        for num, most_off in ((100, 3), (10_000, 8)):
            for found, weight in zip(counts(draws, weights, num), weights, strict=True):
                assert abs(found - num * weight / sum(weights)) <= most_off


def test_the_next_request_follows_new_weights() -> None:
    draws = EvenDraws(0.5)
    counts(draws, (1, 1), 777)
    assert counts(draws, (0, 1), 100) == [0, 100]
    found = counts(draws, (3, 1), 1000)
    assert abs(found[0] - 750) <= 3


def test_endpoints_that_take_turns_have_their_shares_too() -> None:
    draws, found = EvenDraws(0.1), [[0, 0], [0, 0], [0, 0]]
    for number in range(30_000):
        (one, _) = counts(draws, (7, 3), 1)
        found[number % 3][0 if one else 1] += 1
    assert all(abs(it[0] - 7000) <= 30 for it in found)
