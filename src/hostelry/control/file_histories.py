"""Files of a home as the tables of a database: histories, and those of OpenAI's API.

`hostelry store copy` reads the files of both its sides into a scratch database, copies tables, and
makes files of the target's.
"""

import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import msgspec
import sqlalchemy as sa

from hostelry.base.errors import TerminalError
from hostelry.base.private_file import sync_folder
from hostelry.control import audit_rows, metric_rows
from hostelry.control.audit_log import AuditLog
from hostelry.control.audit_rows import AuditRows
from hostelry.control.metric_rows import MetricRows
from hostelry.home.cut_off_copy import mark
from hostelry.home.home import Home
from hostelry.jobs.batches import tables as batch_tables
from hostelry.jobs.batches.file_copies import read_files, write_files
from hostelry.metrics.persistence.frames import FrameFile, framed, read_frames
from hostelry.metrics.persistence.journal import SEGMENT, SNAPSHOT, numbered
from hostelry.metrics.persistence.journal_rows import PartKind
from hostelry.metrics.persistence.shared import PART_BYTES, journal_part
from hostelry.store.database import Database, open_database

HISTORIES = sa.MetaData()
for _metadata in (metric_rows.METADATA, audit_rows.METADATA, batch_tables.SHARED):
    for _table in _metadata.sorted_tables:
        _table.to_metadata(HISTORIES)
FORMS = ((SEGMENT, PartKind.SEGMENT), (SNAPSHOT, PartKind.SNAPSHOT))
ALL_ENTRIES = 2**31


@contextmanager
def histories_of(home: Home) -> Iterator[Database]:
    """A scratch database with the home's histories and the bytes of its files, for the block.

    Raises TerminalError where they cannot be read.
    """
    folder = home.root / "store-copy"
    with ExitStack() as stack:
        with _explained(home):
            shutil.rmtree(folder, ignore_errors=True)  # of a copy that was killed
            folder.mkdir(mode=0o700)
            stack.callback(shutil.rmtree, folder, ignore_errors=True)
            database = open_database(folder / "histories.db")
            stack.callback(database.close)
            database.create(HISTORIES)
            _read_metrics(home.metrics, MetricRows(database))
            _read_audit(home.audit, database)
            read_files(home.files, home.jobs, database)
        yield database


def save_histories(database: Database, home: Home) -> None:
    """Make `database`'s histories and files the home's own, in place of what it had.

    The metrics' folder is written beside the old one. Then the home is marked: from now on it is
    no more what it was, and its databases are to be committed before it is unmarked. Raises
    TerminalError.
    """
    folder = home.metrics.with_name("metrics.copied")
    with _explained(home):
        shutil.rmtree(folder, ignore_errors=True)
        _write_metrics(MetricRows(database), folder)
        mark(home)
        write_files(database, home.files)
        AuditLog(home.audit).replace(AuditRows(database).newest(ALL_ENTRIES))
        if home.metrics.exists():
            shutil.rmtree(home.metrics)
        folder.rename(home.metrics)
        sync_folder(home.root)


@contextmanager
def _explained(home: Home) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise TerminalError(f"metrics, audit log or files of {home.root}: {error}") from error


def _read_metrics(folder: Path, rows: MetricRows) -> None:
    if not folder.exists():
        return
    for form, kind in FORMS:
        for number, path in numbered(folder, form).items():
            part, body = 0, bytearray()
            for frame in read_frames(path):
                body += framed(frame)
                if len(body) >= PART_BYTES:
                    rows.write(kind, number, part, bytes(body), {})
                    part += 1
                    body.clear()
            if body:
                rows.write(kind, number, part, bytes(body), {})


def _write_metrics(rows: MetricRows, folder: Path) -> None:
    folder.mkdir(mode=0o700)
    forms = {kind: form for form, kind in FORMS}
    for parts in rows.found():
        if parts.kind in forms:
            file = FrameFile(folder / forms[parts.kind].format(parts.number))
            try:
                for frame in journal_part(rows, parts).frames():
                    file.append(frame)
                file.sync()
            finally:
                file.close()
    sync_folder(folder)


def _read_audit(path: Path, database: Database) -> None:
    entries = reversed(AuditLog(path).newest(ALL_ENTRIES))
    found = [{"endpoint": it.endpoint, "entry": msgspec.json.encode(it)} for it in entries]
    if found:
        with database.write() as connection:
            connection.execute(sa.insert(audit_rows.AUDIT), found)
