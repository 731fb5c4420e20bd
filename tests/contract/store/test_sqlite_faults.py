"""Faults that a durable store withstands: a kill in mid-write, a full disk, foreign files."""

import os
import sqlite3
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.cases import case, cases

from hostelry.base.errors import Conflict, HostelryError, RetryableError, TerminalError
from hostelry.domain.scope import Scope
from hostelry.store.protocol import Key, StoreRefused, StoreUnavailable
from hostelry.store.sql import SqlStore
from hostelry.store.sqlite import SqliteFile

SCOPE = Scope("123456789012", "us-west-2")
# Prints the name of each acknowledged write. At the first error it prints the error and ends.
WRITER = """
import sys
from hostelry.base.errors import HostelryError
from hostelry.domain.scope import Scope
from hostelry.store.protocol import Key
from hostelry.store.sql import SqlStore
from hostelry.store.sqlite import SqliteFile

path, limit_bytes, ceiling = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
store = SqlStore(SqliteFile(path))
if limit_bytes:
    import resource
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit_bytes, limit_bytes))
number = 0
try:
    while number < ceiling:
        number += 1
        key = Key(kind="endpoint", scope=Scope("123456789012", "us-west-2"), name=f"n{number}")
        version = store.put(key, b"x" * 2000, expect=None).version
        if number % 3 == 0:
            store.put(key, b"y" * 2000, expect=version)
        print(key.name, flush=True)
except HostelryError as error:
    print(type(error).__name__, error, flush=True)
    # The store is still readable, and what was acknowledged is there.
    print(len(store.list("endpoint")), flush=True)
"""


def key(name: str) -> Key:
    return Key(kind="endpoint", scope=SCOPE, name=name)


def start_writer(path: Path, limit_bytes: int = 0, ceiling: int = 10**9) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", WRITER, str(path), str(limit_bytes), str(ceiling)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def test_everything_is_there_after_a_reopen(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    first = SqlStore(SqliteFile(path))
    written = first.put(key("a"), b"1", expect=None)
    gone = first.put(key("b"), b"2", expect=None)
    first.delete(key("b"), expect=gone.version)
    revision = first.revision()
    first.close()
    second = SqlStore(SqliteFile(path))
    assert second.get(key("a")) == written
    assert second.revision() == revision
    assert [it.key.name for it in second.changes(gone.version)] == ["b"]
    with pytest.raises(Conflict):
        second.put(key("a"), b"3", expect=None)
    assert second.put(key("a"), b"3", expect=written.version).version == revision + 1
    second.close()


def test_no_acknowledged_write_is_lost_when_the_writer_is_killed(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    acknowledged: list[str] = []
    for _ in range(2):
        with start_writer(path) as writer:
            assert writer.stdout is not None
            started = len(acknowledged)
            for line in writer.stdout:
                acknowledged.append(line.strip())
                if len(acknowledged) - started == 25:
                    writer.kill()
        store = SqlStore(SqliteFile(path))
        present = {record.key.name: record for record in store.list("endpoint")}
        assert set(acknowledged) <= set(present)
        assert max(record.version for record in present.values()) == store.revision()
        for name in list(present):
            store.delete(key(name), expect=present[name].version)
        acknowledged.clear()
        store.close()


def test_a_full_disk_is_a_clear_error_and_loses_nothing(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    with start_writer(path, limit_bytes=300_000, ceiling=10_000) as writer:
        assert writer.stdout is not None
        *names, error, count = writer.stdout.read().splitlines()
    assert names
    assert error.startswith("StoreUnavailable")
    assert str(path) in error
    assert "disk" in error
    assert int(count) >= len(names)
    store = SqlStore(SqliteFile(path))
    assert set(names) <= {record.key.name for record in store.list("endpoint")}
    store.put(key("after"), b"", expect=None)
    store.close()


def opened(path: Path) -> None:
    store = SqlStore(SqliteFile(path))
    store.put(key("a"), b"", expect=None)
    store.close()


def make_newer(path: Path) -> None:
    opened(path)
    with sqlite3.connect(path) as raw:
        raw.execute("UPDATE alembic_version SET version_num = '9999'")
        raw.execute("UPDATE schema_floor SET revision = '9998'")
    raw.close()


def make_text(path: Path) -> None:
    path.write_text("these are not the bytes of a database, and there are enough of them" * 100)


def make_folder(path: Path) -> None:
    path.mkdir()


def make_damaged(path: Path) -> None:
    opened(path)
    path.with_name("state.db-wal").unlink(missing_ok=True)
    content = path.read_bytes()
    path.write_bytes(content[:100] + b"\xff" * (len(content) - 100))


@cases(
    "prepare, reason",
    case("a newer version's database", make_newer, "9999, made by a newer hostelry"),
    case("a text file", make_text, "not a database"),
    case("a folder", make_folder, "cannot be opened"),
    case("a damaged database", make_damaged, "damaged"),
    case("a missing folder", lambda path: None, "folder exists"),
)
def test_what_is_no_store_of_ours_is_refused_and_left_as_it_is(
    tmp_path: Path, prepare: Callable[[Path], None], reason: str
) -> None:
    missing = reason == "folder exists"
    path = tmp_path / "missing" / "state.db" if missing else tmp_path / "state.db"
    prepare(path)
    before = path.read_bytes() if path.is_file() else None
    with pytest.raises(StoreRefused, match=reason):
        SqlStore(SqliteFile(path))
    assert (path.read_bytes() if path.is_file() else None) == before


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_a_file_that_may_not_be_written_is_refused() -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "state.db"
        opened(path)
        for suffix in ("-wal", "-shm"):
            path.with_name(path.name + suffix).unlink(missing_ok=True)
        path.chmod(0o444)
        Path(folder).chmod(0o555)
        failure = in_child_without_rights(lambda: opened(path))
        Path(folder).chmod(0o755)
    assert failure.startswith("StoreRefused")
    assert "owner and mode" in failure


def in_child_without_rights(act: Callable[[], None]) -> str:
    """The HostelryError that `act` raises in a child that is not the superuser."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        failure = "no error"
        try:
            if os.geteuid() == 0:
                os.setuid(65534)
            act()
        except HostelryError as error:
            failure = f"{type(error).__name__} {error}"
        finally:
            os.write(writing, failure.encode())
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as answer:
        failure = answer.read()
    os.waitpid(child, 0)
    return failure


def test_two_stores_on_one_file_see_each_others_writes(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    left, right = SqlStore(SqliteFile(path)), SqlStore(SqliteFile(path))
    written = left.put(key("a"), b"1", expect=None)
    assert right.get(key("a")) == written
    assert right.wait(0, 0.0)
    again = right.put(key("a"), b"2", expect=written.version)
    with pytest.raises(Conflict):
        left.put(key("a"), b"3", expect=written.version)
    assert left.get(key("a")) == again
    left.close()
    right.close()


def test_the_file_is_its_owners_alone(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    store = SqlStore(SqliteFile(path))
    store.put(key("a"), b"1", expect=None)
    for file in tmp_path.iterdir():
        assert stat.S_IMODE(file.stat().st_mode) == 0o600, file.name
    store.close()


def test_trouble_may_pass_and_refusal_does_not() -> None:
    assert issubclass(StoreUnavailable, RetryableError)
    assert issubclass(StoreRefused, TerminalError)
