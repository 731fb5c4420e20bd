"""Freed memory of this process: kept for its next buffers, or returned to the system.

By default glibc returns the pages of a freed buffer, and the next buffer of its size faults them in
again (mallopt(3), M_TRIM_THRESHOLD). A body of 16 KiB then costs twice as much, and one of 1 MiB
three times. Another libc does as it likes.
"""

import ctypes
import sys
from contextlib import suppress

LARGEST_KEPT_BYTES = 16 * 1024 * 1024
SMALL_SIZES = range(48, 513, 16)  # Python's allocator keeps objects of each size together
ROW_BYTES = 4096  # of objects side by side: their size has no more gaps
MAX_FILLERS = 5000  # of one size, for another allocator


def keep_freed_memory() -> None:
    """Keep freed buffers up to `LARGEST_KEPT_BYTES`, and up to twice as many bytes in all.

    glibc follows the largest mapped block that was freed, and this frees one. Its pages are never
    touched.
    """
    bytearray(LARGEST_KEPT_BYTES)


def return_freed_memory() -> None:
    """Return what is kept to the system."""
    with suppress(AttributeError):  # a libc without it
        ctypes.CDLL(None).malloc_trim(0)


def fill_gaps() -> list[bytes]:
    """Return objects that fill the gaps between this process's small objects.

    A fork that made its objects in those gaps would copy a page for most of them (1 MB in all). The
    caller keeps the list as long as it forks.
    """
    fillers: list[bytes] = []
    for size in SMALL_SIZES:
        row_bytes, place = 0, 0
        for _ in range(MAX_FILLERS):
            fillers.append(bytes(size - sys.getsizeof(b"")))
            row_bytes = row_bytes + size if id(fillers[-1]) == place + size else 0
            place = id(fillers[-1])
            if row_bytes >= ROW_BYTES:
                break
    return fillers
