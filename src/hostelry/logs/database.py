"""The SQLite file of log events: its tables, connections and failures.

One connection writes, under a lock. Each read has a separate connection. Commits are not flushed to
the disk, so a power failure loses the last seconds. It also loses the positions in copies' logs, so
the lost lines are collected again.
"""

import contextlib
import logging
import os
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path

from hostelry.logs.events import LogsUnavailable

LOG = logging.getLogger(__name__)
BUSY_TIMEOUT_S = 10.0
WAL_BYTES = 16 * 1024 * 1024
VERSION = 1
SCHEMA = """
CREATE TABLE IF NOT EXISTS log_group (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    account TEXT NOT NULL, region TEXT NOT NULL, name TEXT NOT NULL,
    created_ms INTEGER NOT NULL, retention_days INTEGER, kms_key_id TEXT,
    is_collected INTEGER NOT NULL,
    UNIQUE (account, region, name)
);
CREATE TABLE IF NOT EXISTS log_stream (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    group_id INTEGER NOT NULL, name TEXT NOT NULL, created_ms INTEGER NOT NULL,
    last_ms INTEGER, ingested_ms INTEGER, bytes INTEGER NOT NULL DEFAULT 0,
    cut_noted_ms INTEGER NOT NULL DEFAULT 0, is_collected INTEGER NOT NULL,
    UNIQUE (group_id, name)
);
CREATE TABLE IF NOT EXISTS event (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    group_id INTEGER NOT NULL, stream_id INTEGER NOT NULL,
    at_ms INTEGER NOT NULL, ingested_ms INTEGER NOT NULL,
    size INTEGER NOT NULL, message TEXT NOT NULL
);
CREATE INDEX IF NOT EXISTS event_of_stream ON event (stream_id, at_ms);
CREATE INDEX IF NOT EXISTS event_of_group ON event (group_id, at_ms);
CREATE TABLE IF NOT EXISTS log_file (key TEXT PRIMARY KEY, position INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS copy_stream (copy_id TEXT PRIMARY KEY, stream_id INTEGER NOT NULL);
CREATE INDEX IF NOT EXISTS copies_of_stream ON copy_stream (stream_id);
CREATE TABLE IF NOT EXISTS deleted_stream (stream_id INTEGER PRIMARY KEY);
"""


class LogDatabase:
    """The file at `path`. A file that is not a database of this version is moved aside."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._writer: sqlite3.Connection | None = None
        with contextlib.suppress(LogsUnavailable):  # the next use opens it again
            self._open()

    @contextlib.contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """A transaction. Raises LogsUnavailable, and then writes nothing."""
        with self._lock, _translate_errors():
            db = self._open()
            db.execute("BEGIN IMMEDIATE")
            try:
                yield db
                db.execute("COMMIT")
            except BaseException:
                with contextlib.suppress(sqlite3.Error):
                    db.execute("ROLLBACK")
                raise

    @contextlib.contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """A connection that only reads. Raises LogsUnavailable."""
        with _translate_errors():
            if self._writer is None:
                with self._lock:
                    self._open()
            connection = connect(self._path)
            try:
                connection.execute("PRAGMA query_only=1")
                yield connection
            finally:
                connection.close()

    def used_bytes(self) -> int:
        """Used bytes of the file, without free pages."""
        with self.reading() as db:
            pages, free, size = (
                db.execute(f"PRAGMA {name}").fetchone()[0]
                for name in ("page_count", "freelist_count", "page_size")
            )
        return int((pages - free) * size)

    def shrink(self) -> None:
        """Give free pages back to the disk."""
        with self._lock, _translate_errors():
            self._open().execute("PRAGMA incremental_vacuum(4096)").fetchall()

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            if self._writer is not None:
                self._writer.close()

    def _open(self) -> sqlite3.Connection:
        """The connection that writes. Raises LogsUnavailable."""
        if self._writer is None:
            try:
                self._writer = self._prepare()
            except sqlite3.DatabaseError as error:
                self._move_aside(error)
                self._writer = self._prepare()
        return self._writer

    def _move_aside(self, error: sqlite3.DatabaseError) -> None:
        aside = self._path.with_name(f"{self._path.name}.damaged")
        LOG.error("%s: %s; moved to %s, logs begin again", self._path, error, aside.name)
        for suffix in ("-wal", "-shm"):
            self._path.with_name(self._path.name + suffix).unlink(missing_ok=True)
        self._path.replace(aside)

    def _prepare(self) -> sqlite3.Connection:
        """A new connection to a file with the tables. Raises LogsUnavailable, DatabaseError."""
        try:
            os.close(os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        except OSError as error:
            raise LogsUnavailable(f"{self._path}: {error}") from error
        connection = connect(self._path)
        try:
            connection.execute("PRAGMA auto_vacuum=INCREMENTAL")
            connection.execute("PRAGMA journal_mode=WAL")
            connection.execute("PRAGMA synchronous=NORMAL")
            connection.execute(f"PRAGMA journal_size_limit={WAL_BYTES}")
            version = connection.execute("PRAGMA user_version").fetchone()[0]
            if version not in (0, VERSION):
                raise sqlite3.DatabaseError(f"it is of version {version}")  # noqa: TRY301
            connection.executescript(f"BEGIN;{SCHEMA}PRAGMA user_version={VERSION};COMMIT;")
        except sqlite3.OperationalError as error:
            connection.close()
            raise LogsUnavailable(f"{self._path}: {error}") from error
        except sqlite3.DatabaseError:
            connection.close()
            raise
        return connection


def connect(path: Path) -> sqlite3.Connection:
    """A connection to the file, which must exist. Transactions are explicit."""
    return sqlite3.connect(
        f"{path.absolute().as_uri()}?mode=rw",
        uri=True,
        timeout=BUSY_TIMEOUT_S,
        isolation_level=None,
        check_same_thread=False,
    )


@contextlib.contextmanager
def _translate_errors() -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        raise LogsUnavailable(f"logs cannot be read or written now: {error}") from error
