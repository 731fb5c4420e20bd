"""Registered adapters of the engine process, by name and version.

vLLM knows an adapter by a number and a key, which are of one version alone: its caches never mix
two. An old version goes once no request uses it.
"""

import asyncio
import heapq
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from hostelry.containers.lmi.engine.backend import (
    AdapterView,
    BackendStats,
    CachedAdapterView,
    CacheView,
)
from hostelry.containers.lmi.vllm.adapters import PreparedAdapter


class UnknownVersionError(ValueError):
    """No adapter of that name is registered."""


@dataclass(slots=True, eq=False, kw_only=True)
class VllmAdapter:
    """One version of an adapter."""

    name: str
    number: int
    prepared: PreparedAdapter
    requests: int = 0
    prompt_tokens: int = 0
    generated_tokens: int = 0
    num_in_flight: int = 0
    is_replaced: bool = False

    @property
    def content_id(self) -> str:
        """The hash of its content."""
        return self.prepared.content_id

    @property
    def key(self) -> str:
        """Its name in vLLM, of this version alone."""
        return f"{self.name}@{self.number}-{self.content_id[:16]}"

    @property
    def folder(self) -> Path:
        """Where vLLM reads it, again and again."""
        return self.prepared.folder

    def view(self) -> AdapterView:
        """Its state for the server; vLLM does not say where it holds an adapter."""
        return AdapterView(
            version=self.content_id,
            tier="disk",
            rank=self.prepared.rank,
            num_bytes=self.prepared.num_bytes,
            num_pages=0,
            requests=self.requests,
            prompt_tokens=self.prompt_tokens,
            generated_tokens=self.generated_tokens,
            in_flight=self.num_in_flight,
            warnings=self.prepared.warnings,
        )


class AdapterTable:
    """Adapters by name; `drop` is called with a version that nothing uses any more."""

    def __init__(self, drop: Callable[[VllmAdapter], None]) -> None:
        self._drop = drop
        self._by_name: dict[str, VllmAdapter] = {}
        self._last_number = 0

    def __len__(self) -> int:
        return len(self._by_name)

    def __contains__(self, name: str) -> bool:
        return name in self._by_name

    def new(self, name: str, prepared: PreparedAdapter) -> VllmAdapter:
        """A version with a number of its own, not registered yet."""
        self._last_number += 1
        return VllmAdapter(name=name, number=self._last_number, prepared=prepared)

    def register(self, adapter: VllmAdapter) -> None:
        """Make it the version of its name; another one goes once its requests ended."""
        old = self._by_name.get(adapter.name)
        self._by_name[adapter.name] = adapter
        if old is not None:
            self._replace(old)

    def unregister(self, name: str) -> None:
        """Forget the name. Raises UnknownVersionError."""
        self._replace(self.of(name))
        del self._by_name[name]

    def of(self, name: str) -> VllmAdapter:
        """The version of the name. Raises UnknownVersionError."""
        adapter = self._by_name.get(name)
        if adapter is None:
            raise UnknownVersionError(f"adapter {name!r} is not loaded")
        return adapter

    def cache(self, limit: int, stats: BackendStats) -> CacheView:
        """At most `limit` adapters, the busiest first, and sums over all."""
        every = self._by_name.values()
        shown = heapq.nlargest(limit, every, key=lambda it: it.requests)
        return CacheView(
            adapters=tuple(CachedAdapterView(name=it.name, view=it.view()) for it in shown),
            num_adapters=len(every),
            requests=sum(it.requests for it in every),
            prompt_tokens=sum(it.prompt_tokens for it in every),
            generated_tokens=sum(it.generated_tokens for it in every),
            stats=stats,
        )

    def acquire(self, name: str | None, num_prompt: int) -> VllmAdapter | None:
        """The version for a new request, which keeps it; None is the base model."""
        if name is None:
            return None
        adapter = self.of(name)
        adapter.num_in_flight += 1
        adapter.requests += 1
        adapter.prompt_tokens += num_prompt
        return adapter

    def release(self, adapter: VllmAdapter | None) -> None:
        """The request ended."""
        if adapter is None:
            return
        adapter.num_in_flight -= 1
        if adapter.is_replaced and not adapter.num_in_flight:
            self._drop(adapter)

    def _replace(self, adapter: VllmAdapter) -> None:
        adapter.is_replaced = True
        if not adapter.num_in_flight:
            self._drop(adapter)


async def delete_files(prepared: PreparedAdapter) -> None:
    """Delete the files written for it."""
    await asyncio.to_thread(shutil.rmtree, prepared.folder, ignore_errors=True)
