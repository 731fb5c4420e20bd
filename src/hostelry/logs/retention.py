"""Removes log events that are too old, deleted, or beyond the limit of a stream or of the file.

    removed                               when
    -----------------------------------   ----------------------------------------------------
    events of deleted groups and streams  at the next sweep
    events older than their group's days  its PutRetentionPolicy, else RetentionLimits.days
    the oldest of a stream                it has more than `max_stream_bytes`. A line says so
    the oldest of all                     the file holds more than `max_bytes`
    empty streams and groups of copies    nothing was written to them for their group's days

Work is done in small transactions, so that writers do not wait long, at most MAX_CHUNKS at a time.
"""

import sqlite3
from typing import Any

import msgspec

from hostelry.logs.events import NewEvent
from hostelry.logs.store import LogStore, insert_events

CHUNK_EVENTS = 5_000
MAX_CHUNKS = 40
DAY_MS = 86_400_000
NOTE_EVERY_MS = 3_600_000
KEPT_PERCENT = 95  # of a limit, after it was exceeded
STREAM_SHARE = 8  # a stream may take an eighth of the file's limit


class RetentionLimits(msgspec.Struct, frozen=True, kw_only=True):
    """The retention of groups without their own, and the limit of stored bytes."""

    days: int = 14
    max_bytes: int = 1024 * 1024 * 1024

    @property
    def max_stream_bytes(self) -> int:
        """The limit of one stream, so that one copy cannot displace the events of all others."""
        return self.max_bytes // STREAM_SHARE


class Retention:
    """Removes events of `store`. `sweep` is called periodically."""

    def __init__(self, store: LogStore, limits: RetentionLimits) -> None:
        self._store = store
        self._limits = limits
        self._chunks_left = 0

    def sweep(self, now_ms: int) -> None:
        """Remove expired events, up to MAX_CHUNKS chunks. Raises LogsUnavailable."""
        self._chunks_left = MAX_CHUNKS
        self._remove_deleted()
        self._remove_old(now_ms)
        self._cut_streams(now_ms)
        self._cut_all()
        self._remove_empty(now_ms)
        if self._chunks_left < MAX_CHUNKS:
            self._store.database.shrink()

    def _remove_deleted(self) -> None:
        for (stream_id,) in self._rows("SELECT stream_id FROM deleted_stream"):
            query = "SELECT id, stream_id, size FROM event WHERE stream_id = ? LIMIT ?"
            while (removed := self._remove(query, (stream_id,))) == CHUNK_EVENTS:
                pass
            if removed is not None:
                with self._store.database.writing() as db:
                    db.execute("DELETE FROM deleted_stream WHERE stream_id = ?", (stream_id,))

    def _remove_old(self, now_ms: int) -> None:
        query = (
            "SELECT id, stream_id, size FROM event WHERE group_id = ? AND at_ms < ? "
            "ORDER BY at_ms LIMIT ?"
        )
        due = (
            "SELECT g.id, ? - coalesce(g.retention_days, ?) * ? AS until FROM log_group g "
            "WHERE (SELECT min(at_ms) FROM event WHERE group_id = g.id) < until"
        )
        for group_id, until_ms in self._rows(due, (now_ms, self._limits.days, DAY_MS)):
            while self._remove(query, (group_id, until_ms)) == CHUNK_EVENTS:
                pass

    def _cut_streams(self, now_ms: int) -> None:
        limit = self._limits.max_stream_bytes
        query = (
            "SELECT id, stream_id, size FROM event WHERE stream_id = ? ORDER BY at_ms, id LIMIT ?"
        )
        count = "SELECT bytes, cut_noted_ms FROM log_stream WHERE id = ?"
        for (stream_id,) in self._rows("SELECT id FROM log_stream WHERE bytes > ?", (limit,)):
            while (found := self._rows(count, (stream_id,))) and found[0][0] > limit:
                if not self._remove(query, (stream_id,), found[0][0] - limit * KEPT_PERCENT // 100):
                    break
            if found and found[0][1] < now_ms - NOTE_EVERY_MS:
                self._note_cut(stream_id, now_ms)

    def _note_cut(self, stream_id: int, now_ms: int) -> None:
        text = (
            f"[hostelry] this log stream had more than {self._limits.max_stream_bytes} bytes: its "
            "oldest events were removed"
        )
        with self._store.database.writing() as db:
            insert_events(db, stream_id, [NewEvent(at_ms=now_ms, message=text)], now_ms)
            query = "UPDATE log_stream SET cut_noted_ms = ? WHERE id = ?"
            db.execute(query, (now_ms, stream_id))

    def _cut_all(self) -> None:
        query = "SELECT id, stream_id, size FROM event ORDER BY id LIMIT ?"
        limit = self._limits.max_bytes
        while (used := self._store.database.used_bytes()) > limit:
            if not self._remove(query, (), used - limit * KEPT_PERCENT // 100):
                return

    def _remove_empty(self, now_ms: int) -> None:
        streams = (
            "DELETE FROM log_stream WHERE is_collected AND bytes <= 0 AND "
            "coalesce(ingested_ms, created_ms) < ? - ? * (SELECT coalesce(retention_days, ?) "
            "FROM log_group g WHERE g.id = group_id)"
        )
        copies = "DELETE FROM copy_stream WHERE stream_id NOT IN (SELECT id FROM log_stream)"
        groups = (
            "DELETE FROM log_group WHERE is_collected AND retention_days IS NULL AND "
            "created_ms < ? AND NOT EXISTS (SELECT 1 FROM log_stream WHERE group_id = log_group.id)"
        )
        with self._store.database.writing() as db:
            if db.execute(streams, (now_ms, DAY_MS, self._limits.days)).rowcount:
                db.execute(copies)
            db.execute(groups, (now_ms - self._limits.days * DAY_MS,))

    def _remove(
        self, query: str, given: tuple[Any, ...], enough_bytes: int | None = None
    ) -> int | None:
        """Remove one chunk of events, or only as many of its first events as make `enough_bytes`.

        Returns their number, or None if the sweep has done enough.
        """
        if self._chunks_left == 0:
            return None
        self._chunks_left -= 1
        with self._store.database.writing() as db:
            rows = db.execute(query, (*given, CHUNK_EVENTS)).fetchall()
            if enough_bytes is not None:
                rows = _first(rows, enough_bytes)
            _delete_events(db, rows)
        return len(rows)

    def _rows(self, query: str, given: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
        with self._store.database.reading() as db:
            return db.execute(query, given).fetchall()


def _first(rows: list[tuple[int, int, int]], enough_bytes: int) -> list[tuple[int, int, int]]:
    """The first of `rows` whose sizes add up to `enough_bytes`."""
    total = 0
    for number, row in enumerate(rows):
        total += row[2]
        if total >= enough_bytes:
            return rows[: number + 1]
    return rows


def _delete_events(db: sqlite3.Connection, rows: list[tuple[int, int, int]]) -> None:
    removed: dict[int, int] = {}
    for _, stream_id, size in rows:
        removed[stream_id] = removed.get(stream_id, 0) + size
    db.executemany("DELETE FROM event WHERE id = ?", [(row[0],) for row in rows])
    query = "UPDATE log_stream SET bytes = bytes - ? WHERE id = ?"
    db.executemany(query, [(size, stream_id) for stream_id, size in removed.items()])
