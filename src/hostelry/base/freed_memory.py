"""Freed memory of this process: kept for its next buffers, or returned to the system.

By default glibc returns the pages of a freed buffer, and the next buffer of its size faults them in
again (mallopt(3), M_TRIM_THRESHOLD). A body of 16 KiB then costs twice as much, and one of 1 MiB
three times. Another libc does as it likes.
"""

import ctypes
from contextlib import suppress

LARGEST_KEPT_BYTES = 16 * 1024 * 1024


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
