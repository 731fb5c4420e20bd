"""Sizes of what vLLM computes and keeps, by the device and the model. Pure.

Source of STEPS: vLLM 0.32, EngineArgs.get_batch_defaults, for its API server.
"""

from collections.abc import Mapping
from typing import Annotated, Any

import msgspec
from msgspec import Meta, ValidationError, convert
from msgspec.structs import replace

from hostelry.containers.lmi.settings.engine_settings import EngineSettings

GIB = 1 << 30
MOST_MEMORY = 0.9  # of a GPU, for all copies on it. The rest is for CUDA's contexts
# GiB of a GPU, at least -> requests and tokens of a step. An A100 has the last ones.
STEPS: Mapping[int, tuple[int, int]] = {160: (1024, 16384), 70: (1024, 8192), 0: (256, 2048)}
SLOW_PREFILL = "a100"
RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)  # vLLM has buffers for these ranks
SLOT_SHARE, HOST_SHARE = 1 / 16, 1 / 16  # of a GPU's memory, and of the host's
CPU_SLOT_SHARE = 1 / 32
MOST_SLOTS, MOST_CPU_SLOTS = 64, 16
MOST_HOST_ADAPTERS = 1024
UNKNOWN_SHAPE = (4, 32)  # slots and host adapters, if config.json has no shape that is known
NUMBER_BYTES, CPU_NUMBER_BYTES = 2, 4
Whole = Annotated[int, Meta(ge=1)]


class Gpu(msgspec.Struct, frozen=True, kw_only=True):
    """The kind of the GPUs that this server computes on."""

    name: str
    memory_bytes: int


class ModelShape(msgspec.Struct, frozen=True):
    """The members of config.json that give the shape of linear modules."""

    hidden_size: Whole
    num_attention_heads: Whole
    num_hidden_layers: Whole
    intermediate_size: Whole
    head_dim: Whole | None = None
    num_key_value_heads: Whole | None = None
    moe_intermediate_size: Whole | None = None
    num_local_experts: Whole | None = None
    num_experts: Whole | None = None


def fit_steps(settings: EngineSettings, gpu: Gpu | None) -> EngineSettings:
    """The settings with requests and tokens of a step by the device, unless options give them.

    Without a GPU they stay as they are.
    """
    if gpu is None:
        return settings
    is_slow = SLOW_PREFILL in gpu.name.lower()
    limits = (it for least, it in STEPS.items() if gpu.memory_bytes >= least * GIB)
    requests, tokens = STEPS[0] if is_slow else next(limits)
    return replace(
        settings,
        max_batch_size=requests if settings.batch_by_device else settings.max_batch_size,
        max_batched_tokens=settings.max_batched_tokens or tokens,
    )


def memory_share(device_share: float) -> float:
    """`gpu_memory_utilization` of a server with this share of each of its GPUs."""
    return round(MOST_MEMORY * device_share, 4)


def buffer_rank(max_rank: int) -> int:
    """The least rank of vLLM's buffers that holds `max_rank`. Raises ValueError above all."""
    found = next((it for it in RANKS if it >= max_rank), None)
    if found is None:
        raise ValueError(f"max_lora_rank is {max_rank}; with vLLM it must be at most {RANKS[-1]}")
    return found


def count_adapters(
    settings: EngineSettings, width: int | None, gpu: Gpu | None, host_bytes: int
) -> tuple[int, int]:
    """The adapters of a step (`max_loras`), and those in host memory (`max_cpu_loras`).

    `width` is `adapter_width` of the model. `host_bytes` is the memory that this server may use.
    Options win. Each slot of a step has room for an adapter of the largest rank on all modules.
    """
    slots, kept = UNKNOWN_SHAPE
    if width is not None:
        rank = buffer_rank(settings.max_lora_rank)
        each = width * rank * (CPU_NUMBER_BYTES if gpu is None else NUMBER_BYTES)
        if gpu is None:
            room, most = host_bytes * CPU_SLOT_SHARE, MOST_CPU_SLOTS
        else:
            room, most = gpu.memory_bytes * settings.device_share * SLOT_SHARE, MOST_SLOTS
        slots = min(max(1, int(room / each)), most)
        kept_bytes = settings.adapter_host_bytes or host_bytes * HOST_SHARE
        kept = min(
            int(kept_bytes / (width * settings.max_lora_rank * NUMBER_BYTES)), MOST_HOST_ADAPTERS
        )
    slots = settings.max_loras or min(slots, settings.max_cpu_loras or slots)
    return slots, max(slots, settings.max_cpu_loras or kept)


def adapter_width(config: Mapping[str, Any]) -> int | None:
    """The numbers of an adapter of rank 1 on all linear modules of the layers.

    `config` is the model's config.json. None if it has no shape that is known.
    """
    config = config.get("text_config") or config
    try:
        shape = convert(config, ModelShape)
    except ValidationError:
        return None
    head = shape.head_dim or shape.hidden_size // shape.num_attention_heads
    keys = head * (shape.num_key_value_heads or shape.num_attention_heads)
    values = head * shape.num_attention_heads
    attention = 2 * (shape.hidden_size + values) + 2 * (shape.hidden_size + keys)
    inner = shape.moe_intermediate_size or shape.intermediate_size
    experts = shape.num_local_experts or shape.num_experts or 1
    return shape.num_hidden_layers * (attention + experts * 3 * (shape.hidden_size + inner))
