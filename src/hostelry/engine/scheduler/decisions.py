"""Inputs and outputs of the scheduler: plain integers, no tokens and no tensors."""

import math
from dataclasses import dataclass
from typing import NamedTuple


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    """A request as the scheduler sees it.

    `adapter` is a content id, None the base model; its weights take `adapter_pages` pages and
    `reload_cost_s` seconds to load. `prefix_keys` are those of the prompt's complete pages. Where
    `is_scored`, every prompt token is computed, none taken from the cache. The request ends at
    `max_tokens` tokens, prompt and output, at the latest. It is dropped without a first token by
    `deadline_at`. Raises ValueError for numbers out of range.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A step.

    `chunks`: decoding requests first, then prompts in order of admission. `preempted`: requests
    sent back to wait; they keep their tokens and are computed again. `fetches`: adapters to bring
    into host memory, most urgent first. `uploads`: adapters whose pages are reserved. Each adapter
    is named once until its outcome is reported. `expired`: requests that were removed because their
    first token is late, or would be.
    """

    chunks: tuple[Chunk, ...] = ()
    preempted: tuple[str, ...] = ()
    fetches: tuple[str, ...] = ()
    uploads: tuple[Upload, ...] = ()
    expired: tuple[str, ...] = ()
