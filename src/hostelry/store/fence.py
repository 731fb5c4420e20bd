"""The fence around a leader's writes: each write's transaction checks the leader's epoch.

A transaction first takes a shared lock on its epoch, then reads which epoch is the newest. The
control that acquires the lease takes that lock alone before the epoch grows (`lease_rows`). So a
write is either committed before a newer epoch exists, or it sees that epoch and is refused.
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
    """Decides if this process may write. Thread-safe.

    At first it allows only migrations. From `stand_by` until `lead` it allows nothing. `on_fenced`
    is called once, with the reason why the epoch is over.
    """

    def __init__(self, on_fenced: Callable[[str], None]) -> None:
        self._on_fenced = on_fenced
        self._epoch: int | None = None
        self._is_preparing = True
        self._reported = threading.Lock()

    @property
    def epoch(self) -> int | None:
        """The epoch of this leader. None on standby."""
        return self._epoch

    def stand_by(self) -> None:
        """Let no write through."""
        self._is_preparing = False

    def lead(self, epoch: int) -> None:
        """Let writes through while `epoch` is the newest."""
        self._is_preparing, self._epoch = False, epoch

    def check(self, connection: Connection) -> None:
        """Hold the epoch until the transaction ends. Raises Fenced if it is not the newest."""
        if self._is_preparing:
            return
        if self._epoch is None:
            raise Fenced("this control is on standby: it writes nothing")
        connection.execute(SHARE_EPOCH, {"epoch": self._epoch})
        newest = connection.execute(NEWEST).one_or_none()  # a snapshot of after the lock
        if newest is None or newest.epoch != self._epoch:
            by = "no control" if newest is None else f"{newest.holder} with epoch {newest.epoch}"
            self._refuse(f"epoch {self._epoch} is over: {by} leads")

    def _refuse(self, why: str) -> None:
        if self._reported.acquire(blocking=False):  # never released: only the first is news
            self._on_fenced(why)
        raise Fenced(why)


class FencedDatabase:
    """`database`, with each write behind `fence`. Implements `Database`."""

    def __init__(self, database: Database, fence: Fence) -> None:
        self._database = database
        self._fence = fence

    @property
    def trouble(self) -> str | None:
        """Why the last change could not be made. None after the next successful change."""
        return self._database.trouble

    @property
    def place(self) -> str:
        """Where the database is, for messages, without secrets."""
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
        """A durable transaction. Raises Fenced, with nothing changed, if the epoch is over."""
        with self._database.write(announce) as connection:
            self._fence.check(connection)
            yield connection

    def check(self) -> None:
        """Raise Fenced if the epoch is over. For use just before an act outside the database."""
        with self.write():
            pass

    def create(self, metadata: MetaData) -> None:
        """Make the tables that are missing, on standby too."""
        self._database.create(metadata)

    def wait_until(self, topic: str, condition: Callable[[], bool], timeout_s: float) -> bool:
        """Whether `condition` holds before `timeout_s` has passed."""
        return self._database.wait_until(topic, condition, timeout_s)

    def stamp(self) -> int | None:
        """A number that differs once any process has committed a change, or None."""
        return self._database.stamp()

    def close(self) -> None:
        """Close every connection."""
        self._database.close()
