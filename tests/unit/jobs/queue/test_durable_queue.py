"""The queue in a file: its bounds, its indexes, its durability, and operators' acts on rows."""

import sqlite3
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import sqlalchemy as sa
from msgspec.structs import replace
from tests.contract.jobs.test_request_queue import DONE, HERE, LEASE_S, NOW, asked, claims, note

from hostelry.jobs.queue.durable_queue import MAX_BYTES, MAX_UNFINISHED, DurableQueue
from hostelry.jobs.queue.protocol import RequestExpired, RequestFailed
from hostelry.jobs.queue.request_rows import (
    KEEP_COMPLETED_S,
    KEEP_FAILED_S,
    RequestRows,
    RequestStateError,
    RowFilter,
)
from hostelry.jobs.queue.tables import METADATA
from hostelry.store.protocol import StoreRefused, StoreUnavailable
from hostelry.store.sqlite import SqliteFile


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "jobs.db"


def test_another_process_finds_requests_and_notifications(path: Path) -> None:
    queue = DurableQueue(SqliteFile(path))
    queue.submit([asked("a"), asked("b")])
    [a] = claims(queue, 1)
    queue.complete(a, DONE, NOW, [note("n")])
    queue.close()
    successor = DurableQueue(SqliteFile(path))
    assert [it.request.id for it in claims(successor)] == ["b"]
    assert [it.notification.id for it in successor.list_due_notifications(NOW, 9)] == ["n"]
    successor.close()


def test_two_claimers_never_get_the_same(path: Path) -> None:
    queue = DurableQueue(SqliteFile(path))
    queue.submit([asked(str(it)) for it in range(60)])
    got: list[str] = []

    def take() -> None:
        while found := claims(queue, 3):
            got.extend(it.request.id for it in found)

    threads = [threading.Thread(target=take) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(got, key=int) == [str(it) for it in range(60)]
    queue.close()


@pytest.mark.parametrize("bound", ["number", "bytes"])
def test_a_full_queue_refuses_and_has_room_again(path: Path, bound: str) -> None:
    number, size = (2, MAX_BYTES) if bound == "number" else (MAX_UNFINISHED, 900)
    queue = DurableQueue(SqliteFile(path), max_unfinished=number, max_bytes=size)
    queue.submit([asked("a"), asked("b")])
    with pytest.raises(StoreUnavailable, match="at most: try again"):
        queue.submit([asked("c")])
    a, _ = claims(queue)
    assert queue.complete(a, DONE, NOW, [])
    queue.submit([asked("c")])
    queue.close()
    successor = DurableQueue(SqliteFile(path), max_unfinished=number, max_bytes=size)
    with pytest.raises(StoreUnavailable):
        successor.submit([asked("d")])
    RequestRows(successor).drop("c")
    successor.submit([asked("d")])
    successor.close()


def test_a_request_that_cannot_be_kept_takes_no_room(path: Path) -> None:
    queue = DurableQueue(SqliteFile(path), max_unfinished=2)
    queue.submit([asked("a")])
    with pytest.raises(StoreUnavailable):
        queue.submit([asked("a")])  # the same id
    queue.submit([asked("b")])
    queue.close()


def test_a_file_that_is_no_database_is_refused_by_name(path: Path) -> None:
    path.write_bytes(b"no database" * 100)
    with pytest.raises(StoreRefused, match="it is not a database"):
        DurableQueue(SqliteFile(path))


def test_claims_and_the_backlog_read_an_index(path: Path) -> None:
    queue = DurableQueue(SqliteFile(path))
    queue.close()
    connection = sqlite3.connect(path)
    plans = {
        "claim": "SELECT sequence FROM async_request WHERE state='waiting' AND account='a' AND"
        " region='r' AND endpoint='e' AND next_at<=1 AND expires_at>1 ORDER BY sequence LIMIT 1",
        "overdue": "SELECT sequence FROM async_request WHERE state='waiting' AND expires_at<=1"
        " ORDER BY expires_at LIMIT 1",
        "lost": "UPDATE async_request SET owner=NULL WHERE state='running' AND lease_until<=1",
        "backlog": "SELECT account, region, endpoint, count(*), min(CASE WHEN state='waiting' THEN"
        " accepted_at END) FROM async_request WHERE finished_at IS NULL"
        " GROUP BY account, region, endpoint",
    }
    for name, statement in plans.items():
        plan = " ".join(str(row) for row in connection.execute(f"EXPLAIN QUERY PLAN {statement}"))
        assert "INDEX async_request_" in plan, (name, plan)
        assert "TEMP B-TREE" not in plan, (name, plan)
    connection.close()


def test_rows_are_listed_the_newest_first_and_found_by_either_id(path: Path) -> None:
    queue = DurableQueue(SqliteFile(path))
    rows = RequestRows(queue)
    queue.submit([asked("a"), asked("b", endpoint="f"), asked("c")])
    a = claims(queue, 1)[0]
    queue.complete(a, RequestFailed("the model answered 400"), NOW + 1, [])
    assert [it.id for it in rows.page(RowFilter())] == ["c", "b", "a"]
    assert [it.id for it in rows.page(RowFilter(endpoint_name="e"))] == ["c", "a"]
    assert [it.id for it in rows.page(RowFilter(state="failed"))] == ["a"]
    newest = rows.page(RowFilter(limit=1))[0]
    assert [it.id for it in rows.page(RowFilter(before=newest.sequence))] == ["b", "a"]
    found = rows.find("inference-a")
    assert found is not None
    assert (found.id, found.state, found.reason) == ("a", "failed", "the model answered 400")
    assert rows.find("nothing") is None
    queue.close()


def test_a_failed_request_is_tried_again_with_its_whole_time(path: Path) -> None:
    queue = DurableQueue(SqliteFile(path))
    rows = RequestRows(queue)
    queue.submit([asked("a")])
    a = claims(queue)[0]
    with pytest.raises(RequestStateError, match="a is running"):
        rows.retry("a", NOW)
    queue.complete(a, RequestExpired(), NOW, [])
    rows.retry("a", NOW + 1000)
    [again] = claims(queue, now=NOW + 1000)
    assert again.request == replace(asked("a"), expires_at=NOW + 1060)
    assert again.attempt == 1
    with pytest.raises(RequestStateError, match="not there"):
        rows.retry("b", NOW)
    queue.close()


def test_a_running_request_is_not_dropped(path: Path) -> None:
    queue = DurableQueue(SqliteFile(path))
    queue.submit([asked("a")])
    claims(queue)
    with pytest.raises(RequestStateError, match="running"):
        RequestRows(queue).drop("a")
    queue.close()


def test_finished_rows_are_forgotten_in_time(path: Path) -> None:
    queue = DurableQueue(SqliteFile(path))
    rows = RequestRows(queue)
    queue.submit([asked("good", ttl_s=1e9), asked("bad", ttl_s=1e9), asked("waits", ttl_s=1e9)])
    good, bad = queue.claim(HERE, "e", "me", 2, NOW, LEASE_S)
    queue.complete(good, DONE, NOW, [note("n")])
    queue.complete(bad, RequestFailed("x"), NOW, [])
    assert rows.sweep(NOW + KEEP_COMPLETED_S - 1) == 0
    assert rows.sweep(NOW + KEEP_COMPLETED_S) == 1
    assert [it.id for it in rows.page(RowFilter())] == ["waits", "bad"]
    assert queue.list_due_notifications(NOW + KEEP_COMPLETED_S, 1) == []
    assert rows.sweep(NOW + KEEP_FAILED_S) == 1
    assert [it.id for it in rows.page(RowFilter())] == ["waits"]
    queue.close()


@pytest.mark.parametrize("dialect", ["sqlite", "postgresql"])
def test_indexes_have_only_the_rows_that_are_looked_for(dialect: str) -> None:
    made: list[str] = []

    def keep(statement: sa.schema.ExecutableDDLElement, *_: object, **__: object) -> None:
        made.append(str(statement.compile(dialect=engine.dialect)))

    driver = {"sqlite": "sqlite://", "postgresql": "postgresql+asyncpg://"}[dialect]
    engine = sa.create_mock_engine(driver, keep)
    METADATA.create_all(engine, checkfirst=False)
    partial = {it.split()[2]: it.partition(" WHERE ")[2] for it in made if " WHERE " in it}
    assert partial == {
        "async_request_waiting": "state = 'waiting'",
        "async_request_expiry": "state = 'waiting'",
        "async_request_leases": "state = 'running'",
        "async_request_backlog": "finished_at IS NULL",
        "async_request_finished": "finished_at IS NOT NULL",
    }


def test_a_platform_without_postgresql_does_not_import_its_dialect() -> None:
    program = "import sys, hostelry.services.jobs, hostelry.control.main; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert b"sqlalchemy.dialects.sqlite" in done.stdout
    assert b"sqlalchemy.dialects.postgresql" not in done.stdout
