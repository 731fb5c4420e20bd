"""Texts and pairs to token ids: special tokens stay when a text is cut."""

from pathlib import Path
from typing import Any

import pytest
from tests.pooled_models import write_word_tokenizer
from tokenizers import Tokenizer

from hostelry.containers.lmi.pooling.forms import InputsForm, PooledCall, PooledText, VectorForm
from hostelry.containers.lmi.pooling.run import PooledPrompt, TextLimits, build_prompts
from hostelry.containers.lmi.refusal import Refusal
from hostelry.engine.pooled import PoolingFacts

LIMITS = TextLimits(max_tokens=9, vocab_size=14)
FORM = InputsForm(vectors=VectorForm(facts=PoolingFacts(kind="embed", dimension=2)), listed=True)
THE, SEA, IS, BLUE, AND, DEEP = range(4, 10)


@pytest.fixture
def tokenizer(tmp_path: Path) -> Tokenizer:
    return write_word_tokenizer(tmp_path)


def prompt(tokenizer: Tokenizer, text: PooledText, **more: Any) -> PooledPrompt:
    call = PooledCall(texts=(text,), adapters=(None,), form=FORM, model="m", **more)
    return build_prompts(call, tokenizer, LIMITS)[0]


def test_a_pair_has_types_and_a_text_has_none(tokenizer: Tokenizer) -> None:
    assert prompt(tokenizer, PooledText("the sea")) == PooledPrompt((1, THE, SEA, 2), ())
    pair = prompt(tokenizer, PooledText("the sea", "is blue"))
    assert pair == PooledPrompt((1, THE, SEA, 2, IS, BLUE, 2), (0, 0, 0, 0, 1, 1, 1))


@pytest.mark.parametrize("most", range(4, 10))
def test_a_cut_pair_is_that_of_the_tokenizers_own_longest_first(
    tokenizer: Tokenizer, most: int
) -> None:
    texts = ("the sea is blue and deep", "deep and blue")
    got = prompt(tokenizer, PooledText(*texts), truncate=most)
    tokenizer.enable_truncation(most, strategy="longest_first")
    want = tokenizer.encode(*texts)
    assert got == PooledPrompt(tuple(want.ids), tuple(want.type_ids))


def test_a_cut_text_keeps_its_special_tokens_on_either_side(tokenizer: Tokenizer) -> None:
    text = PooledText("the sea is blue")
    assert prompt(tokenizer, text, truncate=4).token_ids == (1, THE, SEA, 2)
    assert prompt(tokenizer, text, truncate=4, side="left").token_ids == (1, IS, BLUE, 2)
    bare = prompt(tokenizer, text, truncate=2, add_special_tokens=False)
    assert bare.token_ids == (THE, SEA)


def test_a_text_too_long_for_the_model_names_the_way_out(tokenizer: Tokenizer) -> None:
    with pytest.raises(Refusal, match="truncate_prompt_tokens to -1"):
        prompt(tokenizer, PooledText("sea " * 8))
    assert len(prompt(tokenizer, PooledText("sea " * 8), truncate=-1).token_ids) == 9
    with pytest.raises(Refusal, match="leave no room"):
        prompt(tokenizer, PooledText("sea " * 8), truncate=2)
