"""Download of one object to one file: parallel ranges of one version, length and digest checked."""

import hashlib
import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from hostelry.fleet.artifacts.objects import ObjectFacts, S3Objects
from hostelry.fleet.artifacts.protocol import ArtifactUnavailableError

PART_BYTES = 16 * 1024 * 1024
MAX_THREADS = 8
MAX_PART_ATTEMPTS = 3


class DownloadProgress:
    """Bytes read so far, reported to `note` at each tenth; thread-safe."""

    def __init__(self, what: str, total_bytes: int, note: Callable[[str], None]) -> None:
        self._what = what
        self._total_bytes = total_bytes
        self._note = note
        self._read_bytes = 0
        self._tenths_noted = 0
        self._lock = threading.Lock()

    def add(self, read_bytes: int) -> None:
        """Count bytes; a failed part counts its bytes back."""
        with self._lock:
            self._read_bytes += read_bytes
            tenths = 10 * self._read_bytes // max(1, self._total_bytes)
            noted = self._tenths_noted
            self._tenths_noted = max(noted, tenths)
            read_mib = self._read_bytes / 2**20
        if tenths > noted:
            self._note(
                f"downloading {self._what}: {10 * tenths}% "
                f"({read_mib:.1f} of {self._total_bytes / 2**20:.1f} MiB)"
            )


def download(
    objects: S3Objects,
    facts: ObjectFacts,
    path: Path,
    progress: DownloadProgress,
    check_cancelled: Callable[[], None],
) -> None:
    """Write the object to `path`; on any failure the file is removed.

    Raises ArtifactUnavailableError when the object changed meanwhile or came incomplete.
    """
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        try:
            os.truncate(descriptor, facts.size_bytes)
            _read_parts(objects, facts, descriptor, progress, check_cancelled)
        finally:
            os.close(descriptor)
        _check_digest(facts, path, check_cancelled)
    except BaseException:
        path.unlink(missing_ok=True)
        raise


def _read_parts(
    objects: S3Objects,
    facts: ObjectFacts,
    descriptor: int,
    progress: DownloadProgress,
    check_cancelled: Callable[[], None],
) -> None:
    starts = range(0, facts.size_bytes, PART_BYTES)
    if not starts:
        return
    failed = threading.Event()

    def check() -> None:
        check_cancelled()
        if failed.is_set():
            raise ArtifactUnavailableError(f"another part of {facts.uri} failed")

    def read(start: int) -> None:
        try:
            _read_part(objects, facts, start, descriptor, progress, check)
        except BaseException:
            failed.set()
            raise

    with ThreadPoolExecutor(min(MAX_THREADS, len(starts)), "part") as threads:
        parts = [threads.submit(read, start) for start in starts]
    errors = [error for part in parts if (error := part.exception()) is not None]
    # The part that failed first has the cause; the others only refer to it.
    for error in sorted(errors, key=lambda it: "another part" in str(it)):
        raise error


def _read_part(
    objects: S3Objects,
    facts: ObjectFacts,
    start: int,
    descriptor: int,
    progress: DownloadProgress,
    check: Callable[[], None],
) -> None:
    end = min(start + PART_BYTES, facts.size_bytes)
    fault = ArtifactUnavailableError(facts.uri)
    for _ in range(MAX_PART_ATTEMPTS):
        position = start
        try:
            for block in objects.read(facts, start, end):
                check()
                os.pwrite(descriptor, block, position)
                position += len(block)
                progress.add(len(block))
        except ArtifactUnavailableError as error:
            fault = error
        else:
            if position == end:
                return
            fault = ArtifactUnavailableError(
                f"{facts.uri}: {position - start} of {end - start} bytes came"
            )
        progress.add(start - position)
        check()
    raise fault


def _check_digest(facts: ObjectFacts, path: Path, check_cancelled: Callable[[], None]) -> None:
    """Compare with the MD5 that S3 gave as the ETag of an object put in one piece."""
    if facts.md5 is None:
        return
    digest = hashlib.md5(usedforsecurity=False)
    with path.open("rb") as file:
        while block := file.read(PART_BYTES):
            check_cancelled()
            digest.update(block)
    if digest.hexdigest() != facts.md5:
        raise ArtifactUnavailableError(
            f"{facts.uri} arrived damaged: MD5 {digest.hexdigest()}, expected {facts.md5}"
        )
