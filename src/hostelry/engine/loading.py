"""From a model folder to the parts an engine is made of."""

import os
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from hostelry.engine.config import EngineConfig, computing_dtype
from hostelry.engine.kernels.linear import has_packed_operator, plain_reason
from hostelry.engine.layers.kv_cache import KvCache
from hostelry.engine.lora.shapes import TargetSpace
from hostelry.engine.lora.slots import AdapterSlots
from hostelry.engine.models.llama import load_llama, target_space
from hostelry.engine.models.spec import ModelSpec, load_spec
from hostelry.engine.runner.runner import Runner

_TORCH_DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
_CPU_MEMORY_SHARE = 1 / 8
_GPU_MEMORY_SHARE = 0.85  # of what is free once the weights are there; the rest is for activations


@dataclass(frozen=True, slots=True)
class Parts:
    """A loaded model and what runs it; `spec` carries the computing dtype and length."""

    spec: ModelSpec
    space: TargetSpace
    slots: AdapterSlots
    runner: Runner
    num_pages: int
    kv_cache_bytes: int
    warnings: tuple[str, ...]


def load_parts(folder: Path, config: EngineConfig) -> Parts:
    """Load the model in `folder` as `config` asks. Raises ModelError or ValueError."""
    if config.num_threads is not None:
        torch.set_num_threads(config.num_threads)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    stored = load_spec(folder)
    dtype_name, warning = computing_dtype(
        config.dtype,
        stored.dtype,
        on_cpu=device.type == "cpu",
        has_fast_bf16=bool(torch.ops.mkldnn._is_mkldnn_bf16_supported()),
    )
    slow = plain_reason(device.type, has_operator=has_packed_operator())
    dtype = _TORCH_DTYPES[dtype_name]
    spec = replace(stored, dtype=dtype_name, max_model_len=_max_len(stored, config))
    with torch.inference_mode():
        model = load_llama(folder, spec, max_len=spec.max_model_len, dtype=dtype, device=device)
        num_pages = _num_pages(spec, config, dtype, device)
        cache = KvCache(
            num_layers=spec.num_layers,
            num_pages=num_pages,
            page_tokens=config.page_tokens,
            num_kv_heads=spec.num_kv_heads,
            head_dim=spec.head_dim,
            dtype=dtype,
            device=device,
        )
    space = target_space(spec)
    slots = AdapterSlots(space, device)
    return Parts(
        spec=spec,
        space=space,
        slots=slots,
        runner=Runner(model, cache, slots, device),
        num_pages=num_pages,
        kv_cache_bytes=cache.num_bytes,
        warnings=tuple(it for it in (warning, slow) if it is not None),
    )


def _max_len(spec: ModelSpec, config: EngineConfig) -> int:
    if config.max_model_len is None:
        return spec.max_model_len
    if config.max_model_len > spec.max_model_len:
        raise ValueError(
            f"max_model_len is {config.max_model_len}; the model has {spec.max_model_len} positions"
        )
    return config.max_model_len


def _num_pages(
    spec: ModelSpec, config: EngineConfig, dtype: torch.dtype, device: torch.device
) -> int:
    """Pages of the cache: what the budget holds, or what a full batch of longest requests needs."""
    token_bytes = 2 * spec.num_layers * spec.num_kv_heads * spec.head_dim * dtype.itemsize
    page_bytes = token_bytes * config.page_tokens
    longest = -(-spec.max_model_len // config.page_tokens)
    budget = config.kv_cache_bytes
    if budget is None:
        budget = min(_memory_share(device), config.max_batch_size * longest * page_bytes)
    num_pages = budget // page_bytes - 1  # one more is kept zero to fill up tables
    if num_pages < 1:
        raise ValueError(
            f"kv_cache_bytes is {budget}; two pages of {config.page_tokens} tokens need "
            f"{2 * page_bytes}"
        )
    return num_pages


def _memory_share(device: torch.device) -> int:
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        return int(free * _GPU_MEMORY_SHARE)
    physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return int(physical * _CPU_MEMORY_SHARE)
