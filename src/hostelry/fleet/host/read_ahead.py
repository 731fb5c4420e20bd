"""Weights on their way into the page cache while a copy's process still reads its libraries."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from hostelry.base.proc import sizes

MIN_FILE_BYTES = 1 << 20  # smaller files are read faster than they are asked for
MEMORY_SHARE = 0.5  # of what is available: more would push out what others need


def read_ahead(folder: Path, budget_bytes: int) -> int:
    """Ask the kernel to read the large files below `folder`; how many bytes of it were asked for.

    Stops at `budget_bytes`. Files that cannot be opened are passed over: the copy will say so.
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
    """Plain files of some size and their sizes, in the order of their paths."""
    for path in sorted(folder.resolve().rglob("*")):
        with contextlib.suppress(OSError):
            size_bytes = path.stat().st_size
            if path.is_file() and size_bytes >= MIN_FILE_BYTES:
                yield path, size_bytes
