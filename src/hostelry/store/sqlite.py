"""Durable store: SQLite through SQLAlchemy Core.

Only `sqlite_engine` and the error tables depend on SQLite; all statements are portable, so that
another database needs only another engine.
"""

import os
import sqlite3
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy import ColumnElement, Connection, Engine, Row

from hostelry.base.clock import monotonic_s
from hostelry.base.errors import HostelryError
from hostelry.domain.scope import Scope
from hostelry.store.errors import StoreRefused, StoreUnavailable
from hostelry.store.memory import TOMBSTONES_KEPT, by_name, check_version, check_watchable
from hostelry.store.protocol import Change, Key, Record
from hostelry.store.schema import migrate
from hostelry.store.tables import COUNTER, RECORDS

BUSY_TIMEOUT_S = 10.0
POLL_S = 0.25  # within which a wait notices a write of another process
PRAGMAS = (
    "PRAGMA journal_mode=WAL",
    "PRAGMA synchronous=FULL",
    f"PRAGMA busy_timeout={int(BUSY_TIMEOUT_S * 1000)}",
)
# Primary result codes that a retry cannot cure.
REFUSALS = {
    sqlite3.SQLITE_READONLY: "it is read-only; check the owner and mode of the file and folder",
    sqlite3.SQLITE_PERM: "access is denied; check the owner and mode of the file and folder",
    sqlite3.SQLITE_AUTH: "access is denied; check the owner and mode of the file and folder",
    sqlite3.SQLITE_CANTOPEN: "it cannot be opened; check that the folder exists and is writable",
    sqlite3.SQLITE_NOTADB: "it is not a database; move the file away, or use another home folder",
    sqlite3.SQLITE_CORRUPT: "it is damaged; restore a backup, or use another home folder",
}
TROUBLES = {
    sqlite3.SQLITE_FULL: "the disk is full; free some space",
    sqlite3.SQLITE_BUSY: f"another process held it for {BUSY_TIMEOUT_S:.0f} s",
    sqlite3.SQLITE_IOERR: "the disk failed to read or write; check its space and health",
}


class SqliteFile:
    """One SQLite file, readable by its owner only; thread-safe, every commit is synced.

    Raises StoreRefused where it cannot be opened, StoreUnavailable where a transaction cannot be
    done now; in both cases nothing was changed. `trouble` is why the last change could not be made,
    and None once one is made again.
    """

    def __init__(self, path: Path | str) -> None:
        self.trouble: str | None = None
        self._path = Path(path)
        self._writing = threading.Lock()  # SQLite's own waiting sleeps, which keeps writers apart
        with suppress(OSError):  # the following open reports it
            # SQLite gives the file's companions the same mode.
            os.close(os.open(self._path, os.O_CREAT | os.O_RDWR, 0o600))
        self._engine = sqlite_engine(self._path)

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """A transaction that sees one state of the file."""
        with self._translated(), self._engine.connect() as connection:
            yield connection

    @contextmanager
    def write(self) -> Iterator[Connection]:
        """A transaction that is durable at the end of the block, and undone where that raises."""
        with self._alone(), self._translated(), self._engine.connect() as plain:
            connection = plain.execution_options(writes=True)
            before = _num_changes(connection)
            with connection.begin():
                yield connection
            if _num_changes(connection) != before:
                self.trouble = None

    def close(self) -> None:
        """Close every connection; the file is not used again."""
        self._engine.dispose()

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Without another thread's write beside it."""
        if not self._writing.acquire(timeout=BUSY_TIMEOUT_S):
            raise StoreUnavailable(f"the store {self._path} is unavailable: a write takes too long")
        try:
            yield
        finally:
            self._writing.release()

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except sa.exc.DBAPIError as error:
            found = store_error(self._path, error)
            if _code_of(error) in TROUBLES:
                self.trouble = str(found)
            raise found from error


class SqliteStore:
    """`Store` in one file, in WAL mode with every commit synced; opened by one control process.

    Raises StoreRefused when `path` cannot be opened, StoreUnavailable when a call cannot be done
    now; in both cases nothing was changed.
    """

    def __init__(self, path: Path | str, *, tombstones_kept: int = TOMBSTONES_KEPT) -> None:
        self._file = SqliteFile(path)
        self._tombstones_kept = tombstones_kept
        self._changed = threading.Condition()
        try:
            with self._file.write() as connection:
                migrate(connection)
        except HostelryError:
            self._file.close()
            raise

    def get(self, key: Key) -> Record | None:
        """The record, or None."""
        with self._file.read() as connection:
            row = connection.execute(sa.select(RECORDS).where(*is_key(key))).one_or_none()
        return None if row is None or row.body is None else record_of(row)

    def put(self, key: Key, body: bytes, *, expect: int | None) -> Record:
        """Write if the present version is `expect`; raises Conflict when it is not."""
        return Record(key=key, version=self._replace(key, body, expect), body=body)

    def delete(self, key: Key, *, expect: int) -> None:
        """Remove if the present version is `expect`; raises Conflict when it is not."""
        self._replace(key, None, expect)

    def list(self, kind: str, scope: Scope | None = None) -> Sequence[Record]:
        """Every record of `kind` (in `scope`, or in all), ordered by name."""
        query = sa.select(RECORDS).where(RECORDS.c.kind == kind, RECORDS.c.body.is_not(None))
        if scope is not None:
            query = query.where(
                RECORDS.c.account == scope.account, RECORDS.c.region == scope.region
            )
        with self._file.read() as connection:
            return sorted(map(record_of, connection.execute(query)), key=by_name)

    def changes(self, since: int) -> Sequence[Change]:
        """Every key changed after revision `since`, once, with its present record."""
        query = sa.select(RECORDS).where(RECORDS.c.revision > since).order_by(RECORDS.c.revision)
        with self._file.read() as connection:
            check_watchable(since, connection.execute(sa.select(COUNTER.c.forgotten)).scalar_one())
            return [change_of(row) for row in connection.execute(query)]

    def revision(self) -> int:
        """Revision of the newest write; 0 when there was none."""
        with self._file.read() as connection:
            return int(connection.execute(sa.select(COUNTER.c.revision)).scalar_one())

    def wait(self, since: int, timeout_s: float) -> bool:
        """Block until the revision exceeds `since`; False when `timeout_s` passed first."""
        ends_at = monotonic_s() + timeout_s
        with self._changed:
            while self.revision() <= since:
                left_s = ends_at - monotonic_s()
                if left_s <= 0:
                    return False
                self._changed.wait(min(left_s, POLL_S))
        return True

    def close(self) -> None:
        """Close every connection; the store is not used again."""
        self._file.close()

    def _replace(self, key: Key, body: bytes | None, expect: int | None) -> int:
        with self._changed:
            with self._file.write() as connection:
                revision = next_revision(connection)
                present = connection.execute(sa.select(RECORDS).where(*is_key(key))).one_or_none()
                version = None if present is None or present.body is None else present.revision
                check_version(key, version, expect)
                write_row(connection, key, body, revision, exists=present is not None)
                if body is None:
                    forget_oldest(connection, self._tombstones_kept)
            self._changed.notify_all()
        return revision


def sqlite_engine(path: Path) -> Engine:
    """An engine on one SQLite file; connections are shared between threads, one at a time each."""
    engine = sa.create_engine(sa.URL.create("sqlite+pysqlite", database=str(path)))
    sa.event.listen(engine, "connect", prepare_connection)
    sa.event.listen(engine, "begin", begin_transaction)
    return engine


def prepare_connection(raw: sqlite3.Connection, _: Any) -> None:
    """Leave transactions to us and make every commit durable."""
    raw.isolation_level = None
    for pragma in PRAGMAS:
        raw.execute(pragma)


def begin_transaction(connection: Connection) -> None:
    """Take the write lock at once in a writing transaction: a later upgrade could fail."""
    writes = connection.get_execution_options().get("writes", False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


def next_revision(connection: Connection) -> int:
    """The next revision; blocks every other writer until the transaction ends."""
    grown = sa.update(COUNTER).values(revision=COUNTER.c.revision + 1)
    return int(connection.execute(grown.returning(COUNTER.c.revision)).scalar_one())


def write_row(
    connection: Connection, key: Key, body: bytes | None, revision: int, *, exists: bool
) -> None:
    """Insert or replace one record; a body of None makes it a tombstone."""
    values = {"revision": revision, "body": body}
    if exists:
        connection.execute(sa.update(RECORDS).where(*is_key(key)).values(values))
    else:
        connection.execute(sa.insert(RECORDS).values(values | columns_of(key)))


def forget_oldest(connection: Connection, kept: int) -> None:
    """Remove tombstones beyond the newest `kept` and remember up to which revision."""
    dead = sa.select(RECORDS.c.revision).where(RECORDS.c.body.is_(None))
    newest_forgotten = connection.execute(
        dead.order_by(RECORDS.c.revision.desc()).offset(kept).limit(1)
    ).scalar_one_or_none()
    if newest_forgotten is None:
        return
    connection.execute(
        sa.delete(RECORDS).where(RECORDS.c.body.is_(None), RECORDS.c.revision <= newest_forgotten)
    )
    connection.execute(sa.update(COUNTER).values(forgotten=newest_forgotten))


def columns_of(key: Key) -> dict[str, str]:
    """The key's columns."""
    return {
        "kind": key.kind,
        "account": key.scope.account,
        "region": key.scope.region,
        "name": key.name,
    }


def is_key(key: Key) -> list[ColumnElement[bool]]:
    """Conditions that only the key's row meets."""
    return [RECORDS.c[column] == value for column, value in columns_of(key).items()]


def key_of(row: Row[Any]) -> Key:
    """The key of a row."""
    return Key(kind=row.kind, scope=Scope(row.account, row.region), name=row.name)


def record_of(row: Row[Any]) -> Record:
    """The record of a row that is not a tombstone."""
    return Record(key=key_of(row), version=row.revision, body=row.body)


def change_of(row: Row[Any]) -> Change:
    """The change that a row represents."""
    record = None if row.body is None else record_of(row)
    return Change(revision=row.revision, key=key_of(row), record=record)


def store_error(path: Path, error: sa.exc.DBAPIError) -> HostelryError:
    """The error to raise for the database's own: the cause and what to do."""
    code = _code_of(error)
    if code in REFUSALS:
        return StoreRefused(f"the store {path} was refused: {REFUSALS[code]} ({error.orig})")
    what = TROUBLES.get(code, "the database answered with an error")
    return StoreUnavailable(f"the store {path} is unavailable: {what} ({error.orig})")


def _code_of(error: sa.exc.DBAPIError) -> int:
    """SQLite's primary result code."""
    return int(getattr(error.orig, "sqlite_errorcode", 0)) & 0xFF


def _num_changes(connection: Connection) -> int:
    """The rows that a connection has changed so far."""
    raw = connection.connection.driver_connection
    return raw.total_changes if isinstance(raw, sqlite3.Connection) else 0
