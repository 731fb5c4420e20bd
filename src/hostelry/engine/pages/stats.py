"""Statistics of the page pool, as one value."""

from dataclasses import dataclass


@dataclass(slots=True)
class PoolCounts:
    """Events since the start. Only the pool itself writes them."""

    num_prefix_hits: int = 0  # pages that `begin` found
    num_prefix_misses: int = 0  # pages that `begin` asked for and did not find
    num_published_pages: int = 0  # complete pages, duplicates included
    num_duplicate_pages: int = 0  # computed although the same content was published meanwhile
    num_adapter_holds: int = 0
    num_adapter_loads: int = 0
    num_evicted_prefix_pages: int = 0
    num_evicted_adapters: int = 0
    num_evicted_adapter_pages: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolStats:
    """Pages by use now, and counts since the start.

    `num_pages` = `num_free` + `num_sequence_pages` + `num_idle_prefix_pages` + `num_adapter_pages`.
    Cached pages may be shared, idle or not. Pages of idle adapters are part of the adapters' pages.
    Pinned pages are reserved, with or without the adapter in the pool.
    """

    num_pages: int
    num_free: int
    num_sequence_pages: int
    num_cached_pages: int
    num_idle_prefix_pages: int
    num_adapter_pages: int
    num_idle_adapter_pages: int
    num_pinned_pages: int
    num_sequences: int
    num_adapters: int
    counts: PoolCounts
