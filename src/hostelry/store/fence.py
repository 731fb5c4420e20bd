"""The fence around a leader's writes: each write's transaction checks the leader's epoch.

A transaction first takes a shared lock on its epoch, then reads the newest epoch. A control that
acquires the lease takes the same lock exclusively, and then raises the epoch (`lease_rows`). So a
write either commits before a newer epoch exists, or sees the newer epoch and is refused.
"""

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import sqlalchemy as sa
from sqlalchemy import Connection, Executable, MetaData, Row

from hostelry.base.errors import Fenced
from hostelry.store.database import Database
from hostelry.store.leaders import LEASES, epoch_key
from hostelry.store.lease import NAME

SHARE_EPOCH = sa.text(f"SELECT pg_advisory_xact_lock_shared({epoch_key(':epoch')})")
NEWEST = sa.select(LEASES.c.epoch, LEASES.c.holder).where(LEASES.c.name == NAME)


class Fence:
    """Decides whether this process may write. Thread-safe.

    At first it allows only migrations. Between `stand_by` and `lead` it allows nothing. `on_fenced`
    is called once, with the reason for the end of the epoch.
    """

    def __init__(self, on_fenced: Callable[[str], None]) -> None:
        self._on_fenced = on_fenced
        self._epoch: int | None = None
        self._is_preparing = True
        self._reported = threading.Lock()

    @property
    def epoch(self) -> int | None:
        """The epoch of this leader, or None on standby."""
        return self._epoch

    def stand_by(self) -> None:
        """Refuse all writes."""
        self._is_preparing = False

    def lead(self, epoch: int) -> None:
        """Allow writes while `epoch` is the newest epoch."""
        self._is_preparing, self._epoch = False, epoch

    def check(self, connection: Connection) -> None:
        """Lock the epoch until the transaction ends. Raises Fenced if a newer epoch exists."""
        if self._is_preparing:
            return
        if self._epoch is None:
            raise Fenced("this control is on standby: it writes nothing")
        connection.execute(SHARE_EPOCH, {"epoch": self._epoch})
        newest = connection.execute(NEWEST).one_or_none()  # reads the state after the lock
        if newest is None or newest.epoch != self._epoch:
            by = "no control" if newest is None else f"{newest.holder} with epoch {newest.epoch}"
            self._refuse(f"epoch {self._epoch} is over: {by} leads")

    def _refuse(self, why: str) -> None:
        if self._reported.acquire(blocking=False):  # never released, so only the first call reports
            self._on_fenced(why)
        raise Fenced(why)


class FencedDatabase:
    """`database`, with each write behind `fence`. Implements `Database`."""

    def __init__(self, database: Database, fence: Fence) -> None:
        self._database = database
        self._fence = fence

    @property
    def trouble(self) -> str | None:
        """Why the last change failed. None after the next successful change."""
        return self._database.trouble

    @property
    def place(self) -> str:
        """The place of the database, for messages. Contains no secrets."""
        return self._database.place

    def read(self) -> AbstractContextManager[Connection]:
        """A transaction that sees one state of the database."""
        return self._database.read()

    def query(
        self, statement: Executable, values: Mapping[str, Any] | None = None
    ) -> Sequence[Row[Any]]:
        """The rows of one reading statement."""
        return self._database.query(statement, values)

    @contextmanager
    def write(self, announce: str | None = None) -> Iterator[Connection]:
        """A durable transaction. If the epoch is over, raises Fenced, and nothing is changed."""
        with self._database.write(announce) as connection:
            self._fence.check(connection)
            yield connection

    def check(self) -> None:
        """Raise Fenced if the epoch is over. Call this just before an act outside the database."""
        with self.write():
            pass

    def create(self, metadata: MetaData) -> None:
        """Create the missing tables, also on standby."""
        self._database.create(metadata)

    def wait_until(self, topic: str, condition: Callable[[], bool], timeout_s: float) -> bool:
        """Whether `condition` holds before `timeout_s` has passed."""
        return self._database.wait_until(topic, condition, timeout_s)

    def stamp(self) -> int | None:
        """A number that changes with every commit of any process, or None."""
        return self._database.stamp()

    def close(self) -> None:
        """Close every connection."""
        self._database.close()
