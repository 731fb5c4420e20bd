"""Reads the audit trail in files of a folder, while their writer may be adding to them.

``000000000001.jsonl`` begins with record 1. A full file ends with its seal, and is never written
again.
"""

import contextlib
import logging
import os
from collections.abc import Iterator
from pathlib import Path

import msgspec

from hostelry.audit.chain import (
    SEAL_START,
    ChainHead,
    SealedFile,
    TrailLine,
    parse_line,
    read_value,
    sign_value,
)
from hostelry.base.files import write_whole
from hostelry.base.json import decode

LOG = logging.getLogger(__name__)

CHUNK_BYTES = 256 * 1024
SUFFIX = ".jsonl"


class TrailFolder:
    """Reads the files of a folder, while their writer may be adding to them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def list_files(self) -> list[Path]:
        """The files, oldest first."""
        try:
            names = os.listdir(self.folder)
        except FileNotFoundError:
            return []
        found = [it for it in names if it.endswith(SUFFIX) and it.removesuffix(SUFFIX).isdigit()]
        return [self.folder / it for it in sorted(found)]

    def read_forwards(self) -> Iterator[tuple[str, list[bytes]]]:
        """Each file's name and whole lines, oldest first. A last line that is cut is left out."""
        for path in self.list_files():
            with contextlib.suppress(FileNotFoundError):  # retention has removed it
                yield path.name, path.read_bytes().split(b"\n")[:-1]

    def read_backwards(
        self, before: int | None = None, sources: frozenset[str] = frozenset()
    ) -> Iterator[TrailLine]:
        """The records, newest first, of those with lower numbers than `before`.

        If `sources` are given, sealed files without a record of them are left out.
        """
        for path in reversed(self.list_files()):
            if before is not None and get_first(path) >= before:
                continue
            with contextlib.suppress(FileNotFoundError):
                for line in read_lines_backwards(path):
                    if line.startswith(SEAL_START):
                        if sources and not _may_have(line, sources):
                            break
                        continue
                    record = _parse(line)
                    if record is not None and (before is None or record.number < before):
                        yield record


class HeadFile:
    """The newest record of a trail in a database, noted in a file of the leader's home."""

    def __init__(self, path: Path, key: bytes) -> None:
        self._path = path
        self._key = key

    def read_head(self) -> ChainHead | None:
        """The last noted head, or None. A head that is not signed does not count."""
        try:
            found: ChainHead = read_value(self._key, self._path.read_bytes(), ChainHead)
        except FileNotFoundError:
            return None
        except (ValueError, OSError, msgspec.MsgspecError) as error:
            LOG.warning("%s is not as it was written: %s", self._path, error)
            return None
        return found

    def note_head(self, head: ChainHead) -> None:
        """Note the newest durable record. Raises OSError."""
        write_whole(self._path, sign_value(self._key, head), durable=False)


class _Sealed(msgspec.Struct):
    """The sources in a seal, which is not verified here."""

    sealed: tuple[str, SealedFile]


def _may_have(seal: bytes, sources: frozenset[str]) -> bool:
    try:
        return bool(sources & set(decode(seal, _Sealed).sealed[1].sources))
    except msgspec.MsgspecError:
        return True


def _parse(line: bytes) -> TrailLine | None:
    try:
        return parse_line(line)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None


def get_first(path: Path) -> int:
    """The number of a file's first record."""
    return int(path.name.removesuffix(SUFFIX))


def read_lines_backwards(path: Path) -> Iterator[bytes]:
    """The whole lines of a file, the last one first."""
    with path.open("rb") as file:
        at = file.seek(0, os.SEEK_END)
        rest, is_last = b"", True
        while at > 0:
            step = min(CHUNK_BYTES, at)
            at -= step
            parts = (os.pread(file.fileno(), step, at) + rest).split(b"\n")
            if is_last:
                parts.pop()  # empty, or a line that is being written
                is_last = False
            rest, *whole = parts or [b""]
            yield from reversed(whole)
        if rest:
            yield rest
