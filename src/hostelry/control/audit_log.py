"""The audit log of a home: who asked for which act, when, and what became of it.

One JSON object a line in ``audit.jsonl``. A full file becomes ``audit.1.jsonl``, replacing the one
before, so that the log is bounded. Lines that cannot be read, as after a power cut, are left out.
"""

import os
import threading
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from hostelry.base.json import decode
from hostelry.base.private_file import write_whole

MAX_FILE_BYTES = 4 * 1024 * 1024
MAX_CHARS = 512  # of each text of an entry


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEntry:
    """An act of a person; `at` is in seconds since the epoch.

    `who` is a user of the command line or a session of the console, `endpoint` the endpoint that
    the act is about, if any, `outcome` "accepted", or why it was not carried out.
    """

    at: float
    who: str
    act: str
    target: str
    outcome: str
    endpoint: str = ""
    account: str = ""
    region: str = ""


class AuditLog:
    """The log at `path`; entries survive a kill once `append` has returned."""

    def __init__(self, path: Path, max_file_bytes: int = MAX_FILE_BYTES) -> None:
        self._path = path
        self._before = path.with_name(f"{path.stem}.1{path.suffix}")
        self._max_file_bytes = max_file_bytes
        self._lock = threading.Lock()

    def append(self, entry: AuditEntry) -> None:
        """Add `entry` at the end; raises OSError where the disk refuses it."""
        line = msgspec.json.encode(entry) + b"\n"
        with self._lock:
            self._make_room(len(line))
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
            with os.fdopen(os.open(self._path, flags, 0o600), "ab") as file:
                # A kill within a write leaves half a line: the next one must not continue it.
                file.write(line if _ends_whole(self._path) else b"\n" + line)
                file.flush()
                os.fsync(file.fileno())

    def newest(self, limit: int, endpoint: str | None = None) -> list[AuditEntry]:
        """The newest entries, the newest first, at most `limit`; of one endpoint, or of all."""
        with self._lock:
            lines = [*_lines(self._before), *_lines(self._path)]
        found: list[AuditEntry] = []
        for entry in _entries(reversed(lines)):
            if len(found) >= limit:
                break
            if endpoint is None or entry.endpoint == endpoint:
                found.append(entry)
        return found

    def replace(self, newest: Sequence[AuditEntry]) -> None:
        """Have these entries, the newest first, in place of all, as far as they fit."""
        files: list[list[bytes]] = [[], []]  # the present one, and the one before
        left_bytes, present = self._max_file_bytes, 0
        for entry in newest:
            line = msgspec.json.encode(entry) + b"\n"
            if len(line) > left_bytes:
                left_bytes, present = self._max_file_bytes, present + 1
            if present == len(files):
                break
            left_bytes -= len(line)
            files[present].append(line)
        with self._lock:
            for path, lines in zip((self._path, self._before), files, strict=True):
                write_whole(path, b"".join(reversed(lines)))

    def _make_room(self, size_bytes: int) -> None:
        try:
            present_bytes = self._path.stat().st_size
        except FileNotFoundError:
            return
        if present_bytes + size_bytes > self._max_file_bytes:
            self._path.replace(self._before)


def _ends_whole(path: Path) -> bool:
    """Whether the file is empty or ends with a whole line."""
    with path.open("rb") as file:
        if file.seek(0, os.SEEK_END) == 0:
            return True
        file.seek(-1, os.SEEK_END)
        return file.read(1) == b"\n"


def _lines(path: Path) -> list[bytes]:
    try:
        return path.read_bytes().splitlines()
    except FileNotFoundError:
        return []


def _entries(lines: Iterable[bytes]) -> Iterator[AuditEntry]:
    for line in lines:
        try:
            yield decode(line, AuditEntry)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            continue
