"""The plain decoder on a CUDA device, by itself and over NCCL, gives the results of a CPU."""

from pathlib import Path
from typing import Any

import pytest
import torch
from tests.models import tiny_gemma3, tiny_llama, tiny_qwen3
from tests.unit.engine.paged_steps import (
    CPU,
    Driver,
    Scatter,
    new_pool,
    peft_adapters,
    reference,
    scattered,
    updates_of,
)

from hostelry.engine.kernels.pool import PoolTensor
from hostelry.engine.layers.cuda_decoder import CudaDecoder
from hostelry.engine.layers.decoder import TorchDecoder
from hostelry.engine.layers.parallel import shard_weights
from hostelry.engine.models.registry import load_decoder, load_spec
from hostelry.engine.runner.parallel import join, leave

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

PROMPTS = (tuple(range(20, 60)), (5, 9, 33, 12, 77, 120, 4), (61,), (150, 3, 3, 8))
TARGETS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
TOLERANCE = {torch.float32: 1e-4, torch.bfloat16: 2e-2, torch.float16: 4e-3}


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("writer", [tiny_llama, tiny_qwen3, tiny_gemma3])
def test_logits_equal_those_of_a_cpu(writer: Any, dtype: torch.dtype, tmp_path: Path) -> None:
    folder = writer(tmp_path)
    spec = load_spec(folder)
    fields = {"r": 5, "lora_alpha": 10, "target_modules": TARGETS}
    updates = updates_of(peft_adapters(reference(folder), {"a": fields}), "a")
    results = []
    for device in (CPU, torch.device("cuda")):
        weights = load_decoder(folder, spec, max_len=64, dtype=dtype, device=device)
        on_cpu = new_pool(spec, 240, dtype=dtype)
        index = scattered(updates, spec, Scatter(on_cpu, range(40, 240), seed=1))
        pool = PoolTensor(on_cpu.layout, 240, device)
        pool.elements.copy_(on_cpu.elements)
        driver = Driver(TorchDecoder(weights), pool, range(40))
        for number, prompt in enumerate(PROMPTS):
            driver.add(prompt, index if number % 2 else None)
        results.append([it.cpu() for it in driver.finish(6)])
    for on_gpu, expected in zip(results[1], results[0], strict=True):
        largest = float(expected.abs().max())
        torch.testing.assert_close(on_gpu, expected, atol=TOLERANCE[dtype] * largest, rtol=0)


def test_one_rank_over_nccl(tmp_path: Path) -> None:
    device = torch.device("cuda", 0)
    folder = tiny_llama(tmp_path / "model")
    spec = load_spec(folder)
    ranks = join(f"file://{tmp_path}/store", 0, 1, device=device, step_timeout_s=60)
    try:
        on_cpu = load_decoder(folder, spec, max_len=64, dtype=torch.float32, device=CPU)
        weights = shard_weights(on_cpu, ranks.collective.shard, device)
        logits: list[torch.Tensor] = []
        for decoder, where in (
            (TorchDecoder(on_cpu), CPU),
            (TorchDecoder(weights, ranks.collective), device),
            (CudaDecoder(weights, ranks.collective), device),
        ):
            pool = new_pool(spec, 16)
            driver = Driver(decoder, PoolTensor(pool.layout, 16, where), range(16))
            driver.add(PROMPTS[0])
            logits.append(driver.finish(64)[0].cpu())
        for found in logits[1:]:
            torch.testing.assert_close(found, logits[0], atol=1e-3, rtol=1e-4)
    finally:
        leave()
