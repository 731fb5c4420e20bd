"""Counters and statistics of an engine."""

from dataclasses import dataclass

from hostelry.engine.lora.adapter_metrics import StoreStats
from hostelry.engine.pages.stats import PoolStats


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineStats:
    """Counts since the start, and current use.

    `kernels` are native, triton or torch. `num_cached_tokens` of the `num_prompt_tokens` came from
    the prefix cache. `merged_bytes` is the size of the merged adapter's weights.
    """

    kernels: str
    num_steps: int
    num_prompt_tokens: int
    num_cached_tokens: int
    num_generated_tokens: int
    num_preemptions: int
    num_expired: int
    num_running: int
    num_waiting: int
    pool_bytes: int
    merged_bytes: int
    pages: PoolStats
    adapters: StoreStats


@dataclass(slots=True)
class EngineCounters:
    """Counters that only grow."""

    steps: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    generated_tokens: int = 0
    preemptions: int = 0
    expired: int = 0
