"""The S3 port's SQLite file: notification configurations, and events that control must still take.

Every commit is synced to disk. The file is not control's, so that uploads work without control.
"""

import os
import sqlite3
import threading
from collections.abc import Sequence
from pathlib import Path

import msgspec

from hostelry.base.errors import TerminalError
from hostelry.base.json import decode
from hostelry.domain.object_event import BucketNotification, ObjectEvent

MAX_EVENTS = 1_000_000
SCHEMA = """
CREATE TABLE IF NOT EXISTS bucket (name TEXT PRIMARY KEY, notification TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS event (number INTEGER PRIMARY KEY AUTOINCREMENT, body TEXT NOT NULL);
"""


class EventFileError(Exception):
    """The change was not made. The message says why."""


class EventFile:
    """One connection to the file, for all threads. Configurations are kept in memory, too."""

    def __init__(self, path: Path) -> None:
        self._lock = threading.Lock()
        try:
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
            self._connection = sqlite3.connect(
                path, check_same_thread=False, isolation_level=None, timeout=10.0
            )
            for pragma in ("journal_mode=WAL", "synchronous=FULL"):
                self._connection.execute(f"PRAGMA {pragma}").fetchall()
            self._connection.executescript(SCHEMA)
            rows = self._connection.execute("SELECT name, notification FROM bucket").fetchall()
            self._waiting = self._connection.execute("SELECT COUNT(*) FROM event").fetchone()[0]
            self._buckets = {name: decode(body, BucketNotification) for name, body in rows}
        except (sqlite3.Error, OSError, msgspec.MsgspecError) as error:
            raise TerminalError(f"{path} cannot be opened: {error}") from error

    def notification(self, bucket: str) -> BucketNotification:
        """Return the bucket's configuration, which is empty if none was set."""
        return self._buckets.get(bucket, BucketNotification())

    def configure(self, bucket: str, notification: BucketNotification) -> None:
        """Replace the bucket's configuration. An empty one removes it. Raises EventFileError."""
        with self._lock:
            if notification.is_empty:
                self._execute("DELETE FROM bucket WHERE name = ?", (bucket,))
                self._buckets.pop(bucket, None)
            else:
                body = msgspec.json.encode(notification).decode()
                self._execute("INSERT OR REPLACE INTO bucket VALUES (?, ?)", (bucket, body))
                self._buckets[bucket] = notification

    def add(self, event: ObjectEvent) -> None:
        """Keep an event until control has it. Returns once it is durable. Raises EventFileError."""
        with self._lock:
            if self._waiting >= MAX_EVENTS:
                raise EventFileError(f"{self._waiting} events wait for control, the limit")
            body = msgspec.json.encode(event).decode()
            self._execute("INSERT INTO event (body) VALUES (?)", (body,))
            self._waiting += 1

    def oldest(self, most: int) -> Sequence[tuple[int, ObjectEvent]]:
        """Read the events that have waited longest, at most `most`, with their numbers."""
        with self._lock:
            rows = self._connection.execute(
                "SELECT number, body FROM event ORDER BY number LIMIT ?", (most,)
            ).fetchall()
        return [(number, decode(body, ObjectEvent)) for number, body in rows]

    def forget(self, number: int) -> None:
        """Forget the events up to this number, because control has them. Raises EventFileError."""
        with self._lock:
            self._waiting -= self._execute("DELETE FROM event WHERE number <= ?", (number,))

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._connection.close()

    def _execute(self, statement: str, values: Sequence[object]) -> int:
        try:
            return self._connection.execute(statement, values).rowcount
        except sqlite3.Error as error:
            raise EventFileError(str(error)) from error
