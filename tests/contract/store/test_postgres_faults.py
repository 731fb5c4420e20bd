"""Faults that a store on PostgreSQL withstands: deaths and freezes on both sides, refusals."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from urllib.parse import unquote

import pytest
import sqlalchemy as sa
from tests.postgres_rig import QUOTED_PASSWORD, postgres_database, postgres_server

from hostelry.base.errors import Conflict, HostelryError
from hostelry.domain.scope import Scope
from hostelry.store import postgres_connection as postgres_listener
from hostelry.store.database import open_database
from hostelry.store.postgres import PostgresDatabase
from hostelry.store.protocol import Key, StoreRefused, StoreUnavailable
from hostelry.store.sql import SqlStore, insert_row, next_revision
from hostelry.store.tables import RECORDS

SCOPE = Scope("123456789012", "us-west-2")
SHORT_S = 1.0
# Prints the name of each write once it is acknowledged.
WRITER = """
import sys
from hostelry.domain.scope import Scope
from hostelry.store.database import open_database
from hostelry.store.protocol import Key
from hostelry.store.sql import SqlStore

store = SqlStore(open_database(sys.argv[1]))
for number in range(10**9):
    key = Key(kind="endpoint", scope=Scope("123456789012", "us-west-2"), name=f"n{number}")
    store.put(key, b"x" * 2000, expect=None)
    print(key.name, flush=True)
"""
# Has everything of a write done but its commit, and then does nothing more.
HALF_WRITER = """
import sys
from hostelry.domain.scope import Scope
from hostelry.store.database import open_database
from hostelry.store.protocol import Key
from hostelry.store.sql import SqlStore, insert_row, next_revision

database = open_database(sys.argv[1], timeout_s=float(sys.argv[2]))
store = SqlStore(database)
key = Key(kind="endpoint", scope=Scope("123456789012", "us-west-2"), name="half")
with database.write() as connection:
    insert_row(connection, key, b"", next_revision(connection))
    print("written", flush=True)
    sys.stdin.read()
"""


def key(name: str) -> Key:
    return Key(kind="endpoint", scope=SCOPE, name=name)


@pytest.fixture
def url() -> Iterator[str]:
    with postgres_database() as found:
        yield found


@contextmanager
def store_at(url: str, timeout_s: float = 10.0) -> Iterator[SqlStore]:
    store = SqlStore(PostgresDatabase(url, timeout_s=timeout_s))
    try:
        yield store
    finally:
        store.close()


@contextmanager
def program(text: str, *arguments: str) -> Iterator["subprocess.Popen[str]"]:
    with subprocess.Popen(
        [sys.executable, "-c", text, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def lines(process: "subprocess.Popen[str]", count: int) -> list[str]:
    assert process.stdout is not None
    return [process.stdout.readline().strip() for _ in range(count)]


def eventually(act: Callable[[], object]) -> None:
    """Repeat `act` while the store is unavailable. pytest limits the time."""
    while True:
        with suppress(StoreUnavailable):
            act()
            return


def test_no_acknowledged_write_is_lost_when_the_writer_is_killed(url: str) -> None:
    with program(WRITER, url) as writer:
        acknowledged = lines(writer, 20)
        writer.kill()
        writer.wait()
        assert writer.stdout is not None
        acknowledged += writer.stdout.read().split()
    with store_at(url) as store:
        present = {it.key.name: it.version for it in store.list("endpoint")}
        assert set(acknowledged) <= set(present)
        assert max(present.values()) == store.revision() == len(present)


def test_a_writer_killed_before_its_commit_leaves_nothing_and_blocks_nothing(url: str) -> None:
    with store_at(url) as store, program(HALF_WRITER, url, "60") as half:
        lines(half, 1)
        half.kill()
        half.wait()
        assert store.put(key("next"), b"", expect=None).version == 1
        assert store.get(key("half")) is None


def test_a_writer_frozen_before_its_commit_blocks_the_others_for_a_time_only(url: str) -> None:
    with store_at(url) as store, program(HALF_WRITER, url, str(SHORT_S)) as half:
        lines(half, 1)
        os.kill(half.pid, signal.SIGSTOP)
        assert store.put(key("next"), b"", expect=None).version == 1
        assert store.get(key("half")) is None


def test_no_acknowledged_write_is_lost_when_the_server_is_killed(url: str) -> None:
    with store_at(url) as store:
        with program(WRITER, url) as writer:
            acknowledged = lines(writer, 20)
            postgres_server().kill()
            assert writer.stdout is not None
            acknowledged += writer.stdout.read().split()
        with pytest.raises(StoreUnavailable, match=r"cannot be reached|was stopped|crashed"):
            store.revision()
        postgres_server().start()
        assert set(acknowledged) <= {it.key.name for it in store.list("endpoint")}
        store.put(key("after"), b"", expect=None)


def test_a_restart_of_the_server_is_not_noticed_by_the_next_call(url: str) -> None:
    with store_at(url) as store:
        written = store.put(key("a"), b"1", expect=None)
        postgres_server().restart()
        assert store.put(key("a"), b"2", expect=written.version).version == 2
        assert store.get(key("a")) is not None


def test_a_wait_goes_over_a_restart_of_the_server(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_listener, "LISTENING_POLL_S", 3600.0)  # only an announcement wakes
    with store_at(url) as store, store_at(url) as other:
        seen: list[bool] = []
        waiting = threading.Event()

        def wait() -> None:
            waiting.set()
            eventually(lambda: seen.append(store.wait(1, 3600.0)))

        thread = threading.Thread(target=wait, daemon=True)
        first = other.put(key("a"), b"1", expect=None)
        thread.start()
        waiting.wait()
        postgres_server().restart()
        other.put(key("a"), b"2", expect=first.version)
        thread.join(60.0)
        assert seen == [True]


def test_a_wait_wakes_by_a_write_of_another_process_without_looking(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_listener, "LISTENING_POLL_S", 3600.0)
    with store_at(url) as store, program(WRITER, url) as writer:
        lines(writer, 1)
        for _ in range(3):
            assert store.wait(store.revision(), 3600.0)


def test_a_frozen_server_is_unavailable_and_then_serves_again(url: str) -> None:
    with store_at(f"{url}?connect_timeout=2", SHORT_S) as store:
        store.put(key("a"), b"", expect=None)
        with postgres_server().frozen():
            for act in (store.revision, lambda: store.put(key("b"), b"", expect=None)):
                with pytest.raises(StoreUnavailable, match=r"did not answer within 2 s|timeout"):
                    act()
            with pytest.raises(StoreUnavailable):
                store.wait(1, 3600.0)
        eventually(lambda: store.put(key("c"), b"", expect=None))
        assert {it.key.name for it in store.list("endpoint")} == {"a", "c"}


def test_a_commit_whose_answer_is_lost_is_reported_as_perhaps_done(url: str) -> None:
    database = PostgresDatabase(url, timeout_s=SHORT_S)
    store = SqlStore(database)
    with ExitStack() as frozen:

        def write() -> None:
            with database.write() as connection:
                insert_row(connection, key("a"), b"", next_revision(connection))
                frozen.enter_context(postgres_server().frozen())

        with pytest.raises(StoreUnavailable, match="may have been done, read it again"):
            write()
    assert "did not answer" in (database.trouble or "")
    eventually(lambda: store.put(key("b"), b"", expect=None))
    assert database.trouble is None
    assert store.revision() in (1, 2)
    store.close()


def test_writers_of_two_processes_never_show_a_watcher_a_gap(url: str) -> None:
    """Revisions appear in order: no later one appears below a revision that a watcher has seen."""
    rounds = 60
    with store_at(url) as left, store_at(url) as right, store_at(url) as watcher:

        def write(store: SqlStore, name: str) -> None:
            for number in range(rounds):
                store.put(key(f"{name}{number}"), b"", expect=None)

        threads = [
            threading.Thread(target=write, args=(store, name))
            for store, name in ((left, "a"), (left, "b"), (right, "c"))
        ]
        for thread in threads:
            thread.start()
        seen: list[int] = []
        while len(seen) < 3 * rounds:
            since = seen[-1] if seen else 0
            assert watcher.wait(since, 60.0)
            seen += [it.revision for it in watcher.changes(since)]
        for thread in threads:
            thread.join(60.0)
    assert seen == list(range(1, 3 * rounds + 1))


def test_two_stores_race_for_a_version_and_one_wins(url: str) -> None:
    with store_at(url) as left, store_at(url) as right:
        written = left.put(key("a"), b"1", expect=None)
        again = right.put(key("a"), b"2", expect=written.version)
        with pytest.raises(Conflict):
            left.put(key("a"), b"3", expect=written.version)
        assert left.get(key("a")) == again


def test_several_processes_may_make_the_tables_at_once(url: str) -> None:
    failures: list[HostelryError] = []

    def make() -> None:
        try:
            with store_at(url) as store:
                store.revision()
        except HostelryError as error:
            failures.append(error)

    threads = [threading.Thread(target=make) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60.0)
    assert failures == []


def newer(url: str) -> str:
    with store_at(url):
        database = url.rpartition("/")[2]
        postgres_server().execute("UPDATE alembic_version SET version_num = '9999'", database)
        postgres_server().execute("UPDATE schema_floor SET revision = '9998'", database)
    return url


def with_role(url: str, options: str) -> str:
    """The URL for a new user that may connect, and has these rights."""
    server, database = postgres_server(), url.rpartition("/")[2]
    name = f"role_{database}"
    server.execute(f"CREATE ROLE {name} LOGIN PASSWORD 'p' {options}")
    return server.url(database, user=name, password="p")


@pytest.mark.parametrize(
    ("made", "kind", "reason"),
    [
        pytest.param(newer, StoreRefused, "9999, made by a newer hostelry", id="a newer schema"),
        pytest.param(
            lambda it: it.replace(QUOTED_PASSWORD, "wrong-secret"),
            StoreRefused,
            "the password is wrong",
            id="a wrong password",
        ),
        pytest.param(
            lambda it: it.replace("hostelry:", "nobody-we-know:"),
            StoreRefused,
            "the password is wrong",  # the server does not say which users there are
            id="an unknown user",
        ),
        pytest.param(
            lambda it: f"{it}_missing", StoreRefused, "no such database", id="no database"
        ),
        pytest.param(
            lambda it: with_role(it, ""), StoreRefused, "no right to do this", id="no rights"
        ),
        pytest.param(
            lambda it: with_role(it, "CONNECTION LIMIT 0"),
            StoreUnavailable,
            "too many connections",
            id="too many connections",
        ),
        pytest.param(
            lambda it: f"{it}?sslmode=require",
            StoreUnavailable,
            "SSL",
            id="TLS, which the server has not",
        ),
        pytest.param(
            lambda it: it.replace(f":{postgres_server().port}/", ":1/"),
            StoreUnavailable,
            "cannot be reached",
            id="a port without a server",
        ),
        pytest.param(
            lambda it: f"{it}?statement_timeout=5",
            StoreRefused,
            "its form is postgresql://",
            id="a parameter that does not exist",
        ),
        pytest.param(
            lambda it: it.replace(QUOTED_PASSWORD, "wrong-secret@x"),
            StoreRefused,
            "write %40 for @",
            id="a password that is not quoted",
        ),
        pytest.param(
            lambda it: it.replace(QUOTED_PASSWORD, "wrong-secret/x"),
            StoreRefused,
            "%2F for /",
            id="a password with a slash",
        ),
        pytest.param(
            lambda it: it.replace("postgresql://", "mysql://"),
            StoreRefused,
            "begins with postgresql://",
            id="another database",
        ),
    ],
)
def test_a_refusal_has_its_reason_and_no_password(
    url: str, made: Callable[[str], str], kind: type[HostelryError], reason: str
) -> None:
    with pytest.raises(HostelryError, match=reason) as caught:
        SqlStore(open_database(made(url))).close()
    assert type(caught.value) is kind
    secrets = (QUOTED_PASSWORD, unquote(QUOTED_PASSWORD), "wrong-secret")
    error: BaseException | None = caught.value
    while error is not None:
        assert not [it for it in secrets if it in f"{error} {error!r}"]
        error = error.__cause__


def test_a_database_of_another_encoding_is_refused() -> None:
    server = postgres_server()
    name = server.make_database(
        "ENCODING 'LATIN1' LOCALE_PROVIDER libc LOCALE 'C' TEMPLATE template0"
    )
    try:
        with pytest.raises(StoreRefused, match="encoding is LATIN1; make the database with"):
            SqlStore(open_database(server.url(name))).close()
    finally:
        server.drop_database(name)


def test_the_password_may_come_from_the_environment(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGPASSWORD", unquote(QUOTED_PASSWORD))
    with store_at(url.replace(f":{QUOTED_PASSWORD}@", "@")) as store:
        assert store.revision() == 0


def test_text_is_compared_by_code_point_and_any_character_is_kept(url: str) -> None:
    names = ["", "\0", "\0\x01", "\x01", "\x02", "B", "a-10", "a-2", "b", "ä"]
    database = PostgresDatabase(url)
    store = SqlStore(database)
    for name in reversed(names):
        store.put(key(name), b"", expect=None)
    with database.read() as connection:
        found = connection.execute(sa.select(RECORDS.c.name).order_by(RECORDS.c.name))
        assert list(found.scalars()) == names
    store.close()


def test_a_full_disk_is_a_clear_error_and_loses_nothing(tmp_path: Path) -> None:
    server = postgres_server()
    folder = server.folder / "small"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", str(folder)]
    if subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        pytest.skip("no filesystem can be mounted here")
    try:
        owner = server.folder.stat()
        os.chown(folder, owner.st_uid, owner.st_gid)
        server.execute(f"CREATE TABLESPACE small LOCATION '{folder}'")
        name = server.make_database("ENCODING 'UTF8' TEMPLATE template0 TABLESPACE small")
        database = PostgresDatabase(server.url(name))
        store = SqlStore(database)
        names: list[str] = []

        def fill() -> None:
            while True:
                store.put(key(f"n{len(names)}"), os.urandom(100_000), expect=None)
                names.append(f"n{len(names)}")

        with pytest.raises(StoreUnavailable, match="its disk is full; free some space"):
            fill()
        assert names
        assert "disk is full" in (database.trouble or "")
        assert {it.key.name for it in store.list("endpoint")} == set(names)
        larger = ["mount", "-o", "remount,size=48m", str(folder)]
        subprocess.run(larger, capture_output=True, check=True)
        store.put(key("after"), os.urandom(100_000), expect=None)
        assert database.trouble is None
        store.close()
        server.drop_database(name)
        server.execute("DROP TABLESPACE small")
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def test_the_url_asks_for_tls_and_a_server_that_proves_itself(url: str) -> None:
    """A certificate of the server's own authority is accepted, one of another's is not."""
    server = postgres_server()
    certificate, other = server.folder / "tls.crt", server.folder / "other.crt"
    for path in (certificate, other):
        make = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]
        make += [
            "-nodes",
            "-days",
            "1",
            "-subj",
            "/CN=db",
            "-addext",
            "subjectAltName=IP:127.0.0.1",
        ]
        make += ["-keyout", str(path.with_suffix(".key")), "-out", str(path)]
        subprocess.run(make, capture_output=True, check=True)
        owner = server.folder.stat()
        os.chown(path.with_suffix(".key"), owner.st_uid, owner.st_gid)
    values = {"ssl_cert_file": certificate, "ssl_key_file": certificate.with_suffix(".key")}
    try:
        for name, value in {**values, "ssl": "on"}.items():
            server.execute(f"ALTER SYSTEM SET {name} = '{value}'")
        server.restart()
        with store_at(f"{url}?sslmode=verify-full&sslrootcert={certificate}") as store:
            written = store.put(key("a"), b"", expect=None)
            server.restart()  # a connection that was closed is seen through TLS, too
            assert store.get(key("a")) == written
            assert store.wait(0, 60.0)
        with pytest.raises(StoreUnavailable, match="certificate verify failed"):
            SqlStore(open_database(f"{url}?sslmode=verify-full&sslrootcert={other}"))
    finally:
        server.execute("ALTER SYSTEM RESET ALL")
        server.restart()
