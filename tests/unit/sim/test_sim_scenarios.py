"""Scenarios compared with the traces that they imitate: every figure is within a tenth."""

import numpy as np
import pytest
from tests.cases import case, cases

from hostelry.base.errors import TerminalError
from hostelry.sim.arrivals import (
    CHAT_LASTS_S,
    CHAT_PUBLISHED,
    CODE_LASTS_S,
    CODE_PUBLISHED,
    get_arrival_statistics,
    modulate_arrivals,
    steady,
)
from hostelry.sim.scenario import (
    ADAPTER_SHARES,
    DEFAULT_SEED,
    LONGTAIL_SHARES,
    SCENARIOS,
    build_scenario,
)
from hostelry.sim.trace import Block, FloatArray

SEEDS = (DEFAULT_SEED, 1, 2, 3)
LASTS_S = {"chat-steady": CHAT_LASTS_S, "code-bursty": CODE_LASTS_S}
# Source: Azure's LLM inference traces of 2023, conversation and code.
ARRIVALS = {"chat-steady": CHAT_PUBLISHED, "code-bursty": CODE_PUBLISHED}
LENGTHS = {
    "chat-steady": {
        "input": {"p50": 1020, "p90": 2734, "p99": 4142, "mean": 1155},
        "output": {"p50": 129, "p90": 424, "p99": 601, "mean": 211},
    },
    "code-bursty": {
        "input": {"p50": 1469, "p90": 5188, "mean": 2048},
        "output": {"p50": 13, "p90": 55, "p99": 251, "mean": 28},
    },
}


def block(name: str, seed: int = DEFAULT_SEED) -> Block:
    blocks = list(build_scenario(name, seed).blocks)
    assert len(blocks) == 1
    return blocks[0]


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", sorted(ARRIVALS))
def test_arrivals_are_as_published_for_every_seed(name: str, seed: int) -> None:
    found = get_arrival_statistics(block(name, seed).at_s, LASTS_S[name]).by_name()
    wanted = ARRIVALS[name]
    assert {it: found[it] for it in wanted} == pytest.approx(dict(wanted), rel=0.1)


@pytest.mark.parametrize("column", ["input", "output"])
@pytest.mark.parametrize("name", sorted(LENGTHS))
def test_lengths_are_as_published(name: str, column: str) -> None:
    tokens = getattr(block(name), f"{column}_tokens")
    quantiles = {f"p{it}": np.percentile(tokens, it) for it in (50, 90, 99)}
    found = {**quantiles, "mean": tokens.mean()}
    wanted = LENGTHS[name][column]
    assert {it: found[it] for it in wanted} == pytest.approx(wanted, rel=0.1)


def test_prompts_of_code_end_at_the_trace_s_longest() -> None:
    assert block("code-bursty").input_tokens.max() <= 7437


@cases(
    "shares, first, wanted",
    case("94.1 % of a market's models get 1.35 %", LONGTAIL_SHARES, 59, 0.9865),
    case("1 % of the adapters get 27.7 %", ADAPTER_SHARES, 4, 0.277),
    case("10 % of the adapters get 57 %", ADAPTER_SHARES, 40, 0.57),
)
def test_popularity_is_as_published(shares: FloatArray, first: int, wanted: float) -> None:
    assert shares[:first].sum() == pytest.approx(wanted, rel=0.001)
    assert shares.sum() == pytest.approx(1.0)


@pytest.mark.parametrize("name", sorted(SCENARIOS))
def test_a_seed_gives_the_same_trace_again_and_another_seed_another(name: str) -> None:
    first, again, other = block(name, 5), block(name, 5), block(name, 6)
    for column in ("at_s", "input_tokens", "output_tokens", "model"):
        assert np.array_equal(getattr(first, column), getattr(again, column))
    assert not np.array_equal(first.input_tokens, other.input_tokens)


@pytest.mark.parametrize("name", sorted(SCENARIOS))
def test_blocks_are_in_order_within_the_trace_and_of_its_models(name: str) -> None:
    trace = build_scenario(name)
    found = block(name)
    assert trace.lasts_s is not None
    assert np.all(np.diff(found.at_s) >= 0)
    assert 0 <= found.at_s[0] <= found.at_s[-1] <= trace.lasts_s
    assert 0 <= found.model.min() <= found.model.max() < len(trace.models)
    assert found.input_tokens.min() >= 1
    assert found.output_tokens.min() >= 1


@pytest.mark.parametrize(
    ("name", "before_s", "factor"),
    [("step-4x", 600.0, 4.0), ("flash-20x", 600.0, 20.0)],
)
def test_a_step_is_where_the_trace_has_it(name: str, before_s: float, factor: float) -> None:
    trace, found = build_scenario(name), block(name)
    assert trace.steps_s == (before_s,)
    before = (found.at_s < before_s).sum() / before_s
    after = ((found.at_s >= before_s) & (found.at_s < before_s + 100.0)).sum() / 100.0
    assert after / before == pytest.approx(factor, rel=0.15)


def test_days_of_three_time_zones_have_their_peaks_eight_hours_apart() -> None:
    found = block("diurnal-3tz")
    hours = [found.at_s[found.model == it] // 3600 for it in range(3)]
    busiest = [int(np.bincount(it.astype(int), minlength=24).argmax()) for it in hours]
    gaps = [(busiest[(it + 1) % 3] - busiest[it]) % 24 for it in range(3)]
    assert all(5 <= it <= 11 for it in gaps), busiest


@pytest.mark.parametrize("cv", [0.5, 1.0, 3.0])
def test_steady_arrivals_have_the_asked_rate_and_variation(cv: float) -> None:
    found = get_arrival_statistics(steady(np.random.default_rng(1), 20.0, 7200.0, cv), 7200.0)
    assert found.rate == pytest.approx(20.0, rel=0.05)
    assert found.cv == pytest.approx(cv, rel=0.05)


def test_nothing_arrives_where_the_rate_is_zero() -> None:
    edges, rates = np.array([0.0, 10.0, 20.0, 30.0]), np.array([5.0, 0.0, 5.0])
    at_s = modulate_arrivals(np.random.default_rng(1), edges, rates, 1.0)
    assert not ((at_s > 10.0) & (at_s < 20.0)).any()
    assert (at_s > 20.0).any()


def test_statistics_of_next_to_nothing_are_refused() -> None:
    with pytest.raises(ValueError, match="two arrivals"):
        get_arrival_statistics(np.array([1.0]), 3600.0)


def test_an_unknown_scenario_is_refused_with_the_names_there_are() -> None:
    with pytest.raises(TerminalError, match=r"no scenario chatty.*chat-steady"):
        build_scenario("chatty")
