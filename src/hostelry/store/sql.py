"""Durable store over a SQL database. All statements are portable."""

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy import Connection, Row

from hostelry.base.errors import HostelryError
from hostelry.domain.scope import Scope
from hostelry.store.database import Database
from hostelry.store.memory import TOMBSTONES_KEPT, by_name, check_version, check_watchable
from hostelry.store.protocol import Change, Key, Record, RecordWrite, StoreUnavailable
from hostelry.store.schema import migrate
from hostelry.store.tables import COUNTER, RECORDS

TOPIC = "records"  # each write announces it
FORGOTTEN_PARTS = 50  # tombstones are removed when their number is 1/50 above the limit


class SqlStore:
    """`Store` in the tables of a database. Opening it migrates the tables.

    Raises StoreRefused if the database cannot be used, and StoreUnavailable if a call is impossible
    now. Then nothing was changed, unless the error says otherwise.
    """

    def __init__(self, database: Database, *, tombstones_kept: int = TOMBSTONES_KEPT) -> None:
        self._database = database
        self._tombstones_kept = tombstones_kept
        # Not at each removal, because a search for the oldest tombstones reads the whole table.
        self._forget_each = max(1, tombstones_kept // FORGOTTEN_PARTS)
        self._num_removed = self._forget_each - 1
        # The newest known revision, with the stamp of the database at that time.
        self._newest: tuple[int | None, int] = (None, 0)
        try:
            with database.write() as connection:
                migrate(connection)
        except HostelryError:
            database.close()
            raise

    def get(self, key: Key) -> Record | None:
        """The record, or None."""
        rows = self._database.query(NAMED, match_names(key))
        return to_record(rows[0]) if rows and rows[0].body is not None else None

    def put(self, key: Key, body: bytes, *, expect: int | None) -> Record:
        """Write if the current version is `expect`. Raises Conflict if it is not."""
        return Record(key=key, version=self._replace(key, body, expect), body=body)

    def delete(self, key: Key, *, expect: int) -> None:
        """Remove if the current version is `expect`. Raises Conflict if it is not."""
        self._replace(key, None, expect)

    def write_all(self, writes: Sequence[RecordWrite]) -> None:
        """Write all records or none. Raises Conflict if one has another version."""
        if not writes:
            return
        with self._database.write(announce=TOPIC) as connection:
            last = next_revision(connection, len(writes))
            numbered = list(enumerate(writes, last - len(writes) + 1))
            made = [it for it in numbered if it[1].expect is None]
            for revision, write in made:
                insert_row(connection, write.key, write.body, revision)
            replaced = [it for it in numbered if it[1].expect is not None]
            if replaced:
                replace_rows(connection, replaced)
            self._forget(connection, sum(1 for it in writes if it.body is None))

    def list(self, kind: str, scope: Scope | None = None) -> Sequence[Record]:
        """Every record of `kind` (in `scope`, or in all), ordered by name."""
        query = sa.select(RECORDS).where(RECORDS.c.kind == kind, RECORDS.c.body.is_not(None))
        if scope is not None:
            query = query.where(
                RECORDS.c.account == scope.account, RECORDS.c.region == scope.region
            )
        return sorted(map(to_record, self._database.query(query)), key=by_name)

    def changes(self, since: int) -> Sequence[Change]:
        """Every key changed after revision `since`, once, with its present record."""
        stamp = self._database.stamp()
        if stamp is not None and (stamp, since) == self._newest:
            return ()
        # One statement reads both tables in one state. The counter's row always exists.
        rows = self._database.query(CHANGED, {"since": since})
        check_watchable(since, rows[0].forgotten)
        return [to_change(row) for row in rows if row.revision is not None]

    def revision(self) -> int:
        """Revision of the newest write, or 0."""
        stamp, known = self._database.stamp(), self._newest
        if stamp is None or stamp != known[0]:
            known = self._newest = (stamp, int(self._database.query(NEWEST)[0].revision))
        return known[1]

    def wait(self, since: int, timeout_s: float) -> bool:
        """Block until the revision exceeds `since`. False if `timeout_s` passed first."""
        return self._database.wait_until(TOPIC, lambda: self.revision() > since, timeout_s)

    def close(self) -> None:
        """Close every connection. Do not use the store afterwards."""
        self._database.close()

    def _replace(self, key: Key, body: bytes | None, expect: int | None) -> int:
        write = RecordWrite(key=key, body=body, expect=expect)
        with self._database.write(announce=TOPIC) as connection:
            revision = next_revision(connection)
            if expect is None:
                insert_row(connection, key, body, revision)
            else:
                replace_rows(connection, [(revision, write)])
            self._forget(connection, 1 if body is None else 0)
        return revision

    def _forget(self, connection: Connection, num_removed: int) -> None:
        """Count removals, and remove the oldest tombstones from time to time."""
        self._num_removed += num_removed  # under the write lock of the transaction
        if num_removed and self._num_removed >= self._forget_each:
            forget_oldest(connection, self._tombstones_kept)
            self._num_removed = 0


# Each statement is compiled once. Between the statements of a transaction, other threads run, and
# the transaction waits for its turn. So the number of statements matters more than their work.
NAMED_BY = ("kind", "account", "region", "name")
GROWN = (
    sa.update(COUNTER)
    .values(revision=COUNTER.c.revision + sa.bindparam("by"))
    .returning(COUNTER.c.revision)
)
NEWEST = sa.select(COUNTER.c.revision)
CHANGED = (
    sa.select(COUNTER.c.forgotten, RECORDS)
    .outerjoin_from(COUNTER, RECORDS, RECORDS.c.revision > sa.bindparam("since"))
    .order_by(RECORDS.c.revision)
)
IS_NAMED = tuple(RECORDS.c[name] == sa.bindparam(f"its_{name}") for name in NAMED_BY)
NAMED = sa.select(RECORDS).where(*IS_NAMED)
INSERTED = sa.insert(RECORDS)
REPLACED = (
    sa.update(RECORDS)
    .where(
        *IS_NAMED,
        RECORDS.c.revision == sa.bindparam("expected"),
        RECORDS.c.body.is_not(None),
    )
    .values(revision=sa.bindparam("new_revision"), body=sa.bindparam("new_body"))
)


def next_revision(connection: Connection, count: int = 1) -> int:
    """Take the next `count` revisions, and return the last. Other writers wait for this one."""
    return int(connection.execute(GROWN, {"by": count}).scalar_one())


def insert_row(connection: Connection, key: Key, body: bytes | None, revision: int) -> None:
    """Insert a new record. Raises Conflict if the record exists."""
    present = present_row(connection, key)
    check_version(key, select_version(present), None)
    values = {"revision": revision, "body": body}
    if present is None:
        connection.execute(INSERTED, values | get_columns(key))
    else:  # the row is a tombstone
        connection.execute(sa.update(RECORDS).where(*IS_NAMED).values(values), match_names(key))


def replace_rows(connection: Connection, writes: Sequence[tuple[int, RecordWrite]]) -> None:
    """Write records at their revisions. A body of None writes a tombstone.

    Raises Conflict if a record has another version than expected.
    """
    values = [
        {
            **match_names(write.key),
            "expected": write.expect,
            "new_revision": revision,
            "new_body": write.body,
        }
        for revision, write in writes
    ]
    if connection.execute(REPLACED, values).rowcount == len(writes):
        return
    for revision, write in writes:
        row = present_row(connection, write.key)
        if row is None or row.revision != revision:  # the update above did not write this row
            check_version(write.key, select_version(row), write.expect)
            raise StoreUnavailable(f"{write.key.kind} {write.key.name!r} was not written")


def present_row(connection: Connection, key: Key) -> Row[Any] | None:
    """The record's row, which may be a tombstone's."""
    return connection.execute(NAMED, match_names(key)).one_or_none()


def select_version(row: Row[Any] | None) -> int | None:
    """Return the version in a record's row, or None without a row."""
    return None if row is None or row.body is None else int(row.revision)


def forget_oldest(connection: Connection, kept: int) -> None:
    """Remove tombstones beyond the newest `kept`, and note the last removed revision."""
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


def get_columns(key: Key) -> dict[str, str]:
    """The key's columns."""
    return {
        "kind": key.kind,
        "account": key.scope.account,
        "region": key.scope.region,
        "name": key.name,
    }


def match_names(key: Key) -> dict[str, str]:
    """The parameters of `IS_NAMED` that select the key's row."""
    return {f"its_{name}": it for name, it in get_columns(key).items()}


def to_key(row: Row[Any]) -> Key:
    """The key of a row."""
    return Key(kind=row.kind, scope=Scope(row.account, row.region), name=row.name)


def to_record(row: Row[Any]) -> Record:
    """The record of a row that is not a tombstone."""
    return Record(key=to_key(row), version=row.revision, body=row.body)


def to_change(row: Row[Any]) -> Change:
    """The change that a row represents."""
    record = None if row.body is None else to_record(row)
    return Change(revision=row.revision, key=to_key(row), record=record)
