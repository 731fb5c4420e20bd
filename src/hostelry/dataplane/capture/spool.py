"""Spool files of one gateway worker: captured requests on disk, until they are uploaded.

A worker holds a lock on each file that it writes. A file that can be locked is whole, whether its
writer closed it or was killed, and the process that uploads takes it.
"""

import fcntl
import hashlib
import os
from collections.abc import Sequence
from pathlib import Path

import msgspec

from hostelry.base.ids import new_uuid
from hostelry.dataplane.capture.spool_file import SpoolHead, head_bytes, object_uri
from hostelry.domain.data_capture import CaptureCounts, DataCapture
from hostelry.domain.load import LoadKey

SUFFIX = ".records"
NEW_SUFFIX = ".new"
MIB = 1024 * 1024
HOUR_S = 3600
JOIN_BYTES = 256 * 1024
SCAN_S = 10.0


class SpoolLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of one file, and of the files that wait on disk.

    A file is closed once it is `roll_s` old or has `file_bytes`. The files of this worker have at
    most `total_bytes`, a quarter of them for one endpoint. `min_free_bytes` of the disk stay free.
    """

    roll_s: float = 60.0
    file_bytes: int = 8 * MIB
    total_bytes: int = 2048 * MIB
    min_free_bytes: int = 256 * MIB
    max_open: int = 64

    @property
    def endpoint_bytes(self) -> int:
        """Maximum bytes of one endpoint's files."""
        return self.total_bytes // 4


class SpoolTarget(msgspec.Struct, frozen=True, kw_only=True):
    """A variant, and how it is captured. Its requests share an object."""

    key: LoadKey
    capture: DataCapture


class SpoolBatch(msgspec.Struct, frozen=True, kw_only=True):
    """Whole records of one target, in parts in the order of writing."""

    target: SpoolTarget
    parts: Sequence[bytes]
    num_records: int
    num_bytes: int


class OpenFile:
    """An open, locked file. `num_bytes` of it are whole records."""

    __slots__ = ("descriptor", "num_bytes", "opened_at")

    def __init__(self, descriptor: int, num_bytes: int, opened_at: float) -> None:
        self.descriptor = descriptor
        self.num_bytes = num_bytes
        self.opened_at = opened_at


def is_due(opened_at: float, num_bytes: int, now: float, limits: SpoolLimits) -> bool:
    """True if a file must be closed, by age or size. An object's key names one hour, too."""
    return (
        not 0.0 <= now - opened_at < limits.roll_s
        or num_bytes >= limits.file_bytes
        or now // HOUR_S != opened_at // HOUR_S
    )


def endpoint_prefix(key: LoadKey) -> str:
    """The beginning of the names of all files of an endpoint."""
    names = f"{key.scope.account}/{key.scope.region}/{key.endpoint_name}"
    return hashlib.sha256(names.encode()).hexdigest()[:16]


class Spool:
    """Writes the files in `folder`. One thread at a time uses it."""

    def __init__(self, folder: Path, limits: SpoolLimits) -> None:
        self._folder = folder
        self._limits = limits
        self._open: dict[SpoolTarget, OpenFile] = {}
        self._waiting: dict[str, int] = {}  # bytes in all files, by endpoint
        self._scanned_at = 0.0

    def append(self, batches: Sequence[SpoolBatch], now: float) -> list[CaptureCounts]:
        """Write the batches, and return their results in order. Then close files that are due."""
        found = [self._append(batch, now) for batch in batches]
        for target, file in list(self._open.items()):
            if is_due(file.opened_at, file.num_bytes, now, self._limits):
                self._close(target)
        return found

    @property
    def has_open(self) -> bool:
        """True if a file is open."""
        return bool(self._open)

    def close(self) -> None:
        """Close all files, so that they are uploaded."""
        for target in list(self._open):
            self._close(target)

    def _append(self, batch: SpoolBatch, now: float) -> CaptureCounts:
        cause = None
        try:
            cause = self._why_full(batch, now)
            if cause is None:
                self._write(self._file(batch.target, now), batch)
        except OSError as error:
            cause = f"the spool file cannot be written: {error.strerror or error}"
        if cause is not None:
            return CaptureCounts(dropped=batch.num_records, drop_cause=cause)
        prefix = endpoint_prefix(batch.target.key)
        self._waiting[prefix] = self._waiting.get(prefix, 0) + batch.num_bytes
        return CaptureCounts(captured=batch.num_records, captured_bytes=batch.num_bytes)

    def _why_full(self, batch: SpoolBatch, now: float) -> str | None:
        """The reason why there is no room for the batch. None if there is room."""
        limits, prefix = self._limits, endpoint_prefix(batch.target.key)
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not 0.0 <= now - self._scanned_at < SCAN_S:
            self._scan(now)
        for is_fresh in (False, True):
            mine, everyones = self._waiting.get(prefix, 0), sum(self._waiting.values())
            if mine + batch.num_bytes <= limits.endpoint_bytes and (
                everyones + batch.num_bytes <= limits.total_bytes
            ):
                break
            if is_fresh:
                most = limits.endpoint_bytes // MIB
                return f"{most} MiB of the endpoint, or {4 * most} of all, wait to be uploaded"
            self._scan(now)
        disk = os.statvfs(self._folder)
        free = disk.f_bavail * disk.f_frsize
        if free - batch.num_bytes < limits.min_free_bytes:
            return f"the disk has less than {limits.min_free_bytes // MIB} MiB left"
        return None

    def _scan(self, now: float) -> None:
        """Measure the waiting files. Uploaded files are gone."""
        waiting: dict[str, int] = {}
        with os.scandir(self._folder) as entries:
            for entry in entries:
                try:
                    size = entry.stat().st_size
                except FileNotFoundError:
                    continue
                prefix = entry.name.partition("-")[0]
                waiting[prefix] = waiting.get(prefix, 0) + size
        self._waiting, self._scanned_at = waiting, now

    def _file(self, target: SpoolTarget, now: float) -> OpenFile:
        """Return the open file of the target. Raises OSError if it cannot be made."""
        file = self._open.get(target)
        if file is not None and not is_due(file.opened_at, 0, now, self._limits):
            return file
        self._close(target)
        if len(self._open) >= self._limits.max_open:
            self._close(next(iter(self._open)))
        unique = new_uuid()
        path = self._folder / f"{endpoint_prefix(target.key)}-{unique}{SUFFIX}"
        scratch = path.with_suffix(NEW_SUFFIX)
        uri = object_uri(target.capture, target.key, now, unique)
        head = SpoolHead(key=target.key, capture=target.capture, object_uri=uri, opened_at=now)
        descriptor = os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            written = head_bytes(head)
            write_all(descriptor, (written,))
            scratch.rename(path)  # it is locked before another process sees it
        except OSError:
            os.close(descriptor)
            scratch.unlink(missing_ok=True)
            raise
        opened = self._open[target] = OpenFile(descriptor, len(written), now)
        return opened

    @staticmethod
    def _write(file: OpenFile, batch: SpoolBatch) -> None:
        """Append the whole batch, or nothing. Raises OSError."""
        try:
            write_all(file.descriptor, batch.parts)
        except OSError:
            os.ftruncate(file.descriptor, file.num_bytes)
            raise
        file.num_bytes += batch.num_bytes

    def _close(self, target: SpoolTarget) -> None:
        file = self._open.pop(target, None)
        if file is not None:
            os.close(file.descriptor)


def write_all(descriptor: int, parts: Sequence[bytes]) -> None:
    """Write the parts. Small parts are joined. Raises OSError."""
    small: list[bytes] = []
    num_small = 0
    for part in parts:
        if num_small and num_small + len(part) > JOIN_BYTES:
            _write_whole(descriptor, b"".join(small))
            small, num_small = [], 0
        small.append(part)
        num_small += len(part)
    _write_whole(descriptor, b"".join(small))


def _write_whole(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def remove_unfinished(folder: Path) -> None:
    """Remove files that a killed writer left without a head. Call it before the first write."""
    for scratch in folder.glob(f"*{NEW_SUFFIX}"):
        scratch.unlink(missing_ok=True)
