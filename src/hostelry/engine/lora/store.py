"""Adapters by name, and the tiers below the pool: host memory, disk, remote sources.

Everything but `prepare` belongs to the engine's thread and returns at once. Slow work runs on
executors, and `poll` returns its events between two steps. A requested content stays in host memory
until it is in the pool, or for `hold_s`.
"""

import heapq
import threading
from collections.abc import Container, Mapping, Sequence
from functools import partial
from pathlib import Path

import msgspec

from hostelry.base.clock import Clock
from hostelry.engine.lora.adapter_metrics import (
    AdapterMetrics,
    AdapterTotals,
    ContentCounts,
    NameCounts,
    StoreStats,
)
from hostelry.engine.lora.errors import AdapterTooLargeError
from hostelry.engine.lora.image import AdapterSummary, HostAdapter
from hostelry.engine.lora.loader import (
    AdapterEvent,
    AdapterLoader,
    Dropped,
    LeftHost,
    LoadedToHost,
    LoadFailed,
    Prepared,
    StorageTier,
    Uploaded,
    UploadFailed,
)
from hostelry.engine.lora.loads import (
    JobExecutor,
    LoadLimits,
    LoadOutcome,
    LoadQueue,
    ThreadJobExecutor,
)
from hostelry.engine.lora.sources import Source
from hostelry.engine.lora.tiers import HostTier
from hostelry.engine.lora.uploads import Uploader, UploadOutcome, Uploads
from hostelry.engine.lora.versions import AdapterVersion, Versions

_UPLOAD_BYTES_PER_S = 2e9  # a guess for the first upload of a content
_DEFAULT_LOADS = LoadLimits()


class StoreLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Bounds of the tiers. See also `disk_cache.DiskCache`."""

    host_bytes: int
    hold_s: float = 5.0
    loads: LoadLimits = _DEFAULT_LOADS


class StoreExecutors(msgspec.Struct, frozen=True):
    """The executors of loads and uploads."""

    disk: JobExecutor
    remote: JobExecutor
    upload: JobExecutor

    @classmethod
    def create(cls, limits: LoadLimits) -> "StoreExecutors":
        """Executors on threads of this process, started with their first job."""
        return cls(
            disk=ThreadJobExecutor("adapter-disk", limits.num_disk),
            remote=ThreadJobExecutor("adapter-remote", limits.num_remote),
            upload=ThreadJobExecutor("adapter-upload", 1),
        )

    def close(self) -> None:
        """End them once their submitted jobs are done."""
        for executor in (self.disk, self.remote, self.upload):
            executor.close()


class RegisteredAdapter(msgspec.Struct, frozen=True):
    """A name, its adapter, and the warnings from reading it."""

    version: AdapterVersion
    summary: AdapterSummary
    sources: tuple[str, ...]
    warnings: tuple[str, ...]
    num_requests: int


class _Content(msgspec.Struct):
    """The record of a content while any version has it."""

    summary: AdapterSummary
    warnings: tuple[str, ...]
    sources: list[Source]
    load_s: dict[StorageTier, float] = msgspec.field(
        default_factory=dict
    )  # the last one from each tier
    counts: ContentCounts = msgspec.field(default_factory=ContentCounts)


class AdapterStore:
    """Registered adapters of one engine."""

    def __init__(
        self,
        loader: AdapterLoader,
        uploader: Uploader,
        clock: Clock,
        limits: StoreLimits,
        executors: StoreExecutors | None = None,
    ) -> None:
        executors = self._executors = executors or StoreExecutors.create(limits.loads)
        self._loader = loader
        self._clock = clock
        self._limits = limits
        self._wakeup = threading.Event()
        by_tier: Mapping[StorageTier, JobExecutor] = {
            StorageTier.DISK: executors.disk,
            StorageTier.REMOTE: executors.remote,
        }
        self._loads = LoadQueue(by_tier, limits.loads, self._wakeup)
        self._uploads = Uploads(executors.upload, uploader, clock, self._wakeup)
        self._host = HostTier(limits.host_bytes)
        self._versions = Versions()
        self._contents: dict[str, _Content] = {}
        self._names: dict[str, NameCounts] = {}
        self._holds: dict[str, float] = {}  # until when a requested content is kept in host memory
        self._orphans: set[str] = set()  # contents that no version has, until the next poll
        self._upload_holds: set[str] = set()  # kept in host memory while being copied
        self._events: list[AdapterEvent] = []
        self._num_failed_loads = 0

    def prepare(self, place: str | Path) -> Prepared:
        """Read and check the adapter at a path or URI.

        Blocks, in any thread. Raises AdapterError naming field or tensor and value, or OSError.
        """
        return self._loader.prepare(place)

    def check_fits(self, adapter: HostAdapter) -> None:
        """Raise AdapterTooLargeError if host memory could never hold the adapter."""
        if adapter.num_bytes > self._host.max_bytes:
            raise AdapterTooLargeError(
                f"the adapter takes {adapter.num_bytes} bytes of host memory; all adapters have "
                f"{self._host.max_bytes}; raise adapter_host_bytes"
            )

    def register(self, name: str, prepared: Prepared) -> AdapterVersion:
        """Register the adapter as `name` from the next request on.

        A former version drains. Raises AdapterError for an empty name, AdapterTooLargeError as
        `check_fits` does.
        """
        adapter = prepared.adapter
        self.check_fits(adapter)
        version, unused = self._versions.register(name, adapter.content_id)
        self._names.setdefault(name, NameCounts())
        content = self._contents.setdefault(
            adapter.content_id, _Content(adapter.summary, adapter.warnings, [])
        )
        if prepared.source not in content.sources:
            content.sources.append(prepared.source)
        content.load_s[prepared.tier] = prepared.load_s
        if self._host.get(adapter.content_id) is None:
            self._keep(content, prepared)
        self._mark_orphan(unused)
        return version

    def retire(self, name: str) -> bool:
        """Remove the name. Requests that hold the adapter finish with it. False if unknown."""
        retired = self._versions.retire(name)
        if retired is None:
            return False
        version, unused = retired
        if not self._versions.num_requests(version):
            self._names.pop(name, None)
        self._mark_orphan(unused)
        return True

    def get(self, name: str) -> RegisteredAdapter | None:
        """The adapter registered under the name, if any."""
        version = self._versions.get(name)
        return self._describe(version) if version else None

    @property
    def adapters(self) -> Sequence[RegisteredAdapter]:
        """The registered adapters, in order of registration."""
        return [self._describe(version) for version in self._versions.current]

    def acquire(self, name: str, *, in_pool: bool) -> AdapterVersion | None:
        """Hold the name's current version for one request.

        None for an unknown name. `in_pool`, whether the adapter is in the pool already, is for the
        counts of hits.
        """
        version = self._versions.acquire(name)
        if version is not None:
            counts = self._names[name]
            tier = StorageTier.POOL if in_pool else self.tier(version.content_id)
            counts.num_requests += 1
            counts.hits[tier] = counts.hits.get(tier, 0) + 1
            self._host.touch(version.content_id)
        return version

    def release(
        self, version: AdapterVersion, *, num_prompt_tokens: int = 0, num_generated_tokens: int = 0
    ) -> None:
        """Release a hold at the end of a request of that many tokens."""
        counts = self._names.get(version.name)
        if counts is not None:
            counts.num_prompt_tokens += num_prompt_tokens
            counts.num_generated_tokens += num_generated_tokens
        unused = self._versions.release(version)
        if self._versions.get(version.name) is None and not self._versions.num_requests(version):
            self._names.pop(version.name, None)
        self._mark_orphan(unused)

    def summary(self, content_id: str) -> AdapterSummary:
        """The summary of a content that a version has. Raises KeyError."""
        return self._contents[content_id].summary

    def reload_cost_s(self, content_id: str) -> float:
        """Seconds to load the content into the pool again, estimated from past loads."""
        content = self._contents[content_id]
        counts = content.counts
        upload_s = content.summary.num_bytes / _UPLOAD_BYTES_PER_S
        if counts.num_uploads:
            upload_s = counts.upload_s / counts.num_uploads
        if self._host.get(content_id) is not None:
            return upload_s
        tier = self.tier(content_id)
        return upload_s + content.load_s.get(tier, max(content.load_s.values(), default=0.0))

    def host(self, content_id: str) -> HostAdapter | None:
        """The adapter in page form. None if it is not in host memory."""
        return self._host.get(content_id)

    def request(self, content_id: str) -> None:
        """Load the content into host memory.

        `poll` returns one LoadedToHost or LoadFailed. No content is evicted for it before the next
        `poll`, which then returns LeftHost.
        """
        now = self._clock.now()
        if not self._versions.is_used(content_id):
            self._events.append(LoadFailed(content_id, "no adapter of that content is registered"))
        elif self._host.get(content_id) is not None:
            self._host.touch(content_id)
            self._hold(content_id, now)
            self._events.append(LoadedToHost(content_id, StorageTier.HOST, 0.0))
        elif (reason := self._loads.enqueue(content_id, now)) is not None:
            self._events.append(LoadFailed(content_id, reason))
        else:
            self._start_loads(now, may_evict=False)
            self._wakeup.set()  # the next poll may have to make room

    def evict(self, content_id: str) -> bool:
        """Evict a content from host memory. False if it is held, loading or absent."""
        if not self._host.evict(content_id):
            return False
        self._note_left_host((content_id,))
        return True

    def start_upload(self, content_id: str, page_numbers: Sequence[int]) -> None:
        """Copy the content into those pages.

        `poll` returns Uploaded or UploadFailed. Raises KeyError if it is not in host memory.
        """
        adapter = self._host.get(content_id)
        if adapter is None:
            raise KeyError(content_id)
        self._host.hold(content_id)
        self._upload_holds.add(content_id)
        self._uploads.start(adapter, page_numbers)

    def poll(self) -> list[AdapterEvent]:
        """The events since the last call, in order. Starts loads that there is room for."""
        self._wakeup.clear()
        now = self._clock.now()
        self._drop_orphans()
        for upload in self._uploads.collect():
            self._finish_upload(upload)
        for outcome in self._loads.collect(now):
            self._finish_load(outcome, now)
        for content_id in [it for it, until in self._holds.items() if until <= now]:
            self._unhold(content_id)
        self._start_loads(now, may_evict=True)
        events, self._events = self._events, []
        return events

    def wait(self, timeout_s: float) -> bool:
        """Block until `poll` has an event of a load or an upload. False after `timeout_s`."""
        return bool(self._events or self._orphans) or self._wakeup.wait(timeout_s)

    def close(self) -> None:
        """End the threads. The store is unusable afterwards."""
        self._executors.close()

    def metrics(self, name: str) -> AdapterMetrics | None:
        """Counts of a registered name."""
        version = self._versions.get(name)
        if version is None:
            return None
        content = self._contents[version.content_id]
        names, counts = self._names[name], content.counts
        return AdapterMetrics(
            num_requests=names.num_requests,
            num_prompt_tokens=names.num_prompt_tokens,
            num_generated_tokens=names.num_generated_tokens,
            hits=dict(names.hits),
            num_loads=dict(counts.num_loads),
            load_s=dict(counts.load_s),
            num_failed_loads=counts.num_failed_loads,
            num_uploads=counts.num_uploads,
            upload_s=counts.upload_s,
            num_host_evictions=counts.num_host_evictions,
            num_bytes=content.summary.num_bytes,
            is_in_host=self._host.get(version.content_id) is not None,
        )

    def list_nearest(self, limit: int, in_pool: Container[str]) -> list[str]:
        """At most `limit` names: adapters in the pool, then in host memory, then the busiest."""

        def rank(version: AdapterVersion) -> tuple[bool, bool, int]:
            content_id = version.content_id
            is_in_host = self._host.get(content_id) is not None
            return content_id in in_pool, is_in_host, self._names[version.name].num_requests

        return [it.name for it in heapq.nlargest(limit, self._versions.current, key=rank)]

    @property
    def totals(self) -> AdapterTotals:
        """Sums over the registered names."""
        names = self._names.values()
        hits = {tier: sum(it.hits.get(tier, 0) for it in names) for tier in StorageTier}
        return AdapterTotals(
            num_requests=sum(it.num_requests for it in names),
            num_prompt_tokens=sum(it.num_prompt_tokens for it in names),
            num_generated_tokens=sum(it.num_generated_tokens for it in names),
            hits=hits,
        )

    @property
    def stats(self) -> StoreStats:
        """Counts of all adapters."""
        cache = self._loader.cache
        return StoreStats(
            num_adapters=len(self._versions.current),
            num_contents=len(self._contents),
            num_in_host=len(self._host),
            host_bytes=self._host.num_bytes,
            max_host_bytes=self._host.max_bytes,
            num_host_evictions=self._host.num_evictions,
            disk_bytes=cache.num_bytes if cache else 0,
            max_disk_bytes=cache.max_bytes if cache else 0,
            num_disk_evictions=cache.num_evictions if cache else 0,
            num_waiting_loads=len(self._loads.waiting),
            num_running_loads=self._loads.num_in_progress,
            num_running_uploads=self._uploads.num_in_progress,
            num_failed_loads=self._num_failed_loads,
        )

    def check_integrity(self) -> None:
        """Raise AssertionError if the parts do not agree."""
        self._host.check_integrity()
        for content_id in set(self._contents) - self._orphans:
            assert self._versions.is_used(content_id), f"{content_id} outlived its versions"
        for content_id in self._holds:
            assert self._host.get(content_id) is not None, f"{content_id} is held but not there"

    def _describe(self, version: AdapterVersion) -> RegisteredAdapter:
        content = self._contents[version.content_id]
        return RegisteredAdapter(
            version=version,
            summary=content.summary,
            sources=tuple(str(source) for source in content.sources),
            warnings=content.warnings,
            num_requests=self._versions.num_requests(version),
        )

    def tier(self, content_id: str) -> StorageTier:
        """The fastest tier below the pool that has the content."""
        if self._host.get(content_id) is not None:
            return StorageTier.HOST
        return self._loader.find_tier(content_id, self._contents[content_id].sources)

    def _start_loads(self, now: float, *, may_evict: bool) -> None:
        """Start queued loads, in order, while there are threads and room in host memory."""
        for content_id in self._loads.waiting:
            content = self._contents[content_id]
            tier = self._loader.find_tier(content_id, content.sources)
            if not self._loads.has_room(tier):
                continue
            num_bytes = content.summary.num_bytes
            evicted = self._host.reserve(content_id, num_bytes, may_evict=may_evict)
            if evicted is None:
                return
            self._note_left_host(evicted)
            sources = tuple(content.sources)
            failed = self._loads.start(
                content_id,
                tier,
                partial(self._loader.load, content_id, sources),
                now,
            )
            if failed is not None:
                self._finish_load(failed, now)

    def _finish_load(self, outcome: LoadOutcome, now: float) -> None:
        content = self._contents.get(outcome.content_id)
        if content is None:
            return
        if outcome.prepared is None:
            content.counts.num_failed_loads += 1
            self._num_failed_loads += 1
            if self._host.get(outcome.content_id) is None:  # else it was registered meanwhile
                self._host.drop(outcome.content_id)  # the room set aside
                self._events.append(LoadFailed(outcome.content_id, outcome.reason))
            return
        prepared = outcome.prepared
        content.load_s[prepared.tier] = prepared.load_s
        content.counts.count_load(prepared.tier, prepared.load_s)
        if self._host.get(outcome.content_id) is None and not self._keep(content, prepared):
            self._loads.enqueue(outcome.content_id, now)  # dropped and registered again meanwhile
            return
        self._hold(outcome.content_id, now)

    def _keep(self, content: _Content, prepared: Prepared) -> bool:
        """Put the adapter into host memory. False if there is not enough room now."""
        adapter = prepared.adapter
        evicted = self._host.reserve(adapter.content_id, adapter.num_bytes)
        if evicted is None:
            return False
        self._note_left_host(evicted)
        self._host.put(adapter, reload_cost_s=prepared.load_s)
        self._events.append(LoadedToHost(adapter.content_id, prepared.tier, prepared.load_s))
        return True

    def _finish_upload(self, outcome: UploadOutcome) -> None:
        content_id = outcome.content_id
        if content_id in self._upload_holds:
            self._upload_holds.discard(content_id)
            self._host.unhold(content_id)
        content = self._contents.get(content_id)
        if content is None:
            self._events.append(Dropped(content_id))
            return
        if outcome.reason:
            self._events.append(UploadFailed(content_id, outcome.reason))
            return
        content.counts.num_uploads += 1
        content.counts.upload_s += outcome.upload_s
        self._unhold(content_id)
        self._events.append(Uploaded(content_id))

    def _hold(self, content_id: str, now: float) -> None:
        """Keep a requested content in host memory until it is in the pool, at most `hold_s`."""
        if content_id not in self._holds:
            self._host.hold(content_id)
        self._holds[content_id] = now + self._limits.hold_s

    def _unhold(self, content_id: str) -> None:
        if self._holds.pop(content_id, None) is not None:
            self._host.unhold(content_id)

    def _note_left_host(self, content_ids: Sequence[str]) -> None:
        for content_id in content_ids:
            content = self._contents.get(content_id)
            if content is not None:
                content.counts.num_host_evictions += 1
            self._events.append(LeftHost(content_id))

    def _mark_orphan(self, content_id: str | None) -> None:
        """Mark a content without versions. `poll` forgets it unless it is registered again."""
        if content_id is not None:
            self._orphans.add(content_id)

    def _drop_orphans(self) -> None:
        orphans, self._orphans = self._orphans, set()
        for content_id in sorted(orphans):
            if not self._versions.is_used(content_id):
                self._drop(content_id)

    def _drop(self, content_id: str) -> None:
        self._loads.forget(content_id)
        self._holds.pop(content_id, None)
        self._upload_holds.discard(content_id)
        if self._host.get(content_id) is not None:
            self._events.append(LeftHost(content_id))
        self._host.drop(content_id)
        del self._contents[content_id]
        if not self._uploads.is_in_progress(content_id):
            self._events.append(Dropped(content_id))  # else once nothing writes to its pages
