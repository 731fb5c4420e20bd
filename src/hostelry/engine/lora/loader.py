"""Loading of adapters into host memory from their sources. Blocks, and runs in other threads."""

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from enum import Enum
from pathlib import Path
from typing import Protocol

import msgspec

from hostelry.base.clock import Clock
from hostelry.engine.lora.disk_cache import DiskCache
from hostelry.engine.lora.errors import AdapterError
from hostelry.engine.lora.image import HostAdapter
from hostelry.engine.lora.sources import (
    Fetcher,
    LocalSource,
    RemoteSource,
    Source,
    check_fetched,
    find_fetcher,
    parse_source,
)


class StorageTier(Enum):
    """A storage level that holds a copy of an adapter, the fastest first.

    Unlike an `AdapterState`, an adapter has copies in several tiers at once, and a transfer between
    tiers is not a tier.
    """

    POOL = "pool"
    HOST = "host"
    DISK = "disk"
    REMOTE = "remote"


class FolderReader(Protocol):
    """A reader of adapters from folders (`reader.AdapterReader`)."""

    @property
    def max_folder_bytes(self) -> int:
        """The most bytes that the files of an acceptable adapter can have."""
        ...

    @property
    def form_name(self) -> str:
        """The name of the form that adapters are read into."""
        ...

    def read(self, folder: Path) -> HostAdapter:
        """The checked adapter in `folder`. Raises AdapterError or OSError."""
        ...

    def save(self, adapter: HostAdapter, folder: Path) -> int:
        """Write the adapter in its form into `folder`.

        Returns the bytes written. Raises OSError.
        """
        ...

    def restore(self, folder: Path, content_id: str) -> HostAdapter:
        """The adapter that `save` wrote. Raises AdapterError if it is damaged, and OSError."""
        ...


class Prepared(msgspec.Struct, frozen=True, eq=False):
    """An adapter that was read and checked in `load_s`, and can be registered."""

    adapter: HostAdapter
    source: Source
    tier: StorageTier
    load_s: float


class AdapterLoader:
    """Reads local folders and remote sources, both through a disk cache.

    Remote adapters are cached at once. Local adapters are cached at their second load: they are on
    disk already, so that the copy of the first load would not pay.

        `load` tries, in this order     tier     then
        ------------------------------  -------  --------------------------------
        the disk cache                  DISK     a damaged entry is deleted
        local sources                   DISK     kept in the cache
        remote sources                  REMOTE   kept in the cache
    """

    def __init__(
        self,
        reader: FolderReader,
        clock: Clock,
        *,
        fetchers: Mapping[str, Fetcher] | None = None,
        cache: DiskCache | None = None,
    ) -> None:
        self._reader = reader
        self._clock = clock
        self._fetchers = dict(fetchers or {})
        self.cache = cache

    def prepare(self, place: str | Path) -> Prepared:
        """Read the adapter at a path or URI in its present state.

        A remote adapter is always fetched. Raises AdapterError with the reason why it cannot be
        applied, or OSError.
        """
        source = parse_source(place)
        started_at = self._clock.now()
        if isinstance(source, LocalSource):
            adapter, tier = self._reader.read(source.folder), StorageTier.DISK
        else:
            adapter, tier = self._fetch(source, None), StorageTier.REMOTE
        return Prepared(adapter, source, tier, self._clock.now() - started_at)

    def find_tier(self, content_id: str, sources: Sequence[Source]) -> StorageTier:
        """The tier where `load` would find that content."""
        if any(isinstance(source, LocalSource) for source in sources):
            return StorageTier.DISK
        is_cached = self.cache is not None and self.cache.has(self._build_key(content_id))
        return StorageTier.DISK if is_cached else StorageTier.REMOTE

    def load(self, content_id: str, sources: Sequence[Source]) -> Prepared:
        """Load exactly that content from the first source that still has it.

        Raises AdapterError with the reason of each source.
        """
        started_at = self._clock.now()
        adapter = self._load_cached(content_id)
        if adapter is not None:
            return Prepared(adapter, sources[0], StorageTier.DISK, self._clock.now() - started_at)
        reasons = []
        for source in sorted(sources, key=lambda it: isinstance(it, RemoteSource)):
            try:
                if isinstance(source, LocalSource):
                    adapter, tier = self._reader.read(source.folder), StorageTier.DISK
                    _check_same(adapter, content_id)
                    self._keep(adapter)
                else:
                    adapter, tier = self._fetch(source, content_id), StorageTier.REMOTE
            except (AdapterError, OSError) as error:
                reasons.append(f"{source}: {error}")
            else:
                return Prepared(adapter, source, tier, self._clock.now() - started_at)
        raise AdapterError("; ".join(reasons))

    def _load_cached(self, content_id: str) -> HostAdapter | None:
        """The copy on disk, if any. Deletes a damaged copy."""
        if self.cache is None:
            return None
        with self.cache.open(self._build_key(content_id)) as folder:
            if folder is None:
                return None
            try:
                return self._reader.restore(folder, content_id)
            except (AdapterError, OSError):
                pass
        self.cache.drop(self._build_key(content_id))
        return None

    def _keep(self, adapter: HostAdapter) -> None:
        """Write it to the cache. A disk that is full or fails does not fail the load."""
        if self.cache is None:
            return
        with suppress(OSError), self.cache.partial() as folder:
            num_bytes = self._reader.save(adapter, folder)
            self.cache.keep(folder, self._build_key(adapter.content_id), num_bytes)

    def _build_key(self, content_id: str) -> str:
        return f"{content_id}-{self._reader.form_name}"

    def _fetch(self, source: RemoteSource, content_id: str | None) -> HostAdapter:
        """Fetch, read and cache. Raises AdapterError for another content than `content_id`."""
        fetcher = find_fetcher(source, self._fetchers)
        with self._make_folder() as folder:
            fetcher.fetch(source.uri, folder)
            check_fetched(folder, max_bytes=self._reader.max_folder_bytes)
            adapter = self._reader.read(folder)
        if content_id is not None:
            _check_same(adapter, content_id)
        self._keep(adapter)
        return adapter

    @contextmanager
    def _make_folder(self) -> Iterator[Path]:
        if self.cache is not None:
            with self.cache.partial() as folder:
                yield folder
            return
        with tempfile.TemporaryDirectory(prefix="adapter-") as name:
            yield Path(name)


def _check_same(adapter: HostAdapter, content_id: str) -> None:
    if adapter.content_id != content_id:
        raise AdapterError(
            f"it changed since it was registered (content {adapter.content_id[:12]}, not "
            f"{content_id[:12]}); register it again"
        )


class LoadedToHost(msgspec.Struct, frozen=True):
    """The content is in host memory, read from `tier` in `load_s`."""

    content_id: str
    tier: StorageTier
    load_s: float


class LoadFailed(msgspec.Struct, frozen=True):
    """The content was requested and cannot be loaded now. A later request tries again."""

    content_id: str
    reason: str


class Uploaded(msgspec.Struct, frozen=True):
    """The content is in its pages of the pool."""

    content_id: str


class UploadFailed(msgspec.Struct, frozen=True):
    """The content could not be copied. Its pages hold nothing usable."""

    content_id: str
    reason: str


class LeftHost(msgspec.Struct, frozen=True):
    """The content was evicted from host memory."""

    content_id: str


class Dropped(msgspec.Struct, frozen=True):
    """No name and no request needs the content any longer: its pages can be released."""

    content_id: str


AdapterEvent = LoadedToHost | LoadFailed | Uploaded | UploadFailed | LeftHost | Dropped
