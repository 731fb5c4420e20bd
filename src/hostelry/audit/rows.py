"""The audit trail in tables: marks of any trail, and the records of a platform on PostgreSQL."""

import logging
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import sqlalchemy as sa

from hostelry.audit.chain import (
    ChainHead,
    SealedFile,
    StoredLine,
    TrailAnchor,
    TrailLine,
    get_digest,
    parse_line,
    read_value,
    sign_value,
)
from hostelry.base.errors import RetryableError
from hostelry.store.database import Database
from hostelry.store.tables import OPAQUE_TEXT

LOG = logging.getLogger(__name__)
RECORDS = sa.MetaData()
RECORD = sa.Table(
    "audit_record",
    RECORDS,
    sa.Column("number", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("at", sa.Float(53), nullable=False),
    sa.Column("source", OPAQUE_TEXT, nullable=False),
    sa.Column("total", sa.BigInteger, nullable=False),  # bytes of all lines up to this one
    sa.Column("line", sa.LargeBinary, nullable=False),
    sa.Index("audit_record_source", "source", "number"),
)
MARKS = sa.MetaData()
MARK = sa.Table(
    "audit_mark",
    MARKS,
    sa.Column("name", OPAQUE_TEXT, primary_key=True),
    sa.Column("value", sa.LargeBinary, nullable=False),
)
HEAD, ANCHOR = "head", "anchor"
PAGE_ROWS = 2000
MAX_WAITING = 10_000  # records while the database is away
MAX_REMOVED = 10_000  # rows of one transaction
COMMIT_WAIT_S = 5.0


class TrailMarks:
    """The signed marks of a trail in the store's database: its newest record, and its anchor.

    Every call raises StoreUnavailable if the database is away.
    """

    def __init__(self, database: Database, key: bytes) -> None:
        self._database = database
        self._key = key
        database.create(MARKS)

    def read_head(self) -> ChainHead | None:
        """The last noted head, or None. A head that is not signed does not count."""
        found: ChainHead | None = self._find(HEAD, ChainHead)
        return found

    def read_anchor(self) -> TrailAnchor | None:
        """The end of the records that retention removed. None if it removed none."""
        found: TrailAnchor | None = self._find(ANCHOR, TrailAnchor)
        return found

    def note_head(self, head: ChainHead) -> None:
        """Note the newest durable record."""
        with self._database.write() as connection:
            write_mark(connection, HEAD, sign_value(self._key, head))

    def note_anchor(self, anchor: TrailAnchor) -> None:
        """Note which records retention removes next."""
        with self._database.write() as connection:
            write_mark(connection, ANCHOR, sign_value(self._key, anchor))

    def _find(self, name: str, kind: type[Any]) -> Any:
        found = self._database.query(sa.select(MARK.c.value).where(MARK.c.name == name))
        if not found:
            return None
        try:
            return read_value(self._key, bytes(found[0].value), kind)
        except (ValueError, msgspec.MsgspecError) as error:
            LOG.warning("the mark %s of the audit log is not as it was written: %s", name, error)
            return None


def write_mark(connection: sa.Connection, name: str, value: bytes) -> None:
    """Replace a mark."""
    connection.execute(sa.delete(MARK).where(MARK.c.name == name))
    connection.execute(sa.insert(MARK), {"name": name, "value": value})


class RowReader:
    """Reads a trail in the table of `database`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def read_forwards(self) -> Iterator[tuple[str, list[bytes]]]:
        """The lines, oldest first, in parts with the name of the place."""
        after = 0
        while True:
            query = sa.select(RECORD.c.number, RECORD.c.line).where(RECORD.c.number > after)
            rows = self._database.query(query.order_by(RECORD.c.number).limit(PAGE_ROWS))
            if not rows:
                return
            yield RECORD.name, [bytes(row.line) for row in rows]
            after = rows[-1].number

    def read_backwards(
        self, before: int | None = None, sources: frozenset[str] = frozenset()
    ) -> Iterator[TrailLine]:
        """The records, newest first, with lower numbers than `before`, of `sources` if given."""
        while True:
            query = sa.select(RECORD.c.number, RECORD.c.line).order_by(RECORD.c.number.desc())
            if before is not None:
                query = query.where(RECORD.c.number < before)
            if sources:
                query = query.where(RECORD.c.source.in_(sources))
            rows = self._database.query(query.limit(PAGE_ROWS))
            for row in rows:
                yield parse_line(bytes(row.line))
            if len(rows) < PAGE_ROWS:
                return
            before = rows[-1].number


class TrailRows:
    """Writes a trail to the table of `database`. Threads share commits.

    `append` only takes records. `wait` returns once they are committed.
    """

    pause_s = 0.0

    def __init__(self, database: Database, key: bytes, wait_s: float = COMMIT_WAIT_S) -> None:
        database.create(RECORDS)
        self.reader = RowReader(database)
        self._database = database
        self._key = key
        self._wait_s = wait_s
        self._waiting: deque[StoredLine] = deque()
        self._changed = threading.Condition()
        self._trouble: str | None = None
        self.head, self._total = self._find_head()
        self._committed = self.head

    def append(self, lines: Sequence[StoredLine]) -> None:
        """Take records for the next commit. Raises OSError if too many wait for the database."""
        with self._changed:
            if len(self._waiting) + len(lines) > MAX_WAITING:
                raise OSError(f"{MAX_WAITING} records wait for the database: {self._trouble}")
            self._waiting.extend(lines)
            self.head = lines[-1].head

    def wait(self, number: int) -> None:
        """Return once the record is committed. Raises OSError if that takes too long."""
        with self._changed:
            if not self._changed.wait_for(lambda: self._committed.number >= number, self._wait_s):
                why = self._trouble or f"no commit within {self._wait_s:g} s"
                raise OSError(f"the record is not in the database yet: {why}")

    def flush(self) -> ChainHead:
        """Commit what waits. Returns the newest committed record. Raises OSError."""
        with self._changed:
            lines = list(self._waiting)
        if not lines:
            return self._committed
        try:
            total = self._commit(lines)
        except RetryableError as error:
            self._trouble = str(error)
            raise OSError(str(error)) from error
        with self._changed:
            self._trouble = None
            self._total = total
            self._committed = lines[-1].head
            for _ in lines:
                self._waiting.popleft()
            self._changed.notify_all()
        return self._committed

    def find_trouble(self) -> str | None:
        """Why no call may change anything now. None if it may."""
        return self._trouble

    def choose_old(self, max_bytes: int, before_at: float) -> list[SealedFile]:
        """The oldest rows beyond `max_bytes` or from before `before_at`, as one part.

        It is not more than MAX_REMOVED rows, and never the newest one.
        """
        columns = (RECORD.c.number, RECORD.c.at, RECORD.c.total)
        query = sa.select(*columns).order_by(RECORD.c.number).limit(MAX_REMOVED)
        removed: list[Any] = []
        for row in self._database.query(query):
            is_beyond = self._total - row.total >= max_bytes
            if not (is_beyond or row.at < before_at) or row.number == self._committed.number:
                break
            removed.append(row)
        if not removed:
            return []
        first, last = removed[0], removed[-1]
        line = sa.select(RECORD.c.line).where(RECORD.c.number == last.number)
        digest = get_digest(bytes(self._database.query(line)[0].line))
        return [
            SealedFile(
                first=first.number,
                head=ChainHead(last.number, digest),
                digest="",
                num_bytes=last.total - first.total,
                since=first.at,
                until=last.at,
                sources=(),
                accounts=None,
            )
        ]

    def remove(self, chosen: Sequence[SealedFile]) -> None:
        """Remove the rows that `choose_old` has chosen."""
        for part in chosen:
            with self._database.write() as connection:
                connection.execute(sa.delete(RECORD).where(RECORD.c.number <= part.head.number))

    def close(self) -> None:
        """Commit what waits."""
        try:
            self.flush()
        except OSError as error:
            LOG.warning("%d records of the audit log are lost: %s", len(self._waiting), error)

    def _find_head(self) -> tuple[ChainHead, int]:
        """The newest record, and the bytes of all lines up to it."""
        columns = (RECORD.c.number, RECORD.c.line, RECORD.c.total)
        query = sa.select(*columns).order_by(RECORD.c.number.desc()).limit(1)
        found = self._database.query(query)
        if not found:
            return ChainHead(), 0
        row = found[0]
        return ChainHead(row.number, get_digest(bytes(row.line))), row.total

    def _commit(self, lines: Sequence[StoredLine]) -> int:
        """Insert records and the new head. After an unknown outcome, those that are missing.

        Returns the bytes of all lines so far.
        """
        newest = sa.select(sa.func.coalesce(sa.func.max(RECORD.c.number), 0))
        rows, total = [], self._total
        for line in lines:
            total += len(line.line)
            at, source = line.record.at, line.record.source
            row = {"number": line.head.number, "at": at, "source": source, "total": total}
            rows.append({**row, "line": line.line})
        with self._database.write() as connection:
            if self._trouble is not None:
                known = connection.execute(newest).scalar_one()
                rows = [it for it in rows if it["number"] > known]
            if rows:
                connection.execute(sa.insert(RECORD), rows)
                write_mark(connection, HEAD, sign_value(self._key, lines[-1].head))
        return total
