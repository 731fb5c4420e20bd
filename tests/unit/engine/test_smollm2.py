"""The real model: SmolLM2-135M-Instruct with adapters of ranks 8, 16 and 64 in one batch.

The trained adapters of the examples, and random ones on all seven targets.
"""

from pathlib import Path
from typing import Any

import pytest
import torch
from tests.models import random_adapter
from tests.unit.engine.oracle import Logits, reference_logits, reference_model, run
from tokenizers import Tokenizer

from hostelry.cli.demo import demo_model_folder
from hostelry.engine.engine import Engine, EngineConfig
from hostelry.engine.request import Request, SamplingParams

COUNT = 8
RANKS = {"r8": 8, "r16": 16, "r64": 64}
# "The capital of France is", "Once upon a time", a Python definition, and a longer text.
PROMPTS = (
    (504, 3575, 282, 4649, 314),
    (6403, 2192, 253, 655),
    (1604, 28273, 24, 94, 731, 1116),
    tuple(range(1000, 1040)),
)

TRAINED = {
    name: Path(__file__).parents[3] / "examples" / "adapters" / name for name in ("es", "fr")
}
QUESTION = "<|im_start|>user\nWhere is the city of Paris?<|im_end|>\n<|im_start|>assistant\n"

Expected = dict[tuple[tuple[int, ...], str | None], torch.Tensor]

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def adapters(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("adapters")
    random_ones = {
        name: random_adapter(root / name, demo_model_folder(), rank, seed=rank, std=0.03)
        for name, rank in RANKS.items()
    }
    return {**random_ones, **TRAINED}


@pytest.fixture(scope="module")
def model(adapters: dict[str, Path]) -> Any:
    """The model of transformers, with the adapters."""
    return reference_model(demo_model_folder(), adapters)


@pytest.fixture(scope="module")
def expected(model: Any) -> Expected:
    """Logits of the first prompts, without and with an adapter."""
    pairs = [(prompt, name) for prompt in PROMPTS for name in (None, "r16")]
    return {it: reference_logits(model, *it) for it in pairs}


def test_greedy_tokens_equal_peft_mixed_and_alone(adapters: dict[str, Path], model: Any) -> None:
    folder = demo_model_folder()
    config = EngineConfig(dtype="fp32", pool_bytes=512 << 20, num_threads=1)
    engine = Engine.load(folder, config)
    for name, path in adapters.items():
        engine.load_adapter(name, path)
    cases: list[tuple[tuple[int, ...], str | None]] = list(
        zip(PROMPTS, (None, *RANKS), strict=True)
    )
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    cases += [(tuple(tokenizer.encode(QUESTION).ids), name) for name in TRAINED]
    params = SamplingParams(max_new_tokens=COUNT)
    requests = [
        Request(id=str(n), prompt_token_ids=prompt, sampling=params, adapter=adapter)
        for n, (prompt, adapter) in enumerate(cases)
    ]
    mixed = run(engine, requests)
    alone = {request.id: run(engine, [request])[request.id] for request in requests}
    assert mixed == alone
    for n, (prompt, adapter) in enumerate(cases):
        assert mixed[str(n)] == generated(model, prompt, adapter)


@torch.inference_mode()
def generated(model: Any, prompt: tuple[int, ...], adapter: str | None) -> list[int]:
    """PEFT's greedy continuation through its own key-value cache, to an end token."""
    ids = torch.tensor([prompt])
    tokens = model.generate(
        input_ids=ids,
        attention_mask=torch.ones_like(ids),
        adapter_names=[adapter or "__base__"],
        max_new_tokens=COUNT,
        do_sample=False,
    )
    continued: list[int] = tokens[0, len(prompt) :].tolist()
    return continued


def test_bf16_logits_stay_within_tolerance(adapters: dict[str, Path], expected: Expected) -> None:
    folder = demo_model_folder()
    config = EngineConfig(dtype="bf16", pool_bytes=512 << 20, num_threads=1)
    engine = Engine.load(folder, config)
    engine.load_adapter("r16", adapters["r16"])
    for (prompt, name), wanted in expected.items():
        difference = (Logits.of(engine).after(prompt, name) - wanted).abs().max()
        assert difference / wanted.abs().max() < 5e-2


def test_int8_weights_stay_within_their_tolerance(
    adapters: dict[str, Path], expected: Expected
) -> None:
    folder = demo_model_folder()
    config = EngineConfig(
        dtype="bf16", weight_dtype="int8", pool_bytes=512 << 20, num_threads=1, prefix_cache=False
    )
    engine = Engine.load(folder, config)
    engine.load_adapter("r16", adapters["r16"])
    for (prompt, name), wanted in expected.items():
        difference = (Logits.of(engine).after(prompt, name) - wanted).abs().max()
        assert 0 < difference / wanted.abs().max() < 0.12
