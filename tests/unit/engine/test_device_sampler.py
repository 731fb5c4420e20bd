"""Sampling on the device of the logits chooses the host's tokens. Here the device is a CPU."""

import math
from typing import Any

import pytest
import torch
from tests.cases import case, cases
from tests.unit.engine.test_sampling import WANTS, history, random_logits

from hostelry.engine.request import SamplingParams, Structure
from hostelry.engine.sampling.device_sampler import can_sample_on_device, sample_on_device
from hostelry.engine.sampling.history import TokenHistory
from hostelry.engine.sampling.results import NONE_ALLOWED, NOT_FINITE, Sampled
from hostelry.engine.sampling.sampler import sample

MORE: list[dict[str, Any]] = [
    *WANTS,
    {"temperature": 100.0, "top_p": 0.999999},  # keeps nearly all tokens
    {"temperature": 100.0, "top_k": 2000, "top_p": 0.99},
    {"temperature": 1e-6, "min_p": 1e-30},
    {"temperature": 1.0, "top_k": 1},
]


def build_histories(count: int) -> list[TokenHistory]:
    """Histories with all kinds of parameters, and some tokens so far."""
    found = []
    for row in range(count):
        want = MORE[row % len(MORE)]
        one = history(prompt=(1, row, 5), seed=row, stop_token_ids=(2,), **want)
        for token in range(row):
            one.append(token * 7 % 100)
        found.append(one)
    return found


def assert_equal(found: Sampled, expected: Sampled) -> None:
    """The same tokens, and logprobs that differ by rounding."""
    assert (found.token_id, found.error, found.is_refused) == (
        expected.token_id, expected.error, expected.is_refused,
    )  # fmt: skip
    assert (found.logprob is None) == (expected.logprob is None)
    if expected.logprob is not None:
        assert found.logprob == pytest.approx(expected.logprob, abs=1e-5)
    for mine, other in zip(found.top_logprobs, expected.top_logprobs, strict=True):
        assert mine.token_id == other.token_id
        assert mine.logprob == pytest.approx(other.logprob, abs=1e-5)


@pytest.mark.parametrize("vocab", [777, 3000, 49152])
@pytest.mark.parametrize("scale", [0.5, 4.0])
def test_tokens_are_the_hosts(vocab: int, scale: float) -> None:
    generator = torch.Generator().manual_seed(vocab)
    logits = torch.randn(60, vocab, generator=generator) * scale
    histories = build_histories(60)
    expected = sample(logits, histories)
    for found, one in zip(sample_on_device(logits.clone(), histories), expected, strict=True):
        assert_equal(found, one)


def test_a_rows_token_does_not_depend_on_its_company() -> None:
    logits = random_logits(5, rows=30)
    histories = build_histories(30)
    together = sample_on_device(logits.clone(), histories)
    for row, one in enumerate(together):
        assert sample_on_device(logits[row : row + 1].clone(), [histories[row]]) == [one]


@cases(
    "params",
    case("top_k keeps tokens as likely as its last", {"top_k": 2}),
    case("top_p takes the smaller ids first", {"top_p": 0.01}),
    case("min_p keeps equals", {"min_p": 1.0}),
)
def test_equally_likely_tokens(params: dict[str, Any]) -> None:
    logits = torch.zeros(1, 3000)
    logits[0, 7] = 0.5
    past = history(temperature=1.0, **params)
    for number in range(40):
        past.num_generated = number
        assert sample_on_device(logits.clone(), [past]) == sample(logits, [past])


def test_rows_without_a_choice() -> None:
    logits = random_logits(1, rows=4)
    logits[0, 3] = math.nan
    logits[1, 3] = math.inf
    logits[2] = -math.inf
    logits[3] = -math.inf
    logits[3, 2] = 1.0
    unended = TokenHistory(
        SamplingParams(min_new_tokens=1, temperature=1.0), 0, (1,), eos_token_ids=(2, 9999)
    )
    past = [history(temperature=1.0) for _ in range(3)]
    found = sample_on_device(logits.clone(), [*past, unended])
    assert found == sample(logits, [*past, unended])
    assert found[0] == Sampled(None, error=NOT_FINITE)
    assert found[3] == Sampled(None, error=NONE_ALLOWED, is_refused=True)


@cases(
    "params, expected",
    case("a temperature", {"temperature": 1.0}, True),
    case("allowed tokens", {"allowed_token_ids": (1, 2)}, False),
    case("bad words", {"bad_words": ((1, 2),)}, False),
)
def test_bans_are_applied_on_the_host(params: dict[str, Any], expected: bool) -> None:
    assert can_sample_on_device(history(**params)) is expected


def test_a_structure_is_applied_on_the_host() -> None:
    params = SamplingParams(structure=Structure("regex", "a"))
    grammar: Any = object()
    assert not can_sample_on_device(TokenHistory(params, 0, (1,), grammar=grammar))
