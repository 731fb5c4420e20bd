"""Descriptors, freed memory and failures of the operating system."""

import ctypes
import errno
import math
import select
import sys
from contextlib import suppress


def readable(*descriptors: int, within_s: float | None) -> list[int]:
    """The descriptors that can be read now, or are at their end.

    Waits `within_s` for the first, or forever if it is `None`.
    """
    poll = select.poll()
    for descriptor in descriptors:
        poll.register(descriptor, select.POLLIN)
    limit_ms = None if within_s is None else math.ceil(within_s * 1000)
    return [descriptor for descriptor, _ in poll.poll(limit_ms)]


# Freed memory of this process: kept for its next buffers, or returned to the system.
#
# By default glibc returns the pages of a freed buffer, and the next buffer of its size faults them
# in again (mallopt(3), M_TRIM_THRESHOLD). A body of 16 KiB then costs twice as much, and one of 1
# MiB three times. Another libc does as it likes.


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
    """Return freed memory to the system."""
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


FULL = "Make room there, or name another folder"
CLOSED = "Run the command as the user who owns it, or name another place"
ADVICE = {
    errno.ENOSPC: FULL,
    errno.EDQUOT: FULL,
    errno.EROFS: "Name a folder that can be written",
    errno.EACCES: CLOSED,
    errno.EPERM: CLOSED,
    errno.EMFILE: "Raise the limit of open files (ulimit -n)",
    errno.ENFILE: "Too many files are open on this machine: end other programs",
    errno.ENOMEM: "End other programs, or run it where there is more memory",
}
NO_TEMPORARY_FOLDER = "No usable temporary directory"


def failure_text(error: OSError, temporary: str) -> str:
    """The cause, its path if any, and a remedy. `temporary` is TMPDIR or its default."""
    if NO_TEMPORARY_FOLDER in str(error):
        return (
            f"no temporary folder can be written, of {temporary} and others. Their disk is full or "
            "closed to this user: make room, or set TMPDIR to another folder"
        )
    refused = error.strerror or str(error)
    place = f"{error.filename}: " if error.filename else ""
    if not error.filename and error.errno in (errno.ENOSPC, errno.EDQUOT):
        return f"{refused}. Make room on the disk of the home and of {temporary} (TMPDIR)"
    advice = ADVICE.get(error.errno or 0)
    return f"{place}{refused}" + (f". {advice}" if advice else "")
