"""A PostgreSQL database: a pool of connections that recovers by itself, and translated errors."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import sqlalchemy as sa
from sqlalchemy import Connection, MetaData
from sqlalchemy.pool import ConnectionPoolEntry

from hostelry.base.errors import HostelryError
from hostelry.store.announcements import Announcements
from hostelry.store.postgres_connection import (
    CHANNEL,
    PostgresListener,
    connect,
    connection_parameters,
    get_place,
    is_readable,
)
from hostelry.store.protocol import StoreRefused, StoreUnavailable
from hostelry.store.schema import lock_schema

TIMEOUT_S = 10.0  # for a statement, for a lock, and for a free connection of the pool
CONNECTIONS = 4  # always open
MORE_CONNECTIONS = 6  # opened when the others are in use
FRESH = "hostelry_is_fresh"  # key in the notes of a pool entry
# Errors that a retry cannot cure: SQLSTATEs, and the server's texts for errors without SQLSTATE.
REFUSALS = {
    "28P01": "the password is wrong; set it in the URL, in PGPASSWORD or in PGPASSFILE",
    "28000": "the server does not let this user in; check pg_hba.conf and the user",
    "3D000": "there is no such database; make it with CREATE DATABASE ... ENCODING 'UTF8'",
    "42501": "the user has no right to do this; make the user the database's owner",
    "3F000": "there is no schema to make tables in; check the user's search_path",
}
REFUSED_CONNECTIONS = (
    ("password authentication failed", "28P01"),
    ("no password supplied", "28P01"),
    ("no pg_hba.conf entry", "28000"),
    ("pg_hba.conf rejects", "28000"),
    ("is not permitted to log in", "28000"),
    ("authentication failed", "28000"),
    ("permission denied for database", "42501"),
)
TROUBLES = {
    "53100": "its disk is full; free some space",
    "53200": "it is out of memory",
    "53300": "it has too many connections; raise max_connections",
    "55P03": f"another transaction held a lock for {TIMEOUT_S:.0f} s",
    "57014": "a statement took too long",
    "57P01": "it was stopped, or restarts",
    "57P02": "it crashed, and recovers",
    "57P03": "it is starting, or stopping",
    "25006": "it is read-only, as a standby is",
    "25P03": "a transaction paused for too long",
}


class PostgresDatabase:
    """A PostgreSQL database, by URL. Thread-safe.

    Raises StoreRefused if the database cannot be used at all, and StoreUnavailable if a
    transaction is impossible now. Then nothing was changed, unless the error says otherwise.
    """

    def __init__(self, url: str, *, timeout_s: float = TIMEOUT_S) -> None:
        self.trouble: str | None = None
        self._parameters = connection_parameters(url)
        self.place = get_place(self._parameters)
        self._timeout_s = timeout_s
        self._is_closed = False
        self._engine = sa.create_engine(
            "postgresql+psycopg://",
            creator=lambda: connect(self._parameters, timeout_s, autocommit=False),
            pool_size=CONNECTIONS,
            max_overflow=MORE_CONNECTIONS,
            pool_timeout=timeout_s,
            pool_use_lifo=True,  # idle connections may then be closed by proxies without harm
            use_native_hstore=False,
        )
        sa.event.listen(self._engine, "connect", note_fresh)
        sa.event.listen(self._engine, "checkout", check_open)
        sa.event.listen(self._engine, "checkin", self._close_late)
        # Several statements see one state only with REPEATABLE READ. Such reads take no locks.
        self._reading = self._engine.execution_options(
            isolation_level="REPEATABLE READ", postgresql_readonly=True
        )
        # Without begin and commit, a query needs one round trip instead of three.
        self._querying = self._engine.execution_options(isolation_level="AUTOCOMMIT")
        self._announcements = Announcements()
        self._listener = PostgresListener(
            lambda: connect(self._parameters, timeout_s, autocommit=True), self._announcements
        )

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """A transaction that sees one state of the database."""
        with self._translate_errors(), self._reading.connect() as connection:
            yield connection

    def query(
        self, statement: sa.Executable, values: Mapping[str, Any] | None = None
    ) -> Sequence[sa.Row[Any]]:
        """The rows of one reading statement. A single statement sees one state of the database."""
        with self._translate_errors(), self._querying.connect() as connection:
            return connection.execute(statement, values).all()

    @contextmanager
    def write(self, announce: str | None = None) -> Iterator[Connection]:
        """A transaction that is durable at the end of the block. An exception rolls it back.

        READ COMMITTED: after a statement has locked a row, the next one sees all earlier commits.
        """
        with self._translate_errors() as commit, self._engine.begin() as connection:
            yield connection
            if announce is not None:
                connection.execute(sa.select(sa.func.pg_notify(CHANNEL, announce)))
            commit.begun = True
        self.trouble = None
        if announce is not None:
            self._announcements.announce(announce)

    def create(self, metadata: MetaData) -> None:
        """Create the missing tables. Several processes may do so at once."""
        with self.write() as connection:
            lock_schema(connection)
            metadata.create_all(connection)

    def wait_until(self, topic: str, condition: Callable[[], bool], timeout_s: float) -> bool:
        """Whether `condition` holds before `timeout_s` has passed.

        It is checked at each announcement of any process, and often while none can be received.
        """
        if timeout_s > 0:
            self._listener.start()
        return self._announcements.wait_until(
            topic, condition, timeout_s, lambda: self._listener.poll_s
        )

    def stamp(self) -> int | None:
        """Return None, because only a query can detect a change."""
        return None

    def close(self) -> None:
        """Close every connection, including used connections, and end waits.

        Do not use the database afterwards.
        """
        self._is_closed = True
        self._announcements.end()
        self._listener.close()
        self._engine.dispose()

    def _close_late(self, raw: Any, record: ConnectionPoolEntry) -> None:
        """Close a connection that was in use during `close`, because its pool is gone."""
        if self._is_closed and raw is not None:
            record.close()

    @contextmanager
    def _translate_errors(self) -> Iterator["_Commit"]:
        commit = _Commit()
        try:
            yield commit
        except sa.exc.DBAPIError as error:
            unknown = commit.begun and error.connection_invalidated
            found = database_error(self.place, error, unknown=unknown)
            if isinstance(found, StoreUnavailable) and _is_trouble(error):
                self.trouble = str(found)
            raise found from error
        except sa.exc.TimeoutError as error:
            found = StoreUnavailable(
                f"the store {self.place} is unavailable: all {CONNECTIONS + MORE_CONNECTIONS}"
                f" connections of this process were in use for {self._timeout_s:g} s"
            )
            self.trouble = str(found)
            raise found from error


class _Commit:
    """Whether the commit of a transaction has been sent."""

    begun = False


def note_fresh(raw: Any, record: ConnectionPoolEntry) -> None:
    """Mark a new connection, so that `check_open` does not test it."""
    record.info[FRESH] = True


def check_open(raw: Any, record: ConnectionPoolEntry, proxy: Any) -> None:
    """Replace a pooled connection that the server has closed, without a round trip.

    A server sends nothing on an idle connection except the reason for its end. A new connection to
    a stopping server is not replaced, since after two tries the pool raises another kind of error.
    """
    if record.info.pop(FRESH, False):
        return
    if raw.closed or is_readable(raw.fileno(), 0.0):
        raise sa.exc.DisconnectionError


def database_error(place: str, error: sa.exc.DBAPIError, *, unknown: bool = False) -> HostelryError:
    """Convert an error of the database. The message has the cause and the remedy."""
    state, message = get_sqlstate(error), get_message(error)
    if state in REFUSALS:
        return StoreRefused(f"the store {place} was refused: {REFUSALS[state]} ({message})")
    what = TROUBLES.get(state, "the database answered with an error")
    if _is_unreachable(error, state):
        what = "the server cannot be reached"
    if unknown:
        what += "; the last write may have been done, read it again"
    return StoreUnavailable(f"the store {place} is unavailable: {what} ({message})")


def get_sqlstate(error: sa.exc.DBAPIError) -> str:
    """Return the SQLSTATE, or "" if no server answered."""
    state = getattr(error.orig, "sqlstate", None)
    if state:
        return str(state)
    message = str(error.orig)
    for text, found in REFUSED_CONNECTIONS:
        if text in message:
            return found
    if "FATAL" in message and "database " in message and "does not exist" in message:
        return "3D000"
    if "FATAL" in message and "role " in message and "does not exist" in message:
        return "28000"
    if "too many clients" in message or "connection slots are reserved" in message:
        return "53300"
    return ""


def get_message(error: sa.exc.DBAPIError) -> str:
    """Return the database's message on one line."""
    return " ".join(str(error.orig).split())


def _is_trouble(error: sa.exc.DBAPIError) -> bool:
    """Whether the database is the cause, and not the statement."""
    state = get_sqlstate(error)
    return state in TROUBLES or _is_unreachable(error, state)


def _is_unreachable(error: sa.exc.DBAPIError, state: str) -> bool:
    """True if no server answered. The driver's own refusals have no SQLSTATE either."""
    return not state and isinstance(error, sa.exc.OperationalError | sa.exc.InterfaceError)
