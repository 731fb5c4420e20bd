"""Reading weights ahead, into the page cache, while a copy's process still loads its libraries."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from hostelry.base.proc import sizes

MIN_FILE_BYTES = 1 << 20  # a hint for a smaller file costs more than it saves
MEMORY_SHARE = 0.5  # of available memory: more would evict other processes' pages


def read_ahead(folder: Path, budget_bytes: int) -> int:
    """Hint the kernel to read the large files below `folder`; return the bytes hinted.

    Stops at `budget_bytes`. Skips files that cannot be opened: the copy itself will report them.
    """
    asked = 0
    for path, size_bytes in _large_files(folder):
        if asked + size_bytes > budget_bytes:
            break
        with contextlib.suppress(OSError):
            descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
            try:
                os.posix_fadvise(descriptor, 0, size_bytes, os.POSIX_FADV_WILLNEED)
                asked += size_bytes
            finally:
                os.close(descriptor)
    return asked


def read_model_ahead(folder: Path) -> int:
    """`read_ahead` of a copy's model, within a share of this machine's available memory."""
    available_bytes = sizes("meminfo").get(b"MemAvailable", 0)
    return read_ahead(folder, int(available_bytes * MEMORY_SHARE))


def _large_files(folder: Path) -> Iterator[tuple[Path, int]]:
    """Regular files of at least MIN_FILE_BYTES, and their sizes, in the order of their paths."""
    for path in sorted(folder.resolve().rglob("*")):
        with contextlib.suppress(OSError):
            size_bytes = path.stat().st_size
            if path.is_file() and size_bytes >= MIN_FILE_BYTES:
                yield path, size_bytes
