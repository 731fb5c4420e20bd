"""Spool files become objects: which files, in which order, and after failures."""

import asyncio
import logging
from pathlib import Path

import pytest
from msgspec.structs import replace
from tests.unit.dataplane.capture.capture_sample import AT, KEY, LIMITS, TARGET, record_head, spool

from hostelry.base.clock import ManualClock
from hostelry.dataplane.capture.spool import Spool, SpoolBatch, SpoolTarget
from hostelry.dataplane.capture.spool_file import record_prefix
from hostelry.domain.data_capture import CaptureCounts
from hostelry.jobs.capture_uploads import KEPT_S, CaptureUploads, SpoolFolder
from hostelry.jobs.objects.object_store import (
    NoSuchBucketError,
    ObjectError,
    ObjectStore,
    ObjectStoreDownError,
    OutputSettings,
)

DOWN = ObjectStoreDownError("down")
MISSING = NoSuchBucketError("no bucket")
SEALED = SpoolTarget(key=KEY, capture=replace(TARGET.capture, kms_key_id="k"))


class Store(ObjectStore):
    """Keeps objects. Fails for URIs with the prefix `failing`."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.keys: list[str | None] = []
        self.failing: dict[str, ObjectError] = {}
        self.num_asked = 0

    def acting_for(self, _: str) -> "Store":
        return self

    async def put(self, uri: str, body: bytes, settings: OutputSettings) -> None:
        self.num_asked += 1
        for begin, error in self.failing.items():
            if uri.startswith(begin):
                raise error
        self.objects[uri] = body
        self.keys.append(settings.kms_key_id)


class Uploading:
    """Uploads of a folder with two workers, with a separate clock."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.clock = ManualClock(AT)
        self.store = Store()
        self.uploads = CaptureUploads(SpoolFolder(folder), self.store, self.clock)

    def write(self, *events: str, target: SpoolTarget = TARGET, worker: int = 1) -> Spool:
        writer = spool(self.folder / f"gateway-{worker}", LIMITS)
        parts = [record_prefix(record_head(inference_id=it), 0, 0) for it in events]
        size = sum(map(len, parts))
        batch = SpoolBatch(target=target, parts=parts, num_records=len(events), num_bytes=size)
        writer.append([batch], self.clock.now())
        return writer

    def look(self, after_s: float = 0.0) -> CaptureCounts | None:
        self.clock.advance(after_s)
        asyncio.run(self.uploads.look())
        return self.uploads.counts().get(KEY)

    @property
    def files(self) -> list[str]:
        return sorted(it.suffix for it in self.folder.glob("*/*"))


def test_closed_files_of_every_worker_become_objects_and_go(tmp_path: Path) -> None:
    at = Uploading(tmp_path)
    for worker in (1, 2):
        at.write("a", "b", worker=worker).close()
    writer = at.write("still open")
    counted = at.look()
    assert counted == CaptureCounts(objects=2, upload_cause="", uploaded_at=AT)
    assert [it.count(b"\n") for it in at.store.objects.values()] == [2, 2]
    assert all(it.startswith("s3://seen/here/e/v/2023/11/14/22/13-20-") for it in at.store.objects)
    assert at.files == [".records"]
    writer.close()
    at.look()
    assert at.files == []


def test_what_a_killed_writer_left_is_uploaded_but_for_a_torn_record(tmp_path: Path) -> None:
    at = Uploading(tmp_path)
    at.write("whole").close()
    (path,) = tmp_path.glob("*/*.records")
    with path.open("ab") as file:
        file.write(record_prefix(record_head(inference_id="torn"), 100, 0))
    at.look()
    (lines,) = at.store.objects.values()
    assert b"whole" in lines
    assert b"torn" not in lines


def test_a_file_without_a_record_is_no_object(tmp_path: Path) -> None:
    at = Uploading(tmp_path)
    at.write().close()
    at.look()
    assert (at.store.objects, at.files) == ({}, [])


def test_a_file_that_cannot_be_read_is_set_aside(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    at = Uploading(tmp_path)
    (tmp_path / "gateway-1").mkdir()
    (tmp_path / "gateway-1" / "a-1.records").write_bytes(b"\xff" * 100)
    at.write("good").close()
    with caplog.at_level(logging.ERROR):
        at.look()
        at.look(1.0)
    assert len(at.store.objects) == 1
    assert at.files == [".broken"]
    assert len(caplog.records) == 1


def test_a_store_that_is_down_is_asked_once_then_less_and_less_often(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    at = Uploading(tmp_path)
    at.store.failing["s3://"] = DOWN
    for number in range(3):
        at.write(str(number)).close()
    asked = []
    with caplog.at_level(logging.INFO):
        counted = at.look()
        for after_s in (1.0, 4.0, 9.0, 1.0):
            at.look(after_s)
            asked.append(at.store.num_asked)
        at.store.failing.clear()
        at.look(20.0)
    assert counted == CaptureCounts(upload_failures=1, upload_cause="down")
    assert asked == [1, 2, 2, 3]
    assert (len(at.store.objects), at.files) == (3, [])
    assert [it.levelname for it in caplog.records] == ["WARNING", "INFO"]


def test_a_destination_that_fails_holds_up_no_other(tmp_path: Path) -> None:
    at = Uploading(tmp_path)
    at.store.failing["s3://missing/"] = MISSING
    lost = SpoolTarget(key=KEY, capture=replace(TARGET.capture, uri="s3://missing/here"))
    for target in (lost, lost, TARGET, SEALED):
        at.write("a", target=target).close()
    at.look()
    assert at.store.num_asked == 3, "the second file of the bucket waits with the first"
    assert (len(at.store.objects), len(at.files)) == (2, 2)
    assert set(at.store.keys) == {None, "k"}
    at.store.failing.clear()
    assert at.look(5.0) == CaptureCounts(objects=2, upload_cause="", uploaded_at=AT + 5.0)


def test_a_file_is_given_up_after_a_day(tmp_path: Path) -> None:
    at = Uploading(tmp_path)
    at.store.failing["s3://"] = MISSING
    at.write("a", "b").close()
    at.look(KEPT_S)
    assert at.files == [".records"]
    counted = at.look(60.0)
    assert counted is not None
    assert (counted.dropped, counted.upload_failures) == (2, 1)
    assert counted.drop_cause == "not uploaded within a day: no bucket"
    assert at.files == []


def test_a_store_that_is_down_keeps_files_for_longer(tmp_path: Path) -> None:
    at = Uploading(tmp_path)
    at.store.failing["s3://"] = DOWN
    at.write("a").close()
    at.look(2 * KEPT_S)
    assert at.files == [".records"]
