"""The disk tier of remote adapters: copies by content id, bounded in bytes, oldest use first out.

A copy appears whole or not at all (it is renamed into place), and is only ever looked for by the
hash of its content, so that a later state of the remote place cannot be taken for it. The folder
may be shared by processes and outlives them.
"""

import os
import secrets
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_PARTIAL = ".partial-"
_ABANDONED_S = 24 * 3600.0


class DiskCache:
    """Copies in `folder`, at most `max_bytes` of them; used from several threads."""

    def __init__(self, folder: Path, max_bytes: int) -> None:
        """Takes over what the folder holds. Raises OSError where it cannot be used."""
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self.max_bytes = max_bytes
        self._lock = threading.Lock()
        self._bytes: dict[str, int] = {}  # least recently used first
        self._holds: dict[str, int] = {}
        self.num_evictions = 0
        self._take_over()

    @property
    def num_bytes(self) -> int:
        """Bytes of all copies."""
        with self._lock:
            return sum(self._bytes.values())

    def has(self, content_id: str) -> bool:
        """Whether there is a copy; waits for nobody."""
        return content_id in self._bytes

    @contextmanager
    def open(self, content_id: str) -> Iterator[Path | None]:
        """The copy's folder, which stays while the context lasts; None where there is none."""
        with self._lock:
            num_bytes = self._bytes.pop(content_id, None)
            if num_bytes is not None:
                self._bytes[content_id] = num_bytes  # now the most recently used
                self._holds[content_id] = self._holds.get(content_id, 0) + 1
        if num_bytes is None:
            yield None
            return
        path = self._folder / content_id
        with suppress(OSError):
            os.utime(path)  # the order outlives the process
        try:
            yield path
        finally:
            with self._lock:
                self._holds[content_id] -= 1
                if not self._holds[content_id]:
                    del self._holds[content_id]

    @contextmanager
    def partial(self) -> Iterator[Path]:
        """An empty folder to fetch into, deleted at the end unless `keep` has taken it."""
        path = self._folder / f"{_PARTIAL}{secrets.token_hex(8)}"
        path.mkdir()
        try:
            yield path
        finally:
            shutil.rmtree(path, ignore_errors=True)

    def keep(self, partial: Path, content_id: str, num_bytes: int) -> bool:
        """Make the fetched folder the copy of that content; False where it has no room."""
        with self._lock:
            if content_id in self._bytes:
                return True
            if not self._make_room(num_bytes):
                return False
            try:
                partial.rename(self._folder / content_id)
            except OSError:
                if not (self._folder / content_id).is_dir():  # else another process was faster
                    raise
            self._bytes[content_id] = num_bytes
            return True

    def drop(self, content_id: str) -> None:
        """Delete a copy, damaged perhaps; nothing where there is none."""
        with self._lock:
            if self._bytes.pop(content_id, None) is not None:
                self._delete(content_id)

    def _make_room(self, num_bytes: int) -> bool:
        """Delete copies nobody reads, the least recently used first."""
        room = self.max_bytes - sum(self._bytes.values())
        victims = []
        for content_id, size in self._bytes.items():
            if room >= num_bytes:
                break
            if content_id not in self._holds:
                victims.append(content_id)
                room += size
        if room < num_bytes:
            return False
        for content_id in victims:
            del self._bytes[content_id]
            self._delete(content_id)
            self.num_evictions += 1
        return True

    def _delete(self, content_id: str) -> None:
        """Out of sight first, so that no one finds half of it."""
        hidden = self._folder / f"{_PARTIAL}{secrets.token_hex(8)}"
        with suppress(OSError):
            (self._folder / content_id).rename(hidden)
        shutil.rmtree(hidden, ignore_errors=True)

    def _take_over(self) -> None:
        """Count what is there, delete what was left half done long ago, keep to the bound."""
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
            elif path.is_dir():
                with suppress(OSError):
                    self._bytes[path.name] = sum(it.stat().st_size for it in path.iterdir())
        with self._lock:
            self._make_room(0)
