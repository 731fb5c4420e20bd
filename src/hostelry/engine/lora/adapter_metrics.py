"""Metrics of adapters, as values: by name for billing, in total for monitoring."""

from collections.abc import Mapping

import msgspec

from hostelry.engine.lora.loader import StorageTier


class AdapterMetrics(msgspec.Struct, frozen=True, kw_only=True):
    """Metrics of one name since its first registration.

    `hits` are requests by the tier in which they found the adapter. Loads (into host memory, by the
    tier loaded from), uploads (into the pool) and host evictions count its current content, shared
    by all names of it. `num_bytes` is its size in host memory, once for all names.
    """

    num_requests: int
    num_prompt_tokens: int
    num_generated_tokens: int
    hits: Mapping[StorageTier, int]
    num_loads: Mapping[StorageTier, int]
    load_s: Mapping[StorageTier, float]
    num_failed_loads: int
    num_uploads: int
    upload_s: float
    num_host_evictions: int
    num_bytes: int
    is_in_host: bool


class AdapterTotals(msgspec.Struct, frozen=True, kw_only=True):
    """Sums over all registered names."""

    num_requests: int
    num_prompt_tokens: int
    num_generated_tokens: int
    hits: Mapping[StorageTier, int]


class StoreStats(msgspec.Struct, frozen=True, kw_only=True):
    """Metrics of all adapters: present bytes and their bounds (disk: the cache)."""

    num_adapters: int
    num_contents: int
    num_in_host: int
    host_bytes: int
    max_host_bytes: int
    num_host_evictions: int
    disk_bytes: int
    max_disk_bytes: int
    num_disk_evictions: int
    num_waiting_loads: int
    num_running_loads: int
    num_running_uploads: int
    num_failed_loads: int


class NameCounts(msgspec.Struct):
    """Counters of the requests under one name."""

    num_requests: int = 0
    num_prompt_tokens: int = 0
    num_generated_tokens: int = 0
    hits: dict[StorageTier, int] = msgspec.field(default_factory=dict)


class ContentCounts(msgspec.Struct):
    """Counters of the loads and uploads of one content."""

    num_loads: dict[StorageTier, int] = msgspec.field(default_factory=dict)
    load_s: dict[StorageTier, float] = msgspec.field(default_factory=dict)
    num_failed_loads: int = 0
    num_uploads: int = 0
    upload_s: float = 0.0
    num_host_evictions: int = 0

    def count_load(self, tier: StorageTier, load_s: float) -> None:
        """Count a load from `tier`."""
        self.num_loads[tier] = self.num_loads.get(tier, 0) + 1
        self.load_s[tier] = self.load_s.get(tier, 0.0) + load_s
