"""A SQL database: transactions for all tables of the control plane.

A path is a file of SQLite, a URL a database of PostgreSQL. Statements are portable.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Protocol

from sqlalchemy import Connection, Executable, MetaData, Row

from hostelry.store.protocol import SCHEMES, StoreRefused
from hostelry.store.sqlite import SqliteFile


class Database(Protocol):
    """One database, which a process shares for all its tables. Thread-safe. Commits are durable.

    Every call raises StoreRefused if the database cannot be used at all, and StoreUnavailable if a
    transaction is impossible now. Then nothing was changed, unless the error says otherwise.
    """

    @property
    def trouble(self) -> str | None:
        """Why the last change failed. None after the next successful change."""
        ...

    @property
    def place(self) -> str:
        """The place of the database, for messages. Contains no secrets."""
        ...

    def read(self) -> AbstractContextManager[Connection]:
        """A transaction that sees one state of the database."""
        ...

    def query(
        self, statement: Executable, values: Mapping[str, Any] | None = None
    ) -> Sequence[Row[Any]]:
        """Run one reading statement in one round trip, and return its rows.

        `values` are the statement's parameters.
        """
        ...

    def write(self, announce: str | None = None) -> AbstractContextManager[Connection]:
        """A transaction that is durable at the end of the block. An exception rolls it back.

        After the commit, the topic `announce` is announced to `wait_until` in every process.
        Writers are isolated by READ COMMITTED only, so lock the rows that a decision depends on.
        """
        ...

    def create(self, metadata: MetaData) -> None:
        """Create the missing tables. Several processes may do so at once."""
        ...

    def wait_until(self, topic: str, condition: Callable[[], bool], timeout_s: float) -> bool:
        """Whether `condition` holds before `timeout_s` has passed.

        It is checked first, at each announcement of `topic`, and now and then in between.
        """
        ...

    def stamp(self) -> int | None:
        """A number that changes with every commit of any process.

        None if only a query can detect a change.
        """
        ...

    def close(self) -> None:
        """Close every connection, and end waits. Do not use the database afterwards."""
        ...


def open_database(where: Path | str, *, timeout_s: float | None = None) -> Database:
    """Open the database at a path (SQLite) or a URL ``postgresql://...``. Connects at first use.

    `timeout_s` limits each statement on a server, in place of the default of 10 s for PostgreSQL.
    Raises StoreRefused if the URL cannot be used, or if PostgreSQL's driver is missing.
    """
    if isinstance(where, Path) or "://" not in where:
        return SqliteFile(where)
    if not where.startswith(SCHEMES):
        scheme = where.partition("://")[0]
        raise StoreRefused(
            f"a store is a path, or a URL that begins with {SCHEMES[0]}; got {scheme[:40]}://..."
        )
    try:
        # Imported late, because the driver is an extra.
        from hostelry.store.postgres import TIMEOUT_S, PostgresDatabase
    except ImportError as error:
        raise StoreRefused(
            f"a store on PostgreSQL needs its driver: pip install 'hostelry[postgresql]' ({error})"
        ) from error
    return PostgresDatabase(where, timeout_s=timeout_s or TIMEOUT_S)
