"""The audit log and its routes."""

import asyncio
import stat
from pathlib import Path

import httpx
import pytest
from starlette.applications import Starlette
from tests.cases import case, cases

from hostelry.base.clock import ManualClock
from hostelry.control.audit import MAX_CHARS, AuditEntry, AuditLog, AuditRoutes, AuditRows
from hostelry.store.sqlite import SqliteFile

ASKED = {"who": "user ada", "act": "scale", "target": "component base", "outcome": "accepted"}


def entry(number: int, endpoint: str = "chat") -> AuditEntry:
    return AuditEntry(
        at=float(number),
        who="user ada",
        act="restart",
        target=f"copy c-{number}",
        outcome="accepted",
        endpoint=endpoint,
    )


def send(log: AuditLog, method: str, query: str = "", **request: object) -> httpx.Response:
    async def ask() -> httpx.Response:
        app = Starlette(routes=list(AuditRoutes(log, ManualClock(17.0)).routes()))
        transport = httpx.ASGITransport(app=app)
        async with httpx.AsyncClient(transport=transport, base_url="http://control") as client:
            url = f"/internal/audit{query}"
            return await client.request(method, url, **request)  # type: ignore[arg-type] # by name

    return asyncio.run(ask())


def test_entries_are_kept_and_read_newest_first(tmp_path: Path) -> None:
    log = AuditLog(tmp_path / "audit.jsonl")
    assert log.newest(10) == []
    for number in range(3):
        log.append(entry(number, endpoint="chat" if number else "other"))
    again = AuditLog(tmp_path / "audit.jsonl")
    assert again.newest(10) == [entry(2), entry(1), entry(0, "other")]
    assert again.newest(1) == [entry(2)]
    assert again.newest(10, "other") == [entry(0, "other")]
    assert stat.S_IMODE((tmp_path / "audit.jsonl").stat().st_mode) == 0o600


def test_a_line_that_a_kill_cut_costs_no_other(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    log = AuditLog(path)
    log.append(entry(1))
    path.write_bytes(path.read_bytes() + b'{"at": 2.0, "who": "us')
    log.append(entry(3))
    assert log.newest(10) == [entry(3), entry(1)]


def test_a_full_file_is_kept_until_the_next_is_full(tmp_path: Path) -> None:
    log = AuditLog(tmp_path / "audit.jsonl", max_file_bytes=600)
    for number in range(50):
        log.append(entry(number))
    assert sorted(it.name for it in tmp_path.iterdir()) == ["audit.1.jsonl", "audit.jsonl"]
    assert sum(it.stat().st_size for it in tmp_path.iterdir()) <= 1200
    kept = [it.at for it in log.newest(100)]
    assert kept == [float(number) for number in range(49, 49 - len(kept), -1)]
    assert len(kept) >= 4


def test_entries_in_place_of_all_are_the_newest_that_fit(tmp_path: Path) -> None:
    log = AuditLog(tmp_path / "audit.jsonl", max_file_bytes=600)
    log.append(entry(99))
    for number in (2, 50):
        newest = [entry(it) for it in reversed(range(number))]
        log.replace(newest)
        kept = log.newest(100)
        assert kept == newest[: len(kept)]
        assert len(kept) >= min(number, 4)
        assert sum(it.stat().st_size for it in tmp_path.iterdir()) <= 1200
    log.append(entry(50))
    assert log.newest(2) == [entry(50), entry(49)]


def test_an_act_of_another_process_is_added_with_the_time(tmp_path: Path) -> None:
    log = AuditLog(tmp_path / "audit.jsonl")
    assert send(log, "POST", json={**ASKED, "endpoint": "chat"}).status_code == 204
    (found,) = send(log, "GET", "?limit=5&endpoint=chat").json()["entries"]
    assert found == {**ASKED, "at": 17.0, "endpoint": "chat", "account": "", "region": ""}
    assert send(log, "GET", "?endpoint=none").json() == {"entries": []}


@cases(
    "body",
    case("nothing", b""),
    case("no text", b"\xff\xfe"),
    case("a list", b"[1]"),
    case("without an act", b'{"who": "user ada"}'),
    case("nobody", {**ASKED, "who": ""}),
    case("a text that is too long", {**ASKED, "target": "x" * (MAX_CHARS + 1)}),
    case("a time of its own", {**ASKED, "at": 5}),
)
def test_a_body_that_is_no_entry_is_refused(tmp_path: Path, body: object) -> None:
    log = AuditLog(tmp_path / "audit.jsonl")
    sent = {"content": body} if isinstance(body, bytes) else {"json": body}
    answer = send(log, "POST", **sent)
    assert answer.status_code == 400
    assert "no audit entry" in answer.json()["error"]
    assert log.newest(1) == []


@pytest.mark.parametrize(
    "limit", ["0", "-1", "many", "1001", "9" * 40, "000000001" + "0" * 19, "²", ""]
)
def test_a_limit_that_is_none_is_refused(tmp_path: Path, limit: str) -> None:
    answer = send(AuditLog(tmp_path / "audit.jsonl"), "GET", f"?limit={limit}")
    assert answer.status_code == 400


def test_a_disk_that_refuses_is_reported(tmp_path: Path) -> None:
    answer = send(AuditLog(tmp_path / "missing" / "audit.jsonl"), "POST", json=ASKED)
    assert answer.status_code == 507
    assert "cannot be written" in answer.json()["error"]


def test_a_database_keeps_the_newest_entries_for_any_host(tmp_path: Path) -> None:
    path = tmp_path / "audit.db"
    log = AuditRows(SqliteFile(path), kept=12, trim_at=5)
    for number in range(1, 31):
        log.append(entry(number, endpoint="chat" if number % 10 else "odd \0"))
    again = AuditRows(SqliteFile(path))
    assert [it.at for it in again.newest(100)] == [float(at) for at in range(30, 18, -1)]
    assert again.newest(1) == [entry(30, "odd \0")]
    assert again.newest(5, "odd \0") == [entry(30, "odd \0"), entry(20, "odd \0")]


def test_a_database_that_takes_no_entry_lets_no_act_be_carried_out(tmp_path: Path) -> None:
    database = SqliteFile(tmp_path / "audit.db")
    log = AuditRows(database)
    with database.write() as connection:
        connection.exec_driver_sql("DROP TABLE audit_entry")
    with pytest.raises(OSError, match="unavailable"):
        log.append(entry(1))
