"""Durable store over a SQL database: all statements are portable, transactions are `Database`'s."""

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy import ColumnElement, Connection, Row

from hostelry.base.errors import HostelryError
from hostelry.domain.scope import Scope
from hostelry.store.database import Database
from hostelry.store.memory import TOMBSTONES_KEPT, by_name, check_version, check_watchable
from hostelry.store.protocol import Change, Key, Record
from hostelry.store.schema import migrate
from hostelry.store.tables import COUNTER, RECORDS

TOPIC = "records"  # announced by each write


class SqlStore:
    """`Store` in a database's tables, which are brought up to date when it is opened.

    Raises StoreRefused when the database cannot be used, StoreUnavailable when a call cannot be
    done now; then nothing was changed, unless the error says otherwise.
    """

    def __init__(self, database: Database, *, tombstones_kept: int = TOMBSTONES_KEPT) -> None:
        self._database = database
        self._tombstones_kept = tombstones_kept
        try:
            with database.write() as connection:
                migrate(connection)
        except HostelryError:
            database.close()
            raise

    def get(self, key: Key) -> Record | None:
        """The record, or None."""
        with self._database.read() as connection:
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
        with self._database.read() as connection:
            return sorted(map(record_of, connection.execute(query)), key=by_name)

    def changes(self, since: int) -> Sequence[Change]:
        """Every key changed after revision `since`, once, with its present record."""
        query = sa.select(RECORDS).where(RECORDS.c.revision > since).order_by(RECORDS.c.revision)
        with self._database.read() as connection:
            check_watchable(since, connection.execute(sa.select(COUNTER.c.forgotten)).scalar_one())
            return [change_of(row) for row in connection.execute(query)]

    def revision(self) -> int:
        """Revision of the newest write; 0 when there was none."""
        with self._database.read() as connection:
            return int(connection.execute(sa.select(COUNTER.c.revision)).scalar_one())

    def wait(self, since: int, timeout_s: float) -> bool:
        """Block until the revision exceeds `since`; False when `timeout_s` passed first."""
        return self._database.wait_until(TOPIC, lambda: self.revision() > since, timeout_s)

    def close(self) -> None:
        """Close every connection; the store is not used again."""
        self._database.close()

    def _replace(self, key: Key, body: bytes | None, expect: int | None) -> int:
        with self._database.write(announce=TOPIC) as connection:
            revision = next_revision(connection)
            present = connection.execute(sa.select(RECORDS).where(*is_key(key))).one_or_none()
            version = None if present is None or present.body is None else present.revision
            check_version(key, version, expect)
            write_row(connection, key, body, revision, exists=present is not None)
            if body is None:
                forget_oldest(connection, self._tombstones_kept)
        return revision


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
