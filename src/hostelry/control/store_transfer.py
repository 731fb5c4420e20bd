"""`hostelry store copy`: everything durable of a platform, from one store to another."""

import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import msgspec
import sqlalchemy as sa
from sqlalchemy import Connection, MetaData

from hostelry.base.errors import TerminalError, UsageError
from hostelry.base.files import sync_folder
from hostelry.base.user import expanded
from hostelry.control import audit, data
from hostelry.control.audit import AuditLog, AuditRows
from hostelry.control.data import MetricRows
from hostelry.home.cut_off_copy import is_marked, mark, refuse_marked, unmark
from hostelry.home.home import Home, load_credentials
from hostelry.home.run_file import kind_of, live_run_files, only_one
from hostelry.jobs.batches import tables as batch_tables
from hostelry.jobs.batches.file_copies import read_files, write_files
from hostelry.jobs.batches.tables import METADATA as BATCHES
from hostelry.jobs.transform.object_rows import OBJECTS
from hostelry.messaging.tables import METADATA as MESSAGES
from hostelry.metrics.persistence.journal import (
    SEGMENT,
    SNAPSHOT,
    FrameFile,
    framed,
    numbered,
    read_frames,
)
from hostelry.metrics.persistence.journal_rows import PartKind
from hostelry.metrics.persistence.shared import PART_BYTES, journal_part
from hostelry.store.claim import claim_of
from hostelry.store.copying import CopiedTable, Report, copy_tables, has_rows
from hostelry.store.database import Database, open_database
from hostelry.store.in_use import refuse_if_used
from hostelry.store.schema import migrate
from hostelry.store.tables import COUNTER
from hostelry.store.tables import METADATA as RECORDS


@dataclass(frozen=True, slots=True)
class DurableTables:
    """Tables, and the file that has them in a home."""

    metadata: MetaData
    file_of: Callable[[Home], Path]


# The store's own come first: a copy commits them last, and its target is in use by then only.
DURABLE = (
    DurableTables(RECORDS, lambda home: home.state),
    DurableTables(MESSAGES, lambda home: home.messages),
    DurableTables(OBJECTS.metadata, lambda home: home.jobs),  # the queue's, too
    DurableTables(BATCHES, lambda home: home.jobs),
)


# Files of a home as tables of a database. `hostelry store copy` reads the files of both sides into
# a scratch database, copies tables, and writes files for the target.


HISTORIES = sa.MetaData()
for _metadata in (data.METADATA, audit.METADATA, batch_tables.SHARED):
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
            connection.execute(sa.insert(audit.AUDIT), found)


ALL_TABLES = (*(it.metadata for it in DURABLE), HISTORIES)
TIMEOUT_S = 600.0  # of one statement: a large table is read, or emptied, by one


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreSide:
    """One side of a copy: its databases by what they hold, and the cluster that they belong to."""

    name: str
    databases: tuple[tuple[MetaData, Database], ...]
    cluster_id: str | None
    home: Home | None = None  # whose files the databases are, of the last one its histories
    is_cut_off: bool = False  # an earlier copy to it has replaced a part


def copy_store(
    source_place: str, target_place: str, *, replace: bool, report: Report
) -> list[CopiedTable]:
    """Copy every table; the target has all of it or, after any failure or kill, what it had.

    A home whose files were being replaced meanwhile is marked (`cut_off_copy`): it is used by no
    one until it was copied to again, for which `replace` is not needed.

    Raises TerminalError where either is in use, where they are the same or another cluster's, and
    where the target has rows already and `replace` is false.
    """
    with store_side(source_place) as source, store_side(target_place) as target:
        if source.home is not None:
            refuse_marked(source.home)
        if source.name == target.name:
            raise UsageError(f"--from and --to are both {source.name}")
        if target.cluster_id not in (None, source.cluster_id or target.cluster_id):
            raise TerminalError(
                f"the store {target.name} belongs to another cluster than {source.name}; if that"
                " is gone for good, `hostelry store release` gives it up"
            )
        copied = _copy(source, target, replace=replace or target.is_cut_off, report=report)
        if target.home is not None:
            unmark(target.home)
        return copied


@contextmanager
def store_side(place: str) -> Iterator[StoreSide]:
    """A URL's database or a home's files, for the block, in which no platform starts on a home."""
    with ExitStack() as stack:
        if "://" in place:
            database = open_database(place, timeout_s=TIMEOUT_S)
            stack.callback(database.close)
            with database.write() as connection:
                migrate(connection)
            found = claim_of(database)
            yield StoreSide(
                name=database.place,
                databases=tuple((it, database) for it in ALL_TABLES),
                cluster_id=found.cluster_id if found else None,
            )
            return
        home = Home(expanded(place).absolute())
        if not home.credentials.exists():
            raise TerminalError(f"there is no hostelry in {home.root} yet: run `hostelry up` once")
        stack.enter_context(only_one(home))
        running = sorted({kind_of(it.name) for it in live_run_files(home)} & {"control", "jobs"})
        if running:
            raise TerminalError(
                f"{' and '.join(running)} of {home.root} still run: `hostelry down` ends them"
            )
        databases, opened = [], dict[Path, Database]()
        for tables in DURABLE:
            path = tables.file_of(home)
            if path not in opened:
                opened[path] = open_database(path)
                stack.callback(opened[path].close)
            databases.append((tables.metadata, opened[path]))
        histories = stack.enter_context(histories_of(home))
        databases.append((HISTORIES, histories))
        with databases[0][1].write() as connection:
            migrate(connection)
        yield StoreSide(
            name=str(home.root),
            databases=tuple(databases),
            cluster_id=load_credentials(home).cluster_id,
            home=home,
            is_cut_off=is_marked(home),
        )


def _copy(
    source: StoreSide, target: StoreSide, *, replace: bool, report: Report
) -> list[CopiedTable]:
    copied: list[CopiedTable] = []
    with ExitStack() as stack:
        # Left in reverse: the store's own tables are committed last.
        reading = _transactions(stack, source, write=False)
        writing = _transactions(stack, target, write=True)
        sides = zip(source.databases, target.databases, strict=True)
        pairs = [
            (metadata, reading[id(theirs)], writing[id(ours)])
            for (metadata, theirs), (_, ours) in sides
        ]
        for metadata, _, ours in pairs:
            metadata.create_all(ours)
            if not replace and has_rows(ours, metadata, apart_from=COUNTER):
                raise TerminalError(
                    f"the store {target.name} is not empty; --replace overwrites all that it has"
                )
        for metadata, theirs, ours in pairs:
            copied += copy_tables(theirs, ours, metadata, report)
    return copied


def _transactions(stack: ExitStack, side: StoreSide, *, write: bool) -> dict[int, Connection]:
    """One transaction a database, none of which a running platform uses."""
    found: dict[int, Connection] = {}
    for _, database in side.databases:
        if write and side.home is not None and database is side.databases[-1][1]:
            stack.enter_context(_then(partial(save_histories, database, side.home)))
        if id(database) not in found:
            begun = database.write() if write else database.read()
            found[id(database)] = stack.enter_context(begun)
            refuse_if_used(found[id(database)], side.name)
    return found


@contextmanager
def _then(act: Callable[[], None]) -> Iterator[None]:
    """Act at the end of the block, unless that raises."""
    yield
    act()
