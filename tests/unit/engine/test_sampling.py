"""Sampling against transformers' logits processors, and its randomness."""

import math
from collections import Counter
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from hostelry.engine.request import SamplingParams
from hostelry.engine.sampling.draw import uniform
from hostelry.engine.sampling.processors import (
    count_penalties,
    keep_min_p,
    keep_top_k,
    keep_top_p,
    repetition_penalty,
)
from hostelry.engine.sampling.sampler import TokenHistory, sample

VOCAB = 3000


def random_logits(seed: int, *, scale: float = 3.0, rows: int = 1) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(rows, VOCAB, generator=generator) * scale


def kept(logits: torch.Tensor) -> set[int]:
    return set(torch.isfinite(logits).nonzero().flatten().tolist())


@pytest.mark.parametrize("scale", [0.1, 3.0, 20.0])
@pytest.mark.parametrize("seed", range(3))
def test_truncation_equals_transformers(seed: int, scale: float) -> None:
    from transformers import MinPLogitsWarper, TopKLogitsWarper, TopPLogitsWarper

    logits = random_logits(seed, scale=scale)
    ids: Any = torch.tensor([[1]])
    for top_k in (1, 7, VOCAB, VOCAB + 5):
        expected = TopKLogitsWarper(top_k)(ids, logits.clone())[0]
        assert torch.equal(keep_top_k(logits[0], top_k), expected)
    for top_p in (1e-9, 0.3, 0.9, 0.999):
        expected = TopPLogitsWarper(top_p)(ids, logits.clone())[0]
        # Sums of thousands of probabilities round differently at the very edge.
        assert len(kept(keep_top_p(logits[0], top_p)) ^ kept(expected)) <= (scale == 0.1)
    for min_p in (0.01, 0.2, 1.0):
        expected = MinPLogitsWarper(min_p)(ids, logits.clone())[0]
        assert torch.equal(keep_min_p(logits[0], min_p), expected)


@pytest.mark.parametrize("penalty", [0.5, 1.3, 2.0])
def test_repetition_penalty_equals_transformers(penalty: float) -> None:
    from transformers import RepetitionPenaltyLogitsProcessor

    logits = random_logits(4)
    tokens = [5, 9, 5, 2, 700]
    expected = RepetitionPenaltyLogitsProcessor(penalty)(torch.tensor([tokens]), logits.clone())
    seen = torch.tensor(sorted(set(tokens)))
    assert torch.equal(repetition_penalty(logits[0], seen, penalty), expected[0])


def test_count_penalties_follow_their_definition() -> None:
    logits = random_logits(5)[0]
    changed = count_penalties(logits, torch.tensor([3, 8]), torch.tensor([1.0, 4.0]), 0.5, 0.25)
    expected = logits.clone()
    expected[3] -= 0.5 + 0.25
    expected[8] -= 0.5 + 4 * 0.25
    assert torch.allclose(changed, expected)


def history(prompt: tuple[int, ...] = (1,), seed: int = 0, **params: Any) -> TokenHistory:
    return TokenHistory(SamplingParams(**params), seed, prompt)


def test_penalties_count_what_they_should() -> None:
    logits = torch.zeros(1, VOCAB)
    logits[0, 7] = 2.0
    logits[0, 8] = 1.5
    in_prompt: dict[str, Any] = {"prompt": (7,)}
    assert sample(logits, [history(**in_prompt, repetition_penalty=2.0)])[0].token_id == 8
    assert sample(logits, [history(**in_prompt, presence_penalty=2.0)])[0].token_id == 7
    generated = history(presence_penalty=1.0)
    generated.append(7)
    assert sample(logits, [generated])[0].token_id == 8
    often = history(frequency_penalty=0.3)
    often.append(7)
    assert sample(logits, [often])[0].token_id == 7
    often.append(7)
    assert sample(logits, [often])[0].token_id == 8


def test_frequencies_follow_the_distribution() -> None:
    logits = torch.full((1, VOCAB), -50.0)
    logits[0, [10, 20, 30]] = torch.tensor([0.5, 0.3, 0.2]).log() * 2  # undone by temperature 2
    past = history(temperature=2.0, seed=11)
    counts: Counter[int | None] = Counter()
    for _ in range(3000):
        (sampled,) = sample(logits, [past])
        counts[sampled.token_id] += 1
        past.num_generated += 1
    assert set(counts) == {10, 20, 30}
    for token, share in ((10, 0.5), (20, 0.3), (30, 0.2)):
        assert abs(counts[token] / 3000 - share) < 0.04


def test_a_seeded_row_does_not_depend_on_its_neighbours() -> None:
    logits = random_logits(6, rows=8)
    params: dict[str, Any] = {"temperature": 1.0, "top_p": 0.95, "top_k": 50}
    histories = [history(seed=seed, **params) for seed in range(8)]
    together = sample(logits, histories)
    for row in range(8):
        assert sample(logits[row : row + 1], [histories[row]]) == [together[row]]
    backwards = sample(logits.flip(0), histories[::-1])
    assert backwards[::-1] == together


def test_seeds_matter() -> None:
    logits = random_logits(7, scale=1.0)
    tokens = {sample(logits, [history(seed=s, temperature=1.0)])[0].token_id for s in range(20)}
    assert len(tokens) > 10


def test_logprobs_are_of_the_untouched_distribution() -> None:
    logits = random_logits(8)
    params: dict[str, Any] = {
        "num_logprobs": 3,
        "temperature": 0.7,
        "top_k": 2,
        "repetition_penalty": 1.5,
    }
    (sampled,) = sample(logits, [history(prompt=(1, 2, 3), **params)])
    expected = logits[0].log_softmax(0)
    assert sampled.logprob == pytest.approx(float(expected[sampled.token_id]))
    best = torch.topk(expected, 3)
    assert [t.token_id for t in sampled.top_logprobs] == best.indices.tolist()
    assert [t.logprob for t in sampled.top_logprobs] == pytest.approx(best.values.tolist())


def test_no_alternatives_but_a_logprob() -> None:
    (sampled,) = sample(random_logits(8), [history(num_logprobs=0)])
    assert sampled.logprob is not None
    assert sampled.top_logprobs == ()


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_logits_that_are_no_numbers_choose_nothing(value: float) -> None:
    logits = random_logits(9, rows=2)
    logits[0, 5] = value
    broken, whole = sample(logits, [history(), history()])
    assert broken.token_id is None
    assert whole.token_id == int(logits[1].argmax())


def test_no_rows() -> None:
    assert sample(torch.empty(0, VOCAB), []) == []


@given(st.integers(-(2**70), 2**70), st.integers(0, 2**40))
def test_draws_lie_in_the_unit_interval(seed: int, index: int) -> None:
    assert 0 <= uniform(seed, index) < 1


def test_draws_are_spread_evenly() -> None:
    for draws in (
        [uniform(42, index) for index in range(4000)],
        [uniform(seed, 3) for seed in range(4000)],
    ):
        tenths = Counter(int(10 * value) for value in draws)
        assert all(300 < tenths[tenth] < 500 for tenth in range(10))
