"""Disk that a home and its runtimes use, by what it is for."""

import contextlib
import stat
from collections.abc import Mapping
from pathlib import Path

from hostelry.base.runtimes import runtimes_folder
from hostelry.home.home import Home

BLOCK_BYTES = 512  # what st_blocks counts. Source: inode(7)
MOST_ENTRIES = 200_000  # of one place; what is beyond is not counted


def disk_use(home: Home, environment: Mapping[str, str]) -> dict[str, int]:
    """Bytes on the disk, by what people call what has them."""
    return {
        "objects": folder_bytes(home.objects),
        "instances with their caches": folder_bytes(home.instances),
        "files of batches": folder_bytes(home.files),
        "captured requests": folder_bytes(home.capture),
        "log events": folder_bytes(home.log_events),
        "logs": folder_bytes(home.logs),
        "runtimes": folder_bytes(runtimes_folder(environment)),
    }


def folder_bytes(place: Path) -> int:
    """Bytes that a file, or a folder with all below it, takes; 0 if there is none."""
    waiting, left, total = [place], MOST_ENTRIES, 0
    seen = set[tuple[int, int]]()
    while waiting and left > 0:
        path = waiting.pop()
        left -= 1
        with contextlib.suppress(OSError):
            found = path.lstat()
            if stat.S_ISDIR(found.st_mode):
                waiting += path.iterdir()
            elif (found.st_dev, found.st_ino) not in seen:
                seen.add((found.st_dev, found.st_ino))
                total += found.st_blocks * BLOCK_BYTES
    return total
