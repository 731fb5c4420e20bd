"""Messages of topics and queues, and calls that events ask for, in a database; bounded."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

import sqlalchemy as sa
from sqlalchemy import Connection

from hostelry.base.clock import monotonic_s
from hostelry.messaging.tables import DELIVERIES, EVENT_CALLS, METADATA, QUEUED
from hostelry.store.database import Database
from hostelry.store.errors import StoreUnavailable

MAX_BYTES = 1024**3
RECOUNT_S = 10.0  # in a database whose size is not known at once
BODIES = (QUEUED.c.body, DELIVERIES.c.body, EVENT_CALLS.c.body)


class MessageTables:
    """The tables of messages in `database`, which takes none beyond `max_bytes`.

    Raises StoreRefused where the database cannot be used, StoreUnavailable where a change cannot be
    made now; then nothing was changed.
    """

    def __init__(self, database: Database, *, max_bytes: int = MAX_BYTES) -> None:
        self._database = database
        self._max_bytes = max_bytes
        self._used_bytes, self._counted_at = 0, -RECOUNT_S
        database.create(METADATA)

    @contextmanager
    def changing(self, *, adds: bool = False) -> Iterator[Connection]:
        """A transaction, durable at its end; with `adds` refused where there is no room."""
        with self._database.write() as connection:
            if adds and self._used(connection) > self._max_bytes:
                raise StoreUnavailable(
                    f"{self._database.place} has its limit of {self._max_bytes} bytes of messages"
                )
            yield connection

    def reading(self) -> AbstractContextManager[Connection]:
        """A transaction for reads."""
        return self._database.read()

    def _used(self, connection: Connection) -> int:
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
