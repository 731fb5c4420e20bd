"""Spool files of all gateway workers, for the process that uploads them. Blocks: for threads."""

import contextlib
import fcntl
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from hostelry.dataplane.capture.spool import SUFFIX
from hostelry.dataplane.capture.spool_file import SpoolError, SpoolHead, read_head, read_records
from hostelry.jobs.records.captured_line import captured_line

HEAD_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True)
class ClosedSpool:
    """A file that its writer has closed, or left behind when it was killed."""

    path: Path
    head: SpoolHead


@dataclass(frozen=True, slots=True)
class CaptureObject:
    """The object that a file becomes."""

    lines: bytes
    num_records: int


class SpoolFolder:
    """The folder that has one folder a worker; used by one thread at a time."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._heads: dict[Path, SpoolHead] = {}

    def closed(self) -> tuple[list[ClosedSpool], list[tuple[Path, str]]]:
        """The closed files, oldest first, and those that cannot be read, with the reason."""
        paths = sorted(self._paths(), key=lambda it: it[0])
        self._heads = {path: self._heads[path] for _, path in paths if path in self._heads}
        found, broken = [], []
        for _, path in paths:
            try:
                head = self._heads.get(path) or _closed_head(path)
            except SpoolError as error:
                broken.append((path, str(error)))
                continue
            if head is not None:
                self._heads[path] = head
                found.append(ClosedSpool(path, head))
        return found, broken

    def _paths(self) -> Iterator[tuple[float, Path]]:
        """Every file with the time of its last record."""
        for worker in self._folder.glob("*/"):
            for path in worker.glob(f"*{SUFFIX}"):
                with contextlib.suppress(FileNotFoundError):
                    yield path.stat().st_mtime, path


def _closed_head(path: Path) -> SpoolHead | None:
    """The file's head; None while its writer holds it, or where it is gone."""
    try:
        with path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return read_head(os.pread(file.fileno(), HEAD_BYTES + 4, 0))[0]
    except (BlockingIOError, FileNotFoundError):
        return None


def object_of(spool: ClosedSpool) -> CaptureObject:
    """The object of a closed file, read whole; raises OSError."""
    data = spool.path.read_bytes()
    _, start = read_head(data)
    head = spool.head
    lines = [
        captured_line(record, head.capture, f"{head.object_uri} {number}")
        for number, record in enumerate(read_records(data, start))
    ]
    return CaptureObject(b"".join(lines), len(lines))


def set_aside(path: Path) -> None:
    """Rename a file that cannot be read, so that it is not looked at again."""
    path.rename(path.with_suffix(".broken"))
