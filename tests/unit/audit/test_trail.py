"""The trail: records survive, losses are noted, old records leave, the chain stays whole."""

import threading
from contextlib import closing
from pathlib import Path

import msgspec
import pytest
import sqlalchemy as sa
from tests.cases import case, cases
from tests.unit.audit.samples import KEY, OTHER, OWNER, FailingFiles, call_event, opened_trail

from hostelry.audit.acts import AuditEntry
from hostelry.audit.check import ChainCheck
from hostelry.audit.file_writer import FileLimits, TrailFiles
from hostelry.audit.folder import HeadFile
from hostelry.audit.former import (
    AUDIT,
    METADATA,
    read_files,
    take_former_files,
    take_former_rows,
    write_file,
)
from hostelry.audit.lookup import TrailFilter
from hostelry.audit.rows import MARK, RECORD, TrailMarks, TrailRows
from hostelry.audit.trail import AuditTrail, TrailLimits, TrailReader
from hostelry.audit.transfer import read_folder, write_folder
from hostelry.base.clock import ManualClock
from hostelry.store.sqlite import SqliteFile


def problems(reader: TrailReader, marks: TrailMarks) -> list[str]:
    head = marks.read_head()
    check = ChainCheck(KEY, marks.read_anchor(), () if head is None else (head,))
    for place, lines in reader.read_forwards():
        check.begin_file()
        for number, line in enumerate(lines, start=1):
            check.take(line, f"{place}:{number}")
    check.finish()
    return [f"{it.kind} {it.place}: {it.text}" for it in check.problems]


def names(trail: AuditTrail) -> list[str]:
    """The names of the newest events, oldest first."""
    found = trail.find(TrailFilter(), 100).lines
    return [msgspec.json.decode(bytes(it.event))["eventName"] for it in found][::-1]


def details(trail: AuditTrail, number: int) -> dict[str, object]:
    (line,) = trail.find(TrailFilter(), 1, number + 1).lines
    found: dict[str, object] = msgspec.json.decode(bytes(line.event))["serviceEventDetails"]
    return found


def entry(number: int, endpoint: str = "chat", **more: str) -> AuditEntry:
    given = {"act": "restart", "outcome": "accepted", **more}
    return AuditEntry(
        at=float(number), who="user ada", target=f"c-{number}", endpoint=endpoint, **given
    )


def test_records_stay_and_the_chain_continues(tmp_path: Path) -> None:
    for number in range(3):
        with opened_trail(tmp_path) as trail:
            trail.record(call_event(number, f"Made{number}"), float(number))
            head = trail.head
    assert head.number == 3
    with opened_trail(tmp_path) as trail:
        assert names(trail) == ["Made0", "Made1", "Made2"]
    database = SqliteFile(tmp_path / "state.db")
    marks = TrailMarks(database, KEY)
    assert marks.read_head() == head, "it is noted at the end"
    with closing(TrailFiles(tmp_path / "audit", KEY)) as files:
        assert problems(files.reader, marks) == []


def test_threads_share_one_chain(tmp_path: Path) -> None:
    with opened_trail(tmp_path) as trail:
        trail.start()

        def record(first: int) -> None:
            for number in range(first, first + 50):
                trail.record(call_event(number), float(number))

        threads = [threading.Thread(target=record, args=(it * 100,)) for it in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert trail.head.number == 200
    database = SqliteFile(tmp_path / "state.db")
    with closing(TrailFiles(tmp_path / "audit", KEY)) as files:
        assert problems(files.reader, TrailMarks(database, KEY)) == []


def test_records_that_could_not_be_kept_are_counted_in_a_record(tmp_path: Path) -> None:
    files = FailingFiles(tmp_path / "audit", KEY)
    with opened_trail(tmp_path, writer=files) as trail:
        files.is_full = True
        assert not trail.try_to_record(call_event(1, "Lost"), 1.0)
        with pytest.raises(OSError, match="no space"):
            trail.record(call_event(2, "Refused"), 2.0)
        trail.count_lost(4)
        assert trail.head.number == 0
        files.is_full = False
        assert trail.try_to_record(call_event(3, "Kept"), 3.0)
        assert names(trail) == ["AuditRecordsLost", "Kept"]
        assert details(trail, 1) == {"count": 5}
        trail.record(call_event(4, "Next"), 4.0)
        assert names(trail)[2:] == ["Next"], "the loss is noted once"


def test_an_end_that_was_cut_is_noted_at_the_next_start(tmp_path: Path) -> None:
    with opened_trail(tmp_path) as trail:
        for number in range(5):
            trail.record(call_event(number), float(number))
    (path,) = (tmp_path / "audit").glob("*.jsonl")
    whole = path.read_bytes().split(b"\n")
    path.write_bytes(b"\n".join(whole[:3]) + b"\n")
    with opened_trail(tmp_path) as trail:
        assert trail.head.number == 6
        assert names(trail)[-1] == "AuditRecordsMissing"
        assert details(trail, 6) == {"first": 4, "last": 5}
    database = SqliteFile(tmp_path / "state.db")
    with closing(TrailFiles(tmp_path / "audit", KEY)) as files:
        (problem,) = problems(files.reader, TrailMarks(database, KEY))
    assert problem == f"removed {path.name}:4: records 4 to 5 are missing before"


@cases(
    "limits, first",
    case("by bytes", TrailLimits(days=3650, max_bytes=8000), "bytes"),
    case("by age", TrailLimits(days=1, max_bytes=10**9), "days"),
)
def test_old_records_are_removed_and_the_rest_is_verified(
    tmp_path: Path, limits: TrailLimits, first: str
) -> None:
    clock = ManualClock(20 * 86_400.0)
    files = TrailFiles(tmp_path / "audit", KEY, FileLimits(max_file_bytes=3000))
    with opened_trail(tmp_path, clock, files) as trail:
        for number in range(20):
            trail.record(call_event(number), number * 86_400.0)
        assert trail.trim(limits)
        assert not trail.trim(limits), "nothing is left to remove"
        kept = trail.find(TrailFilter(), 100).lines
        assert 1 < kept[-1].number <= kept[0].number == 21
        assert names(trail)[-1] == "AuditRecordsRemoved"
        found = details(trail, 21)
        assert (found["first"], found["last"]) == (1, kept[-1].number - 1)
        assert first in str(found["reason"])
    marks = TrailMarks(SqliteFile(tmp_path / "state.db"), KEY)
    anchor = marks.read_anchor()
    assert anchor is not None
    assert anchor.head.number == kept[-1].number - 1
    with closing(TrailFiles(tmp_path / "audit", KEY)) as files:
        assert problems(files.reader, marks) == []


def test_a_record_that_is_too_large_is_kept_without_its_parameters(tmp_path: Path) -> None:
    with opened_trail(tmp_path) as trail:
        trail.record(call_event(1, params={"a": "x" * 100_000}), 1.0)
        trail.record(call_event(2, params={"a": "\ud800"}, error_message="\ud800"), 2.0)
        for line in trail.find(TrailFilter(), 9).lines:
            shown = msgspec.json.decode(bytes(line.event))
            assert shown["requestParameters"]["omitted"]


def test_acts_are_read_newest_first(tmp_path: Path) -> None:
    with opened_trail(tmp_path) as trail:
        assert trail.newest(10) == []
        for number in range(3):
            trail.append(entry(number, "chat" if number else "other"))
            trail.record(call_event(number), float(number))
        acts = [entry(2), entry(1), entry(0, "other")]
        assert trail.newest(10) == acts
        assert trail.newest(1) == acts[:1]
        assert trail.newest(10, "other") == acts[2:]
        (line, *_) = trail.find(TrailFilter(sources=frozenset({"hostelry.internal"})), 1).lines
        assert (line.account, line.region) == OWNER


def former_lines(*entries: AuditEntry) -> bytes:
    return b"".join(msgspec.json.encode(it) + b"\n" for it in entries)


def test_acts_of_earlier_versions_are_taken_once(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    before = tmp_path / "audit.1.jsonl"
    before.write_bytes(former_lines(entry(1), entry(2)))
    path.write_bytes(former_lines(entry(3)) + b'{"at": 4.0, "who"')
    with opened_trail(tmp_path) as trail:
        trail.append(entry(2))  # taken by a start that was killed
        take_former_files(trail, path)
        assert trail.newest(9) == [entry(3), entry(1), entry(2)]
        assert not path.exists()
        assert not before.exists()
        take_former_files(trail, path)
        assert trail.head.number == 3


def test_acts_of_a_table_are_taken_once(tmp_path: Path) -> None:
    database = SqliteFile(tmp_path / "rows.db")
    path = tmp_path / "audit.jsonl"
    path.write_bytes(former_lines(entry(1), entry(2)))
    read_files(path, database)
    with opened_trail(tmp_path) as trail:
        take_former_rows(trail, database)
        take_former_rows(trail, database)
        assert trail.newest(9) == [entry(2), entry(1)]
    assert database.query(sa.select(AUDIT.c.number)) == []


def test_acts_of_a_table_are_written_to_the_file(tmp_path: Path) -> None:
    database = SqliteFile(tmp_path / "rows.db")
    database.create(METADATA)
    path = tmp_path / "audit.jsonl"
    path.write_bytes(b"old")
    write_file(database, path)
    assert not path.exists()
    path.write_bytes(former_lines(entry(1)))
    read_files(path, database)
    write_file(database, path)
    assert path.read_bytes() == former_lines(entry(1))


def rows_trail(database: SqliteFile) -> AuditTrail:
    trail = AuditTrail(
        TrailRows(database, KEY), TrailMarks(database, KEY), KEY, OWNER, ManualClock(9.0)
    )
    trail.start()
    return trail


def test_a_table_has_the_same_chain(tmp_path: Path) -> None:
    database = SqliteFile(tmp_path / "rows.db")
    for number in range(3):
        with closing(rows_trail(database)) as trail:
            trail.record(call_event(number, f"Made{number}", OTHER), float(number))
            trail.record(call_event(number, "Read"), float(number), waits=False)
    marks = TrailMarks(database, KEY)
    with closing(rows_trail(database)) as trail:
        assert names(trail) == ["Made0", "Read", "Made1", "Read", "Made2", "Read"]
        assert [it.number for it in trail.find(TrailFilter(account=OTHER[0]), 9).lines] == [5, 3, 1]
        assert marks.read_head() == trail.head
        reader = TrailRows(database, KEY).reader
        assert problems(reader, marks) == []
        assert trail.trim(TrailLimits(days=3650, max_bytes=3000))
        assert problems(reader, marks) == []
    with database.write() as connection:
        connection.execute(sa.delete(RECORD).where(RECORD.c.number == 5))
    assert problems(reader, marks)[0].startswith("removed audit_record:")
    with database.write() as connection:
        connection.execute(sa.delete(RECORD).where(RECORD.c.number > 4))
    assert problems(reader, marks)[-1].startswith("cut after record")


def test_rows_that_were_cut_off_with_their_head_are_noted_in_the_home(tmp_path: Path) -> None:
    database, heads = SqliteFile(tmp_path / "rows.db"), HeadFile(tmp_path / "head", KEY)
    assert heads.read_head() is None

    def opened() -> AuditTrail:
        rows, marks = TrailRows(database, KEY), TrailMarks(database, KEY)
        found = AuditTrail(rows, marks, KEY, OWNER, ManualClock(9.0), heads=heads)
        found.start()
        return found

    with closing(opened()) as trail:
        for number in range(4):
            trail.record(call_event(number), float(number))
    assert heads.read_head() == trail.head
    with database.write() as connection:
        connection.execute(sa.delete(RECORD).where(RECORD.c.number > 2))
        connection.execute(sa.delete(MARK))
    with closing(opened()) as trail:
        trail.record(call_event(6), 6.0)
        assert details(trail, 5) == {"first": 3, "last": 4}
    (tmp_path / "head").write_bytes(b"{}")
    assert heads.read_head() is None


def test_a_database_that_is_away_keeps_a_change_from_being_acknowledged(tmp_path: Path) -> None:
    database = SqliteFile(tmp_path / "rows.db")
    writer = TrailRows(database, KEY, wait_s=0.05)
    marks = TrailMarks(database, KEY)
    with closing(AuditTrail(writer, marks, KEY, OWNER, ManualClock())) as trail:
        with pytest.raises(OSError, match="not in the database yet"):
            trail.record(call_event(1), 1.0)
        writer.flush()
        trail.record(call_event(2), 2.0, waits=False)
        assert len(trail.find(TrailFilter(), 9).lines) == 1
    assert len(list(writer.reader.read_backwards())) == 2, "the end commits what waits"


def test_a_trail_moves_to_a_table_and_back(tmp_path: Path) -> None:
    files = TrailFiles(tmp_path / "audit", KEY, FileLimits(max_file_bytes=3000))
    with opened_trail(tmp_path, writer=files) as trail:
        for number in range(10):
            trail.record(call_event(number), float(number))
        head = trail.head
    database = SqliteFile(tmp_path / "rows.db")
    read_folder(tmp_path / "audit", database)
    assert TrailRows(database, KEY).head == head
    write_folder(database, tmp_path / "other")
    marks = TrailMarks(SqliteFile(tmp_path / "state.db"), KEY)
    with closing(TrailFiles(tmp_path / "other", KEY)) as files:
        assert files.head == head
        assert problems(files.reader, marks) == []
