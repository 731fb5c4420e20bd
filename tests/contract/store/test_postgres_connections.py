"""Every connection to PostgreSQL is closed in the end, and ended connections are replaced."""

import os
import resource
from collections.abc import Iterator
from contextlib import ExitStack, closing
from typing import Any

import pytest
import sqlalchemy as sa
from tests.postgres_rig import postgres_database, postgres_server

from hostelry.domain.scope import Scope
from hostelry.store import postgres
from hostelry.store.postgres import PostgresDatabase
from hostelry.store.postgres_connection import TimedConnection, connect, is_readable
from hostelry.store.protocol import Key, StoreUnavailable
from hostelry.store.sql import SqlStore


def key(name: str) -> Key:
    return Key(kind="endpoint", scope=Scope("123456789012", "us-west-2"), name=name)


@pytest.fixture
def url() -> Iterator[str]:
    with postgres_database() as found:
        yield found


def test_a_connection_in_use_while_its_database_is_closed_is_closed_with_its_transaction(
    url: str,
) -> None:
    database = PostgresDatabase(url)
    with database.read() as connection:
        raw = connection.connection.driver_connection
        database.close()
        assert connection.execute(sa.text("SELECT 1")).scalar_one() == 1
    assert raw is not None
    assert raw.closed


def test_a_server_that_ends_each_new_connection_is_unavailable(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[TimedConnection] = []

    def connect_and_end(parameters: dict[str, Any], timeout_s: float, *, autocommit: bool) -> Any:
        made.append(connect(parameters, timeout_s, autocommit=autocommit))
        postgres_server().execute(f"SELECT pg_terminate_backend({made[-1].info.backend_pid})")
        assert is_readable(made[-1].fileno(), 60.0)
        return made[-1]

    monkeypatch.setattr(postgres, "connect", connect_and_end)
    database = PostgresDatabase(url)
    for _ in range(2):
        with pytest.raises(StoreUnavailable):
            database.query(sa.text("SELECT 1"))
    database.close()
    assert all(it.closed for it in made)


def test_a_process_with_many_open_files_sees_that_a_connection_was_ended(url: str) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, max(soft, 4096)), hard))
    with ExitStack() as files, closing(SqlStore(PostgresDatabase(url))) as store:
        for _ in range(1100):  # select() takes no number above 1023
            files.enter_context(open(os.devnull))
        store.put(key("a"), b"", expect=None)
        postgres_server().restart()
        store.put(key("b"), b"", expect=None)
        assert store.wait(1, 60.0)
        assert store.revision() == 2
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
