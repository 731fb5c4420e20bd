"""`hostelry store copy`: copy all durable data of a platform from one store to another.

The files of a home are first read into tables of a scratch database, so that only tables need to be
copied. If the target is a home, tables are written back to files.
"""

import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

import msgspec
import sqlalchemy as sa
from sqlalchemy import Connection, MetaData

from hostelry.audit import former
from hostelry.audit import rows as audit_rows
from hostelry.audit.transfer import read_folder, write_folder
from hostelry.base.errors import TerminalError, UsageError
from hostelry.base.files import expand_user, sync_folder
from hostelry.control import data
from hostelry.control.data import MetricRows
from hostelry.home.cut_off_copy import is_marked, mark, refuse_marked, unmark
from hostelry.home.home import Home, load_credentials
from hostelry.home.run_file import get_service_kind, live_run_files, lock_home
from hostelry.jobs.batches import rows as batch_tables
from hostelry.jobs.batches.rows import METADATA as BATCHES
from hostelry.jobs.batches.shared_files import read_files, write_files
from hostelry.jobs.transform.object_rows import OBJECTS
from hostelry.messaging.tables import METADATA as MESSAGES
from hostelry.metrics.persistence.journal import (
    SEGMENT,
    SNAPSHOT,
    FrameFile,
    PartKind,
    build_frame,
    list_numbered,
    read_frames,
)
from hostelry.metrics.persistence.shared import PART_BYTES, journal_part
from hostelry.store.claim import get_claim
from hostelry.store.copying import CopiedTable, Report, copy_tables, has_rows
from hostelry.store.database import Database, open_database
from hostelry.store.schema import migrate, refuse_if_used
from hostelry.store.tables import COUNTER
from hostelry.store.tables import METADATA as RECORDS


class DurableTables(msgspec.Struct, frozen=True):
    """Tables, and the file that has them in a home."""

    metadata: MetaData
    file_of: Callable[[Home], Path]


# The store's own tables come first, because they are committed last. The target is used after that.
DURABLE = (
    DurableTables(RECORDS, lambda home: home.state),
    DurableTables(MESSAGES, lambda home: home.messages),
    DurableTables(OBJECTS.metadata, lambda home: home.jobs),  # the queue's, too
    DurableTables(BATCHES, lambda home: home.jobs),
    DurableTables(audit_rows.MARKS, lambda home: home.state),
)


HISTORIES = sa.MetaData()
for _metadata in (
    data.METADATA, audit_rows.RECORDS, former.METADATA, batch_tables.SHARED,
):  # fmt: skip
    for _table in _metadata.sorted_tables:
        _table.to_metadata(HISTORIES)
FORMS = ((SEGMENT, PartKind.SEGMENT), (SNAPSHOT, PartKind.SNAPSHOT))
ALL_TABLES = (*(it.metadata for it in DURABLE), HISTORIES)
TIMEOUT_S = 600.0  # for one statement, which may read or empty a large table


@contextmanager
def load_histories(home: Home) -> Iterator[Database]:
    """Read the home's histories and files into a scratch database, which exists during the block.

    Raises TerminalError if they cannot be read.
    """
    folder = home.root / "store-copy"
    with ExitStack() as stack:
        with _explain_errors(home):
            shutil.rmtree(folder, ignore_errors=True)  # left by a killed copy
            folder.mkdir(mode=0o700)
            stack.callback(shutil.rmtree, folder, ignore_errors=True)
            database = open_database(folder / "histories.db")
            stack.callback(database.close)
            database.create(HISTORIES)
            _read_metrics(home.metrics, MetricRows(database))
            read_folder(home.audit, database)
            former.read_files(home.former_audit, database)
            read_files(home.files, home.jobs, database)
        yield database


def save_histories(database: Database, home: Home) -> None:
    """Replace the home's histories and files by those in `database`.

    The metrics' folder is written next to the old folder. Then the home is marked as incomplete
    (`cut_off_copy`) while its files change. The caller commits the home's databases and then
    removes the mark. Raises TerminalError.
    """
    folder = home.metrics.with_name("metrics.copied")
    trail = home.audit.with_name("audit.copied")
    with _explain_errors(home):
        for scratch in (folder, trail):
            shutil.rmtree(scratch, ignore_errors=True)
        _write_metrics(MetricRows(database), folder)
        write_folder(database, trail)
        mark(home)
        write_files(database, home.files)
        former.write_file(database, home.former_audit)
        for scratch, place in ((folder, home.metrics), (trail, home.audit)):
            if place.exists():
                shutil.rmtree(place)
            scratch.rename(place)
        sync_folder(home.root)


@contextmanager
def _explain_errors(home: Home) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise TerminalError(f"metrics, audit log or files of {home.root}: {error}") from error


def _read_metrics(folder: Path, rows: MetricRows) -> None:
    if not folder.exists():
        return
    for form, kind in FORMS:
        for number, path in list_numbered(folder, form).items():
            part, body = 0, bytearray()
            for frame in read_frames(path):
                body += build_frame(frame)
                if len(body) >= PART_BYTES:
                    rows.write(kind, number, part, bytes(body), {})
                    part += 1
                    body.clear()
            if body:
                rows.write(kind, number, part, bytes(body), {})


def _write_metrics(rows: MetricRows, folder: Path) -> None:
    folder.mkdir(mode=0o700)
    forms = {kind: form for form, kind in FORMS}
    for parts in rows.list_parts():
        if parts.kind in forms:
            file = FrameFile(folder / forms[parts.kind].format(parts.number))
            try:
                for frame in journal_part(rows, parts).frames():
                    file.append(frame)
                file.sync()
            finally:
                file.close()
    sync_folder(folder)


class StoreSide(msgspec.Struct, frozen=True, kw_only=True):
    """One side of a copy: its databases by their tables, and its cluster.

    `home` is the home that has the files of the databases. Its histories are the last database.
    """

    name: str
    databases: tuple[tuple[MetaData, Database], ...]
    cluster_id: str | None
    home: Home | None = None
    is_cut_off: bool = False  # an earlier copy to this side is incomplete


def copy_store(
    source_place: str, target_place: str, *, replace: bool, report: Report
) -> list[CopiedTable]:
    """Copy every table. A failure or kill leaves the target as before, or marked as incomplete.

    A home is marked (`cut_off_copy`) while its files are replaced. A marked home cannot start until
    another copy to it succeeds. This copy does not need `replace`.

    Raises TerminalError if a side is in use, if both sides are the same or belong to different
    clusters, and if the target has rows and `replace` is false.
    """
    with open_side(source_place) as source, open_side(target_place) as target:
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
def open_side(place: str) -> Iterator[StoreSide]:
    """Open the database of a URL, or the files of a home, which no platform can start meanwhile."""
    with ExitStack() as stack:
        if "://" in place:
            database = open_database(place, timeout_s=TIMEOUT_S)
            stack.callback(database.close)
            with database.write() as connection:
                migrate(connection)
            found = get_claim(database)
            yield StoreSide(
                name=database.place,
                databases=tuple((it, database) for it in ALL_TABLES),
                cluster_id=found.cluster_id if found else None,
            )
            return
        home = Home(expand_user(place).absolute())
        if not home.credentials.exists():
            raise TerminalError(f"there is no hostelry in {home.root} yet: run `hostelry up` once")
        stack.enter_context(lock_home(home))
        running = sorted(
            {get_service_kind(it.name) for it in live_run_files(home)} & {"control", "jobs"}
        )
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
        histories = stack.enter_context(load_histories(home))
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
        # The stack commits in reverse order, so the store's own tables are committed last.
        reading = _begin_transactions(stack, source, write=False)
        writing = _begin_transactions(stack, target, write=True)
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


def _begin_transactions(stack: ExitStack, side: StoreSide, *, write: bool) -> dict[int, Connection]:
    """Begin a transaction in each database. Raises TerminalError if a platform uses the store."""
    found: dict[int, Connection] = {}
    for _, database in side.databases:
        if write and side.home is not None and database is side.databases[-1][1]:
            stack.enter_context(_act_after(partial(save_histories, database, side.home)))
        if id(database) not in found:
            begun = database.write() if write else database.read()
            found[id(database)] = stack.enter_context(begun)
            refuse_if_used(found[id(database)], side.name)
    return found


@contextmanager
def _act_after(act: Callable[[], None]) -> Iterator[None]:
    """Call `act` at the end of the block, unless the block raises."""
    yield
    act()
