"""`hostelry store copy`: everything durable of a platform, from one store to another."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from sqlalchemy import Connection, MetaData

from hostelry.base.errors import TerminalError, UsageError
from hostelry.base.user import expanded
from hostelry.control.durable_tables import DURABLE
from hostelry.control.file_histories import HISTORIES, histories_of, save_histories
from hostelry.home.cut_off_copy import is_marked, refuse_marked, unmark
from hostelry.home.home import Home, load_credentials
from hostelry.home.run_file import kind_of, live_run_files, only_one
from hostelry.store.claim import claim_of
from hostelry.store.copying import CopiedTable, Report, copy_tables, has_rows
from hostelry.store.database import Database, open_database
from hostelry.store.in_use import refuse_if_used
from hostelry.store.schema import migrate
from hostelry.store.tables import COUNTER

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
