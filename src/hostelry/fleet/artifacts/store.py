"""Artifacts from an object store, and models of the hub, through the instance's cache.

Concurrent requests for a version share one download, which ends when the last request leaves.
"""

import asyncio
import errno
import hashlib
import threading
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from hostelry.base.archive import ArchiveLimits, unpack
from hostelry.base.files import FileTree, UnsafeFilesError, check_lengths, quote
from hostelry.domain.model import ArtifactSource, SourceKind
from hostelry.fleet.artifacts.cache import ArtifactCache
from hostelry.fleet.artifacts.hub import HubModels, is_hub
from hostelry.fleet.artifacts.objects import (
    MAX_LISTED,
    DownloadProgress,
    ObjectFacts,
    S3Objects,
    download,
    split_prefix,
)
from hostelry.fleet.artifacts.protocol import (
    ArtifactCacheFullError,
    ArtifactError,
    ArtifactUnavailableError,
    Fetch,
)

MAX_FETCHES = 4
CACHE_BOUND = ", all that the artifact cache may hold (`hostelry up --artifact-cache-gb`)"
NO_SPACE = frozenset({errno.ENOSPC, errno.EDQUOT})


@dataclass(frozen=True, slots=True, kw_only=True)
class Version:
    """A source's current objects in the store. `key` names them in the cache."""

    key: str
    source: ArtifactSource
    objects: tuple[ObjectFacts, ...]
    token: str | None = field(default=None, repr=False)
    role: str = ""

    @property
    def size_bytes(self) -> int:
        """Bytes to download."""
        return sum(facts.size_bytes for facts in self.objects)


class _SharedFetch(msgspec.Struct):
    """A download in progress, and the number of requests that wait for it."""

    work: "asyncio.Future[Path]"
    cancelled: threading.Event
    waiters: int = 0


class ArtifactStore:
    """Implements `Artifacts` over S3, the hub and a cache folder.

    `objects_of` returns the objects that a role may read. Without it all roles read `objects`.
    """

    def __init__(
        self,
        objects: S3Objects,
        cache: ArtifactCache,
        limits: ArchiveLimits | None = None,
        hub: HubModels | None = None,
        objects_of: Callable[[str], S3Objects] | None = None,
    ) -> None:
        self._objects_of = objects_of or (lambda _: objects)
        self._hub = hub or HubModels()
        self._cache = cache
        self._limits = (limits or ArchiveLimits()).within(cache.max_bytes, CACHE_BOUND)
        self._fetches: dict[str, _SharedFetch] = {}
        self._threads = ThreadPoolExecutor(MAX_FETCHES, "artifact")
        self._asking = ThreadPoolExecutor(MAX_FETCHES, "artifact-version")

    async def fetch(self, want: Fetch) -> Path:
        """The folder with the artifact's files, which stays until `want.holder` releases it.

        If the holder has the artifact already, the object store is not called. So a copy that
        restarts finds its files. Raises ArtifactError, or ArtifactUnavailableError.
        """
        source = want.source
        held = await asyncio.to_thread(
            self._cache.find_held, want.holder, source.uri, source.kind.value
        )
        if held is not None:
            return held
        loop = asyncio.get_running_loop()
        version = await loop.run_in_executor(
            self._asking, self._resolve_version, source, want.token, want.role
        )
        if not version.objects:
            _check_may_be_empty(want)
        self._cache.hold(want.holder, version.key)
        try:
            return await self._join(version, want.note)
        except BaseException:
            self._cache.release(want.holder, version.key)
            raise

    def retain(self, copy_ids: Collection[str]) -> None:
        """Release every holder except these copies and the holders below them."""
        for holder in set(self._cache.holders()) - set(copy_ids):
            self._cache.release(holder)

    def release(self, holder: str) -> None:
        """Release everything that `holder` and the holders below it hold."""
        self._cache.release(holder)

    def close(self) -> None:
        """Wait for downloads in progress. No fetch may follow."""
        self._asking.shutdown()
        self._threads.shutdown()

    async def _join(self, version: Version, note: Callable[[str], None]) -> Path:
        shared = self._fetches.get(version.key)
        while shared is not None and shared.cancelled.is_set():
            await asyncio.wait([shared.work])
            shared = self._fetches.get(version.key)
        if shared is None:
            shared = self._begin(version, note)
        shared.waiters += 1
        try:
            return await asyncio.shield(shared.work)
        finally:
            shared.waiters -= 1
            if shared.waiters == 0:
                shared.cancelled.set()

    def _begin(self, version: Version, note: Callable[[str], None]) -> _SharedFetch:
        cancelled = threading.Event()
        loop = asyncio.get_running_loop()
        work = loop.run_in_executor(self._threads, self._obtain, version, note, cancelled)
        shared = _SharedFetch(work=work, cancelled=cancelled)
        self._fetches[version.key] = shared

        def on_done(done: "asyncio.Future[Path]") -> None:
            del self._fetches[version.key]
            if not done.cancelled():
                done.exception()  # retrieved, because a download without waiters may fail silently

        work.add_done_callback(on_done)
        return shared

    def _resolve_version(self, source: ArtifactSource, token: str | None, role: str) -> Version:
        """The current version of the source. Calls the object store, or the hub.

        Files that a token opens get a key that only holders of the same token find, and files of a
        prefix a key that only copies of the same role find.
        """
        if is_hub(source):
            objects = tuple(self._hub.list(source.uri, token))
        elif source.kind is SourceKind.PREFIX:
            objects = tuple(self._objects_of(role).list(source.uri))
        else:
            objects = (self._objects_of(role).head(source.uri),)
        opened = [] if token is None else [hashlib.sha256(token.encode()).hexdigest()]
        if source.kind is SourceKind.PREFIX and role:
            opened.append(role)  # a list shows no right to read the objects
        digest = hashlib.sha256("\n".join([source.kind.value, source.uri, *opened]).encode())
        for facts in objects:
            digest.update(f"\n{facts.key}\0{facts.etag}\0{facts.size_bytes}".encode())
        return Version(
            key=digest.hexdigest()[:40], source=source, objects=objects, token=token, role=role
        )

    def _obtain(
        self, version: Version, note: Callable[[str], None], cancelled: threading.Event
    ) -> Path:
        """The entry's files, from the cache or made now. Runs in a worker thread."""
        found = self._cache.find(version.key)
        if found is not None:
            note(f"{version.source.uri} is in the cache")
            return found

        def check_cancelled() -> None:
            if cancelled.is_set():
                raise ArtifactUnavailableError(
                    f"the download of {version.source.uri} was cancelled"
                )

        with _translate_faults(version.source.uri):
            while True:
                try:
                    return self._make_entry(version, note, check_cancelled)
                except OSError as error:
                    # The unpacked size of an archive is known only after it is unpacked.
                    if error.errno not in NO_SPACE or not self._cache.evict_one():
                        raise
                    note("the disk is full: an artifact that no copy uses was removed; once more")

    def _make_entry(
        self, version: Version, note: Callable[[str], None], check_cancelled: Callable[[], None]
    ) -> Path:
        self._cache.reserve(version.key, version.size_bytes)
        made = self._cache.begin(version.key)
        try:
            self._fill(version, made, note, check_cancelled)
            return self._cache.publish(
                version.key, made, version.source.uri, version.source.kind.value
            )
        finally:
            self._cache.discard(version.key, made)

    def _fill(
        self,
        version: Version,
        made: Path,
        note: Callable[[str], None],
        check_cancelled: Callable[[], None],
    ) -> None:
        progress = DownloadProgress(version.source.uri, version.size_bytes, note)
        files, objects = made / "files", self._objects_of(version.role)
        if version.source.kind is SourceKind.ARCHIVE:
            packed = made / "packed"
            download(objects, version.objects[0], packed, progress, check_cancelled)
            note(f"unpacking {version.source.uri}")
            unpack(packed, files, self._limits, check_cancelled)
            packed.unlink()
            return
        files.mkdir()
        if is_hub(version.source):
            local_paths(version)  # raises for a name outside the folder
            note(f"downloading {version.source.uri} ({version.size_bytes} bytes)")
            self._hub.download(version.objects, files, version.token, check_cancelled)
            return
        for path, facts in zip(local_paths(version), version.objects, strict=True):
            (files / path).parent.mkdir(parents=True, exist_ok=True)
            download(objects, facts, files / path, progress, check_cancelled)
            (files / path).chmod(0o644)


def _check_may_be_empty(want: Fetch) -> None:
    """Note that the prefix is empty. Raises ArtifactError unless it may be empty."""
    if is_hub(want.source):
        raise ArtifactError(f"{want.source.uri} has no files of a model")
    bucket, prefix = split_prefix(want.source.uri)
    empty = f'no object in the bucket "{bucket}" has a key that begins with "{prefix}"'
    if not want.may_be_empty:
        raise ArtifactError(f"NoSuchKey: {empty}")
    want.note(f"{empty}: the model folder is empty")


def local_paths(version: Version) -> list[str]:
    """Each object's path below the model folder. Raises UnsafeFilesError for an unsafe key.

    A single object keeps the last part of its key. An object of a prefix keeps the key's rest.
    """
    if version.source.kind is not SourceKind.PREFIX:
        return [_check_path(version.objects[0].key.rpartition("/")[2], version.objects[0])]
    prefix = "" if is_hub(version.source) else split_prefix(version.source.uri)[1]
    tree = FileTree(MAX_LISTED)
    paths = []
    for facts in version.objects:
        path = _check_path(facts.key.removeprefix(prefix), facts)
        tree.enter(path.split("/"), is_folder=False)
        paths.append(path)
    return paths


def _check_path(path: str, facts: ObjectFacts) -> str:
    parts = path.split("/")
    if any(part in ("", ".", "..") or "\0" in part for part in parts):
        raise UnsafeFilesError(
            f"{quote(facts.uri)}: the key cannot be a path below the model folder"
        )
    check_lengths(parts, path)
    return path


@contextmanager
def _translate_faults(uri: str) -> Iterator[None]:
    """Raise ArtifactError for unsafe files, a full disk and any other I/O error."""
    try:
        yield
    except UnsafeFilesError as error:
        raise ArtifactError(str(error)) from error
    except OSError as error:
        if error.errno in NO_SPACE:
            raise ArtifactCacheFullError(
                f"the disk is full: {uri} does not fit ({error})"
            ) from error
        raise ArtifactError(f"{uri} cannot be stored: {error}") from error
