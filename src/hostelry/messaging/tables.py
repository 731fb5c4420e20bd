"""The database tables of messages, and of calls for events."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

import sqlalchemy as sa
from sqlalchemy import Connection

from hostelry.base.clock import monotonic_s
from hostelry.store.database import Database
from hostelry.store.protocol import StoreUnavailable
from hostelry.store.tables import OPAQUE_TEXT

# These tables are separate from the store's tables, because messages come and go often, and no
# reconciler watches them. Statements on them are portable SQL.


METADATA = sa.MetaData()

QUEUED = sa.Table(
    "queued",
    METADATA,
    sa.Column("id", OPAQUE_TEXT, primary_key=True),
    sa.Column("queue", OPAQUE_TEXT, nullable=False),
    sa.Column("body", OPAQUE_TEXT, nullable=False),
    sa.Column("attributes", OPAQUE_TEXT, nullable=False),
    sa.Column("sender", OPAQUE_TEXT, nullable=False),
    sa.Column("sent_at", sa.Float, nullable=False),
    sa.Column("visible_at", sa.Float, nullable=False),
    sa.Column("receives", sa.Integer, nullable=False),
    sa.Column("first_received_at", sa.Float, nullable=False),
    sa.Column("nonce", OPAQUE_TEXT, nullable=False),
    sa.Index("queued_visible", "queue", "visible_at"),
    sa.Index("queued_sent", "queue", "sent_at"),
)
DELIVERIES = sa.Table(
    "delivery",
    METADATA,
    # SQLite assigns row numbers only if the type is INTEGER.
    sa.Column(
        "id",
        sa.BigInteger().with_variant(sa.Integer(), "sqlite"),
        primary_key=True,
        autoincrement=True,
    ),
    sa.Column("subscription", OPAQUE_TEXT, nullable=False),
    sa.Column("message_id", OPAQUE_TEXT, nullable=False),
    sa.Column("body", OPAQUE_TEXT, nullable=False),
    sa.Column("headers", OPAQUE_TEXT, nullable=False),
    sa.Column("accepted_at", sa.Float, nullable=False),
    sa.Column("attempts", sa.Integer, nullable=False),
    sa.Column("next_at", sa.Float, nullable=False),
    sa.Index("delivery_next", "subscription", "next_at"),
    sqlite_autoincrement=True,
)
EVENT_CALLS = sa.Table(
    "event_call",
    METADATA,
    sa.Column("id", OPAQUE_TEXT, primary_key=True),
    sa.Column("body", OPAQUE_TEXT, nullable=False),
    sa.Column("attempts", sa.Integer, nullable=False),
    sa.Column("begun", sa.Integer, nullable=False),
    sa.Column("next_at", sa.Float, nullable=False),
    sa.Index("event_call_next", "next_at"),
)
EVENTS_SEEN = sa.Table(
    "event_seen",
    METADATA,
    sa.Column("id", OPAQUE_TEXT, primary_key=True),
    sa.Column("at", sa.Float, nullable=False),
)
PUBLISHED = sa.Table(
    "published",
    METADATA,
    sa.Column("topic", OPAQUE_TEXT, primary_key=True),
    sa.Column("id", OPAQUE_TEXT, primary_key=True),
    sa.Column("at", sa.Float, nullable=False),
    sa.Index("published_at", "at"),
)


MAX_BYTES = 1024**3
RECOUNT_S = 10.0  # between counts, if the database cannot report its size at once
BODIES = (QUEUED.c.body, DELIVERIES.c.body, EVENT_CALLS.c.body)


class MessageTables:
    """The message tables in `database`. They take at most `max_bytes` of messages.

    Raises StoreRefused if the database cannot be used, and StoreUnavailable if a change is
    impossible now. Then nothing was changed.
    """

    def __init__(self, database: Database, *, max_bytes: int = MAX_BYTES) -> None:
        self._database = database
        self._max_bytes = max_bytes
        self._used_bytes, self._counted_at = 0, -RECOUNT_S
        database.create(METADATA)

    @contextmanager
    def changing(self, *, adds: bool = False) -> Iterator[Connection]:
        """A durable transaction. With `adds` it is refused if the tables are full."""
        with self._database.write() as connection:
            if adds and self._measure_used(connection) > self._max_bytes:
                raise StoreUnavailable(
                    f"{self._database.place} has its limit of {self._max_bytes} bytes of messages"
                )
            yield connection

    def reading(self) -> AbstractContextManager[Connection]:
        """A transaction for reads."""
        return self._database.read()

    def _measure_used(self, connection: Connection) -> int:
        if connection.dialect.name == "sqlite":
            return _file_bytes(connection)
        now = monotonic_s()
        if now - self._counted_at >= RECOUNT_S:
            self._counted_at = now
            self._used_bytes = _table_bytes(connection)
        return self._used_bytes


def _file_bytes(connection: Connection) -> int:
    pages, free, size = (
        connection.exec_driver_sql(f"PRAGMA {name}").scalar_one()
        for name in ("page_count", "freelist_count", "page_size")
    )
    return int((pages - free) * size)


def _table_bytes(connection: Connection) -> int:
    sums = [sa.select(sa.func.sum(sa.func.octet_length(it))).scalar_subquery() for it in BODIES]
    return sum(int(it or 0) for it in connection.execute(sa.select(*sums)).one())
