"""The audit log of versions before the trail: acts in files or a table, which the trail takes."""

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
import sqlalchemy as sa

from hostelry.audit.acts import AuditEntry, build_act_event
from hostelry.audit.trail import AuditTrail
from hostelry.base.files import write_whole
from hostelry.base.ids import new_uuid
from hostelry.base.json import decode
from hostelry.store.database import Database
from hostelry.store.tables import OPAQUE_TEXT

METADATA = sa.MetaData()
AUDIT = sa.Table(
    "audit_entry",
    METADATA,
    # SQLite assigns row numbers only if the type is INTEGER.
    sa.Column(
        "number",
        sa.BigInteger().with_variant(sa.Integer(), "sqlite"),
        primary_key=True,
        autoincrement=True,
    ),
    sa.Column("endpoint", OPAQUE_TEXT, nullable=False),
    sa.Column("entry", sa.LargeBinary, nullable=False),
    sa.Index("audit_entry_endpoint", "endpoint", "number"),
)
ALL = 2**31
AT_ONCE = 1000


def take_former_files(trail: AuditTrail, path: Path) -> None:
    """Take the acts of ``audit.jsonl`` and ``audit.1.jsonl`` into the trail, and remove the files.

    A repetition after a kill takes none twice. Raises OSError.
    """
    files = _list_files(path)
    lines = [line for file in files for line in _read_lines(file)]
    if lines:
        take_entries(trail, list(_read_entries(lines)))
    for file in files:
        file.unlink(missing_ok=True)


def take_former_rows(trail: AuditTrail, database: Database) -> None:
    """Take the acts of the table into the trail, and remove the rows. Raises OSError."""
    database.create(METADATA)
    rows = database.query(sa.select(AUDIT.c.number, AUDIT.c.entry).order_by(AUDIT.c.number))
    if not rows:
        return
    take_entries(trail, list(_read_entries([bytes(it.entry) for it in rows])))
    with database.write() as connection:
        connection.execute(sa.delete(AUDIT).where(AUDIT.c.number <= rows[-1].number))


def read_files(path: Path, database: Database) -> None:
    """Copy the acts of files to the table."""
    database.create(METADATA)
    entries = list(
        _read_entries([line for file in _list_files(path) for line in _read_lines(file)])
    )
    rows = [{"endpoint": it.endpoint, "entry": msgspec.json.encode(it)} for it in entries]
    if rows:
        with database.write() as connection:
            connection.execute(sa.insert(AUDIT), rows)


def write_file(database: Database, path: Path) -> None:
    """Replace the files by one with the acts of the table, or by none if it has no acts."""
    rows = database.query(sa.select(AUDIT.c.entry).order_by(AUDIT.c.number))
    for file in _list_files(path):
        file.unlink(missing_ok=True)
    if rows:
        write_whole(path, b"".join(bytes(it.entry) + b"\n" for it in rows))


def take_entries(trail: AuditTrail, entries: Sequence[AuditEntry]) -> None:
    """Add the acts that the trail does not have, in their order. Raises OSError."""
    known = set(trail.newest(ALL))
    new = [it for it in entries if it not in known]
    events = [(build_act_event(it, trail.owner, new_uuid()), it.at) for it in new]
    for first in range(0, len(events), AT_ONCE):
        trail.record_all(events[first : first + AT_ONCE])


def _read_entries(lines: Sequence[bytes]) -> Iterator[AuditEntry]:
    """The acts of lines. Unreadable lines, for example after a power cut, are left out."""
    for line in lines:
        with contextlib.suppress(msgspec.MsgspecError, UnicodeDecodeError):
            yield decode(line, AuditEntry)


def _list_files(path: Path) -> list[Path]:
    """The files, the one with the older acts first."""
    return [path.with_name(f"{path.stem}.1{path.suffix}"), path]


def _read_lines(path: Path) -> list[bytes]:
    try:
        return path.read_bytes().split(b"\n")
    except FileNotFoundError:
        return []
