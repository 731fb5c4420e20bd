"""Disk tier: an LRU cache of adapters in page form, by content, bounded in bytes.

An entry appears whole or not at all (it is renamed into place), and is looked up by the hash of its
content only, so that a later state of its source is never mistaken for it. The folder belongs to
the engines of this machine, which may share it, and outlives them.
"""

import os
import secrets
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_ENTRY = "adapter-"  # nothing else in the folder is ever counted or deleted
_PARTIAL = ".partial-adapter-"
_ABANDONED_S = 24 * 3600.0


class DiskCache:
    """Entries in `folder`, at most `max_bytes` in all. Usable from several threads."""

    def __init__(self, folder: Path, max_bytes: int) -> None:
        """Take over the entries in `folder`. Raises OSError if it cannot be used."""
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self.max_bytes = max_bytes
        self._lock = threading.Lock()
        self._bytes: dict[str, int] = {}  # least recently used first
        self._holds: dict[str, int] = {}
        self._num_bytes = 0
        self.num_evictions = 0
        self._take_over()

    @property
    def num_bytes(self) -> int:
        """Bytes of all entries. Takes no lock."""
        return self._num_bytes

    def has(self, key: str) -> bool:
        """True if there is an entry. Takes no lock."""
        return key in self._bytes

    @contextmanager
    def open(self, key: str) -> Iterator[Path | None]:
        """The entry's folder, kept while the context lasts. None without an entry."""
        with self._lock:
            num_bytes = self._bytes.pop(key, None)
            if num_bytes is not None:
                self._bytes[key] = num_bytes  # now the most recently used
                self._holds[key] = self._holds.get(key, 0) + 1
        if num_bytes is None:
            yield None
            return
        path = self._path(key)
        with suppress(OSError):
            os.utime(path)  # so that the LRU order outlives the process
        try:
            yield path
        finally:
            with self._lock:
                self._holds[key] -= 1
                if not self._holds[key]:
                    del self._holds[key]

    @contextmanager
    def partial(self) -> Iterator[Path]:
        """An empty folder to write into, deleted at the end unless `keep` has renamed it."""
        path = self._folder / f"{_PARTIAL}{secrets.token_hex(8)}"
        path.mkdir()
        try:
            yield path
        finally:
            shutil.rmtree(path, ignore_errors=True)

    def keep(self, partial: Path, key: str, num_bytes: int) -> bool:
        """Make the folder the entry of that key. False if there is not enough room."""
        with self._lock:
            if key in self._bytes:
                return True
            if not self._make_room(num_bytes):
                return False
            try:
                partial.rename(self._path(key))
            except OSError:
                if not self._path(key).is_dir():  # else another process was faster
                    raise
            self._bytes[key] = num_bytes
            self._num_bytes += num_bytes
            return True

    def drop(self, key: str) -> None:
        """Delete an entry, for instance a damaged one, if it exists."""
        with self._lock:
            if key in self._bytes:
                self._delete(key)

    def _make_room(self, num_bytes: int) -> bool:
        """Delete entries that no thread reads, the least recently used first."""
        room = self.max_bytes - self._num_bytes
        victims = []
        for key, size in self._bytes.items():
            if room >= num_bytes:
                break
            if key not in self._holds:
                victims.append(key)
                room += size
        if room < num_bytes:
            return False
        for key in victims:
            self._delete(key)
            self.num_evictions += 1
        return True

    def _delete(self, key: str) -> None:
        """Rename an entry before it is deleted, so that no process finds half of it."""
        self._num_bytes -= self._bytes.pop(key)
        hidden = self._folder / f"{_PARTIAL}{secrets.token_hex(8)}"
        with suppress(OSError):
            self._path(key).rename(hidden)
        shutil.rmtree(hidden, ignore_errors=True)

    def _take_over(self) -> None:
        """Count the entries, delete partial ones abandoned long ago, and keep to the bound."""
        found = []
        newest = 0.0
        for path in self._folder.iterdir():
            with suppress(OSError):
                changed_at = path.stat().st_mtime
                newest = max(newest, changed_at)
                found.append((changed_at, path))
        for changed_at, path in sorted(found):
            if path.name.startswith(_PARTIAL):
                if changed_at < newest - _ABANDONED_S:
                    shutil.rmtree(path, ignore_errors=True)
            elif path.name.startswith(_ENTRY) and path.is_dir():
                with suppress(OSError):
                    num_bytes = sum(it.stat().st_size for it in path.iterdir())
                    self._bytes[path.name.removeprefix(_ENTRY)] = num_bytes
        with self._lock:
            self._num_bytes = sum(self._bytes.values())
            self._make_room(0)

    def _path(self, key: str) -> Path:
        return self._folder / f"{_ENTRY}{key}"
