"""Sampling against transformers' logits processors, and its randomness."""

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.cases import case, cases

from hostelry.engine.request import Request, SamplingParams, Structure
from hostelry.engine.sampling.beams import best, fan_out
from hostelry.engine.sampling.draw import draw_uniform
from hostelry.engine.sampling.history import TokenCounts, TokenHistory, check_token_ids
from hostelry.engine.sampling.processors import LogitPositions, add, repetition_penalty
from hostelry.engine.sampling.results import NONE_ALLOWED, NOT_FINITE, Sampled
from hostelry.engine.sampling.sampler import sample
from hostelry.engine.sampling.truncate import Floats, TruncationLimits, compute_mass, keep

VOCAB = 3000


def random_logits(seed: int, *, scale: float = 3.0, rows: int = 1) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(rows, VOCAB, generator=generator) * scale


def finite(logits: torch.Tensor) -> set[int]:
    return set(torch.isfinite(logits).nonzero().flatten().tolist())


def kept(logits: torch.Tensor, top_k: int = 0, top_p: float = 1.0, min_p: float = 0.0) -> set[int]:
    x_RV: Floats = logits.numpy()
    mass = compute_mass(x_RV, x_RV.max(axis=1), np.ones(1))
    result = keep(
        x_RV, mass, TruncationLimits(np.array([top_k]), np.array([top_p]), np.array([min_p]))
    )
    return set(result.tokens_RN[0, : result.num_R[0]].tolist())


@pytest.mark.parametrize("scale", [0.1, 3.0, 20.0])
@pytest.mark.parametrize("seed", range(3))
def test_truncation_equals_transformers(seed: int, scale: float) -> None:
    from transformers import MinPLogitsWarper, TopKLogitsWarper, TopPLogitsWarper

    logits = random_logits(seed, scale=scale)
    ids: Any = torch.tensor([[1]])
    for top_k in (1, 7, 40, 300, VOCAB):
        expected = TopKLogitsWarper(top_k)(ids, logits.clone())[0]
        # Masses too small for a number of single precision are as good as none.
        possible = finite(logits[0].where(logits[0] > logits.max() - 87, -math.inf))
        assert finite(expected) & possible <= kept(logits, top_k=top_k) <= finite(expected)
    for top_p in (1e-9, 0.3, 0.9, 0.999):
        expected = TopPLogitsWarper(top_p)(ids, logits.clone())[0]
        # Sums of thousands of probabilities round differently at the very edge.
        assert len(kept(logits, top_p=top_p) ^ finite(expected)) <= (scale == 0.1)
    for min_p in (0.01, 0.2, 1.0):
        expected = MinPLogitsWarper(min_p)(ids, logits.clone())[0]
        assert kept(logits, min_p=min_p) == finite(expected)


def test_limits_apply_one_after_the_other() -> None:
    from transformers import MinPLogitsWarper, TopKLogitsWarper, TopPLogitsWarper

    ids: Any = torch.tensor([[1]])
    for seed in range(5):
        logits = random_logits(seed, scale=1.5)
        expected = logits.clone()
        for warp in (TopKLogitsWarper(60), TopPLogitsWarper(0.7), MinPLogitsWarper(0.1)):
            expected = warp(ids, expected)
        assert kept(logits, top_k=60, top_p=0.7, min_p=0.1) == finite(expected[0])


def test_equally_likely_tokens_at_the_edge() -> None:
    logits = torch.zeros(1, 500)
    logits[0, 7] = 1.0
    assert kept(logits, top_k=2) == set(range(500))  # all of those equal to the second
    assert kept(logits, top_p=(math.e + 2.5) / (math.e + 499)) == {7, 0, 1, 2}  # smaller ids first


@pytest.mark.parametrize("penalty", [0.5, 1.3, 2.0])
def test_repetition_penalty_equals_transformers(penalty: float) -> None:
    from transformers import RepetitionPenaltyLogitsProcessor

    logits = random_logits(4)
    tokens = [5, 9, 5, 2, 700]
    expected = RepetitionPenaltyLogitsProcessor(penalty)(torch.tensor([tokens]), logits.clone())
    seen = np.array(sorted(set(tokens)))
    changed = logits.numpy().copy()
    repetition_penalty(changed, LogitPositions.join([(0, seen, np.full(4, penalty, np.float32))]))
    assert np.array_equal(changed, expected.numpy())


def test_numbers_stay_numbers() -> None:
    x = np.array([[3e38, -3e38, -np.inf]], np.float32)
    add(x, LogitPositions.join([(0, np.arange(3), np.array([3e38, -3e38, 5], np.float32))]))
    assert np.isfinite(x[0, :2]).all()
    assert np.isneginf(x[0, 2])


@given(st.lists(st.integers(0, 300), max_size=400))
def test_counts_are_those_of_a_counter(tokens: list[int]) -> None:
    counts = TokenCounts(tokens[:50])
    for token in tokens[50:]:
        counts.add(token)
    counted = zip(counts.tokens.tolist(), counts.counts.tolist(), strict=True)
    assert dict(counted) == Counter(tokens)


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


WANTS: list[dict[str, Any]] = [
    {},
    {"num_logprobs": 4},
    {"temperature": 1.0},
    {"temperature": 0.7, "num_logprobs": 0},
    {"temperature": 1.3, "top_k": 30},
    {"temperature": 1.0, "top_p": 0.9, "num_logprobs": 3},
    {"temperature": 1.0, "min_p": 0.02},
    {"temperature": 0.9, "top_k": 60, "top_p": 0.95, "min_p": 0.01, "repetition_penalty": 1.2},
    {"presence_penalty": 0.7, "frequency_penalty": 0.2, "num_logprobs": 20},
    {"temperature": 1.0, "logit_bias": ((3, 5.0), (9, -100.0)), "min_new_tokens": 5},
    {"repetition_penalty": 0.8, "logit_bias": ((0, 2.0),)},
]


@pytest.mark.parametrize("vocab", [777, 3000, 49152])
def test_every_row_is_bitwise_the_same_alone_and_in_any_batch(vocab: int) -> None:
    generator = torch.Generator().manual_seed(vocab)
    logits = torch.randn(33, vocab, generator=generator) * 4
    histories = []
    for row in range(33):
        one = history(prompt=(1, row, 5), seed=row, stop_token_ids=(2,), **WANTS[row % len(WANTS)])
        for token in range(row):
            one.append(token * 7 % 100)
        histories.append(one)
    alone = [sample(logits[row : row + 1].clone(), [histories[row]])[0] for row in range(33)]
    threads = torch.get_num_threads()
    try:
        for rows in (range(33), range(32, -1, -1), range(0, 33, 2), range(5, 12), [4, 4, 4]):
            for torch_threads in (1, 2):
                torch.set_num_threads(torch_threads)
                together = sample(logits[list(rows)], [histories[row] for row in rows])
                assert together == [alone[row] for row in rows]
    finally:
        torch.set_num_threads(threads)


@given(st.data())
def test_rows_are_independent_whatever_they_want(data: st.DataObject) -> None:
    count = data.draw(st.integers(1, 11))
    seed = data.draw(st.integers(0, 1000))
    scale = data.draw(st.sampled_from([0.0, 0.5, 5.0, 50.0]))
    logits = random_logits(seed, scale=scale, rows=count)
    wants = [data.draw(st.sampled_from(WANTS)) for _ in range(count)]
    histories = [history(seed=seed + row, **want) for row, want in enumerate(wants)]
    for row, together in enumerate(sample(logits, histories)):
        assert sample(logits[row : row + 1].clone(), [histories[row]]) == [together]


def test_logits_are_left_as_they_were() -> None:
    logits = random_logits(3, rows=len(WANTS))
    before = logits.clone()
    sample(logits, [history(**want) for want in WANTS])
    assert torch.equal(logits, before)


class Unread:
    """Logits that must not be looked at."""

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"the logits were read: {name}")


def test_plain_rows_take_what_the_decoder_found() -> None:
    unread: Any = Unread()
    sampled = sample(
        unread,
        [history(), history()],
        greedy_S=np.array([4, 9], np.int32),
        finite_S=np.array([True, False]),
    )
    assert sampled == [Sampled(4), Sampled(None, error=NOT_FINITE)]


def test_of_equally_likely_tokens_the_smallest_id_is_greedy() -> None:
    logits = torch.zeros(2, VOCAB)
    logits[:, [50, 20, 700]] = 1.0
    assert [it.token_id for it in sample(logits, [history(), history(num_logprobs=1)])] == [20, 20]


def test_a_bias_moves_the_choice() -> None:
    logits = torch.zeros(1, VOCAB)
    assert sample(logits, [history(logit_bias=((77, 1.5), (8, 1.0)))])[0].token_id == 77
    banned = history(logit_bias=tuple((token, -100.0) for token in range(5)), temperature=1.0)
    tokens = set()
    for _ in range(50):
        tokens.add(sample(logits[:, :6], [banned])[0].token_id)
        banned.num_generated += 1
    assert tokens == {5}


def test_a_biased_token_must_exist() -> None:
    params = SamplingParams(logit_bias=((9, 1.0),))
    check_token_ids(params, 10)
    with pytest.raises(ValueError, match="token id 9; the model's vocabulary has 9"):
        check_token_ids(params, 9)


@cases(
    "ignore_eos, expected",
    case("neither the model's end nor a stop token comes early", False, [5, 5, 8]),
    case("an end that is ignored ends nothing", True, [8, 8, 8]),
)
def test_nothing_ends_before_the_fewest_tokens(ignore_eos: bool, expected: list[int]) -> None:
    logits = torch.zeros(1, VOCAB)
    logits[0, [8, 9, 5]] = torch.tensor([3.0, 2.0, 1.0])
    params = SamplingParams(min_new_tokens=2, stop_token_ids=(9, VOCAB + 3), ignore_eos=ignore_eos)
    past = TokenHistory(params, 0, (1,), eos_token_ids=(8,))
    tokens = []
    for _ in range(3):
        (sampled,) = sample(logits, [past])
        assert sampled.token_id is not None
        tokens.append(sampled.token_id)
        past.append(sampled.token_id)
    assert tokens == expected


def test_a_row_without_a_token_left_is_an_error() -> None:
    logits = torch.full((2, 4), -math.inf)
    logits[:, 2] = 1.0
    past = [
        TokenHistory(SamplingParams(min_new_tokens=1, temperature=t), 0, (1,), eos_token_ids=(2,))
        for t in (0.0, 1.0)
    ]
    assert sample(logits, past) == [Sampled(None, error=NONE_ALLOWED, is_refused=True)] * 2


@pytest.mark.parametrize("temperature", [1e-300, 1e-6, 100.0])
def test_extreme_temperatures(temperature: float) -> None:
    logits = random_logits(1, scale=30.0)
    (sampled,) = sample(logits, [history(temperature=temperature, top_p=0.999999, min_p=1e-30)])
    assert sampled.token_id is not None
    if temperature < 1:
        assert sampled.token_id == int(logits[0].argmax())


def test_an_impossible_token_is_never_drawn() -> None:
    logits = torch.full((1, 900), -math.inf)
    logits[0, [0, 300, 899]] = 0.0
    past = history(temperature=1.0)
    drawn: Counter[int | None] = Counter()
    for _ in range(300):
        drawn[sample(logits, [past])[0].token_id] += 1
        past.num_generated += 1
    assert set(drawn) == {0, 300, 899}


@cases(
    "wrong, message",
    case("bias above 100", {"logit_bias": ((1, 101.0),)}, "logit_bias is 101"),
    case("no number", {"logit_bias": ((1, math.nan),)}, "logit_bias is nan"),
    case("negative token", {"logit_bias": ((-1, 1.0),)}, "token id is -1"),
    case("negative tokens", {"min_new_tokens": -1}, "min_new_tokens"),
    case("no end", {"structure": Structure("regex", "a"), "ignore_eos": True}, "contradict"),
    case("too soon", {"structure": Structure("regex", "a"), "min_new_tokens": 1}, "contradict"),
)
def test_values_out_of_range_are_refused(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        SamplingParams(**wrong)


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
    wants: list[dict[str, Any]] = [{}, {"temperature": 0.5}, {"num_logprobs": 2, "min_p": 0.1}]
    for params in wants:
        broken, whole = sample(logits, [history(**params), history()])
        assert broken == Sampled(None, error=NOT_FINITE)
        assert whole.token_id == int(logits[1].argmax())


def test_no_rows() -> None:
    assert sample(torch.empty(0, VOCAB), []) == []


@given(st.integers(-(2**70), 2**70), st.integers(0, 2**40))
def test_draws_lie_in_the_unit_interval(seed: int, index: int) -> None:
    assert 0 <= draw_uniform(seed, index) < 1


def test_draws_are_spread_evenly() -> None:
    for draws in (
        [draw_uniform(42, index) for index in range(4000)],
        [draw_uniform(seed, 3) for seed in range(4000)],
    ):
        tenths = Counter(int(10 * value) for value in draws)
        assert all(300 < tenths[tenth] < 500 for tenth in range(10))


def seeds(requests: Sequence[Request]) -> list[int | None]:
    return [each.sampling.seed for each in requests]


def test_a_request_fans_out_into_different_ones_each_time_the_same() -> None:
    request = Request(
        id="a", prompt_token_ids=(1, 2), sampling=SamplingParams(seed=5, temperature=1)
    )
    several = fan_out(request, 4)
    assert several == fan_out(request, 4)
    assert several[:2] == fan_out(request, 2)
    assert [each.id for each in several] == ["a", "a/1", "a/2", "a/3"]
    assert len(set(seeds(several))) == 4
    assert seeds(several)[0] == 5  # the first equals the result of a single request
    assert {each.prompt_token_ids for each in several} == {(1, 2)}
    assert seeds(fan_out(Request(id="b", prompt_token_ids=(1,), sampling=SamplingParams()), 2)) == [
        None, None,
    ]  # fmt: skip


def test_one_of_a_request_is_the_request() -> None:
    request = Request(id="a", prompt_token_ids=(1,), sampling=SamplingParams())
    assert fan_out(request, 1) == [request]
    with pytest.raises(ValueError, match="0 sequences"):
        fan_out(request, 0)


@cases(
    "logprobs, count, expected",
    case("by their sum", [[-3.0], [-1.0, -1.0], [-0.5]], 2, [2, 1]),
    case("of equal ones the first first", [[-1.0], [-0.5, -0.5]], 2, [0, 1]),
    case("nothing is certain", [[-1.0], []], 1, [1]),
)
def test_the_best_sequences_come_first(
    logprobs: list[list[float]], count: int, expected: list[int]
) -> None:
    assert best(logprobs, count) == expected
