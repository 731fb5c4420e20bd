"""Peers of the GPU benchmark, and the adapter files that it loads."""

import json
import statistics
import time
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from benchmarks.gpu_model import Sizes
from hostelry.engine.kernels.batch import MODULES
from hostelry.engine.lora.targets import TargetModules


def saved_adapter(
    folder: Path, targets: TargetModules, rank: int, dtype: torch.dtype, seed: int
) -> Path:
    """A random adapter of all linear modules in PEFT's format; returns the folder."""
    generator = torch.Generator().manual_seed(seed)
    tensors = {}
    for target in targets.linears:
        for half, shape in (
            ("A", (rank, target.in_features)),
            ("B", (target.out_features, rank)),
        ):
            values = torch.randn(*shape, generator=generator) * 0.01
            tensors[f"base_model.model.{target.path}.lora_{half}.weight"] = values.to(dtype)
    folder.mkdir(parents=True)
    save_file(tensors, folder / "adapter_model.safetensors", metadata={"format": "pt"})
    fields = {"peft_type": "LORA", "task_type": "CAUSAL_LM", "r": rank, "lora_alpha": rank}
    config = {**fields, "target_modules": list(MODULES), "bias": "none"}
    (folder / "adapter_config.json").write_text(json.dumps(config), encoding="utf-8")
    return folder


def peft_step_ms(
    sizes: Sizes,
    device: torch.device,
    dtype: torch.dtype,
    batch: int,
    num_adapters: int,
    steps: int,
    rank: int,
) -> float:
    """A decode step of transformers, with PEFT's `adapter_names` where there are adapters, in ms.

    The median of `steps` steps after a prompt of 16 tokens.
    """
    from peft import LoraConfig, get_peft_model
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=sizes.vocab_size,
        hidden_size=sizes.hidden_size,
        intermediate_size=sizes.intermediate_size,
        num_hidden_layers=sizes.num_layers,
        num_attention_heads=sizes.num_heads,
        num_key_value_heads=sizes.num_kv_heads,
    )
    with torch.device(device):
        model: Any = LlamaForCausalLM(config)
    model = model.to(dtype).eval()
    names = [f"a{number}" for number in range(num_adapters)]
    for name in names:
        lora = LoraConfig(r=rank, target_modules=list(MODULES), task_type="CAUSAL_LM")
        if name == names[0]:
            model = get_peft_model(model, lora, name)
        else:
            model.add_adapter(name, lora)
    model.eval()
    chosen = {"adapter_names": [names[row % len(names)] for row in range(batch)]} if names else {}
    times = []
    with torch.inference_mode():
        tokens = torch.ones(batch, 16, dtype=torch.int64, device=device)
        out = model(input_ids=tokens, use_cache=True, **chosen)
        for _ in range(steps):
            started = time.perf_counter()
            out = model(
                input_ids=tokens[:, :1],
                past_key_values=out.past_key_values,
                use_cache=True,
                **chosen,
            )
            out.logits[0, -1, 0].item()  # waits for the device
            times.append((time.perf_counter() - started) * 1e3)
    return statistics.median(times)
