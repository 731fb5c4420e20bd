"""Memory-mapped file of fixed size that several processes share, with a lock.

Writes are visible to all processes at once, and outlive them. Aligned 8-byte words are read and
written atomically. The owner of the layout takes care of larger values.
"""

import contextlib
import fcntl
import logging
import mmap
import os
import struct
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec

from hostelry.base.errors import HostelryError

LOG = logging.getLogger(__name__)
HEADER = struct.Struct("@8sQQQ")  # kind, format, two sizes
HEADER_BYTES = 64
LOCK_TRIES = 100  # 50 ms: the event loop blocks here, and the lock is held for microseconds
OPEN_TRIES = 10_000  # 5 s: a process that starts blocks no requests
LOCK_PAUSE_S = 0.0005
LOCK_YIELDS = 8  # first tries, which only let the holder run: it needs some microseconds


class LockedError(HostelryError):
    """Another process holds the lock for longer than it ever needs it. It may hang."""


class Layout(msgspec.Struct, frozen=True, kw_only=True):
    """Layout of a file: its kind (8 bytes), format number, two sizes, bytes after the header.

    A file with another header is replaced by an empty one.
    """

    kind: bytes
    format: int
    sizes: tuple[int, int]
    body_bytes: int

    @property
    def header(self) -> bytes:
        """The first bytes of a file with this layout."""
        return HEADER.pack(self.kind, self.format, *self.sizes)

    @property
    def file_bytes(self) -> int:
        """The size of a file with this layout."""
        return HEADER_BYTES + self.body_bytes


class MappedFile:
    """One process's view of the file at `path`, which is created if it is missing.

    `bytes` and `words` are the same memory, including the header. A word has 8 bytes. The lock is a
    separate file, which is never replaced. The kernel frees it when its holder dies.

    Raises OSError if the file cannot be made, and LockedError. The file is allocated at once, so
    that a full disk makes no later write fail.
    """

    def __init__(self, path: Path, layout: Layout) -> None:
        self.path = path
        self._lock = os.open(
            path.with_name(f"{path.name}.lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600
        )
        try:
            with self.alone(OPEN_TRIES):
                descriptor = _open(path, layout)
        except BaseException:
            os.close(self._lock)
            raise
        try:
            self.bytes = mmap.mmap(descriptor, layout.file_bytes)
        finally:
            os.close(descriptor)
        self.words = memoryview(self.bytes).cast("q")

    @contextlib.contextmanager
    def alone(self, num_tries: int = LOCK_TRIES) -> Iterator[None]:
        """Hold the lock. Raises LockedError after `num_tries`."""
        for number in range(num_tries + 1):
            try:
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if number == num_tries:
                    raise LockedError(
                        f"another process holds {self.path.name}.lock for too long"
                    ) from None
                time.sleep(LOCK_PAUSE_S if number >= LOCK_YIELDS else 0)
        try:
            yield
        finally:
            fcntl.flock(self._lock, fcntl.LOCK_UN)

    def sync(self) -> None:
        """Write changes to the disk. Other threads run meanwhile."""
        descriptor = os.open(self.path, os.O_RDWR | os.O_CLOEXEC)
        try:
            os.fdatasync(descriptor)
        finally:
            os.close(descriptor)

    def close(self) -> None:
        """Release the memory. The file stays."""
        self.words.release()
        self.bytes.close()
        os.close(self._lock)


def _open(path: Path, layout: Layout) -> int:
    """Open the file with this layout, and return its descriptor. The caller holds the lock."""
    with contextlib.suppress(FileNotFoundError):
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        if _fits(descriptor, layout):
            return descriptor
        os.close(descriptor)
        LOG.warning("%s has another layout, or is damaged; it is replaced by an empty file", path)
    return _create(path, layout)


def _fits(descriptor: int, layout: Layout) -> bool:
    if os.fstat(descriptor).st_size != layout.file_bytes:
        return False
    return os.pread(descriptor, HEADER.size, 0) == layout.header


def _create(path: Path, layout: Layout) -> int:
    """Create the file under another name and rename it, so that no process maps half a file."""
    scratch = path.with_name(f".{path.name}.new")
    descriptor = os.open(scratch, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        os.posix_fallocate(descriptor, 0, layout.file_bytes)
        os.pwrite(descriptor, layout.header, 0)
        scratch.replace(path)
    except OSError:
        os.close(descriptor)
        scratch.unlink(missing_ok=True)
        raise
    return descriptor
