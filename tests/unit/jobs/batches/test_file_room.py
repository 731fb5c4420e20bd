"""The limit of the bytes of an account's files."""

from pathlib import Path

import pytest

from hostelry.base.errors import ServiceError
from hostelry.domain.llm_batch import StoredFile
from hostelry.domain.scope import Scope
from hostelry.jobs.batches.openai_api import FileRoom
from hostelry.jobs.batches.rows import BatchRows
from hostelry.store.sqlite import SqliteFile

MAX_BYTES = 100
MINE, THEIRS = "111122223333", "999999999999"


@pytest.fixture
def room(tmp_path: Path) -> FileRoom:
    return FileRoom(BatchRows(SqliteFile(tmp_path / "jobs.db")), MAX_BYTES)


def stored(id: str, num_bytes: int, account: str = MINE) -> StoredFile:
    return StoredFile(
        id=id,
        scope=Scope(account, "us-east-1"),
        filename="in.jsonl",
        purpose="batch",
        num_bytes=num_bytes,
        created_at=1.0,
        expires_at=None,
    )


def uploaded(room: FileRoom, id: str, num_bytes: int, account: str = MINE) -> None:
    upload = room.open_upload(account)
    try:
        upload.add(num_bytes)
        upload.keep(stored(id, num_bytes, account))
    finally:
        upload.close()


def test_files_are_kept_up_to_the_limit_and_again_once_one_is_deleted(room: FileRoom) -> None:
    uploaded(room, "a", 60)
    uploaded(room, "b", 40)
    with pytest.raises(ServiceError, match="have 100 bytes, and may have 100") as refused:
        room.open_upload(MINE)
    assert (refused.value.http_status, refused.value.code) == (413, "storage_limit_exceeded")
    uploaded(room, "c", 100, THEIRS)
    room.rows.delete_file(MINE, "b")
    uploaded(room, "d", 40)
    assert room.rows.count_bytes(MINE) == 100


def test_an_upload_is_refused_as_soon_as_it_has_no_room_and_leaves_nothing(room: FileRoom) -> None:
    uploaded(room, "a", 60)
    upload = room.open_upload(MINE)
    upload.add(40)
    with pytest.raises(ServiceError, match="have 60 bytes"):
        upload.add(1)
    upload.close()
    upload.close()
    uploaded(room, "b", 40)


def test_uploads_at_once_share_the_room(room: FileRoom) -> None:
    one, other = room.open_upload(MINE), room.open_upload(MINE)
    one.add(60)
    with pytest.raises(ServiceError, match="have 60 bytes"):
        other.add(41)
    other.close()
    one.keep(stored("a", 60))
    one.close()


def test_room_that_another_file_took_meanwhile_is_not_given_twice(room: FileRoom) -> None:
    slow = room.open_upload(MINE)
    uploaded(room, "a", 60)
    slow.add(50)
    with pytest.raises(ServiceError, match="have 60 bytes"):
        slow.keep(stored("b", 50))
    slow.close()
    assert room.rows.get_file(MINE, "b") is None
