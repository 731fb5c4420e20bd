"""Writes the audit trail to files of a folder, which belongs to one process at a time.

| the disk | a record | a call that changes something |
| --- | --- | --- |
| takes writes | is written | may begin |
| is full | takes the space of the file ``reserve``, which is removed | is refused |
| is full, and no reserve is left | OSError. Nothing is written | is refused |
| has room again | is written, and the reserve is made again | may begin |
"""

import contextlib
import errno
import fcntl
import hashlib
import logging
import os
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

from hostelry.audit.chain import (
    SEAL_START,
    ChainHead,
    SealedFile,
    StoredLine,
    get_digest,
    parse_line,
    read_value,
    sign_value,
)
from hostelry.audit.folder import SUFFIX, TrailFolder, read_lines_backwards
from hostelry.base.clock import monotonic_s
from hostelry.base.errors import TerminalError
from hostelry.base.files import sync_folder

LOG = logging.getLogger(__name__)
MAX_FILE_BYTES = 4 * 1024 * 1024  # a start reads the last file
TROUBLES = {errno.ENOSPC: "the disk is full", errno.EDQUOT: "the quota of its owner is used up"}
FLUSH_S = 0.2  # a power cut may cost the records of this time
MAX_ACCOUNTS = 64  # of a seal


class FileLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes of a file and of the reserve, and times of waiting for a disk and for a writer."""

    max_file_bytes: int = MAX_FILE_BYTES
    reserve_bytes: int = 1024 * 1024
    retry_s: float = 1.0
    lock_wait_s: float = 10.0


class _OpenFile:
    """The file that is being written, and the content of its seal."""

    def __init__(self, path: Path, first: int) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        self.descriptor = os.open(path, flags, 0o600)
        self.first = first
        self.num_bytes = 0
        self.head = ChainHead()
        self._digest = hashlib.sha256()
        self._since = self._until = 0.0
        self._sources: set[str] = set()
        self._accounts: set[str] = set()

    def note(self, line: bytes, head: ChainHead, at: float, account: str, source: str) -> None:
        """Note a line that the file has."""
        self._digest.update(line + b"\n")
        self._since = at if not self.num_bytes else min(self._since, at)
        self._until = max(self._until, at)
        self.num_bytes += len(line) + 1
        self.head = head
        self._sources.add(source)
        if len(self._accounts) <= MAX_ACCOUNTS:
            self._accounts.add(account)

    def build_seal(self) -> SealedFile:
        """The seal of the records so far."""
        is_listed = len(self._accounts) <= MAX_ACCOUNTS
        return SealedFile(
            first=self.first,
            head=self.head,
            digest=self._digest.hexdigest(),
            num_bytes=self.num_bytes,
            since=self._since,
            until=self._until,
            sources=tuple(sorted(self._sources)),
            accounts=tuple(sorted(self._accounts)) if is_listed else None,
        )


class TrailFiles:
    """The writer. `head` is the newest record in the files.

    What `append` has returned for survives a kill. `flush` makes it survive a power cut.
    Raises TerminalError if another process writes the folder, OSError if it cannot be used.
    """

    pause_s = FLUSH_S

    def __init__(self, folder: Path, key: bytes, limits: FileLimits | None = None) -> None:
        self.reader = TrailFolder(folder)
        self.head = ChainHead()
        self._folder = folder
        self._key = key
        self._limits = limits or FileLimits()
        self._reserve = folder / "reserve"
        self._flushing = threading.Lock()
        self._full: list[int] = []  # descriptors of sealed files that are not flushed yet
        self._is_new = False  # the folder has an entry that is not flushed yet
        self._trouble: str | None = None
        self._tried_s = 0.0
        folder.mkdir(mode=0o700, exist_ok=True)
        self._lock = _lock_folder(folder, self._limits.lock_wait_s)
        self._file: _OpenFile | None = None
        self._sealed: list[SealedFile] = []
        for path in self.reader.list_files():
            self._open_file(path)
        self._make_reserve()

    def append(self, lines: Sequence[StoredLine]) -> None:
        """Write records, all or none. Raises OSError if the disk takes none."""
        for part in self._cut(lines):
            self._append(part)

    def wait(self, number: int) -> None:
        """Return at once, because `append` has written the record."""

    def flush(self) -> ChainHead:
        """Make every record durable. Returns the newest of them. Raises OSError."""
        with self._flushing:
            head, file, full = self.head, self._file, self._full
            for descriptor in full:
                os.fsync(descriptor)
            if file is not None:
                os.fdatasync(file.descriptor)
            if self._is_new:
                sync_folder(self._folder)
                self._is_new = False
            for descriptor in full:
                os.close(descriptor)
            del full[:]
        return head

    def find_trouble(self) -> str | None:
        """Why no call may change anything now. Tries again now and then. None if it may."""
        if self._trouble is not None and monotonic_s() - self._tried_s >= self._limits.retry_s:
            self._make_reserve()
        return self._trouble

    def choose_old(self, max_bytes: int, before_at: float) -> list[SealedFile]:
        """The oldest files beyond `max_bytes`, or with records from before `before_at` only."""
        total = sum(it.num_bytes for it in self._sealed)
        total += self._file.num_bytes if self._file is not None else 0
        chosen = []
        for seal in self._sealed:
            if total <= max_bytes and seal.until >= before_at:
                break
            total -= seal.num_bytes
            chosen.append(seal)
        return chosen

    def remove(self, chosen: Sequence[SealedFile]) -> None:
        """Remove files that `choose_old` has chosen. Raises OSError."""
        for seal in chosen:
            (self._folder / name_file(seal.first)).unlink(missing_ok=True)
            self._sealed.remove(seal)

    def close(self) -> None:
        """Flush and close."""
        with contextlib.suppress(OSError):
            self.flush()
        if self._file is not None:
            os.close(self._file.descriptor)
            self._file = None
        os.close(self._lock)

    def _cut(self, lines: Sequence[StoredLine]) -> list[Sequence[StoredLine]]:
        """The parts of `lines` that go to one file each."""
        parts: list[list[StoredLine]] = [[]]
        left = self._limits.max_file_bytes - (self._file.num_bytes if self._file is not None else 0)
        for line in lines:
            left -= len(line.line) + 1
            if left < 0 and (parts[-1] or self._file is not None):
                parts.append([])
                left = self._limits.max_file_bytes - len(line.line) - 1
            parts[-1].append(line)
        return [it for it in parts if it]

    def _append(self, lines: Sequence[StoredLine]) -> None:
        data = b"".join(b"%b\n" % it.line for it in lines)
        try:
            self._write(data, lines[0].head.number)
        except OSError as error:
            self._note_trouble(error)
            if not self._release_reserve():
                raise
            self._write(data, lines[0].head.number)
        file = self._file
        assert file is not None
        for line in lines:
            record = line.record
            file.note(line.line, line.head, record.at, record.account, record.source)
        self.head = file.head

    def _write(self, data: bytes, first: int) -> None:
        """Write whole lines at the end, to the next file if this one is full."""
        file = self._file
        if file is not None and file.num_bytes and self._is_full(file, data):
            self._seal(file)
            file = None
        if file is None:
            file = self._file = _OpenFile(self._folder / name_file(first), first)
            self._is_new = True
        _write_whole(file.descriptor, data)

    def _is_full(self, file: _OpenFile, data: bytes) -> bool:
        return file.num_bytes + len(data) > self._limits.max_file_bytes

    def _seal(self, file: _OpenFile) -> None:
        seal = file.build_seal()
        _write_whole(file.descriptor, sign_value(self._key, seal) + b"\n")
        self._sealed.append(seal)
        with self._flushing:
            self._full.append(file.descriptor)
            self._file = None

    def _read_seal(self, path: Path) -> SealedFile | None:
        """The seal at the end of a file. None for a file that is not sealed."""
        last = next(read_lines_backwards(path), b"")
        if not last.startswith(SEAL_START):
            return None
        try:
            seal: SealedFile = read_value(self._key, last, SealedFile)
        except (ValueError, msgspec.MsgspecError) as error:
            LOG.warning("the seal of %s is not as it was written: %s", path, error)
            return None
        return seal

    def _open_file(self, path: Path) -> None:
        """Continue a file unless it is sealed. A file without a seal before it is sealed now."""
        if self._file is not None:
            with contextlib.suppress(OSError):
                self._seal(self._file)
        seal = self._read_seal(path)
        if seal is not None:
            self._sealed.append(seal)
            self.head = seal.head
            return
        content = path.read_bytes()
        end = content.rfind(b"\n") + 1
        file = self._file = _OpenFile(path, int(path.name.removesuffix(SUFFIX)))
        if end < len(content):  # a kill cut the line, so it was not acknowledged
            LOG.warning("%s ended with %d bytes of a record", path, len(content) - end)
            os.ftruncate(file.descriptor, end)
        for line in content[:end].split(b"\n")[:-1]:
            try:
                record = parse_line(line)
            except (msgspec.MsgspecError, UnicodeDecodeError):
                LOG.warning("%s has a line that is no record", path)
                file.note(line, file.head, 0.0, "", "")
                continue
            head = ChainHead(record.number, get_digest(line))
            file.note(line, head, record.at, record.account, record.source)
        if file.num_bytes:  # a kill can leave an empty file
            self.head = file.head

    def _make_reserve(self) -> None:
        self._tried_s = monotonic_s()
        try:
            flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC
            descriptor = os.open(self._reserve, flags, 0o600)
            try:
                os.posix_fallocate(descriptor, 0, self._limits.reserve_bytes)
            finally:
                os.close(descriptor)
        except OSError as error:
            self._note_trouble(error)
            with contextlib.suppress(OSError):
                self._reserve.unlink(missing_ok=True)
            return
        if self._trouble is not None:
            LOG.warning("the audit log can be written again")
        self._trouble = None

    def _release_reserve(self) -> bool:
        """Give the reserve's space to records. False if it is missing."""
        try:
            self._reserve.unlink()
        except OSError:
            return False
        return True

    def _note_trouble(self, error: OSError) -> None:
        if self._trouble is None:
            LOG.error("the audit log in %s cannot be written: %s", self._folder, error)
        self._trouble = TROUBLES.get(error.errno or 0) or error.strerror or str(error)
        self._tried_s = monotonic_s()


def name_file(first: int) -> str:
    """The name of the file that begins with the record `first`."""
    return f"{first:012}{SUFFIX}"


def _write_whole(descriptor: int, data: bytes) -> None:
    """Write `data` at the end, or nothing. Raises OSError."""
    num_written = os.write(descriptor, data)
    if num_written == len(data):
        return
    os.ftruncate(descriptor, os.fstat(descriptor).st_size - num_written)
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _lock_folder(folder: Path, wait_s: float) -> int:
    descriptor = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    give_up_at_s = monotonic_s() + wait_s
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if monotonic_s() > give_up_at_s:
                os.close(descriptor)
                raise TerminalError(f"another process writes the audit log {folder}") from None
            time.sleep(0.05)
        else:
            return descriptor
