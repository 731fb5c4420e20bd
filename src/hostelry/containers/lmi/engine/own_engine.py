"""Our engine as the loop serves it, and its state for the HTTP process."""

import sys
from array import array
from collections.abc import Sequence
from concurrent.futures import Future

from hostelry.containers.lmi.engine.backend import (
    AdapterView,
    BackendStats,
    CachedAdapterView,
    CacheView,
    ModelFacts,
)
from hostelry.engine.engine import Engine
from hostelry.engine.lora.adapter_metrics import AdapterMetrics
from hostelry.engine.lora.errors import UnknownAdapterError
from hostelry.engine.lora.loader import Prepared, StorageTier
from hostelry.engine.lora.store import RegisteredAdapter
from hostelry.engine.request import Request, Structure
from hostelry.engine.sampling.xgrammar_binding import CompiledStructure


class OwnEngine:
    """Our engine as `HostedEngine`."""

    pin_refusal = None

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def add(self, requests: Sequence[Request]) -> None:
        """Start all `requests`, or none (see HostedEngine)."""
        added: list[str] = []
        try:
            for request in requests:
                self._engine.add(request)
                added.append(request.id)
        except BaseException:
            self.abort(added)
            raise

    def abort(self, request_ids: Sequence[str]) -> None:
        """End these requests (see HostedEngine)."""
        for request_id in request_ids:
            self._engine.abort(request_id)

    def compile_structure(self, structure: Structure) -> Future[CompiledStructure]:
        """Compile in another process (see HostedEngine)."""
        return self._engine.compile_structure(structure)

    def prepare_adapter(self, name: str, src: str) -> Prepared:
        """Read the adapter at `src` (see HostedEngine)."""
        return self._engine.prepare_adapter(src)

    def register_adapter(self, name: str, prepared: Prepared, *, pin: bool, replace: bool) -> None:
        """Register it (see HostedEngine)."""
        self._engine.register_adapter(name, prepared, pin=pin, replace=replace)

    def discard_adapter(self, prepared: Prepared) -> None:
        """Nothing: a prepared adapter is memory alone."""

    def unload_adapter(self, name: str) -> None:
        """Unregister it (see HostedEngine)."""
        self._engine.unload_adapter(name)

    def pin_adapter(self, name: str, pin: bool) -> None:
        """Pin or unpin it (see HostedEngine)."""
        (self._engine.pin_adapter if pin else self._engine.unpin_adapter)(name)

    def has_adapter(self, name: str) -> bool:
        """True if it is registered."""
        return any(it.version.name == name for it in self._engine.adapters)

    def adapter(self, name: str) -> AdapterView:
        """Its state (see HostedEngine)."""
        found = next((it for it in self._engine.adapters if it.version.name == name), None)
        if found is None:
            raise UnknownAdapterError(f"adapter {name!r} is not loaded")
        engine = self._engine
        return _view(found, engine.adapter_tier(name), engine.adapter_metrics(name))

    def stats(self) -> BackendStats:
        """The engine's present load."""
        now = self._engine.stats
        pages, adapters = now.pages, now.adapters
        return BackendStats(
            kernels=now.kernels,
            running_requests=now.num_running,
            waiting_requests=now.num_waiting,
            steps=now.num_steps,
            free_pages=pages.num_free + pages.num_idle_prefix_pages + pages.num_idle_adapter_pages,
            total_pages=pages.num_pages,
            pinned_pages=pages.num_pinned_pages,
            adapter_pages=pages.num_adapter_pages,
            cached_pages=pages.num_cached_pages,
            pool_bytes=now.pool_bytes,
            merged_bytes=now.merged_bytes,
            prompt_tokens=now.num_prompt_tokens,
            cached_tokens=now.num_cached_tokens,
            generated_tokens=now.num_generated_tokens,
            preemptions=now.num_preemptions,
            expired_requests=now.num_expired,
            adapters_in_pool=pages.num_adapters,
            adapters_in_host=adapters.num_in_host,
            host_bytes=adapters.host_bytes,
            max_host_bytes=adapters.max_host_bytes,
            disk_bytes=adapters.disk_bytes,
            max_disk_bytes=adapters.max_disk_bytes,
            adapter_loads_waiting=adapters.num_waiting_loads,
            adapter_loads_running=adapters.num_running_loads,
            adapter_loads_failed=adapters.num_failed_loads,
        )

    def cache(self, limit: int) -> CacheView:
        """The contents of the caches (see HostedEngine)."""
        state, now = self._engine.cache.state(limit), self._engine.stats
        pages, counts, totals = now.pages, now.pages.counts, state.totals
        return CacheView(
            adapters=tuple(
                CachedAdapterView(
                    name=adapter.registered.version.name,
                    view=_view(adapter.registered, adapter.tier, adapter.metrics),
                    code=adapter.code,
                )
                for adapter in state.adapters
            ),
            num_adapters=now.adapters.num_adapters,
            requests=totals.num_requests,
            prompt_tokens=totals.num_prompt_tokens,
            generated_tokens=totals.num_generated_tokens,
            hits={tier.value: num for tier, num in totals.hits.items()},
            page_codes=b"" if state.owners is None else _little_endian(state.owners.codes),
            sequence_pages=pages.num_sequence_pages,
            idle_prefix_pages=pages.num_idle_prefix_pages,
            prefix_hits=counts.num_prefix_hits,
            prefix_misses=counts.num_prefix_misses,
            evicted_prefix_pages=counts.num_evicted_prefix_pages,
            pool_loads=counts.num_adapter_loads,
            pool_evictions=counts.num_evicted_adapters,
            host_evictions=now.adapters.num_host_evictions,
            disk_evictions=now.adapters.num_disk_evictions,
            stats=self.stats(),
        )


def _little_endian(codes: "array[int]") -> bytes:
    if sys.byteorder == "big":
        codes.byteswap()
    return codes.tobytes()


def _view(registered: RegisteredAdapter, tier: StorageTier, metrics: AdapterMetrics) -> AdapterView:
    return AdapterView(
        version=registered.version.content_id,
        tier=tier.value,
        rank=registered.summary.rank,
        num_bytes=registered.summary.num_bytes,
        num_pages=registered.summary.num_pages,
        requests=metrics.num_requests,
        prompt_tokens=metrics.num_prompt_tokens,
        generated_tokens=metrics.num_generated_tokens,
        hits={tier.value: num for tier, num in metrics.hits.items()},
        loads={tier.value: num for tier, num in metrics.num_loads.items()},
        failed_loads=metrics.num_failed_loads,
        uploads=metrics.num_uploads,
        host_evictions=metrics.num_host_evictions,
        in_flight=registered.num_requests,
        warnings=registered.warnings,
    )


def facts(engine: Engine, page_tokens: int, notes: Sequence[str] = ()) -> ModelFacts:
    """Facts of the loaded model, with the warnings `notes` first. A page holds `page_tokens`."""
    model = engine.model
    longest = model.max_model_len - (engine.pooling is not None)  # an answer of no token
    cached_tokens = engine.stats.pages.num_pages * page_tokens
    warnings = [*notes, *engine.warnings]
    if cached_tokens < longest:
        warnings.append(
            f"the KV cache holds {cached_tokens} tokens, so a request has at most as many, not "
            f"the model's {longest}"
        )
    return ModelFacts(
        vocab_size=model.vocab_size,
        max_model_len=min(longest, cached_tokens),
        eos_token_ids=tuple(model.eos_token_ids),
        dtype=model.dtype,
        warnings=tuple(warnings),
        pooling=engine.pooling,
        ranks=engine.num_ranks,
    )
