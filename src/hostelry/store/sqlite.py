"""A SQLite file as a database, and consistent copies of it while processes use it."""

import errno
import os
import sqlite3
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy import Connection, Engine, Executable, MetaData, Row

from hostelry.base.errors import HostelryError, TerminalError
from hostelry.store.announcements import Announcements
from hostelry.store.protocol import StoreRefused, StoreUnavailable

BUSY_TIMEOUT_S = 10.0
POLL_S = 0.25  # a wait notices another process's write within this time
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
    """One SQLite file, which only its owner can read. Thread-safe. Every commit is synced.

    Raises StoreRefused if it cannot be opened, and StoreUnavailable if a transaction is impossible
    now. In both cases nothing was changed. `trouble` says why the last change failed. None after
    the next successful change.
    """

    def __init__(self, path: Path | str) -> None:
        self.trouble: str | None = None
        self._path = Path(path)
        self._announcements = Announcements()
        self._writing = threading.Lock()  # because SQLite waits by sleeping, which delays writers
        self._watching = threading.Lock()
        self._watcher: sqlite3.Connection | None = None  # never writes, so it sees every commit
        with suppress(OSError):  # opening the file reports the error
            # SQLite gives the same mode to the files next to it.
            os.close(os.open(self._path, os.O_CREAT | os.O_RDWR, 0o600))
        self._engine = sqlite_engine(self._path)

    @property
    def place(self) -> str:
        """The file's path."""
        return str(self._path)

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """A transaction that sees one state of the file."""
        with self._translate_errors(), self._engine.connect() as connection:
            yield connection

    def query(
        self, statement: Executable, values: Mapping[str, Any] | None = None
    ) -> Sequence[Row[Any]]:
        """The rows of one reading statement."""
        with self.read() as connection:
            return connection.execute(statement, values).all()

    @contextmanager
    def write(self, announce: str | None = None) -> Iterator[Connection]:
        """A transaction that is durable at the end of the block. An exception rolls it back."""
        with self._alone(), self._translate_errors(), self._engine.connect() as plain:
            connection = plain.execution_options(writes=True)
            before = _num_changes(connection)
            with connection.begin():
                yield connection
            if _num_changes(connection) != before:
                self.trouble = None
        if announce is not None:
            self._announcements.announce(announce)

    def create(self, metadata: MetaData) -> None:
        """Create the missing tables."""
        with self.write() as connection:
            metadata.create_all(connection)

    def wait_until(self, topic: str, condition: Callable[[], bool], timeout_s: float) -> bool:
        """Whether `condition` holds before `timeout_s` has passed. Polls other processes."""
        return self._announcements.wait_until(topic, condition, timeout_s, lambda: POLL_S)

    def stamp(self) -> int | None:
        """A number that changes with every commit of any process. None if it cannot be read.

        Reading it takes microseconds. A query takes hundreds of microseconds.
        """
        with self._watching, suppress(sqlite3.Error):
            if self._watcher is None:
                self._watcher = sqlite3.connect(self._path, check_same_thread=False)
            row = self._watcher.execute("PRAGMA data_version").fetchone()
            return int(row[0])
        return None

    def close(self) -> None:
        """Close every connection, and end waits. Do not use the file afterwards."""
        self._announcements.end()
        self._engine.dispose()
        with self._watching:
            if self._watcher is not None:
                self._watcher.close()
                self._watcher = None

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Exclude the writes of other threads."""
        if not self._writing.acquire(timeout=BUSY_TIMEOUT_S):
            raise StoreUnavailable(f"the store {self._path} is unavailable: a write takes too long")
        try:
            yield
        finally:
            self._writing.release()

    @contextmanager
    def _translate_errors(self) -> Iterator[None]:
        try:
            yield
        except sa.exc.DBAPIError as error:
            found = store_error(self._path, error)
            if _get_code(error) in TROUBLES:
                self.trouble = str(found)
            raise found from error


def sqlite_engine(path: Path) -> Engine:
    """An engine on one SQLite file. Threads share connections, but never use one together."""
    engine = sa.create_engine(sa.URL.create("sqlite+pysqlite", database=str(path)))
    sa.event.listen(engine, "connect", prepare_connection)
    sa.event.listen(engine, "begin", begin_transaction)
    return engine


def prepare_connection(raw: sqlite3.Connection, _: Any) -> None:
    """Leave the control of transactions to us, and make every commit durable."""
    raw.isolation_level = None
    for pragma in PRAGMAS:
        raw.execute(pragma)


def begin_transaction(connection: Connection) -> None:
    """Take the write lock at once in a writing transaction, because taking it later could fail."""
    writes = connection.get_execution_options().get("writes", False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


def store_error(path: Path, error: sa.exc.DBAPIError) -> HostelryError:
    """Convert an error of the database. The message has the cause and the remedy."""
    code = _get_code(error)
    if code in REFUSALS:
        return StoreRefused(f"the store {path} was refused: {REFUSALS[code]} ({error.orig})")
    what = TROUBLES.get(code, "the database answered with an error")
    return StoreUnavailable(f"the store {path} is unavailable: {what} ({error.orig})")


def _get_code(error: sa.exc.DBAPIError) -> int:
    """The result code of SQLite without its extension."""
    return int(getattr(error.orig, "sqlite_errorcode", 0)) & 0xFF


def _num_changes(connection: Connection) -> int:
    """The number of rows that a connection has changed so far."""
    raw = connection.connection.driver_connection
    return raw.total_changes if isinstance(raw, sqlite3.Connection) else 0


PAGES_AT_ONCE = 1024


class SqliteSnapshot:
    """The state of the file at the time of construction. Holds a reading transaction until `close`.

    Writers do not wait for it. Raises TerminalError if the file cannot be read.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        with self._translate_errors():
            self._source = sqlite3.connect(path, isolation_level=None, timeout=BUSY_TIMEOUT_S)
            # A transaction begins with its first read. A copy over a connection with an open
            # transaction does not begin again when another process writes.
            self._source.execute("BEGIN")
            self._source.execute("SELECT count(*) FROM sqlite_master").fetchone()
            (pages,) = self._source.execute("PRAGMA page_count").fetchone()
            (page_bytes,) = self._source.execute("PRAGMA page_size").fetchone()
        self.num_bytes = int(pages) * int(page_bytes)

    def copy_to(self, target: Path, copied: Callable[[int], None]) -> None:
        """Write the state to a new file. `copied` is called with the number of bytes so far.

        Raises TerminalError, and OSError if the disk of `target` is full or fails.
        """

        def report(_: int, left: int, total: int) -> None:
            copied(self.num_bytes * (total - left) // max(total, 1))

        with self._translate_errors():
            copy = sqlite3.connect(target, isolation_level=None)
            try:
                copy.execute("PRAGMA synchronous=OFF")  # the caller syncs the complete file
                self._source.backup(copy, pages=PAGES_AT_ONCE, progress=report, sleep=0.0)
            finally:
                copy.close()

    def close(self) -> None:
        """End the transaction."""
        self._source.close()

    @contextmanager
    def _translate_errors(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            if getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_FULL:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)) from error
            raise TerminalError(f"{self._path} cannot be copied: {error}") from error
