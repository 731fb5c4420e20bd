"""Uploads the spool files of all gateway workers as objects, and removes the files.

result of an upload                               next
-----------------------------------------------   --------------------------------------------------
the object is written                             the file is removed. After a kill before that, the
                                                  object is written again under the same key
the object store is down                          no file is uploaded for 5 s, then 10, ... 60
the bucket, KMS key or permission is missing      the same pauses, for this destination
the same, and the file is a day old               the file is removed, and its records count as
                                                  dropped

Source of the objects' format: "Capture data from real-time endpoint", SageMaker developer guide.
"""

import asyncio
import base64
import contextlib
import fcntl
import logging
import os
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from hostelry.base.clock import Clock
from hostelry.dataplane.capture.spool import SUFFIX
from hostelry.dataplane.capture.spool_file import (
    CapturedRecord,
    RecordHead,
    SpoolError,
    SpoolHead,
    read_head,
    read_records,
)
from hostelry.domain.data_capture import CaptureCounts, CaptureEncoding, DataCapture
from hostelry.domain.load import LoadKey
from hostelry.jobs.objects.object_store import (
    ObjectError,
    ObjectStore,
    ObjectStoreDownError,
    OutputSettings,
)

LOG = logging.getLogger(__name__)
HEAD_BYTES = 64 * 1024


class ClosedSpool(msgspec.Struct, frozen=True):
    """A spool file that its writer has closed, or has left behind at a kill."""

    path: Path
    head: SpoolHead


class CaptureObject(msgspec.Struct, frozen=True):
    """The object with the records of a spool file."""

    lines: bytes
    num_records: int


class SpoolFolder:
    """The folder with the spool folder of each worker. Used by one thread at a time."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._heads: dict[Path, SpoolHead] = {}

    def list_closed(self) -> tuple[list[ClosedSpool], list[tuple[Path, str]]]:
        """List the closed files, oldest first, and the invalid files, with the reason."""
        paths = sorted(self._paths(), key=lambda it: it[0])
        self._heads = {path: self._heads[path] for _, path in paths if path in self._heads}
        found, broken = [], []
        for _, path in paths:
            try:
                head = self._heads.get(path) or _read_closed_head(path)
            except SpoolError as error:
                broken.append((path, str(error)))
                continue
            if head is not None:
                self._heads[path] = head
                found.append(ClosedSpool(path, head))
        return found, broken

    def _paths(self) -> Iterator[tuple[float, Path]]:
        """Yield every file with the time of its last record."""
        for worker in self._folder.glob("*/"):
            for path in worker.glob(f"*{SUFFIX}"):
                with contextlib.suppress(FileNotFoundError):
                    yield path.stat().st_mtime, path


def _read_closed_head(path: Path) -> SpoolHead | None:
    """Read the head of a file. None if its writer holds it, or if it is gone."""
    try:
        with path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return read_head(os.pread(file.fileno(), HEAD_BYTES + 4, 0))[0]
    except (BlockingIOError, FileNotFoundError):
        return None


def read_object(spool: ClosedSpool) -> CaptureObject:
    """Build the object of a closed file. Raises OSError."""
    data = spool.path.read_bytes()
    _, start = read_head(data)
    head = spool.head
    lines = [
        build_captured_line(record, head.capture, f"{head.object_uri} {number}")
        for number, record in enumerate(read_records(data, start))
    ]
    return CaptureObject(b"".join(lines), len(lines))


def set_aside(path: Path) -> None:
    """Rename an invalid file, so that it is not read again."""
    path.rename(path.with_suffix(".broken"))


LOOK_S = 1.0
PAUSES_S = (5.0, 10.0, 20.0, 40.0, 60.0)
KEPT_S = 24 * 3600.0
CONTENT_TYPE = "application/jsonlines"
STORE = "the object store"


class Pause(msgspec.Struct):
    """The failures in a row of a destination, or of the store. The next attempt is at `until`."""

    failures: int = 0
    until: float = 0.0
    cause: str = ""


class CaptureUploads:
    """The uploads of one process.

    Args:
        folder: the spool files.
        store: takes objects.
        clock: the time.
    """

    def __init__(self, folder: SpoolFolder, store: ObjectStore, clock: Clock) -> None:
        self._folder = folder
        self._store = store
        self._clock = clock
        self._pauses: dict[str, Pause] = {}
        self._counts: dict[LoadKey, CaptureCounts] = {}

    def counts(self) -> dict[LoadKey, CaptureCounts]:
        """Take the counts since the last call."""
        found, self._counts = self._counts, {}
        return found

    async def look(self) -> None:
        """Upload the closed files whose destination is not paused."""
        spools, broken = await asyncio.to_thread(self._folder.list_closed)
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
                store = self._store.acting_for(spool.head.key.scope.account)
                await store.put(spool.head.object_uri, found.lines, settings)
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
    """Name the bucket and KMS key of a file's object, which fail together."""
    capture = spool.head.capture
    bucket = capture.uri.removeprefix("s3://").partition("/")[0]
    return f"s3://{bucket}" + (f" under {capture.kms_key_id}" if capture.kms_key_id else "")


EVENT_VERSION = "0"
_encode = msgspec.json.Encoder().encode


def build_captured_line(record: CapturedRecord, capture: DataCapture, name: str) -> bytes:
    """Build the line of JSON of a record, with its line break and the captured sides.

    `name` identifies the record. An event id is derived from it if the record has none.
    """
    head = record.head
    data: dict[str, Any] = {}
    if capture.takes_input:
        data["endpointInput"] = _side("INPUT", record.input, head.input_type, capture)
    if capture.takes_output:
        data["endpointOutput"] = _side("OUTPUT", record.output, head.output_type, capture)
    line = {"captureData": data, "eventMetadata": _event(head, name), "eventVersion": EVENT_VERSION}
    return _encode(line) + b"\n"


def _side(mode: str, body: bytes, content_type: str | None, capture: DataCapture) -> dict[str, str]:
    """Build one side. Text that is not UTF-8 is stored in base64, whatever its type."""
    encoding, data = capture.get_encoding(content_type), ""
    if encoding is not CaptureEncoding.BASE64:
        try:
            data = body.decode()
        except UnicodeDecodeError:
            encoding = CaptureEncoding.BASE64
    if encoding is CaptureEncoding.BASE64:
        data = base64.b64encode(body).decode()
    observed = {} if content_type is None else {"observedContentType": content_type}
    return {**observed, "mode": mode, "data": data, "encoding": encoding.value}


def _event(head: RecordHead, name: str) -> dict[str, Any]:
    event_id = head.event_id or str(uuid.uuid5(uuid.NAMESPACE_URL, name))
    found: dict[str, Any] = {"eventId": event_id}
    if head.custom_attributes is not None:
        found["customAttributes"] = [head.custom_attributes]
    if head.inference_id is not None:
        found["inferenceId"] = head.inference_id
    found["inferenceTime"] = f"{datetime.fromtimestamp(head.at, UTC):%Y-%m-%dT%H:%M:%SZ}"
    return found
