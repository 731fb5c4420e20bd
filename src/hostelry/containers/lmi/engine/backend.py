"""Interface between the HTTP process and the token generator."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Protocol

import msgspec

from hostelry.base.errors import HostelryError
from hostelry.engine.pooled import PoolingFacts
from hostelry.engine.request import Output, Request


class ModelFacts(msgspec.Struct, frozen=True, kw_only=True):
    """Facts of the loaded model for the HTTP process. `warnings` are the engine's.

    `max_model_len` is the most tokens one request can have, prompt and answer together. `pooling`
    is set for a model that gives vectors: its requests end with one output, `Output.vector`. A
    request has at most `max_images`. `ranks` are the processes that divide the model. A step has at
    most `max_batch_size` requests, or None for the settings' number.
    """

    vocab_size: int
    max_model_len: int
    eos_token_ids: tuple[int, ...]
    dtype: str
    warnings: tuple[str, ...] = ()
    pooling: PoolingFacts | None = None
    max_images: int = 0
    ranks: int = 1
    max_batch_size: int | None = None


class BackendStats(msgspec.Struct, frozen=True, kw_only=True):
    """Load of the engine at its last step, and contents and bound of each adapter tier.

    Pages are of the one pool for KV cache and adapters. Free pages may hold cached data.
    `merged_bytes` counts the weights of the merged adapter, in addition to the base's.
    """

    kernels: str = ""
    running_requests: int = 0
    waiting_requests: int = 0
    steps: int = 0
    free_pages: int = 0
    total_pages: int = 0
    pinned_pages: int = 0
    adapter_pages: int = 0
    cached_pages: int = 0
    pool_bytes: int = 0
    merged_bytes: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    generated_tokens: int = 0
    preemptions: int = 0
    expired_requests: int = 0
    adapters_in_pool: int = 0
    adapters_in_host: int = 0
    host_bytes: int = 0
    max_host_bytes: int = 0
    disk_bytes: int = 0
    max_disk_bytes: int = 0
    adapter_loads_waiting: int = 0
    adapter_loads_running: int = 0
    adapter_loads_failed: int = 0


class AdapterView(msgspec.Struct, frozen=True, kw_only=True):
    """One registered adapter's state in the engine.

    `version` is the hash of its content, `tier` the fastest tier that holds it: pool, host, disk
    or remote. `hits` are requests by the tier in which they found it, `loads` the loads into host
    memory by their source tier.
    """

    version: str
    tier: str
    rank: int
    num_bytes: int
    num_pages: int
    requests: int = 0
    prompt_tokens: int = 0
    generated_tokens: int = 0
    hits: Mapping[str, int] = msgspec.field(default_factory=dict)
    loads: Mapping[str, int] = msgspec.field(default_factory=dict)
    failed_loads: int = 0
    uploads: int = 0
    host_evictions: int = 0
    in_flight: int = 0
    warnings: tuple[str, ...] = ()


class CachedAdapterView(msgspec.Struct, frozen=True, kw_only=True):
    """An adapter by name, and the code of its pages in the pool's map, if it has any."""

    name: str
    view: AdapterView
    code: int | None = None


class CacheView(msgspec.Struct, frozen=True, kw_only=True):
    """The places of adapters, the nearest first, and the use of the pool's pages.

    `page_codes` are two bytes per page, little-endian (`engine.pages.owners`). Empty if there is
    no map. `requests`, tokens and `hits` are sums over all registered adapters, `prefix_*` pages
    looked up in the prefix cache, `pool_*` loads into the pool and evictions from it.
    """

    adapters: tuple[CachedAdapterView, ...] = ()
    num_adapters: int = 0
    requests: int = 0
    prompt_tokens: int = 0
    generated_tokens: int = 0
    hits: Mapping[str, int] = msgspec.field(default_factory=dict)
    page_codes: bytes = b""
    sequence_pages: int = 0
    idle_prefix_pages: int = 0
    prefix_hits: int = 0
    prefix_misses: int = 0
    evicted_prefix_pages: int = 0
    pool_loads: int = 0
    pool_evictions: int = 0
    host_evictions: int = 0
    disk_evictions: int = 0
    stats: BackendStats


class BackendError(HostelryError):
    """Base of a backend's refusals and failures."""


class GenerationRefusedError(BackendError):
    """The engine cannot run this request. The message names the value and the limit."""


class AdapterMissingError(BackendError):
    """The request names an adapter that is not loaded."""


class AdapterRefusedError(BackendError):
    """The adapter cannot be applied exactly. The message names the offending field."""


class AdapterExistsError(BackendError):
    """An adapter of this name is loaded already."""


class AdapterCapacityError(BackendError):
    """Memory or slots for another adapter are lacking."""


class BusyError(BackendError):
    """A retry after `retry_after_s` may succeed."""

    def __init__(self, message: str, retry_after_s: float = 1.0) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class QuotaReachedError(BusyError):
    """The request's tenant has reached its quota."""


class EngineFullError(BusyError):
    """The engine's queue is full."""


class DeadlineMissedError(BusyError):
    """The first token did not come within the request's deadline."""


class EngineFailedError(BackendError):
    """The engine died or never started. This process cannot serve the request."""


class ModelUnsupportedError(EngineFailedError):
    """The engine cannot run a model of this kind. Another engine might."""


class EngineBackend(Protocol):
    """Generates tokens and holds adapters. Every call may raise EngineFailedError."""

    @property
    def ready(self) -> bool:
        """True if the model is loaded and the engine is alive and stepping."""
        ...

    @property
    def facts(self) -> ModelFacts:
        """The loaded model. Raises EngineFailedError before it is loaded."""
        ...

    def generate(self, requests: Sequence[Request]) -> AsyncGenerator[tuple[Output, ...]]:
        """Run `requests` together. Each item holds the outputs of one step or more, in order.

        Ends after the last output of the last request. Closing the iterator early aborts the
        unfinished requests. Raises GenerationRefusedError, AdapterMissingError,
        QuotaReachedError or EngineFullError before any output, and then none of `requests` runs.
        """
        ...

    async def abort(self, request_ids: Sequence[str]) -> None:
        """End these requests with FinishReason.ABORT. Unknown ids are skipped."""
        ...

    async def register_adapter(
        self, name: str, src: str, *, pin: bool, replace: bool, limit_s: float
    ) -> None:
        """Read the adapter at a path or URI while requests run, and register it as `name`.

        With `replace` a registered name gets a new version. Requests in flight end on the old
        version. Raises AdapterExistsError, AdapterRefusedError (also after `limit_s`),
        AdapterCapacityError or EngineFullError, and then changes nothing.
        """
        ...

    async def pin_adapter(self, name: str, pin: bool) -> None:
        """Pin it in the pool, or unpin it. Raises AdapterMissingError, AdapterCapacityError."""
        ...

    async def adapter(self, name: str) -> AdapterView:
        """The adapter's state. Raises AdapterMissingError."""
        ...

    async def unload_adapter(self, name: str) -> None:
        """Unregister `name`. Running requests finish. Raises AdapterMissingError."""
        ...

    async def stats(self) -> BackendStats:
        """The engine's present load."""
        ...

    async def cache(self, limit: int) -> CacheView:
        """The present contents of the engine's caches, with at most `limit` adapters."""
        ...
