"""Scores of prompts: transformers' and PEFT's, however the prompt is computed."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from msgspec.structs import replace
from tests.cases import case, cases
from tests.models import random_adapter, tiny_llama
from tests.unit.engine.oracle import (
    assert_nothing_is_held,
    drain,
    greedy,
    reference_model,
    variant,
)

from hostelry.engine.engine import Engine, EngineConfig
from hostelry.engine.kernels.decoder import LogitsDecoder
from hostelry.engine.request import FinishReason, Output, Request, SamplingParams

CONFIG = EngineConfig(dtype="fp32", pool_bytes=4 << 20, num_threads=1, pin_share=0.0)
LONG = tuple(range(20, 90))
PROMPTS = (LONG, (5, 9, 33, 12, 77, 120, 4), (61, 7), (61,), (*LONG[:40], 7, 8, 9))
ADAPTERS = {"r3": 3, "r8": 8}
CASES = [(prompt, adapter) for prompt in PROMPTS for adapter in (None, *ADAPTERS)]
NUM_TOP = 3

Scores = list[tuple[float, int, tuple[int, ...], tuple[float, ...]]]


@pytest.fixture(scope="module")
def model_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_llama(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="module")
def adapter_folders(
    model_folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("adapters")
    return {
        name: random_adapter(root / name, model_folder, rank, seed=rank)
        for name, rank in ADAPTERS.items()
    }


@pytest.fixture(scope="module")
def expected(model_folder: Path, adapter_folders: dict[str, Path]) -> dict[str, Scores]:
    model = reference_model(model_folder, adapter_folders)
    return {name_of(*case): reference(model, *case) for case in CASES}


@torch.inference_mode()
def reference(model: Any, prompt: Sequence[int], adapter: str | None) -> Scores:
    """log_softmax over the logits of transformers, which sees the whole prompt at once."""
    ids = torch.tensor([list(prompt)])
    if adapter is None:
        with model.disable_adapter():
            logits_TV = model(input_ids=ids).logits[0]
    else:
        model.set_adapter(adapter)
        logits_TV = model(input_ids=ids).logits[0]
    scores: Scores = []
    for row_V, token in zip(logits_TV.log_softmax(-1), prompt[1:], strict=False):
        values, ids_K = row_V.topk(NUM_TOP)
        rank = int((row_V > row_V[token]).sum()) + 1
        scores.append((float(row_V[token]), rank, tuple(ids_K.tolist()), tuple(values.tolist())))
    return scores


def name_of(prompt: Sequence[int], adapter: str | None) -> str:
    return f"{PROMPTS.index(tuple(prompt))} {adapter}"


def scoring(
    prompt: Sequence[int], adapter: str | None = None, *, count: int = 0, suffix: str = ""
) -> Request:
    return Request(
        id=name_of(prompt, adapter) + suffix,
        prompt_token_ids=tuple(prompt),
        sampling=SamplingParams(max_new_tokens=count, ignore_eos=True),
        adapter=adapter,
        num_prompt_logprobs=NUM_TOP,
    )


def loaded(model: Path, adapters: dict[str, Path], **changes: Any) -> Engine:
    engine = Engine.load(model, variant(CONFIG, **changes))
    for name, folder in adapters.items():
        engine.load_adapter(name, folder)
    return engine


def scored(engine: Engine, requests: Sequence[Request]) -> tuple[dict[str, Scores], list[Output]]:
    """The scores by request, joined and checked to be in order, and all outputs."""
    for request in requests:
        engine.add(request)
    outputs = drain(engine)
    scores: dict[str, Scores] = {it.id: [] for it in requests if it.num_prompt_logprobs is not None}
    for output in outputs:
        assert output.error is None, output.error
        found = output.prompt_logprobs
        if found is None:
            continue
        own = scores[output.request_id]
        assert found.start == len(own) + 1
        for number, (logprob, rank) in enumerate(zip(found.logprobs, found.ranks, strict=True)):
            part = slice(NUM_TOP * number, NUM_TOP * (number + 1))
            own.append((logprob, rank, found.top_ids[part], found.top_logprobs[part]))
    return scores, outputs


def assert_close(scores: Scores, expected: Scores) -> None:
    assert len(scores) == len(expected)
    for own, other in zip(scores, expected, strict=True):
        assert own[0] == pytest.approx(other[0], abs=2e-5)
        assert own[1:3] == other[1:3]
        assert own[3] == pytest.approx(other[3], abs=2e-5)


@pytest.mark.parametrize("kernels", ["native", "torch"])
@cases(
    "changes",
    case("whole prompts", {}),
    case("chunks of 1 to 3 tokens", {"max_batch_size": 3, "max_batched_tokens": 3}),
    case("chunks up to seventeen", {"max_batch_size": 5, "max_batched_tokens": 17}),
    case("pages of seven tokens", {"page_tokens": 7}),
    case("without a prefix cache", {"prefix_cache": False}),
    case("one adapter a step", {"max_loras": 1}),
)
def test_scores_are_those_of_transformers_and_peft(
    kernels: str,
    changes: dict[str, Any],
    model_folder: Path,
    adapter_folders: dict[str, Path],
    expected: dict[str, Scores],
) -> None:
    engine = loaded(model_folder, adapter_folders, kernels=kernels, **changes)
    alone, _ = scored(engine, [scoring(*CASES[0])])
    assert_close(alone["0 None"], expected["0 None"])
    answers = [greedy(f"neighbour {case}", case[0], 6, case[1]) for case in CASES]
    mixed, _ = scored(engine, [*(scoring(*case) for case in CASES), *answers])
    again, outputs = scored(engine, [*(scoring(*case) for case in reversed(CASES)), *answers])
    assert len(mixed) == len(again) == len(CASES)
    for name, scores in mixed.items():
        assert_close(scores, expected[name])
    if kernels == "native":
        assert again == mixed  # to the last bit, however the prompts were divided
    ends = [it for it in outputs if it.request_id in mixed and it.finish_reason]
    assert {(it.finish_reason, it.token_id) for it in ends} == {(FinishReason.LENGTH, None)}
    assert_nothing_is_held(engine)


def test_a_scored_prompt_takes_nothing_from_the_cache_and_leaves_its_pages_in_it(
    model_folder: Path, expected: dict[str, Scores]
) -> None:
    engine = loaded(model_folder, {})
    scores, _ = scored(engine, [greedy("first", LONG, 2), scoring(LONG)])
    assert engine.stats.num_cached_tokens == 0
    scores, _ = scored(engine, [scoring(LONG)])
    assert engine.stats.num_cached_tokens == 0
    assert_close(scores["0 None"], expected["0 None"])
    scored(engine, [greedy("last", LONG, 2)])
    assert engine.stats.num_cached_tokens == len(LONG) // CONFIG.page_tokens * CONFIG.page_tokens


def test_the_tokens_after_a_scored_prompt_are_those_without_scores(model_folder: Path) -> None:
    engine = loaded(model_folder, {}, max_batched_tokens=40)
    plain = drain_tokens(engine, [greedy(f"{it}", it, 8) for it in PROMPTS])
    asked = [scoring(it, count=8) for it in PROMPTS]
    tokens = drain_tokens(engine, [replace(it, id=f"{it.prompt_token_ids}") for it in asked])
    assert tokens == plain


def drain_tokens(engine: Engine, requests: Sequence[Request]) -> dict[str, list[int | None]]:
    for request in requests:
        engine.add(request)
    tokens: dict[str, list[int | None]] = {}
    for output in drain(engine):
        if output.prompt_logprobs is None:
            tokens.setdefault(output.request_id, []).append(output.token_id)
    return tokens


def test_logits_of_a_step_stay_within_their_bound(
    model_folder: Path, expected: dict[str, Scores], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hostelry.engine.loading._MAX_SCORED_BYTES", 4 * 199 * 11)
    engine = loaded(model_folder, {}, kernels="torch")
    rows: list[int] = []
    decoder = engine._deps.decoder
    forward = decoder.forward

    def watched(batch: Any, pool: Any) -> torch.Tensor:
        rows.append(len(batch.logit_rows_S))
        return forward(batch, pool)

    monkeypatch.setattr(decoder, "forward", watched)
    scores, _ = scored(engine, [scoring(it) for it in PROMPTS])
    for name, own in scores.items():
        assert_close(own, expected[name])
    assert max(rows) <= 11 + len(PROMPTS)


def test_a_preempted_prompt_is_scored_once(model_folder: Path, expected: dict[str, Scores]) -> None:
    engine = loaded(
        model_folder, {}, page_tokens=1, pool_bytes=150 * 512, max_batched_tokens=20,
        max_batch_size=8,
    )  # fmt: skip
    requests = [scoring(LONG, count=40), greedy("other", LONG[::-1], 60)]
    requests += [scoring(PROMPTS[4], count=30)]
    scores, _ = scored(engine, requests)
    assert engine.stats.num_preemptions > 0
    assert_close(scores["0 None"], expected["0 None"])
    assert_close(scores["4 None"], expected["4 None"])


def test_an_aborted_prompt_leaves_nothing(model_folder: Path) -> None:
    engine = loaded(model_folder, {}, max_batched_tokens=32)
    engine.add(scoring(LONG))
    first = engine.step()
    assert [it.prompt_logprobs is not None for it in first] == [True]
    engine.abort("0 None")
    assert [it.finish_reason for it in drain(engine)] == [FinishReason.ABORT]
    assert_nothing_is_held(engine)


class BreaksAt(LogitsDecoder):
    """Logits that are not finite for one token of a prompt."""

    def __init__(self, inner: Any, token: int) -> None:
        self._inner, self._token = inner, token

    def forward(self, batch: Any, pool: Any) -> torch.Tensor:
        logits_SV: torch.Tensor = self._inner.forward(batch, pool).clone()
        broken = batch.token_ids_T[batch.logit_rows_S] == self._token
        logits_SV[torch.from_numpy(broken)] = math.nan
        return logits_SV


@pytest.mark.parametrize("max_batched_tokens", [256, 32])
def test_a_prompt_without_finite_logits_ends_alone(
    model_folder: Path, expected: dict[str, Scores], max_batched_tokens: int
) -> None:
    engine = loaded(model_folder, {}, max_batched_tokens=max_batched_tokens, max_batch_size=8)
    engine._deps = replace(engine._deps, decoder=BreaksAt(engine._deps.decoder, LONG[3]))
    for request in (scoring(LONG), scoring(PROMPTS[1])):
        engine.add(request)
    outputs = drain(engine)
    ends = {it.request_id: it for it in outputs if it.finish_reason}
    assert ends["0 None"].finish_reason is FinishReason.ERROR
    assert ends["0 None"].error == "the model's logits are not finite"
    assert ends["1 None"].finish_reason is FinishReason.LENGTH
    assert_nothing_is_held(engine)


def test_too_many_alternatives_are_refused(model_folder: Path) -> None:
    engine = loaded(model_folder, {})
    with pytest.raises(ValueError, match="num_prompt_logprobs is 257; it must be between 0 and"):
        engine.add(replace(scoring(LONG), num_prompt_logprobs=257))
