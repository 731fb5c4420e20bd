"""Inputs and outputs of the scheduler, its budgets and refusals: plain integers."""

import math
from typing import NamedTuple

import msgspec

# Refusals of a request at submission. The caller may retry after both.
#
# Exception
# +-- QuotaExceededError   its tenant has used up a quota (429)
# +-- ServerFullError      the whole server's queue is full (503)


class QuotaExceededError(Exception):
    """`tenant` has reached the `limit` of its `quota`. Retry after `retry_after_s`."""

    def __init__(self, tenant: str, quota: str, limit: float, retry_after_s: float) -> None:
        super().__init__(
            f"tenant {tenant!r} has reached its quota of {limit:g} {quota}; "
            f"try again in {retry_after_s:.1f} s"
        )
        self.tenant = tenant
        self.quota = quota
        self.limit = limit
        self.retry_after_s = retry_after_s


class ServerFullError(Exception):
    """`limit` requests wait already. Retry after `retry_after_s`."""

    def __init__(self, limit: int, retry_after_s: float) -> None:
        super().__init__(f"{limit} requests wait already; try again in {retry_after_s:.1f} s")
        self.limit = limit
        self.retry_after_s = retry_after_s


class SchedulerLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Budgets. Raises ValueError if one is out of range or two contradict each other.

    - `max_batch_size`: requests that own pages and advance each step.
    - `max_batched_tokens`: rows of a step. Every running request decodes, prompts share the rest.
    - `max_scored_tokens`: rows of requests whose prompt is scored, since each of them has logits.
    - `page_tokens`: tokens of a page.
    - `max_adapters`: adapter slots, the distinct adapters among running requests. None: any number.
    - `max_waiting`: waiting requests of all tenants that make the server full. None: any number.
    - `max_wait_s`: a request that is starved of pages or an adapter slot for longer after its turn
      came gets a reservation: no other may take its pages and slot until it runs.
    - `prefetch_lookahead`: adapters fetched into host memory at once, and as many into pages.
    - `overtake_tokens`: while the fairest request lacks pages or an adapter slot, others may start
      as long as their tenant (inside a tenant: their adapter) has at most this much more service,
      in charged tokens. It trades fairness for throughput. 0 trades nothing.
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

    def count_pages(self, num_tokens: int) -> int:
        """Pages that hold `num_tokens` tokens."""
        return -(-num_tokens // self.page_tokens)


class Submission(msgspec.Struct, frozen=True, kw_only=True):
    """A request in the scheduler's form.

    Raises ValueError for numbers out of range. `adapter` is a content id, or None for the base
    model. Its weights take `adapter_pages` pages and `reload_cost_s` seconds to load. `prefix_keys`
    are the keys of the prompt's complete pages. With `is_scored` every prompt token is computed,
    none comes from the cache. The request ends at `max_tokens` tokens, prompt and output, at the
    latest. It is dropped without a first token by `deadline_at`.
    """

    id: str
    tenant: str
    num_prompt_tokens: int
    max_tokens: int
    adapter: str | None = None
    adapter_pages: int = 0
    reload_cost_s: float = 0.0
    prefix_keys: tuple[bytes, ...] = ()
    deadline_at: float | None = None
    is_scored: bool = False

    @property
    def cached_keys(self) -> tuple[bytes, ...]:
        """The keys of the pages that it may take from the cache."""
        return () if self.is_scored else self.prefix_keys

    def __post_init__(self) -> None:
        """Check every number."""
        if self.num_prompt_tokens < 1:
            raise ValueError(f"request {self.id} has {self.num_prompt_tokens} prompt tokens")
        if self.max_tokens <= self.num_prompt_tokens:
            raise ValueError(
                f"request {self.id} has {self.num_prompt_tokens} prompt tokens and may have "
                f"{self.max_tokens} in all; that leaves none to generate"
            )
        fewest = 0 if self.adapter is None else 1
        if self.adapter_pages < fewest or (self.adapter is None and self.adapter_pages):
            raise ValueError(
                f"request {self.id} has {self.adapter_pages} adapter pages "
                f"with adapter {self.adapter}"
            )
        if not 0 <= self.reload_cost_s < math.inf:
            raise ValueError(f"request {self.id} has a reload cost of {self.reload_cost_s} s")
        if self.deadline_at is not None and not math.isfinite(self.deadline_at):
            raise ValueError(f"request {self.id} has the deadline {self.deadline_at}")


class Chunk(NamedTuple):
    """Tokens `start` to `start + length` of one request.

    `samples` is set when the chunk reaches the request's last known token, so that its logits give
    the next one. A named tuple, because a step has hundreds: it costs a third of a dataclass.
    """

    request_id: str
    start: int
    length: int
    samples: bool


class Upload(NamedTuple):
    """An adapter whose weights are to be copied from host memory into these pages."""

    adapter: str
    pages: tuple[int, ...]


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """A step.

    `chunks` has decoding requests first, then prompts in order of admission. `preempted` requests
    wait again: they keep their tokens, which are computed again. `fetches` are adapters to bring
    into host memory, most urgent first. `uploads` are adapters whose pages are reserved. Each
    adapter is named once until its outcome is reported. `expired` requests were removed because
    their first token is late, or would be.
    """

    chunks: tuple[Chunk, ...] = ()
    preempted: tuple[str, ...] = ()
    fetches: tuple[str, ...] = ()
    uploads: tuple[Upload, ...] = ()
    expired: tuple[str, ...] = ()
