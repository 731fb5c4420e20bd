"""On a CUDA device: the same greedy tokens as PEFT's in fp32, different adapters in one batch."""

from pathlib import Path

import pytest
import torch
from tests.models import random_adapter, tiny_llama
from tests.unit.engine.oracle import PROMPTS, greedy, reference_model, reference_tokens, run

from hostelry.engine.engine import Engine, EngineConfig

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

COUNT = 12


@pytest.mark.parametrize("max_batched_tokens", [8, 2048])
def test_greedy_tokens_equal_peft(max_batched_tokens: int, tmp_path: Path) -> None:
    folder = tiny_llama(tmp_path / "model")
    adapters = {
        name: random_adapter(tmp_path / name, folder, rank, seed=rank)
        for name, rank in (("r8", 8), ("r16", 16), ("r64", 64))
    }
    config = EngineConfig(
        dtype="fp32",
        pool_bytes=4 << 20,
        max_batch_size=8,
        max_batched_tokens=max_batched_tokens,
    )
    engine = Engine.load(folder, config)
    for name, path in adapters.items():
        engine.load_adapter(name, path)
    cases = list(zip(PROMPTS, (None, *adapters, None), strict=True))
    found = run(engine, [greedy(str(n), p, COUNT, name) for n, (p, name) in enumerate(cases)])
    model = reference_model(folder, adapters)
    for n, (prompt, adapter) in enumerate(cases):
        assert found[str(n)] == reference_tokens(model, prompt, adapter, COUNT)


def test_bf16_runs_with_sampling(tmp_path: Path) -> None:
    folder = tiny_llama(tmp_path / "model", dtype="bfloat16")
    engine = Engine.load(folder, EngineConfig(pool_bytes=4 << 20))
    assert engine.model.dtype == "bf16"
    assert len(run(engine, [greedy("a", PROMPTS[0], COUNT)])["a"]) == COUNT
