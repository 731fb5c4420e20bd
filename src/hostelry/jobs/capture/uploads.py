"""Spool files of all gateway workers, uploaded as objects and then removed."""

import asyncio
import contextlib
import fcntl
import logging
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from hostelry.base.clock import Clock
from hostelry.dataplane.capture.spool import SUFFIX
from hostelry.dataplane.capture.spool_file import SpoolError, SpoolHead, read_head, read_records
from hostelry.domain.data_capture import CaptureCounts
from hostelry.domain.load import LoadKey
from hostelry.jobs.objects.object_store import (
    ObjectError,
    ObjectStore,
    ObjectStoreDownError,
    OutputSettings,
)
from hostelry.jobs.records.captured_line import captured_line

LOG = logging.getLogger(__name__)
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


def read_object(spool: ClosedSpool) -> CaptureObject:
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


# Uploads closed spool files as objects, then removes them; what fails is tried again.
#
# a file                                            next
# -----------------------------------------------   -----------------------------------------------
# its object was written                            removed; the same key again after a kill between
# the object store is down                          no file is tried for 5 s, then 10, ... 60
# its bucket, key or permission is missing          no file for that destination for as long
# it is a day old, and still cannot be uploaded     removed, its records counted as dropped


LOOK_S = 1.0
PAUSES_S = (5.0, 10.0, 20.0, 40.0, 60.0)
KEPT_S = 24 * 3600.0
CONTENT_TYPE = "application/jsonlines"
STORE = "the object store"


@dataclass(slots=True)
class Pause:
    """Failures in a row of a destination, or of the store: none is tried before `until`."""

    failures: int = 0
    until: float = 0.0
    cause: str = ""


class CaptureUploads:
    """The uploads of one process.

    Args:
        folder: the spool files.
        store: takes objects.
        clock: ages of files, pauses.
    """

    def __init__(self, folder: SpoolFolder, store: ObjectStore, clock: Clock) -> None:
        self._folder = folder
        self._store = store
        self._clock = clock
        self._pauses: dict[str, Pause] = {}
        self._counts: dict[LoadKey, CaptureCounts] = {}

    def counts(self) -> dict[LoadKey, CaptureCounts]:
        """What was counted since the last call."""
        found, self._counts = self._counts, {}
        return found

    async def look(self) -> None:
        """Upload every closed file that is not to wait."""
        spools, broken = await asyncio.to_thread(self._folder.closed)
        for path, reason in broken:
            LOG.error("captured requests in %s are lost: %s", path, reason)
            await asyncio.to_thread(set_aside, path)
        for spool in spools:
            if self._may_go(STORE) and self._may_go(get_destination(spool)):
                await self._upload(spool)

    def _may_go(self, name: str) -> bool:
        pause = self._pauses.get(name)
        return pause is None or self._clock.now() >= pause.until

    async def _upload(self, spool: ClosedSpool) -> None:
        try:
            found = await asyncio.to_thread(read_object, spool)
        except OSError as error:
            self._note_failure(
                get_destination(spool), spool, f"{spool.path} cannot be read: {error}"
            )
            return
        capture = spool.head.capture
        settings = OutputSettings(content_type=CONTENT_TYPE, kms_key_id=capture.kms_key_id)
        try:
            if found.num_records:
                await self._store.put(spool.head.object_uri, found.lines, settings)
        except ObjectStoreDownError as error:
            self._note_failure(STORE, spool, str(error))
            return
        except ObjectError as error:
            self._note_failure(get_destination(spool), spool, str(error))
            if self._clock.now() - spool.head.opened_at > KEPT_S:
                await asyncio.to_thread(spool.path.unlink)
                cause = f"not uploaded within a day: {error}"
                self._count(spool, CaptureCounts(dropped=found.num_records, drop_cause=cause))
            return
        await asyncio.to_thread(spool.path.unlink)
        for name in (STORE, get_destination(spool)):
            if self._pauses.pop(name, None) is not None:
                LOG.info("captured requests are uploaded again to %s", name)
        done = CaptureCounts(objects=1, upload_cause="", uploaded_at=self._clock.now())
        self._count(spool, done)

    def _note_failure(self, name: str, spool: ClosedSpool, cause: str) -> None:
        pause = self._pauses.setdefault(name, Pause())
        if not pause.failures:
            LOG.warning("captured requests wait, as uploads to %s fail: %s", name, cause)
        pause_s = PAUSES_S[min(pause.failures, len(PAUSES_S) - 1)]
        pause.failures += 1
        pause.until = self._clock.now() + pause_s
        self._count(spool, CaptureCounts(upload_failures=1, upload_cause=cause))

    def _count(self, spool: ClosedSpool, counted: CaptureCounts) -> None:
        self._counts.setdefault(spool.head.key, CaptureCounts()).add(counted)


def get_destination(spool: ClosedSpool) -> str:
    """The bucket of a file's object, and the key that encrypts it: they fail together."""
    capture = spool.head.capture
    bucket = capture.uri.removeprefix("s3://").partition("/")[0]
    return f"s3://{bucket}" + (f" under {capture.kms_key_id}" if capture.kms_key_id else "")
