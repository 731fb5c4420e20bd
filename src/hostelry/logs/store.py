"""Store of log groups, streams and events over one SQLite file.

Events of a group are found by time, in all streams or some of them. A stream is read forwards or
backwards from any position. Names are unique within account and region.
"""

import sqlite3
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from hostelry.domain.log_source import JOB_GROUPS, LogSource
from hostelry.domain.scope import Scope
from hostelry.logs.database import LogDatabase
from hostelry.logs.events import LogEvent, LogGroup, LogStream, NewEvent, Position, get_size

MAX_GROUPS = 10_000
MAX_STREAMS = 100_000  # of a group
BEGIN: Position = (-1, 0)
END: Position = (2**62, 0)
_EVENT = "SELECT e.id, s.name, e.at_ms, e.ingested_ms, e.message FROM event e "
_OF_STREAM = "JOIN log_stream s ON s.id = e.stream_id "
_STREAM = "SELECT id, name, created_ms, last_ms, ingested_ms, bytes FROM log_stream "
_GROUP = (
    "SELECT g.id, g.name, g.created_ms, g.retention_days, g.kms_key_id, "
    "(SELECT coalesce(sum(bytes), 0) FROM log_stream WHERE group_id = g.id) FROM log_group g "
    "WHERE account = ? AND region = ? "
)


class EventSearch(msgspec.Struct, frozen=True, kw_only=True):
    """The streams and messages that a search selects, and its limits.

    Events come in the order of time, or `newest_first`. After the first event, the search ends as
    soon as `is_over` returns true.
    """

    has_stream: Callable[[str], bool]
    selects: Callable[[str], bool]
    limit: int
    max_bytes: int
    max_rows: int
    newest_first: bool = False
    is_over: Callable[[], bool] = lambda: False


class LogStore:
    """Log events in the file at `path`, which one process at a time writes."""

    def __init__(self, path: Path) -> None:
        self.database = LogDatabase(path)

    def close(self) -> None:
        """Close the file."""
        self.database.close()

    def create_group(
        self, scope: Scope, name: str, now_ms: int, kms_key_id: str | None = None
    ) -> bool:
        """Create a group. False if it exists, or MAX_GROUPS do."""
        with self.database.writing() as db:
            owner = (scope.account, scope.region)
            query = "SELECT count(*) FROM log_group WHERE account = ? AND region = ?"
            if db.execute(query, owner).fetchone()[0] >= MAX_GROUPS:
                return False
            if not _insert_group(db, scope, name, now_ms, is_collected=False):
                return False
            query = "UPDATE log_group SET kms_key_id = ? WHERE account = ? AND region = ?"
            db.execute(f"{query} AND name = ?", (kms_key_id, *owner, name))
            return True

    def group(self, scope: Scope, name: str) -> LogGroup | None:
        """The group of that name."""
        with self.database.reading() as db:
            query = _GROUP + "AND name = ?"
            row = db.execute(query, (scope.account, scope.region, name)).fetchone()
        return None if row is None else _group(row)

    def groups(
        self, scope: Scope, *, prefix: str = "", part: str = "", after: str = "", limit: int
    ) -> list[LogGroup]:
        """Groups by name: those that begin with `prefix` and contain `part`."""
        query = _GROUP + (
            "AND name > ? AND substr(name, 1, length(?)) = ? AND instr(name, ?) > 0 "
            "ORDER BY name LIMIT ?"
        )
        given = (scope.account, scope.region, after, prefix, prefix, part, limit)
        with self.database.reading() as db:
            return [_group(row) for row in db.execute(query, given)]

    def set_retention(self, group: LogGroup, days: int | None) -> None:
        """Keep the group's events for `days`. None means the platform's default."""
        with self.database.writing() as db:
            query = "UPDATE log_group SET retention_days = ? WHERE id = ?"
            db.execute(query, (days, group.id))

    def delete_group(self, group: LogGroup) -> None:
        """Delete a group with its streams. Their events are removed later."""
        with self.database.writing() as db:
            ids = db.execute("SELECT id FROM log_stream WHERE group_id = ?", (group.id,))
            _delete_streams(db, [row[0] for row in ids])
            db.execute("DELETE FROM log_group WHERE id = ?", (group.id,))

    def create_stream(self, group: LogGroup, name: str, now_ms: int) -> bool:
        """Create a stream. False if it exists, or MAX_STREAMS do."""
        with self.database.writing() as db:
            query = "SELECT count(*) FROM log_stream WHERE group_id = ?"
            if db.execute(query, (group.id,)).fetchone()[0] >= MAX_STREAMS:
                return False
            return _insert_stream(db, group.id, name, now_ms, is_collected=False)

    def stream(self, group: LogGroup, name: str) -> LogStream | None:
        """The stream of that name."""
        with self.database.reading() as db:
            query = _STREAM + "WHERE group_id = ? AND name = ?"
            row = db.execute(query, (group.id, name)).fetchone()
            return None if row is None else _stream(db, row)

    def streams(
        self,
        group: LogGroup,
        *,
        prefix: str = "",
        by_last_event: bool = False,
        descending: bool = False,
        after: tuple[int, str] | None = None,
        limit: int,
    ) -> list[LogStream]:
        """Streams by name, or by the instant of their last event and then by name."""
        sign, order = ("<", "DESC") if descending else (">", "ASC")
        query = f"{_STREAM} WHERE group_id = ? AND substr(name, 1, length(?)) = ? "
        given: list[Any] = [group.id, prefix, prefix]
        if after is not None and by_last_event:
            query += f"AND (coalesce(last_ms, 0), name) {sign} (?, ?) "
            given += after
        elif after is not None:
            query += f"AND name {sign} ? "
            given.append(after[1])
        first = f"coalesce(last_ms, 0) {order}, " if by_last_event else ""
        query += f"ORDER BY {first}name {order} LIMIT ?"
        with self.database.reading() as db:
            rows = db.execute(query, (*given, limit)).fetchall()
            return [_stream(db, row) for row in rows]

    def delete_stream(self, stream: LogStream) -> None:
        """Delete a stream. Its events are removed later."""
        with self.database.writing() as db:
            _delete_streams(db, [stream.id])

    def append(self, stream: LogStream, events: Sequence[NewEvent], now_ms: int) -> bool:
        """Store events. False if the stream was deleted meanwhile."""
        with self.database.writing() as db:
            return insert_events(db, stream.id, events, now_ms)

    def read_forwards(
        self, stream: LogStream, start: Position, end: Position, limit: int
    ) -> list[LogEvent]:
        """The first events from `start` to `end`, in their order."""
        query = (
            _EVENT
            + _OF_STREAM
            + (
                "WHERE e.stream_id = ? AND (e.at_ms, e.id) >= (?, ?) AND (e.at_ms, e.id) < (?, ?) "
                "ORDER BY e.at_ms, e.id LIMIT ?"
            )
        )
        with self.database.reading() as db:
            rows = db.execute(query, (stream.id, *start, *end, limit))
            return [_event(row) for row in rows]

    def read_backwards(
        self, stream: LogStream, start: Position, end: Position, limit: int
    ) -> list[LogEvent]:
        """The last events from `start` to `end`, in their order."""
        query = (
            _EVENT
            + _OF_STREAM
            + (
                "WHERE e.stream_id = ? AND (e.at_ms, e.id) >= (?, ?) AND (e.at_ms, e.id) < (?, ?) "
                "ORDER BY e.at_ms DESC, e.id DESC LIMIT ?"
            )
        )
        with self.database.reading() as db:
            rows = db.execute(query, (stream.id, *start, *end, limit)).fetchall()
        return [_event(row) for row in reversed(rows)]

    def search(
        self,
        group: LogGroup,
        search: EventSearch,
        start: Position,
        end: Position,
    ) -> tuple[list[LogEvent], Position | None]:
        """Selected events of the group's streams, and the `start` to continue from.

        With newest first this is the `end` to continue from. None if all events were examined.
        """
        order = "DESC" if search.newest_first else "ASC"
        query = (
            "SELECT id, stream_id, at_ms, ingested_ms, message FROM event WHERE group_id = ? "
            f"AND (at_ms, id) >= (?, ?) AND (at_ms, id) < (?, ?) ORDER BY at_ms {order}, id {order}"
        )
        found: list[LogEvent] = []
        found_bytes = 0
        with self.database.reading() as db:
            streams = db.execute("SELECT id, name FROM log_stream WHERE group_id = ?", (group.id,))
            names = {row[0]: row[1] for row in streams if search.has_stream(row[1])}
            if not names:
                return [], None
            for number, row in enumerate(db.execute(query, (group.id, *start, *end))):
                id, stream_id, at_ms, ingested_ms, message = row
                is_full = len(found) >= search.limit or found_bytes >= search.max_bytes
                if is_full or number >= search.max_rows or (number and search.is_over()):
                    return found, (at_ms, id + 1 if search.newest_first else id)
                if stream_id in names and search.selects(message):
                    found.append(_event((id, names[stream_id], at_ms, ingested_ms, message)))
                    found_bytes += get_size(message)
        return found, None

    def positions(self) -> dict[str, int]:
        """The stored part of each log file, in bytes of output."""
        with self.database.reading() as db:
            return dict(db.execute("SELECT key, position FROM log_file"))

    def collect(
        self,
        source: LogSource,
        key: str,
        position: int,
        events: Sequence[NewEvent],
        now_ms: int,
    ) -> None:
        """Store lines of a log file together with the position after them."""
        with self.database.writing() as db:
            stream_id = _stream_id(db, source.scope, (source.group, source.stream), now_ms)
            insert_events(db, stream_id, events, now_ms)
            db.execute("REPLACE INTO copy_stream VALUES (?, ?)", (source.copy_id, stream_id))
            db.execute("REPLACE INTO log_file VALUES (?, ?)", (key, position))

    def put(
        self, scope: Scope, group: str, stream: str, events: Sequence[NewEvent], now_ms: int
    ) -> None:
        """Store the platform's own events. Creates the stream if it is missing."""
        with self.database.writing() as db:
            insert_events(db, _stream_id(db, scope, (group, stream), now_ms), events, now_ms)

    def forget_files(self, keys: Sequence[str]) -> None:
        """Forget the positions in log files that are gone."""
        with self.database.writing() as db:
            db.executemany("DELETE FROM log_file WHERE key = ?", [(key,) for key in keys])

    def find_named(self, name: str) -> list[tuple[str, LogStream]]:
        """Streams, with their groups, of the endpoint, component, job, instance or copy `name`."""
        jobs = tuple(JOB_GROUPS.values())
        query = (
            "SELECT g.name, s.id, s.name, s.created_ms, s.last_ms, s.ingested_ms, s.bytes "
            "FROM log_stream s JOIN log_group g ON g.id = s.group_id WHERE s.bytes > 0 AND ("
            "g.name IN (?, ?, ?) OR instr(s.name || '/', '/' || ? || '/') > 0 "
            f"OR (g.name IN ({', '.join('?' * len(jobs))}) AND instr(s.name, ? || '/') = 1) "
            "OR s.id IN (SELECT stream_id FROM copy_stream WHERE copy_id = ?)) "
            "ORDER BY s.last_ms, s.name"
        )
        groups = [name, f"/aws/sagemaker/Endpoints/{name}"]
        groups.append(f"/aws/sagemaker/InferenceComponents/{name}")
        with self.database.reading() as db:
            rows = db.execute(query, (*groups, name, *jobs, name, name)).fetchall()
            return [(row[0], _stream(db, row[1:])) for row in rows]


def _stream_id(
    db: sqlite3.Connection, scope: Scope, group_and_stream: tuple[str, str], now_ms: int
) -> int:
    """Return the id of one of the platform's own streams. Creates the stream if it is missing."""
    group, stream = group_and_stream
    _insert_group(db, scope, group, now_ms, is_collected=True)
    query = "SELECT id FROM log_group WHERE account = ? AND region = ? AND name = ?"
    group_id = db.execute(query, (scope.account, scope.region, group)).fetchone()[0]
    _insert_stream(db, group_id, stream, now_ms, is_collected=True)
    query = "SELECT id FROM log_stream WHERE group_id = ? AND name = ?"
    found: int = db.execute(query, (group_id, stream)).fetchone()[0]
    return found


def _insert_group(
    db: sqlite3.Connection, scope: Scope, name: str, now_ms: int, *, is_collected: bool
) -> bool:
    query = (
        "INSERT INTO log_group (account, region, name, created_ms, is_collected) "
        "VALUES (?, ?, ?, ?, ?) ON CONFLICT DO NOTHING"
    )
    given = (scope.account, scope.region, name, now_ms, is_collected)
    return db.execute(query, given).rowcount == 1


def _insert_stream(
    db: sqlite3.Connection, group_id: int, name: str, now_ms: int, *, is_collected: bool
) -> bool:
    query = (
        "INSERT INTO log_stream (group_id, name, created_ms, is_collected) "
        "SELECT id, ?, ?, ? FROM log_group WHERE id = ? ON CONFLICT DO NOTHING"
    )
    return db.execute(query, (name, now_ms, is_collected, group_id)).rowcount == 1


def insert_events(
    db: sqlite3.Connection, stream_id: int, events: Sequence[NewEvent], now_ms: int
) -> bool:
    """Store events in a transaction. False if the stream is gone."""
    sizes = [get_size(it.message) for it in events]
    last_ms = max((it.at_ms for it in events), default=0)
    if not events:
        return True
    query = "SELECT group_id FROM log_stream WHERE id = ?"
    found = db.execute(query, (stream_id,)).fetchone()
    if found is None:
        return False
    query = (
        "UPDATE log_stream SET last_ms = max(coalesce(last_ms, 0), ?), ingested_ms = ?, "
        "bytes = bytes + ? WHERE id = ?"
    )
    db.execute(query, (last_ms, now_ms, sum(sizes), stream_id))
    db.executemany(
        "INSERT INTO event (group_id, stream_id, at_ms, ingested_ms, size, message) "
        "VALUES (?, ?, ?, ?, ?, ?)",
        [
            (found[0], stream_id, it.at_ms, now_ms, size, it.message)
            for it, size in zip(events, sizes, strict=True)
        ],
    )
    return True


def _delete_streams(db: sqlite3.Connection, ids: Sequence[int]) -> None:
    given = [(id,) for id in ids]
    db.executemany("DELETE FROM log_stream WHERE id = ?", given)
    db.executemany("DELETE FROM copy_stream WHERE stream_id = ?", given)
    db.executemany("INSERT OR IGNORE INTO deleted_stream VALUES (?)", given)


def _group(row: Sequence[Any]) -> LogGroup:
    id, name, created_ms, retention_days, kms_key_id, stored_bytes = row
    return LogGroup(
        id=id,
        name=name,
        created_ms=created_ms,
        retention_days=retention_days,
        kms_key_id=kms_key_id,
        stored_bytes=stored_bytes,
    )


def _stream(db: sqlite3.Connection, row: Sequence[Any]) -> LogStream:
    id, name, created_ms, last_ms, ingested_ms, stored_bytes = row
    query = "SELECT min(at_ms) FROM event WHERE stream_id = ?"
    first_ms = db.execute(query, (id,)).fetchone()[0]
    return LogStream(
        id=id,
        name=name,
        created_ms=created_ms,
        first_ms=first_ms,
        last_ms=last_ms,
        ingested_ms=ingested_ms,
        stored_bytes=stored_bytes,
    )


def _event(row: Sequence[Any]) -> LogEvent:
    id, stream_name, at_ms, ingested_ms, message = row
    return LogEvent(
        id=id, stream_name=stream_name, at_ms=at_ms, ingested_ms=ingested_ms, message=message
    )
