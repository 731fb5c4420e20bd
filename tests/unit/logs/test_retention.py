from typing import Any

from tests.cases import case, cases

from hostelry.domain.scope import Scope
from hostelry.logs.events import LogGroup, LogStream, NewEvent
from hostelry.logs.retention import DAY_MS, Retention, RetentionLimits
from hostelry.logs.store import BEGIN, END, LogStore

HERE = Scope("123456789012", "us-west-2")
NOW_MS = 1_700_000_000_000


def made(store: LogStore, group: str = "g", stream: str = "s") -> tuple[LogGroup, LogStream]:
    store.create_group(HERE, group, NOW_MS)
    found = store.group(HERE, group)
    assert found is not None
    store.create_stream(found, stream, NOW_MS)
    its = store.stream(found, stream)
    assert its is not None
    return found, its


def put(store: LogStore, stream: LogStream, *days_ago: float, size: int = 10) -> None:
    events = [NewEvent(at_ms=int(NOW_MS - it * DAY_MS), message="x" * size) for it in days_ago]
    assert store.append(stream, events, NOW_MS)


def count(store: LogStore, stream: LogStream) -> int:
    return len(store.read_forwards(stream, BEGIN, END, 10**6))


@cases(
    "retention_days, num_kept",
    case("the platform's 14 days", None, 2),
    case("the group's day", 1, 1),
    case("the group's month", 30, 3),
)
def test_old_events_go(home: Any, retention_days: int | None, num_kept: int) -> None:
    store = home.store
    group, stream = made(store)
    put(store, stream, 20, 13, 0.5)
    store.set_retention(group, retention_days)
    Retention(store, RetentionLimits()).sweep(NOW_MS)
    assert count(store, stream) == num_kept
    again = store.stream(group, "s")
    assert again is not None
    assert store.group(HERE, "g").stored_bytes == num_kept * 36


def test_a_stream_beyond_its_share_loses_its_oldest_events_with_a_line(home: Any) -> None:
    store, limits = home.store, RetentionLimits(max_bytes=80_000)
    _, loud = made(store)
    _, quiet = made(store, stream="quiet")
    put(store, loud, *[1 - it / 1000 for it in range(100)], size=974)
    put(store, quiet, 1.0)
    retention = Retention(store, limits)
    for _ in range(2):
        retention.sweep(NOW_MS)
    events = store.read_forwards(loud, BEGIN, END, 1000)
    assert len(events) == 10
    assert "more than 10000 bytes: its oldest events were removed" in events[-1].message
    assert count(store, quiet) == 1
    assert store.group(HERE, "g").stored_bytes <= 10_500


def test_the_oldest_of_all_go_when_the_file_is_full(home: Any) -> None:
    store = home.store
    streams = [made(store, stream=f"s{number}")[1] for number in range(20)]
    for stream in streams:
        put(store, stream, *[1.0] * 20, size=2000)
    Retention(store, RetentionLimits(max_bytes=400_000)).sweep(NOW_MS)
    assert store.database.used_bytes() <= 400_000
    assert count(store, streams[0]) == 0
    assert count(store, streams[-1]) == 20


def test_events_of_deleted_groups_and_streams_go(home: Any) -> None:
    store = home.store
    group, stream = made(store)
    put(store, stream, 0.1)
    store.delete_stream(stream)
    other, its = made(store, "other")
    put(store, its, 0.1)
    store.delete_group(other)
    assert store.stream(group, "s") is None
    assert store.group(HERE, "other") is None
    Retention(store, RetentionLimits()).sweep(NOW_MS)
    with store.database.reading() as db:
        assert db.execute("SELECT count(*) FROM event").fetchone() == (0,)
        assert db.execute("SELECT count(*) FROM deleted_stream").fetchone() == (0,)


def test_empty_streams_of_copies_go_and_those_of_programs_stay(home: Any, write: Any) -> None:
    made(home.store)
    write(home.copy(), "one\n", NOW_MS / 1000)
    home.collector().look(NOW_MS / 1000)
    retention = Retention(home.store, RetentionLimits())
    retention.sweep(NOW_MS)
    assert [it.name for it in home.store.groups(HERE, limit=9)] == [
        "/aws/sagemaker/InferenceComponents/ic",
        "g",
    ]
    later = NOW_MS + 15 * DAY_MS
    for _ in range(2):
        retention.sweep(later)
    assert [it.name for it in home.store.groups(HERE, limit=9)] == ["g"]
