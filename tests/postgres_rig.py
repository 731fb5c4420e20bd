"""A PostgreSQL server for tests: one per pytest process, with an empty database per test.

It keeps its promises (fsync is on), orders text differently from SQLite by default, and ends with
the process that started it.
"""

import atexit
import contextlib
import itertools
import os
import signal
from collections.abc import Iterator
from functools import cache

import psycopg

from hostelry_lab.cluster.own_postgres import USER, OwnPostgres

PASSWORD = "pw @/:?%&#'x"  # every character with a special meaning in URLs
QUOTED_PASSWORD = "pw%20%40%2F%3A%3F%25%26%23%27x"
SETTINGS = (
    "shared_buffers=16MB",
    "max_connections=40",
    "autovacuum=off",
    "jit=off",
    "listen_addresses=127.0.0.1",
    "log_connections=off",
)
LOCALE = ("--locale", "C.UTF-8", "--locale-provider", "icu", "--icu-locale", "en-US")
EMPTIED = "DROP SCHEMA public CASCADE; CREATE SCHEMA public; GRANT USAGE ON SCHEMA public TO PUBLIC"
_numbers = itertools.count(1)


class PostgresServer:
    """One server, on a free port of 127.0.0.1 and a socket in its folder."""

    def __init__(self) -> None:
        self._own = own = OwnPostgres(password=PASSWORD, settings=SETTINGS, locale=LOCALE)
        self.folder, self.port = own.folder, own.port
        self.start, self.stop, self.kill, self.close = own.start, own.stop, own.kill, own.close
        self.log, self.processes = own.log, own.processes
        self._emptied: list[str] = []
        own.begin()

    @property
    def pid(self) -> int:
        """The postmaster's process id."""
        return self._own.pid

    def url(self, database: str, *, user: str = USER, password: str = QUOTED_PASSWORD) -> str:
        """The URL of one of the server's databases."""
        return f"postgresql://{user}:{password}@127.0.0.1:{self.port}/{database}"

    def make_database(self, options: str = "ENCODING 'UTF8' TEMPLATE template0") -> str:
        """Create an empty database, and return its name."""
        name = _new_name()
        self.execute(f"CREATE DATABASE {name} {options}")
        return name

    def take_database(self) -> str:
        """Take an emptied or new database, whose name was never used. Returns the name."""
        return self._emptied.pop() if self._emptied else self.make_database()

    def give_back(self, name: str) -> None:
        """End its sessions, empty it and rename it, which is cheaper than a new database."""
        fresh = _new_name()
        self.execute(
            "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity "
            f"WHERE datname = '{name}'; ALTER DATABASE {name} RENAME TO {fresh}"
        )
        self.execute(EMPTIED, fresh)
        self._emptied.append(fresh)

    def drop_database(self, name: str) -> None:
        """End the sessions of a database, and remove it."""
        self.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")

    def execute(self, statement: str, database: str = "postgres") -> list[tuple[object, ...]]:
        """Run one statement outside of transactions, and return its rows."""
        with psycopg.connect(
            host=str(self.folder), port=self.port, user=USER, password=PASSWORD, dbname=database,
            autocommit=True, connect_timeout=10,
        ) as connection:  # fmt: skip
            cursor = connection.execute(statement.encode())
            return cursor.fetchall() if cursor.description else []

    def restart(self) -> None:
        """Stop the server as an operator does, and start it again on the same port."""
        self.stop()
        self.start()

    @contextlib.contextmanager
    def frozen(self) -> Iterator[None]:
        """Freeze all its processes during the block. The kernel still accepts connections."""
        stopped = self.processes()
        for pid in stopped:
            os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            for pid in reversed(stopped):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)


def _new_name() -> str:
    return f"test_{os.getpid()}_{next(_numbers)}"


@cache
def postgres_server() -> PostgresServer:
    """This process's server, which the first call starts. It ends with the process."""
    server = PostgresServer()
    atexit.register(server.close)
    return server


@contextlib.contextmanager
def postgres_database() -> Iterator[str]:
    """The URL of an empty database, which is removed after the block."""
    server = postgres_server()
    name = server.take_database()
    try:
        yield server.url(name)
    finally:
        server.give_back(name)
