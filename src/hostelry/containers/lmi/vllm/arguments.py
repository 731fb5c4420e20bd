"""Arguments of vLLM's engine from our settings. Pure: plain values, no vLLM."""

from collections.abc import Mapping
from typing import Any

import msgspec

from hostelry.containers.lmi.engine.messages import EngineSettings
from hostelry.engine.request import MAX_LOGPROBS

DTYPES: Mapping[str, str] = {
    "auto": "auto", "fp32": "float32", "fp16": "float16", "bf16": "bfloat16",
}  # fmt: skip
MAX_IMAGES = 8  # of a request, unless limit_mm_per_prompt says otherwise
RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)  # that vLLM has buffers for
DEFAULT_MAX_LORAS = 4  # adapters of one step; vLLM computes over buffers for as many
MAX_HOST_ADAPTERS = 32  # in memory; others are read from disk again when they are asked for
CPU_CACHE_SHARE = 1 / 8  # of the memory, as our own engine's pool
LEAST_CACHE_BYTES = 64 << 20
GIVEN = frozenset(
    {
        "folder", "dtype", "weight_dtype", "max_batch_size", "max_batched_tokens", "max_model_len",
        "num_threads", "max_lora_rank", "max_loras", "max_waiting", "pool_bytes", "prefix_cache",
        "enforce_eager", "max_images",
        "enable_lora", "adapter_host_bytes", "adapter_cache_dir", "adapter_cache_bytes",
        "base_names", "tenants", "default_tenant", "use_accelerators", "fuse_adapter",
    }
)  # fmt: skip
EXTENSION = "hostelry.containers.lmi.vllm.worker_extension.AdapterCheck"


def engine_arguments(
    settings: EngineSettings, *, on_cpu: bool, memory_bytes: int
) -> dict[str, Any]:
    """Arguments of vLLM's AsyncEngineArgs; `memory_bytes` is what this server may use.

    Code of the model's repository is never run. Raises ValueError for a setting that vLLM cannot
    follow and that changes answers.
    """
    for name, value in msgspec.structs.asdict(settings).items():
        if name not in GIVEN and value != getattr(EngineSettings(folder=""), name):
            raise ValueError(
                f"{name} is {value!r}, which is not passed to vLLM; use option.backend=hostelry"
            )
    if settings.fuse_adapter is not None:
        raise ValueError(
            f"fuse_adapter is {settings.fuse_adapter!r}, which is our own engine's; vLLM applies "
            "adapters unmerged: leave it out, or use option.backend=hostelry"
        )
    if settings.weight_dtype != "auto":
        raise ValueError(
            f"quantize is {settings.weight_dtype}, which is our own engine's; vLLM computes "
            "weights as stored: give a checkpoint of that format, or option.backend=hostelry"
        )
    arguments: dict[str, Any] = {
        "model": settings.folder,
        "dtype": DTYPES[settings.dtype],
        "max_model_len": settings.max_model_len or -1,  # the most that the cache has room for
        "max_num_seqs": settings.max_batch_size,
        "max_num_batched_tokens": settings.max_batched_tokens,
        "enable_prefix_caching": settings.prefix_cache,
        "max_logprobs": MAX_LOGPROBS,
        "generation_config": "vllm",  # the request's values are complete
        "trust_remote_code": False,
        # Compilation for CPUs takes minutes at the start.
        "enforce_eager": on_cpu if settings.enforce_eager is None else settings.enforce_eager,
        "structured_outputs_config": {"backend": "xgrammar"},
        "worker_extension_cls": EXTENSION,
        "seed": 0,
        # Nothing else than images is passed on; the engine reserves memory for what it may get.
        "limit_mm_per_prompt": {
            "image": settings.max_images or MAX_IMAGES, "video": 0, "audio": 0,
        },
    }  # fmt: skip
    if settings.pool_bytes or on_cpu:
        share = max(LEAST_CACHE_BYTES, int(memory_bytes * CPU_CACHE_SHARE))
        arguments["kv_cache_memory_bytes"] = settings.pool_bytes or share
    if settings.enable_lora:
        max_loras = settings.max_loras or DEFAULT_MAX_LORAS
        arguments |= {
            "enable_lora": True,
            "max_loras": max_loras,
            "max_cpu_loras": max(max_loras, MAX_HOST_ADAPTERS),
            "max_lora_rank": buffer_rank(settings.max_lora_rank),
        }
    return arguments


def buffer_rank(max_rank: int) -> int:
    """The least rank of vLLM's buffers that holds `max_rank`. Raises ValueError above all."""
    found = next((it for it in RANKS if it >= max_rank), None)
    if found is None:
        raise ValueError(f"max_lora_rank is {max_rank}; with vLLM it must be at most {RANKS[-1]}")
    return found
