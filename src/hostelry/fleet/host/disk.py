"""Disk usage of a copy that is a program: counting and removing what it wrote. Linux only.

Counts the files in its folder, the log included, and unlinked files that it keeps open. Its model
and the agent's own files there do not count.
"""

import contextlib
import os
import shutil
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path

from hostelry.base.proc import ProcessIdentity, open_files
from hostelry.fleet.records import CopyFolder

BLOCK_BYTES = 512  # what st_blocks counts. Source: inode(7)
LEAST_BYTES = 4096  # an empty file takes an inode
ENTRIES = 200_000  # entries counted at most; the sum is then a lower bound


def written_bytes(folder: Path, processes: Iterable[ProcessIdentity], agents: Iterable[str]) -> int:
    """Bytes that the copy in `folder` uses; top-level names in `agents` are the agent's."""
    seen = {it[:2]: it[2] for it in _files(folder, frozenset(agents))}
    with contextlib.suppress(OSError):
        device = folder.stat().st_dev
        seen |= {it[:2]: it[2] for it in _unlinked(processes) if it[0] == device}
    return sum(seen.values())


def remove_written(folder: Path, agents: Iterable[str]) -> None:
    """Remove the files of a copy whose processes have ended, except its log."""
    kept = {*agents, CopyFolder(folder).log.name}
    with contextlib.suppress(OSError):
        for path in list(folder.iterdir()):
            if path.name in kept:
                continue
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)


def _files(folder: Path, agents: frozenset[str]) -> Iterator[tuple[int, int, int]]:
    """Device, inode and size of each file, of the first ENTRIES at most."""
    waiting, left = [os.fspath(folder)], ENTRIES
    while waiting:
        path = waiting.pop()
        with contextlib.suppress(OSError), os.scandir(path) as entries:
            for entry in entries:
                if path == os.fspath(folder) and entry.name in agents:
                    continue
                left -= 1
                if left < 0:
                    return
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(entry.path)
                with contextlib.suppress(OSError):
                    yield _size(entry.stat(follow_symlinks=False))


def _unlinked(processes: Iterable[ProcessIdentity]) -> Iterator[tuple[int, int, int]]:
    for process in processes:
        for path in open_files(process.pid):
            with contextlib.suppress(OSError):
                found = os.stat(path)
                if stat.S_ISREG(found.st_mode) and found.st_nlink == 0:
                    yield _size(found)


def _size(found: os.stat_result) -> tuple[int, int, int]:
    return found.st_dev, found.st_ino, max(LEAST_BYTES, found.st_blocks * BLOCK_BYTES)
