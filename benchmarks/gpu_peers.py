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
    """Write a random adapter of all linear modules in PEFT's format, and return the folder."""
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


class PeftPeer:
    """A random Llama of transformers with PEFT's adapters of all linear modules."""

    def __init__(self, sizes: Sizes, device: torch.device, dtype: torch.dtype, rank: int) -> None:
        from transformers import LlamaConfig, LlamaForCausalLM

        config = LlamaConfig(
            vocab_size=sizes.vocab_size,
            hidden_size=sizes.hidden_size,
            intermediate_size=sizes.intermediate_size,
            num_hidden_layers=sizes.num_layers,
            num_attention_heads=sizes.num_heads,
            num_key_value_heads=sizes.num_kv_heads,
        )
        before = torch.get_default_dtype()
        torch.set_default_dtype(dtype)  # in fp32 first, a large model would need twice the memory
        try:
            with torch.device(device):
                self._model: Any = LlamaForCausalLM(config)
        finally:
            torch.set_default_dtype(before)
        self._model.eval()
        self._device = device
        self._dtype = dtype
        self._rank = rank
        self._names: list[str] = []

    def add_adapters(self, count: int) -> None:
        """Raise the number of adapters to `count`."""
        from peft import LoraConfig, get_peft_model

        for number in range(len(self._names), count):
            name = f"a{number}"
            lora = LoraConfig(r=self._rank, target_modules=list(MODULES), task_type="CAUSAL_LM")
            if self._names:
                self._model.add_adapter(name, lora)
            else:
                self._model = get_peft_model(self._model, lora, name)
            self._names.append(name)
        self._model.to(self._device, self._dtype).eval()

    @torch.inference_mode()
    def step_ms(self, batch: int, steps: int) -> float:
        """The time of a decode step in ms. Rows take the adapters in turn by `adapter_names`.

        The median of `steps` steps after a prompt of 16 tokens.
        """
        names = self._names
        more: dict[str, Any] = {}
        if names:
            more["adapter_names"] = [names[row % len(names)] for row in range(batch)]
        tokens = torch.ones(batch, 16, dtype=torch.int64, device=self._device)
        out = self._model(input_ids=tokens, use_cache=True, **more)
        times = []
        for _ in range(steps):
            started = time.perf_counter()
            out = self._model(
                input_ids=tokens[:, :1],
                past_key_values=out.past_key_values,
                use_cache=True,
                **more,
            )
            out.logits[0, -1, 0].item()  # waits for the device
            times.append((time.perf_counter() - started) * 1e3)
        return statistics.median(times)
