"""Files in and out of the kernel's page cache."""

import os
from collections.abc import Iterable
from pathlib import Path

DROP = Path("/proc/sys/vm/drop_caches")
READ_BYTES = 1 << 20


def evict(files: Iterable[Path]) -> None:
    """Ask the kernel to drop cached pages of `files`. Pages that other processes map stay."""
    for file in files:
        descriptor = os.open(file, os.O_RDONLY)
        try:
            os.fsync(descriptor)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)


def warm(files: Iterable[Path]) -> None:
    """Read `files` once."""
    for file in files:
        with file.open("rb", buffering=0) as reader:
            while reader.read(READ_BYTES):
                pass


def drop_all() -> bool:
    """Have the kernel drop every clean page of the machine. False if that is not allowed."""
    try:
        os.sync()
        DROP.write_text("3\n")
    except OSError:
        return False
    return True
