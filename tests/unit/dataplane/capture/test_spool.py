"""Spool files: when they are closed, and records dropped because files may not grow."""

import errno
import fcntl
import resource
from pathlib import Path

from msgspec.structs import replace
from tests.cases import case, cases
from tests.unit.dataplane.capture.capture_sample import (
    AT,
    CAPTURE,
    KEY,
    LIMITS,
    TARGET,
    all_records,
    content,
    record_head,
    spool,
)

from hostelry.dataplane.capture.spool import (
    SpoolBatch,
    SpoolTarget,
    is_due,
    remove_unfinished,
    write_all,
)
from hostelry.dataplane.capture.spool_file import record_prefix
from hostelry.domain.data_capture import CaptureCounts


def batch(*bodies: bytes, target: SpoolTarget = TARGET) -> SpoolBatch:
    parts = [part for it in bodies for part in (record_prefix(record_head(), len(it), 0), it)]
    size = sum(map(len, parts))
    return SpoolBatch(target=target, parts=parts, num_records=len(bodies), num_bytes=size)


def is_locked(path: Path) -> bool:
    with path.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


@cases(
    "opened_at, num_bytes, now, due",
    case("young and small", AT, 10, AT + 59.9, False),
    case("old", AT, 10, AT + 60.0, True),
    case("large", AT, 4_000, AT, True),
    case("of a clock that was set back", AT, 10, AT - 1.0, True),
    case("of the hour before", 1_699_999_199.0, 10, 1_699_999_200.0, True),
)
def test_a_file_is_closed(opened_at: float, num_bytes: int, now: float, due: bool) -> None:
    assert is_due(opened_at, num_bytes, now, LIMITS) is due


def test_a_file_is_locked_private_and_whole_until_it_is_closed(tmp_path: Path) -> None:
    folder = tmp_path / "gateway-1"
    writer = spool(folder)
    (counted,) = writer.append([batch(b"one", b"two")], AT)
    assert (counted.captured, counted.dropped) == (2, 0)
    (path,) = folder.iterdir()
    assert is_locked(path)
    assert (path.stat().st_mode & 0o777, folder.stat().st_mode & 0o777) == (0o600, 0o700)
    writer.append([batch(b"three")], AT + 30.0)
    writer.append([], AT + 60.0)
    assert not is_locked(path)
    assert not writer.has_open
    writer.append([batch(b"four")], AT + 61.0)
    assert [it.input for it in all_records(folder)] == [b"one", b"two", b"three", b"four"]
    assert content(path)[0].object_uri.startswith("s3://seen/here/e/v/2023/11/14/22/13-20-000-")


def test_each_variant_and_each_capture_has_a_file(tmp_path: Path) -> None:
    other = SpoolTarget(key=replace(KEY, variant_name="w"), capture=CAPTURE)
    moved = SpoolTarget(key=KEY, capture=replace(CAPTURE, uri="s3://other/there"))
    writer = spool(tmp_path)
    writer.append([batch(b"1"), batch(b"2", target=other), batch(b"3", target=moved)], AT)
    assert len(list(tmp_path.iterdir())) == 3


def test_few_files_are_open_at_once(tmp_path: Path) -> None:
    writer = spool(tmp_path, replace(LIMITS, max_open=2))
    for name in "abc":
        target = SpoolTarget(key=replace(KEY, variant_name=name), capture=CAPTURE)
        writer.append([batch(b"1", target=target)], AT)
    assert sorted(map(is_locked, tmp_path.iterdir())) == [False, True, True]


def test_an_endpoint_has_a_quarter_until_its_files_are_uploaded(tmp_path: Path) -> None:
    writer = spool(tmp_path)
    large = b"x" * 6_000
    other = SpoolTarget(key=replace(KEY, endpoint_name="f"), capture=CAPTURE)
    first, second, elsewhere = writer.append(
        [batch(large), batch(large), batch(large, target=other)], AT
    )
    assert (first.captured, second.dropped, elsewhere.captured) == (1, 1, 1)
    assert second.drop_cause is not None
    assert "wait to be uploaded" in second.drop_cause
    for path in tmp_path.iterdir():
        path.unlink()
    (again,) = writer.append([batch(large)], AT + 1.0)
    assert again.captured == 1


def test_a_disk_without_room_is_left_alone(tmp_path: Path) -> None:
    writer = spool(tmp_path, replace(LIMITS, min_free_bytes=1 << 60))
    (counted,) = writer.append([batch(b"1", b"2")], AT)
    assert (counted.captured, counted.dropped) == (0, 2)
    assert "the disk has less than" in (counted.drop_cause or "")


def test_a_write_that_fails_leaves_whole_records_only(tmp_path: Path) -> None:
    writer = spool(tmp_path)
    writer.append([batch(b"kept")], AT)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    (path,) = tmp_path.iterdir()
    resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 100, hard))
    try:
        (counted,) = writer.append([batch(b"x" * 3_000)], AT)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    text = f"the spool file cannot be written: {OSError(errno.EFBIG, 'File too large').strerror}"
    assert counted == CaptureCounts(dropped=1, drop_cause=text)
    writer.append([batch(b"after")], AT)
    assert [it.input for it in all_records(tmp_path)] == [b"kept", b"after"]


def test_a_folder_that_cannot_be_made_drops_with_the_reason(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    (counted,) = spool(tmp_path / "file" / "gateway-1").append([batch(b"1")], AT)
    assert (counted.dropped, counted.captured) == (1, 0)
    assert "Not a directory" in (counted.drop_cause or "")


def test_files_without_a_head_are_removed_at_the_start(tmp_path: Path) -> None:
    (tmp_path / "a-1.new").write_bytes(b"")
    (tmp_path / "a-2.records").write_bytes(b"")
    remove_unfinished(tmp_path)
    assert [it.name for it in tmp_path.iterdir()] == ["a-2.records"]


def test_large_and_small_parts_are_written_in_their_order(tmp_path: Path) -> None:
    parts = [b"a" * 10, b"b" * 300_000, b"c", b"d" * 200_000, b"e" * 100_000]
    with (tmp_path / "file").open("wb") as file:
        write_all(file.fileno(), parts)
    assert (tmp_path / "file").read_bytes() == b"".join(parts)
