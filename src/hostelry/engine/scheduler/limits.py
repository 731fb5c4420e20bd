"""Budgets of the scheduler."""

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerLimits:
    """Budgets; raises ValueError where one is out of range or two contradict each other.

    - `max_batch_size`: requests that own pages and advance each step.
    - `max_batched_tokens`: rows of a step; every running request decodes, prompts share the rest.
    - `max_scored_tokens`: of these rows, those of requests whose prompt is scored: each has logits.
    - `page_tokens`: tokens a page holds.
    - `max_adapters`: adapter slots, distinct adapters among running requests; None is no bound.
    - `max_waiting`: waiting requests of all tenants that make the server full; None is no bound.
    - `max_wait_s`: a request that is starved of pages or an adapter slot for longer after its turn
      came gets a reservation: no other may take what it needs until it runs.
    - `prefetch_lookahead`: adapters fetched into host memory at once, and as many into pages.
    - `overtake_tokens`: while the fairest request lacks pages or an adapter slot, others may start
      as long as their tenant (inside a tenant: their adapter) has at most this much more service,
      in charged tokens. It trades fairness for throughput; 0 trades nothing.
    - `reserve_pages`: pages kept free for each running request's growth when another is admitted.
    - `load_charge_tokens`: charge to a tenant for each page of an adapter loaded for it.
    """

    max_batch_size: int
    max_batched_tokens: int
    page_tokens: int
    max_scored_tokens: int = 256
    max_adapters: int | None = None
    max_waiting: int | None = None
    max_wait_s: float = 2.0
    prefetch_lookahead: int = 16
    overtake_tokens: float = 1024.0
    reserve_pages: int = 1
    load_charge_tokens: float = 0.0

    def __post_init__(self) -> None:
        """Check every bound."""
        for name in (
            "max_batch_size",
            "max_batched_tokens",
            "max_scored_tokens",
            "page_tokens",
            "prefetch_lookahead",
        ):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be at least 1")
        for name in ("max_adapters", "max_waiting"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} is {value}; it must be at least 1, or None")
        for name in ("max_wait_s", "reserve_pages", "load_charge_tokens"):
            if not 0 <= getattr(self, name) < math.inf:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be finite, at least 0")
        if not self.overtake_tokens >= 0:
            raise ValueError(f"overtake_tokens is {self.overtake_tokens}; it must be at least 0")
        if self.max_batched_tokens < self.max_batch_size:
            raise ValueError(
                f"max_batched_tokens is {self.max_batched_tokens}; it must be at least "
                f"max_batch_size, {self.max_batch_size}, so that every running request can decode"
            )

    def pages_for(self, num_tokens: int) -> int:
        """Pages that `num_tokens` tokens fill."""
        return -(-num_tokens // self.page_tokens)
