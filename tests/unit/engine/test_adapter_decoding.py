"""From the folder that PEFT saved to logits: reader, pages and decoder together."""

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from tests.cases import case, cases
from tests.models import (
    ALL_TARGETS,
    tiny_gemma3,
    tiny_llama,
    tiny_mistral,
    tiny_qwen2,
    tiny_qwen3,
)
from tests.unit.engine.adapters import base_weights, peft_adapter
from tests.unit.engine.oracle import PROMPTS, reference_model
from tests.unit.engine.paged_steps import Driver, new_pool, reference_rows, torch_decoder

from hostelry.engine.kernels.batch import AdapterIndex
from hostelry.engine.kernels.pool import PoolTensor
from hostelry.engine.lora.reader import AdapterReader, AdapterRules, BaseModel, PageForm
from hostelry.engine.lora.targets import decoder_targets
from hostelry.engine.models.registry import load_spec
from hostelry.engine.models.spec import ModelSpec

EVERYWHERE = [*ALL_TARGETS, "embed_tokens", "lm_head"]


def place(
    pool: PoolTensor, model: Path, spec: ModelSpec, folder: Path, pages: list[int]
) -> AdapterIndex:
    """The adapter in `folder`, read and written into the first of `pages`, which it takes."""
    base = BaseModel(targets=decoder_targets(spec), vocabulary=base_weights(model))
    form = PageForm(page_elements=pool.layout.page_elements, dtype=pool.layout.dtype)
    adapter = AdapterReader(base, AdapterRules(), form).read(folder)
    numbers = [pages.pop() for _ in range(adapter.layout.num_pages)]
    adapter.write(pool, numbers)
    return adapter.index(numbers)


@cases(
    "writer, overrides",
    case("Llama, tied", tiny_llama, {}),
    case("Llama", tiny_llama, {"tie_word_embeddings": False}),
    case("Mistral", tiny_mistral, {}),
    case("Qwen2", tiny_qwen2, {}),
    case("Qwen3", tiny_qwen3, {}),
    case("Gemma 3, which scales embeddings", tiny_gemma3, {}),
)
def test_every_architecture_with_every_target(
    writer: Callable[..., Path], overrides: dict[str, Any], tmp_path: Path
) -> None:
    model = writer(tmp_path / "model", **overrides)
    spec = load_spec(model)
    folders = {
        "all": peft_adapter(tmp_path / "all", model, r=5, target_modules=EVERYWHERE),
        "some": peft_adapter(
            tmp_path / "some", model, r=3, target_modules=["v_proj", "down_proj"], use_rslora=True
        ),
        "tied": peft_adapter(
            tmp_path / "tied", model, r=4, target_modules=["lm_head"], ensure_weight_tying=True
        ),
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of PEFT about ties
        # One adapter per model, because with several PEFT does not find tied weights.
        models = {name: reference_model(model, {name: it}) for name, it in folders.items()}
    base = reference_model(model)
    pool = new_pool(spec, 200)
    pages = list(range(200))
    indexes = {name: place(pool, model, spec, it, pages) for name, it in folders.items()}
    driver = Driver(torch_decoder(model, spec), pool, pages)
    expected = []
    for prompt, name in zip(PROMPTS, (*folders, None, "all"), strict=True):
        driver.add(prompt, indexes[name] if name else None)
        expected.append(reference_rows(models[name] if name else base, prompt))
    for computed, wanted in zip(driver.finish(7), expected, strict=True):
        torch.testing.assert_close(computed, wanted, atol=1e-4, rtol=1e-4)
