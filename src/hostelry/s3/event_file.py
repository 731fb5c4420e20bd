"""The S3 port's own file: notification configurations, and events that control has not taken.

SQLite, every commit synced. It stands apart from the store, so that an upload needs no control.
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
    """The change was not made; the message says why."""


class EventFile:
    """One connection to the file, for all threads; configurations are kept in memory, too."""

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
        """The bucket's configuration; an empty one where it has none."""
        return self._buckets.get(bucket, BucketNotification())

    def configure(self, bucket: str, notification: BucketNotification) -> None:
        """Replace the bucket's configuration; an empty one is none. Raises EventFileError."""
        with self._lock:
            if notification.is_empty:
                self._execute("DELETE FROM bucket WHERE name = ?", (bucket,))
                self._buckets.pop(bucket, None)
            else:
                body = msgspec.json.encode(notification).decode()
                self._execute("INSERT OR REPLACE INTO bucket VALUES (?, ?)", (bucket, body))
                self._buckets[bucket] = notification

    def add(self, event: ObjectEvent) -> None:
        """Keep an event until control has it; durable once this returns. Raises EventFileError."""
        with self._lock:
            if self._waiting >= MAX_EVENTS:
                raise EventFileError(f"{self._waiting} events wait for control, the limit")
            body = msgspec.json.encode(event).decode()
            self._execute("INSERT INTO event (body) VALUES (?)", (body,))
            self._waiting += 1

    def oldest(self, most: int) -> Sequence[tuple[int, ObjectEvent]]:
        """The events that wait longest, with their numbers."""
        with self._lock:
            rows = self._connection.execute(
                "SELECT number, body FROM event ORDER BY number LIMIT ?", (most,)
            ).fetchall()
        return [(number, decode(body, ObjectEvent)) for number, body in rows]

    def forget(self, number: int) -> None:
        """Forget the events up to this number: control has them. Raises EventFileError."""
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
