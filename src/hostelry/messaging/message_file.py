"""The file of messages, and of calls that events ask for: SQLite, every commit synced (WAL).

It stands apart from the store: messages come and go often, and no reconciler watches them.
"""

import os
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hostelry.store.errors import StoreRefused, StoreUnavailable

MAX_BYTES = 1024**3
SCHEMA = """
CREATE TABLE IF NOT EXISTS queued (
  id TEXT PRIMARY KEY, queue TEXT NOT NULL, body TEXT NOT NULL, attributes TEXT NOT NULL,
  sender TEXT NOT NULL, sent_at REAL NOT NULL, visible_at REAL NOT NULL, receives INTEGER NOT NULL,
  first_received_at REAL NOT NULL, nonce TEXT NOT NULL);
CREATE INDEX IF NOT EXISTS queued_visible ON queued (queue, visible_at);
CREATE INDEX IF NOT EXISTS queued_sent ON queued (queue, sent_at);
CREATE TABLE IF NOT EXISTS delivery (
  id INTEGER PRIMARY KEY AUTOINCREMENT, subscription TEXT NOT NULL, message_id TEXT NOT NULL,
  body TEXT NOT NULL, headers TEXT NOT NULL, accepted_at REAL NOT NULL, attempts INTEGER NOT NULL,
  next_at REAL NOT NULL);
CREATE INDEX IF NOT EXISTS delivery_next ON delivery (subscription, next_at);
CREATE TABLE IF NOT EXISTS event_call (
  id TEXT PRIMARY KEY, body TEXT NOT NULL, attempts INTEGER NOT NULL, begun INTEGER NOT NULL,
  next_at REAL NOT NULL);
CREATE INDEX IF NOT EXISTS event_call_next ON event_call (next_at);
CREATE TABLE IF NOT EXISTS event_seen (id TEXT PRIMARY KEY, at REAL NOT NULL);
CREATE TABLE IF NOT EXISTS published (topic TEXT NOT NULL, id TEXT NOT NULL, at REAL NOT NULL,
  PRIMARY KEY (topic, id));
CREATE INDEX IF NOT EXISTS published_at ON published (at);
"""
RETRYABLE = frozenset({sqlite3.SQLITE_FULL, sqlite3.SQLITE_BUSY, sqlite3.SQLITE_IOERR})


class MessageFile:
    """One connection to the file, for all threads; `path` may be ":memory:".

    Raises StoreRefused where the file cannot be opened, StoreUnavailable where a change cannot be
    made now; then nothing was changed.
    """

    def __init__(self, path: Path | str, *, max_bytes: int = MAX_BYTES) -> None:
        self._path = str(path)
        self._max_bytes = max_bytes
        self._lock = threading.Lock()
        try:
            if self._path != ":memory:":
                os.close(os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
            self._connection = sqlite3.connect(
                self._path, check_same_thread=False, isolation_level=None, timeout=10.0
            )
            for pragma in ("journal_mode=WAL", "synchronous=FULL"):
                self._connection.execute(f"PRAGMA {pragma}").fetchall()
            self._connection.executescript(SCHEMA)
        except (sqlite3.Error, OSError) as error:
            raise StoreRefused(f"{self._path} cannot be opened: {error}") from error

    @contextmanager
    def changing(self, *, adds: bool = False) -> Iterator[sqlite3.Connection]:
        """A transaction, synced at its end; with `adds` refused where the file is full."""
        with self._lock, self._named_errors():
            if adds and self._used_bytes() > self._max_bytes:
                raise StoreUnavailable(
                    f"{self._path} has its limit of {self._max_bytes} bytes of messages"
                )
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield self._connection
                self._connection.execute("COMMIT")
            except BaseException:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                raise

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """The connection, for reads."""
        with self._lock, self._named_errors():
            yield self._connection

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._connection.close()

    def _used_bytes(self) -> int:
        pages, free, size = (
            self._connection.execute(f"PRAGMA {name}").fetchone()[0]
            for name in ("page_count", "freelist_count", "page_size")
        )
        return int((pages - free) * size)

    @contextmanager
    def _named_errors(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            code = (getattr(error, "sqlite_errorcode", 0) or 0) & 0xFF
            kind = StoreUnavailable if code in RETRYABLE else StoreRefused
            raise kind(f"{self._path}: {error}") from error
