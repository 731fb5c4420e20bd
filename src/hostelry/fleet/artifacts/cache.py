"""Artifact cache of an instance on disk: entries, leases, and a bound on their size.

    cache/KEY/entry.json, cache/KEY/files/...   one artifact, published whole by a rename
    cache/leases/HOLDER.../KEY                  a lease: HOLDER uses the entry, so it is not evicted
    cache/.making-KEY-...                       an unfinished entry, removed at the next start

Knows nothing of the sources of artifacts. Calls block, and are thread-safe within one process.
"""

import os
import shutil
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path

import msgspec

from hostelry.base.json import decode
from hostelry.fleet.artifacts.protocol import ArtifactCacheFullError

DEFAULT_MAX_BYTES = 50 * 1000**3
LEASES = "leases"
MAKING = ".making-"
MAX_SINGLE_SYNCS = 1000


class ArtifactEntry(msgspec.Struct, frozen=True, kw_only=True):
    """entry.json: an artifact's source, and each file's path and size."""

    key: str
    uri: str
    kind: str
    size_bytes: int
    files: tuple[tuple[str, int], ...]


class ArtifactCache:
    """Entries below `root`, `max_bytes` in all. Evicts the least recently used entry first."""

    def __init__(self, root: Path, max_bytes: int = DEFAULT_MAX_BYTES) -> None:
        self._root = root
        self.max_bytes = max_bytes
        self._lock = threading.RLock()
        self._reserved: dict[str, int] = {}
        (root / LEASES).mkdir(parents=True, exist_ok=True)
        for left in root.glob(f"{MAKING}*"):
            shutil.rmtree(left, ignore_errors=True)
        self._sizes = self._sizes_on_disk()

    def find(self, key: str) -> Path | None:
        """The files of the entry, marked as used now. None if it is missing or damaged.

        A damaged entry is removed.
        """
        with self._lock:
            entry = self._load(key)
            if entry is None:
                return None
            files = self._root / key / "files"
            if not _is_whole(files, entry):
                self._remove(key)
                return None
            os.utime(self._root / key / "entry.json")
            return files

    def find_held(self, holder: str, uri: str, kind: str) -> Path | None:
        """The files that `holder` already holds for this source, or None."""
        with self._lock:
            for key in self._keys_held(holder):
                entry = self._load(key)
                if entry is not None and (entry.uri, entry.kind) == (uri, kind):
                    return self.find(key)
        return None

    def hold(self, holder: str, key: str) -> None:
        """Lease the entry, present or future, until `holder` releases it."""
        with self._lock:
            folder = self._root / LEASES / holder
            folder.mkdir(parents=True, exist_ok=True)
            (folder / key).touch()

    def release(self, holder: str, key: str | None = None) -> None:
        """Release one lease, or all leases of `holder` and the holders below it."""
        with self._lock:
            folder = self._root / LEASES / holder
            if key is not None:
                (folder / key).unlink(missing_ok=True)
            else:
                shutil.rmtree(folder, ignore_errors=True)

    def holders(self) -> list[str]:
        """The first part of every holder's name."""
        return sorted(path.name for path in (self._root / LEASES).iterdir())

    def reserve(self, key: str, size_bytes: int) -> None:
        """Reserve `size_bytes`, evicting entries without a lease.

        Raises ArtifactCacheFullError if the bound, or the disk, is too small.
        """
        with self._lock:
            before = self._reserved.pop(key, 0)
            self._evict_until(
                lambda: (
                    self.used_bytes() + size_bytes <= self.max_bytes
                    and size_bytes - before <= shutil.disk_usage(self._root).free
                )
            )
            used, free = self.used_bytes(), shutil.disk_usage(self._root).free
            if used + size_bytes > self.max_bytes:
                raise ArtifactCacheFullError(
                    f"it needs {size_bytes} bytes; the artifact cache may hold {self.max_bytes} "
                    f"and {used} are in use",
                    used + size_bytes - self.max_bytes,
                )
            if size_bytes - before > free:
                raise ArtifactCacheFullError(
                    f"it needs {size_bytes} bytes of disk; {free} are free in {self._root}",
                    size_bytes - before - free,
                )
            self._reserved[key] = size_bytes

    def evict_one(self) -> bool:
        """Remove the least recently used entry without a lease. False if all have leases."""
        with self._lock:
            before = len(self._entries())
            self._evict_until(lambda: len(self._entries()) < before)
            return len(self._entries()) < before

    def begin(self, key: str) -> Path:
        """Create a folder for a new entry."""
        return Path(tempfile.mkdtemp(prefix=f"{MAKING}{key}-", dir=self._root))

    def discard(self, key: str, made: Path) -> None:
        """Remove the folder of an unfinished entry, and its reservation."""
        shutil.rmtree(made, ignore_errors=True)
        with self._lock:
            self._reserved.pop(key, None)

    def publish(self, key: str, made: Path, uri: str, kind: str) -> Path:
        """Publish the files in `made`/files as the entry, atomically and read-only."""
        files = _finish(made / "files")
        size_bytes = sum(size for _, size in files)
        with self._lock:
            # The files are on the disk already, so only the bound can still refuse them.
            self._reserved[key] = size_bytes
            self.reserve(key, size_bytes)
        entry = ArtifactEntry(key=key, uri=uri, kind=kind, size_bytes=size_bytes, files=files)
        (made / "entry.json").write_bytes(msgspec.json.encode(entry))
        with self._lock:
            self._remove(key)
            made.rename(self._root / key)
            self._sizes[key] = size_bytes
            self._reserved.pop(key, None)
            return self._root / key / "files"

    def used_bytes(self) -> int:
        """Bytes of the entries and of reservations."""
        with self._lock:
            return sum(self._sizes.values()) + sum(self._reserved.values())

    def _evict_until(self, enough: Callable[[], bool]) -> None:
        """Remove entries without a lease, least recently used first, until `enough` is true."""
        if enough():
            return
        self._sizes = self._sizes_on_disk()  # entries may have been deleted by hand
        held = {path.name for path in (self._root / LEASES).rglob("*") if path.is_file()}
        idle = [entry for entry in self._entries() if entry.key not in held]
        for entry in sorted(idle, key=self._used_at):
            self._remove(entry.key)
            if enough():
                return

    def _used_at(self, entry: ArtifactEntry) -> int:
        return (self._root / entry.key / "entry.json").stat().st_mtime_ns

    def _sizes_on_disk(self) -> dict[str, int]:
        return {entry.key: entry.size_bytes for entry in self._entries()}

    def _entries(self) -> list[ArtifactEntry]:
        keys = [path.parent.name for path in self._root.glob("[!.]*/entry.json")]
        return [entry for key in keys if (entry := self._load(key)) is not None]

    def _load(self, key: str) -> ArtifactEntry | None:
        try:
            return decode((self._root / key / "entry.json").read_bytes(), ArtifactEntry)
        except (OSError, msgspec.DecodeError):
            return None

    def _keys_held(self, holder: str) -> list[str]:
        folder = self._root / LEASES / holder
        return [path.name for path in folder.iterdir() if path.is_file()] if folder.exists() else []

    def _remove(self, key: str) -> None:
        """Remove the entry atomically, then delete its files."""
        self._sizes.pop(key, None)
        if (self._root / key).exists():
            gone = self.begin(key)
            (self._root / key).rename(gone / "old")
            shutil.rmtree(gone, ignore_errors=True)


def _is_whole(files: Path, entry: ArtifactEntry) -> bool:
    try:
        return all((files / path).lstat().st_size == size for path, size in entry.files)
    except OSError:
        return False


def _finish(files: Path) -> tuple[tuple[str, int], ...]:
    """Make every file read-only and sync it. Returns paths and sizes."""
    paths = [path for path in sorted(files.rglob("*")) if path.is_file()]
    for path in paths:
        path.chmod(path.stat().st_mode & 0o555)
    # `_is_whole` compares sizes only, and after a power cut a size can be right over lost content.
    if len(paths) > MAX_SINGLE_SYNCS:
        os.sync()
    else:
        for path in paths:
            with path.open("rb") as file:
                os.fsync(file.fileno())
    return tuple((str(path.relative_to(files)), path.stat().st_size) for path in paths)
