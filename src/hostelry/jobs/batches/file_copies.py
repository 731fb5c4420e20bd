"""Files of a home's folder as the chunks of a database, and back: for `hostelry store copy`."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import sqlalchemy as sa

from hostelry.base.files import sync_folder
from hostelry.jobs.batches.file_folder import FileFolder
from hostelry.jobs.batches.rows import BatchRows
from hostelry.jobs.batches.shared_files import COMMIT_BYTES, insert_chunks, read_chunks
from hostelry.jobs.batches.tables import CHUNKS, UNLISTED
from hostelry.store.database import Database, open_database


def read_files(root: Path, rows: Path, database: Database) -> None:
    """Put the bytes of every file in the folder `root` that the file `rows` knows in `database`.

    Raises OSError, and as databases do.
    """
    if not root.exists():
        return
    with closing(open_database(rows)) as known:
        ids = BatchRows(known).file_ids()
    for path in sorted(it for it in root.iterdir() if it.name in ids):
        start = 0
        for data in _pieces(path):
            with database.write() as connection:
                insert_chunks(connection, path.name, start, data)
            start += len(data)


def write_files(database: Database, root: Path) -> None:
    """Make files in the folder `root` of what is in `database`; others there stay.

    Raises OSError, and as databases do.
    """
    folder = FileFolder(root)
    found = (
        sa.select(CHUNKS.c.file).distinct().where(CHUNKS.c.file.not_in(sa.select(UNLISTED.c.id)))
    )
    for row in database.query(found):
        new = folder.new(row.file, "")
        try:
            for data in read_chunks(database, row.file):
                new.write(data)
            new.complete()
        except BaseException:
            new.drop()
            raise
    sync_folder(root)


def _pieces(path: Path) -> Iterator[bytes]:
    """A file's bytes, in one piece at least."""
    with path.open("rb") as file:
        data = file.read(COMMIT_BYTES)
        yield data
        while data := file.read(COMMIT_BYTES):
            yield data
