"""What a copy that is a program has written into its folder: counted and removed. Linux only.

Counted are its files, the log too, and those that it has unlinked and keeps open. Its model, and
what the agent keeps there, are not the copy's.
"""

import contextlib
import os
import shutil
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path

from hostelry.base.proc import open_files
from hostelry.fleet.records import CopyFolder, ProcessIdentity

BLOCK_BYTES = 512  # what st_blocks counts. Source: inode(7)
LEAST_BYTES = 4096  # an empty file takes room too
ENTRIES = 200_000  # so many are looked at; more of them take no less than what was counted


def written_bytes(folder: Path, processes: Iterable[ProcessIdentity], agents: Iterable[str]) -> int:
    """What the copy in `folder` takes of its disk; files called as in `agents` are the agent's."""
    seen = {it[:2]: it[2] for it in _files(folder, frozenset(agents))}
    with contextlib.suppress(OSError):
        device = folder.stat().st_dev
        seen |= {it[:2]: it[2] for it in _unlinked(processes) if it[0] == device}
    return sum(seen.values())


def remove_written(folder: Path, agents: Iterable[str]) -> None:
    """Remove what a copy whose processes are ended has written; its log stays."""
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
    """Device, number and size of each file, the first ones where there are very many."""
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
