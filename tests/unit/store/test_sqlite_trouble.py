"""The cause for which a file cannot be written, reported until it can be again."""

from pathlib import Path

import pytest
import sqlalchemy as sa

from hostelry.store.protocol import StoreUnavailable
from hostelry.store.sqlite import SqliteFile

ROWS = sa.Table("row", sa.MetaData(), sa.Column("body", sa.LargeBinary))
LARGE = bytes(100_000)


def limit_pages(file: SqliteFile, most: int) -> None:
    """Limit the file to this number of pages. Above it, SQLite reports a full disk."""
    with file.read() as connection:
        connection.exec_driver_sql(f"PRAGMA max_page_count={most}")


def add(file: SqliteFile, body: bytes) -> None:
    with file.write() as connection:
        connection.execute(sa.insert(ROWS), {"body": body})


def test_the_cause_is_kept_until_a_change_is_made(tmp_path: Path) -> None:
    file = SqliteFile(tmp_path / "jobs.db")
    with file.write() as connection:
        ROWS.create(connection)
    limit_pages(file, 8)
    assert file.trouble is None
    with pytest.raises(StoreUnavailable, match="the disk is full"):
        add(file, LARGE)
    with file.write() as connection:
        connection.execute(sa.delete(ROWS))  # changes nothing, and so needs no room
    assert "the disk is full" in (file.trouble or "")
    limit_pages(file, 1000)
    add(file, LARGE)
    assert file.trouble is None
    file.close()


def test_a_change_that_the_database_refuses_is_no_trouble_of_the_file(tmp_path: Path) -> None:
    file = SqliteFile(tmp_path / "jobs.db")
    with pytest.raises(StoreUnavailable):
        add(file, b"there is no such table")
    assert file.trouble is None
    file.close()
