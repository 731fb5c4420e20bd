"""On a CUDA device: scores of prompts, bans, cache salts and a merged adapter, against PEFT."""

from pathlib import Path
from typing import Any

import pytest
import torch
from tests.models import random_adapter, tiny_llama
from tests.unit.engine.oracle import (
    PROMPTS,
    assert_nothing_is_held,
    greedy,
    reference_logits,
    reference_model,
    reference_tokens,
    run,
)
from tests.unit.engine.test_prompt_logprobs import PROMPTS as SCORED
from tests.unit.engine.test_prompt_logprobs import assert_close, reference, scored, scoring

from hostelry.engine.engine import Engine, EngineConfig
from hostelry.engine.request import Request, SamplingParams

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

COUNT = 12
NAMES = (None, "a", "b")
CONFIG: dict[str, Any] = {"dtype": "fp32", "pool_bytes": 4 << 20, "max_batch_size": 16}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_llama(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="module")
def folders(model: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("adapters")
    ranks = {"a": 3, "b": 8}
    return {name: random_adapter(root / name, model, rank, seed=rank) for name, rank in
            ranks.items()}  # fmt: skip


@pytest.fixture(scope="module")
def peft(model: Path, folders: dict[str, Path]) -> Any:
    return reference_model(model, folders)


def loaded(model: Path, folders: dict[str, Path], **changes: Any) -> Engine:
    engine = Engine.load(model, EngineConfig(**{**CONFIG, **changes}))
    for name, folder in folders.items():
        engine.load_adapter(name, folder)
    return engine


@pytest.mark.parametrize("kernels", ["auto", "torch"])
@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({}, id="whole prompts"),
        pytest.param({"max_batch_size": 5, "max_batched_tokens": 17}, id="chunks up to seventeen"),
    ],
)
def test_scores_of_prompts_are_those_of_peft(
    kernels: str, changes: dict[str, Any], model: Path, folders: dict[str, Path], peft: Any
) -> None:
    engine = loaded(model, folders, kernels=kernels, **changes)
    cases = [(prompt, name) for prompt in SCORED for name in NAMES]
    requests = [scoring(*case) for case in cases]
    found, _ = scored(engine, requests)
    for request, case in zip(requests, cases, strict=True):
        assert_close(found[request.id], reference(peft, *case))
    assert_nothing_is_held(engine)
    engine.close()


def test_banned_and_biased_tokens_do_not_come_and_neighbours_are_unchanged(
    model: Path, folders: dict[str, Path], peft: Any
) -> None:
    engine = loaded(model, folders)
    prompt, name = PROMPTS[0], "a"
    free = reference_tokens(peft, prompt, name, COUNT)
    banned, word, bias = free[0], (free[1], free[2]), ((17, 3.0), (free[3], -2.0))
    params: dict[str, dict[str, Any]] = {
        "free": {},
        "banned": {"bad_words": ((banned,),)},
        "word": {"bad_words": (word,)},
        "biased": {"logit_bias": bias},
        "allowed": {"allowed_token_ids": (3, 9, 27, 81)},
    }
    found = run(
        engine,
        [
            Request(
                id=key,
                prompt_token_ids=prompt,
                adapter=name,
                sampling=SamplingParams(max_new_tokens=COUNT, ignore_eos=True, **more),
            )
            for key, more in params.items()
        ],
    )

    def expected(key: str) -> list[int]:
        tokens = list(prompt)
        for _ in range(COUNT):
            logits_V = reference_logits(peft, tokens, name).clone()
            made = tokens[len(prompt) :]
            if key == "banned":
                logits_V[banned] = -torch.inf
            if key == "word" and made and made[-1] == word[0]:
                logits_V[word[1]] = -torch.inf
            if key == "biased":
                for token, value in bias:
                    logits_V[token] += value
            if key == "allowed":
                allowed = torch.tensor([3, 9, 27, 81])
                logits_V = torch.full_like(logits_V, -torch.inf).scatter(
                    0, allowed, logits_V[allowed]
                )
            tokens.append(int(logits_V.argmax()))
        return tokens[len(prompt) :]

    assert found == {key: expected(key) for key in params}
    assert found["free"] == free
    engine.close()


def test_prefixes_are_shared_by_requests_of_one_cache_salt_alone(
    model: Path, folders: dict[str, Path], peft: Any
) -> None:
    engine = loaded(model, folders)
    prompt = tuple(range(20, 60))
    wanted = reference_tokens(peft, prompt, "b", COUNT)

    def cached(salt: str) -> int:
        before = engine.stats.num_cached_tokens
        sampling = SamplingParams(max_new_tokens=COUNT, ignore_eos=True)
        request = Request(
            id="x", prompt_token_ids=prompt, sampling=sampling, adapter="b", cache_salt=salt
        )
        assert run(engine, [request]) == {"x": wanted}
        return engine.stats.num_cached_tokens - before

    assert [cached(salt) for salt in ("one", "two", "one", "")] == [0, 0, 32, 0]
    engine.close()


def test_a_merged_adapter_answers_as_peft_beside_base_and_others(
    model: Path, folders: dict[str, Path], peft: Any
) -> None:
    engine = loaded(model, folders, fuse_adapter="a")
    expected = {
        f"{name} {number}": reference_tokens(peft, prompt, name, COUNT)
        for name in NAMES
        for number, prompt in enumerate(PROMPTS)
    }
    requests = [
        greedy(f"{name} {number}", prompt, COUNT, name)
        for name in NAMES
        for number, prompt in enumerate(PROMPTS)
    ]
    assert run(engine, requests) == expected  # some steps while it is being merged
    engine.await_fused()
    assert engine.stats.merged_bytes > 0
    assert run(engine, requests) == expected
    assert engine.warnings == []
    assert_nothing_is_held(engine)
    engine.close()
