"""Banned next tokens, as in transformers, or as in vLLM for bans that only vLLM has."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.cases import case, cases
from transformers import NoRepeatNGramLogitsProcessor

from hostelry.engine.request import SamplingParams
from hostelry.engine.sampling.history import TokenBans, TokenHistory
from hostelry.engine.sampling.processors import change

VOCAB = 6
TOKENS = st.lists(st.integers(0, VOCAB - 1), min_size=1, max_size=24)


def banned(params: SamplingParams, prompt: list[int], generated: list[int]) -> set[int]:
    """The tokens that may not follow, of a row of equal logits."""
    history = TokenHistory(params, 0, prompt)
    for token_id in generated:
        history.append(token_id)
    x_RV = np.zeros((1, VOCAB), np.float32)
    change(x_RV, [history])
    return set(np.flatnonzero(np.isneginf(x_RV[0])).tolist())


@given(TOKENS, st.integers(0, 24), st.integers(1, 5))
def test_repeated_n_grams_are_those_of_transformers(
    tokens: list[int], num_prompt: int, size: int
) -> None:
    num_prompt = min(max(1, num_prompt), len(tokens))
    params = SamplingParams(no_repeat_ngram_size=size)
    ours = banned(params, tokens[:num_prompt], tokens[num_prompt:])
    scores = NoRepeatNGramLogitsProcessor(size)(torch.tensor([tokens]), torch.zeros(1, VOCAB))
    assert ours == set(torch.isneginf(scores[0]).nonzero().flatten().tolist())


@cases(
    "words, prompt, generated, expected",
    case("one token is banned at once", [(3,)], [1], [], {3}),
    case("the last of two, after the first", [(1, 2)], [0], [1], {2}),
    case("not after another token", [(1, 2)], [0], [1, 0], set()),
    case("the prompt does not count", [(1, 2)], [1], [], set()),
    case("several words", [(1, 2, 3), (5,)], [0], [0, 1, 2], {3, 5}),
    case("the same token twice", [(1, 1)], [0], [1], {1}),
)
def test_a_bad_word_is_never_completed(
    words: list[tuple[int, ...]], prompt: list[int], generated: list[int], expected: set[int]
) -> None:
    assert banned(SamplingParams(bad_words=tuple(words)), prompt, generated) == expected


def test_only_allowed_tokens_may_come() -> None:
    assert banned(SamplingParams(allowed_token_ids=(2, 4)), [0], [2]) == {0, 1, 3, 5}
    both = SamplingParams(allowed_token_ids=(2, 4), bad_words=((4,),))
    assert banned(both, [0], []) == {0, 1, 3, 4, 5}


def test_a_request_without_bans_has_none() -> None:
    assert TokenBans.build(SamplingParams(), [1, 2]) is None
    assert TokenHistory(SamplingParams(), 0, [1]).is_plain
    assert not TokenHistory(SamplingParams(bad_words=((1,),)), 0, [1]).is_plain


def test_a_word_without_tokens_is_refused() -> None:
    with pytest.raises(ValueError, match="no token"):
        SamplingParams(bad_words=((),))
