"""The decoder in plain torch, which defines the result: held against transformers and PEFT."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.cases import case, cases
from tests.models import ALL_TARGETS, tiny_gemma3, tiny_llama, tiny_qwen2, tiny_qwen3
from tests.unit.engine.paged_steps import (
    CPU,
    Driver,
    Scatter,
    new_pool,
    peft_adapters,
    reference,
    reference_rows,
    scattered,
    torch_decoder,
    updates_of,
)

from hostelry.cli.demo import demo_model_folder
from hostelry.engine.kernels.batch import ForwardBatch
from hostelry.engine.kernels.pool import PoolLayout, PoolTensor
from hostelry.engine.layers.attention_paged import attend_group
from hostelry.engine.layers.decoder import TorchDecoder
from hostelry.engine.models.registry import load_decoder, load_spec

TOLERANCE = 1e-4
PROMPTS = (
    tuple(range(20, 60)),
    (5, 9, 33, 12, 77, 120, 4),
    (61,),
    (150, 3, 3, 8),
    (7, 188, 42, 99, 13, 13, 101, 56, 34, 91, 17),
)
WIDE = ("embed_tokens", "lm_head")
NUM_ADAPTER_PAGES = 200
NUM_NEW = 8  # tokens after a prompt: a step of the real model takes a second on busy CPUs


def adapter(rank: int, targets: Sequence[str] = ALL_TARGETS, **fields: Any) -> dict[str, Any]:
    return {"r": rank, "lora_alpha": 2 * rank, "target_modules": list(targets), **fields}


@cases(
    "writer, overrides, adapters",
    case("one adapter on all modules", tiny_llama, {}, {"a": adapter(4)}),
    case(
        "mixed ranks and targets on biased modules",
        tiny_llama,
        {"attention_bias": True, "mlp_bias": True},
        {"a": adapter(8), "b": adapter(3), "c": adapter(1, ["v_proj"])},
    ),
    case(
        "ranks and scales by module",
        tiny_llama,
        {"num_key_value_heads": 1, "head_dim": 24},
        {
            "a": adapter(4, rank_pattern={"layers.1.mlp.up_proj": 9, "k_proj": 2}),
            "b": adapter(6, ["q_proj", "down_proj"], alpha_pattern={"q_proj": 1}),
            "c": adapter(4, layers_to_transform=[1]),
            "d": adapter(16, use_rslora=True),
        },
    ),
    case(
        "embedding and lm_head",
        tiny_llama,
        {"tie_word_embeddings": False},
        {
            "a": adapter(4, [*ALL_TARGETS, *WIDE]),
            "b": adapter(2, ["embed_tokens"]),
            "c": adapter(3, ["lm_head"]),
            "d": adapter(5, ["o_proj"]),
        },
    ),
    case("a tied embedding", tiny_llama, {}, {"a": adapter(4, ["embed_tokens"])}),
    case("Qwen2", tiny_qwen2, {}, {"a": adapter(4), "b": adapter(7)}),
    case("Qwen3", tiny_qwen3, {}, {"a": adapter(4), "b": adapter(7)}),
    case(
        "Gemma 3",
        tiny_gemma3,
        {},
        {"a": adapter(4), "b": adapter(7, [*ALL_TARGETS, "embed_tokens"])},
    ),
)
@pytest.mark.filterwarnings("ignore:.*tie")
def test_mixed_batches_equal_peft(
    writer: Any, overrides: dict[str, Any], adapters: Mapping[str, Any], tmp_path: Path
) -> None:
    folder = writer(tmp_path, **overrides)
    spec = load_spec(folder)
    decoder = torch_decoder(folder, spec)
    model = peft_adapters(reference(folder), adapters)
    names = [None, *adapters]
    chosen = [names[number % len(names)] for number in range(len(PROMPTS))]
    expected = []
    for prompt, name in zip(PROMPTS, chosen, strict=True):
        if name is None:
            with model.disable_adapter():
                expected.append(reference_rows(model, prompt))
        else:
            model.set_adapter(name)
            expected.append(reference_rows(model, prompt))
    for chunk in (64, 5):
        pool = new_pool(spec, 40 + NUM_ADAPTER_PAGES)
        pages = numpy.random.default_rng(3).permutation(pool.num_pages).tolist()
        scatter = Scatter(pool, pages[40:], seed=chunk)
        indexes = {name: scattered(updates_of(model, name), spec, scatter) for name in adapters}
        driver = Driver(decoder, pool, pages[:40])
        for prompt, name in zip(PROMPTS, chosen, strict=True):
            driver.add(prompt, None if name is None else indexes[name])
        for computed, wanted in zip(driver.finish(chunk), expected, strict=True):
            torch.testing.assert_close(computed, wanted, atol=TOLERANCE, rtol=1e-5)


@pytest.fixture(scope="module")
def gemma(tmp_path_factory: pytest.TempPathFactory) -> tuple[TorchDecoder, Any, list[torch.Tensor]]:
    folder = tiny_gemma3(tmp_path_factory.mktemp("gemma"))
    spec = load_spec(folder)
    model = reference(folder)
    return torch_decoder(folder, spec), spec, [reference_rows(model, it) for it in PROMPTS]


@given(data=st.data())
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_any_schedule_gives_the_same_logits(
    gemma: tuple[TorchDecoder, Any, list[torch.Tensor]], data: st.DataObject
) -> None:
    decoder, spec, expected = gemma
    page_tokens = data.draw(st.sampled_from([1, 3, 4, 16]))
    pool = new_pool(spec, 80, page_tokens)
    driver = Driver(decoder, pool, data.draw(st.permutations(range(80))))
    for prompt in PROMPTS:
        driver.add(prompt)
    counts = st.lists(st.integers(0, 20), min_size=len(PROMPTS), max_size=len(PROMPTS))
    for step in data.draw(st.lists(counts, max_size=6)):
        driver.step(step)
    for computed, wanted in zip(driver.finish(64), expected, strict=True):
        torch.testing.assert_close(computed, wanted, atol=TOLERANCE, rtol=1e-5)


def test_logits_only_of_the_rows_asked_for(tmp_path: Path) -> None:
    folder = tiny_llama(tmp_path)
    spec = load_spec(folder)
    decoder = torch_decoder(folder, spec)
    batch = ForwardBatch(
        token_ids_T=numpy.array(PROMPTS[1] + PROMPTS[3], numpy.int32),
        positions_T=numpy.array([*range(7), *range(4)], numpy.int32),
        row_starts_B1=numpy.array([0, 7, 11], numpy.int32),
        lengths_B=numpy.array([7, 4], numpy.int32),
        pages_BP=numpy.array([[1, 0], [2, -1]], numpy.int32),
        logit_rows_S=numpy.array([10, 6], numpy.int32),
    )
    logits = decoder.forward(batch, new_pool(spec, 3))
    assert logits.dtype is torch.float32
    model = reference(folder)
    for computed, prompt in zip(logits, (PROMPTS[3], PROMPTS[1]), strict=True):
        expected = reference_rows(model, prompt)[-1]
        torch.testing.assert_close(computed, expected, atol=TOLERANCE, rtol=1e-5)


def test_keys_and_values_lie_where_the_pool_has_them(tmp_path: Path) -> None:
    folder = tiny_llama(tmp_path, head_dim=24)
    spec = load_spec(folder)
    pool = new_pool(spec, 5)
    driver = Driver(torch_decoder(folder, spec), pool, [3, 1])
    driver.add(PROMPTS[1])
    driver.finish(64)
    known = reference(folder)(input_ids=torch.tensor([PROMPTS[1]]), use_cache=True).past_key_values
    for layer in range(spec.num_layers):
        keys, values = pool.keys(layer), pool.values(layer)
        for position in range(7):
            page, slot = [3, 1][position // 4], position % 4
            expected = known.layers[layer]
            close = torch.testing.assert_close
            close(keys[page, :, :, slot], expected.keys[0, :, position], atol=1e-5, rtol=1e-5)
            close(values[page, :, slot], expected.values[0, :, position], atol=1e-5, rtol=1e-5)
        assert keys[1, :, :, 3].isnan().all()
        assert keys[[0, 2, 4]].isnan().all()
        assert values[1, :, 3].isnan().all()


# Largest difference of a logit from fp32, relative to the largest logit.
@pytest.mark.parametrize(("dtype", "tolerance"), [("bfloat16", 6e-2), ("float16", 8e-3)])
@pytest.mark.parametrize("writer", [tiny_llama, tiny_qwen3, tiny_gemma3])
def test_narrow_types_stay_near(writer: Any, dtype: str, tolerance: float, tmp_path: Path) -> None:
    folder = writer(tmp_path)
    spec = load_spec(folder)
    torch_dtype = getattr(torch, dtype)
    pool = new_pool(spec, 32 + NUM_ADAPTER_PAGES, dtype=torch_dtype)
    model = peft_adapters(reference(folder), {"a": adapter(4)})
    scatter = Scatter(pool, range(32, 32 + NUM_ADAPTER_PAGES), seed=1)
    index = scattered(updates_of(model, "a"), spec, scatter)
    driver = Driver(torch_decoder(folder, spec, torch_dtype), pool, range(32))
    for prompt in PROMPTS:
        driver.add(prompt, index)
    for computed, prompt in zip(driver.finish(5), PROMPTS, strict=True):
        expected = reference_rows(model, prompt)
        assert float((computed - expected).abs().max() / expected.abs().max()) < tolerance


def test_what_is_rounded_in_bf16(tmp_path: Path) -> None:
    """A projection's input is rounded to bf16, its product is not."""
    folder = tiny_llama(tmp_path, num_hidden_layers=1, tie_word_embeddings=False)
    spec = load_spec(folder)
    weights = load_decoder(folder, spec, max_len=8, dtype=torch.bfloat16, device=CPU)
    driver = Driver(TorchDecoder(weights), new_pool(spec, 1, dtype=torch.bfloat16), [0])
    driver.add((61,))
    logits = driver.finish(1)[0]
    layer = weights.layer(0)

    def product(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return x.bfloat16().float() @ weight.float().T

    def normed(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + spec.rms_norm_eps) * weight

    hidden = weights.embedding_VH[[61]].float()
    value = product(normed(hidden, layer.input_norm_H), layer.qkv.weight_OI)[:, 96:]
    value = value.bfloat16().float().view(2, 16).repeat_interleave(2, 0).view(1, 64)
    hidden = hidden + product(value, layer.o.weight_OI)
    gate, up = product(normed(hidden, layer.mlp_norm_H), layer.gate_up.weight_OI).chunk(2, 1)
    hidden = hidden + product(torch.nn.functional.silu(gate) * up, layer.down.weight_OI)
    expected = product(normed(hidden, weights.final_norm_H), weights.lm_head_VH)
    torch.testing.assert_close(logits, expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("window", [None, 1, 5])
def test_nothing_beyond_a_row_leaks(window: int | None) -> None:
    """Keys and values after a row's position, or before its window, may be anything."""
    generator = torch.Generator().manual_seed(0)
    q_BRHD = torch.randn(2, 3, 4, 8, generator=generator)
    k_BKPDS = torch.randn(2, 2, 3, 8, 4, generator=generator)
    v_BKPSD = torch.randn(2, 2, 3, 4, 8, generator=generator)
    positions_BR = torch.tensor([[0, 1, 2], [6, 7, 8]])

    def attended() -> torch.Tensor:
        values = v_BKPSD.clone()
        return attend_group(q_BRHD, k_BKPDS, values, positions_BR, window=window, scale=0.3)

    clean = attended()
    for sequence, first, last in ((0, 0, 2), (1, 6, 8)):
        start = 0 if window is None else max(0, first - window + 1)
        for position in (it for it in range(12) if not start <= it <= last):
            for poison in (float("nan"), float("inf")):
                page, slot = divmod(position, 4)
                k_BKPDS[sequence, :, page, :, slot] = poison
                v_BKPSD[sequence, :, page, slot] = poison
                assert torch.equal(attended(), clean)


def test_long_prompts_are_attended_in_blocks(tmp_path: Path) -> None:
    folder = tiny_llama(tmp_path, max_position_embeddings=1024)
    spec = load_spec(folder)
    weights = load_decoder(folder, spec, max_len=700, dtype=torch.float32, device=CPU)
    tokens = numpy.random.default_rng(0).integers(3, 199, 700).tolist()
    driver = Driver(TorchDecoder(weights), new_pool(spec, 44, 16), range(44))
    driver.add(tokens)
    computed = driver.finish(700)[0]
    expected = reference_rows(reference(folder), tokens)
    torch.testing.assert_close(computed, expected, atol=TOLERANCE, rtol=1e-5)


@pytest.mark.slow
@pytest.mark.thorough
def test_smollm2_continues_as_transformers_does() -> None:
    folder = demo_model_folder()
    spec = load_spec(folder)
    weights = load_decoder(folder, spec, max_len=128, dtype=torch.float32, device=CPU)
    decoder = TorchDecoder(weights)
    layout = PoolLayout(
        num_layers=30, num_kv_heads=3, head_dim=64, page_tokens=16, dtype=torch.float32
    )
    pool = PoolTensor(layout, 8, CPU)
    pool.elements.fill_(float("nan"))
    model = reference(folder)
    prompts = ([504, 1, 88, 1000, 2000, 30, 77], [19, 40_000, 8, 3])
    drivers = [Driver(decoder, pool, range(4 * it, 4 * it + 4)) for it in range(2)]
    for driver, prompt in zip(drivers, prompts, strict=True):
        driver.add(prompt + [0] * NUM_NEW)
        driver.step([len(prompt)])
        track = driver.sequences[0]
        tokens = list(prompt)
        for _ in range(NUM_NEW):
            tokens.append(int(track.logits[-1].argmax()))
            track.tokens = tokens + [0] * (len(prompt) + NUM_NEW - len(tokens))
            driver.step([1])
        expected = model.generate(
            torch.tensor([prompt]), max_new_tokens=NUM_NEW, do_sample=False, eos_token_id=None
        )
        assert tokens == expected[0].tolist()
