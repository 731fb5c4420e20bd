"""Statistics of an engine, and the adapters and pages that it holds now."""

from collections.abc import Callable

import msgspec

from hostelry.engine.lora.adapter_metrics import AdapterMetrics, AdapterTotals, StoreStats
from hostelry.engine.lora.loader import StorageTier
from hostelry.engine.lora.store import AdapterStore, RegisteredAdapter
from hostelry.engine.pages.tables import FIRST_ADAPTER, PageOwners, PoolStats
from hostelry.engine.pages.unified import PagePool


class EngineStats(msgspec.Struct, frozen=True, kw_only=True):
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


class EngineCounters(msgspec.Struct):
    """Counters that only grow."""

    steps: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    generated_tokens: int = 0
    preemptions: int = 0
    expired: int = 0


MAX_MAPPED_PAGES = 2**18


class CachedAdapter(msgspec.Struct, frozen=True):
    """An adapter, the fastest tier that has it, and its pages' code in `PageOwners`, if any."""

    registered: RegisteredAdapter
    tier: StorageTier
    metrics: AdapterMetrics
    code: int | None


class CacheState(msgspec.Struct, frozen=True):
    """The nearest and busiest adapters, and sums over all adapters.

    `owners` is None for a pool of more than MAX_MAPPED_PAGES pages.
    """

    adapters: tuple[CachedAdapter, ...]
    totals: AdapterTotals
    owners: PageOwners | None


class EngineCache:
    """Reads one engine's pool and store, in the engine's thread.

    `is_at_hand` is true for a content that requests may run with now.
    """

    def __init__(
        self, pool: PagePool, store: AdapterStore, is_at_hand: Callable[[str], bool]
    ) -> None:
        self._pool = pool
        self._store = store
        self._is_at_hand = is_at_hand

    def state(self, limit: int) -> CacheState:
        """The present state, with at most `limit` adapters. Changes nothing."""
        is_mapped = self._pool.num_pages <= MAX_MAPPED_PAGES
        owners = self._pool.owners() if is_mapped else None
        numbers = {key: it for it, key in enumerate(owners.adapters if owners else ())}
        names = self._store.list_nearest(limit, numbers)
        adapters = tuple(self._build_adapter(name, numbers.get) for name in names)
        return CacheState(adapters, self._store.totals, owners)

    def _build_adapter(self, name: str, get_number: Callable[[str], int | None]) -> CachedAdapter:
        registered, metrics = self._store.get(name), self._store.metrics(name)
        assert registered is not None, "the store named it"
        assert metrics is not None, "registered names have metrics"
        content_id = registered.version.content_id
        is_at_hand = self._is_at_hand(content_id)
        tier = StorageTier.POOL if is_at_hand else self._store.tier(content_id)
        number = get_number(content_id)
        code = None if number is None else FIRST_ADAPTER + number
        return CachedAdapter(registered, tier, metrics, code)
