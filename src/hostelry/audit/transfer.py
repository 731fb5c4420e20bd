"""Moves a trail between the files of a folder and the table of a database, line by line."""

from pathlib import Path

import msgspec
import sqlalchemy as sa

from hostelry.audit.chain import SEAL_START, parse_line
from hostelry.audit.file_writer import MAX_FILE_BYTES, name_file
from hostelry.audit.folder import TrailFolder
from hostelry.audit.rows import RECORD, RECORDS, RowReader
from hostelry.base.files import sync_folder, write_whole
from hostelry.store.database import Database


def read_folder(folder: Path, database: Database) -> None:
    """Copy the records of files to the table. Other lines are left out."""
    database.create(RECORDS)
    total = 0
    for _, lines in TrailFolder(folder).read_forwards():
        rows = []
        for line in lines:
            if line.startswith(SEAL_START):
                continue
            try:
                record = parse_line(line)
            except (msgspec.MsgspecError, UnicodeDecodeError):
                continue
            total += len(line)
            place = {"number": record.number, "at": record.at, "source": record.source}
            rows.append({**place, "total": total, "line": line})
        if rows:
            with database.write() as connection:
                connection.execute(sa.insert(RECORD), rows)


def write_folder(database: Database, folder: Path) -> None:
    """Write the records of the table to files of a new folder. The writer seals them later."""
    folder.mkdir(mode=0o700)
    first, size, lines = 0, 0, list[bytes]()
    for _, found in RowReader(database).read_forwards():
        for line in found:
            if lines and size + len(line) >= MAX_FILE_BYTES:
                write_whole(folder / name_file(first), b"".join(lines))
                size, lines = 0, []
            if not lines:
                first = parse_line(line).number
            size += len(line) + 1
            lines.append(line + b"\n")
    if lines:
        write_whole(folder / name_file(first), b"".join(lines))
    sync_folder(folder)
