"""One suite for all stores: the promises of the interface."""

import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import pytest
from tests.cases import case, cases
from tests.postgres_rig import postgres_database

from hostelry.base.errors import Conflict
from hostelry.domain.scope import Scope
from hostelry.store.database import open_database
from hostelry.store.memory import MemoryStore
from hostelry.store.protocol import Key, RecordWrite, RevisionTooOld
from hostelry.store.sql import SqlStore

HERE = Scope("123456789012", "us-west-2")
THERE = Scope("123456789012", "eu-central-1")
TOMBSTONES_KEPT = 3
AnyStore = MemoryStore | SqlStore


def key(name: str, scope: Scope = HERE, kind: str = "endpoint") -> Key:
    return Key(kind=kind, scope=scope, name=name)


@pytest.fixture(params=["memory", "sqlite", "postgresql"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[AnyStore]:
    with place_of(request.param, tmp_path) as place:
        if place is None:
            made: AnyStore = MemoryStore(tombstones_kept=TOMBSTONES_KEPT)
        else:
            made = SqlStore(open_database(place), tombstones_kept=TOMBSTONES_KEPT)
        yield made
        made.close()


def place_of(kind: str, folder: Path) -> AbstractContextManager[Path | str | None]:
    if kind == "postgresql":
        return postgres_database()
    return nullcontext(folder / "state.db" if kind == "sqlite" else None)


def test_a_new_store_is_empty_at_revision_0(store: AnyStore) -> None:
    assert store.revision() == 0
    assert store.get(key("a")) is None
    assert list(store.list("endpoint")) == []
    assert list(store.changes(0)) == []


@cases(
    "body",
    case("JSON", b"{}"),
    case("an empty body, which is not a deleted one", b""),
    case("every byte", bytes(range(256))),
    case("three megabytes", b"x" * 3_000_000),
)
def test_what_was_put_is_got(store: AnyStore, body: bytes) -> None:
    written = store.put(key("a"), body, expect=None)
    assert store.get(key("a")) == written
    assert written.body == body
    assert [record.body for record in store.list("endpoint")] == [body]


@cases(
    "name",
    case("an ARN", "arn:aws:sagemaker:us-west-2:123456789012:model/m"),
    case("SQL", "'; DROP TABLE records; --"),
    case("wildcards", "%_*"),
    case("any script", "Größe 模型 🦙"),
    case("an empty name", ""),
    case("control characters", "a\0b\x01\x02\x01"),
)
def test_a_name_is_only_a_name(store: AnyStore, name: str) -> None:
    written = store.put(key(name), b"1", expect=None)
    store.put(key("other"), b"2", expect=None)
    assert store.get(key(name)) == written
    store.delete(key(name), expect=written.version)
    assert [record.key.name for record in store.list("endpoint")] == ["other"]


def test_the_same_name_in_another_scope_or_kind_is_another_record(store: AnyStore) -> None:
    store.put(key("a"), b"here", expect=None)
    store.put(key("a", THERE), b"there", expect=None)
    store.put(key("a", kind="model"), b"model", expect=None)
    found = store.get(key("a", THERE))
    assert found is not None
    assert found.body == b"there"
    assert [record.body for record in store.list("endpoint", HERE)] == [b"here"]
    assert {record.body for record in store.list("endpoint")} == {b"here", b"there"}


def test_versions_only_grow_also_over_a_delete(store: AnyStore) -> None:
    first = store.put(key("a"), b"1", expect=None)
    second = store.put(key("a"), b"2", expect=first.version)
    store.delete(key("a"), expect=second.version)
    third = store.put(key("a"), b"3", expect=None)
    assert 0 < first.version < second.version < third.version == store.revision()


def test_put_of_an_existing_name_conflicts(store: AnyStore) -> None:
    version = store.put(key("a"), b"1", expect=None).version
    with pytest.raises(Conflict, match=f"endpoint 'a' is version {version}; expected absent"):
        store.put(key("a"), b"2", expect=None)


def test_put_over_an_older_version_conflicts_and_changes_nothing(store: AnyStore) -> None:
    old = store.put(key("a"), b"1", expect=None)
    new = store.put(key("a"), b"2", expect=old.version)
    with pytest.raises(Conflict, match=f"is version {new.version}; expected version {old.version}"):
        store.put(key("a"), b"3", expect=old.version)
    assert store.get(key("a")) == new
    assert store.revision() == new.version


def test_delete_needs_the_present_version(store: AnyStore) -> None:
    old = store.put(key("a"), b"1", expect=None)
    new = store.put(key("a"), b"2", expect=old.version)
    with pytest.raises(Conflict):
        store.delete(key("a"), expect=old.version)
    store.delete(key("a"), expect=new.version)
    assert store.get(key("a")) is None
    with pytest.raises(Conflict, match="is absent"):
        store.delete(key("a"), expect=new.version)


def test_an_update_of_a_deleted_record_conflicts(store: AnyStore) -> None:
    written = store.put(key("a"), b"1", expect=None)
    store.delete(key("a"), expect=written.version)
    with pytest.raises(Conflict, match="is absent; expected version"):
        store.put(key("a"), b"2", expect=written.version)


def test_list_is_ordered_by_name(store: AnyStore) -> None:
    names = ["", "\0", "\x01", "\x02", "B", "a-10", "a-2", "b", "ä"]
    for name in (*names[5:], *names[:5]):
        store.put(key(name), b"", expect=None)
    assert [record.key.name for record in store.list("endpoint")] == names


def test_changes_show_each_key_once_with_its_present_record(store: AnyStore) -> None:
    first = store.put(key("a"), b"1", expect=None)
    store.put(key("b"), b"1", expect=None)
    second = store.put(key("a"), b"2", expect=first.version)
    changes = store.changes(0)
    assert [(it.key.name, it.record and it.record.body) for it in changes] == [
        ("b", b"1"),
        ("a", b"2"),
    ]
    assert [it.revision for it in changes] == sorted(it.revision for it in changes)
    assert list(store.changes(second.version)) == []


def test_changes_show_a_deleted_key_with_no_record(store: AnyStore) -> None:
    written = store.put(key("a"), b"1", expect=None)
    store.delete(key("a"), expect=written.version)
    (change,) = store.changes(written.version)
    assert (change.key, change.record, change.revision) == (key("a"), None, store.revision())
    again = store.put(key("a"), b"2", expect=None)
    (change,) = store.changes(written.version)
    assert change.record == again


def test_old_tombstones_are_forgotten_and_a_watcher_that_old_is_refused(store: AnyStore) -> None:
    start = store.put(key("start"), b"", expect=None).version
    for number in range(TOMBSTONES_KEPT + 2):
        written = store.put(key(str(number)), b"", expect=None)
        store.delete(key(str(number)), expect=written.version)
    with pytest.raises(RevisionTooOld, match="list the records"):
        store.changes(start)
    from_nothing = store.changes(0)
    assert [it.key.name for it in from_nothing if it.record] == ["start"]
    assert len(from_nothing) == 1 + TOMBSTONES_KEPT
    assert len(store.changes(store.revision() - 1)) == 1


def test_wait_returns_at_once_for_what_was_missed(store: AnyStore) -> None:
    store.put(key("a"), b"", expect=None)
    assert store.wait(0, 0.0)


def test_wait_gives_up_when_nothing_happens(store: AnyStore) -> None:
    assert not store.wait(store.revision(), 0.01)


def test_wait_wakes_on_a_write_of_another_thread(store: AnyStore) -> None:
    seen: list[bool] = []
    waiter = threading.Thread(target=lambda: seen.append(store.wait(0, 60.0)))
    waiter.start()
    store.put(key("a"), b"", expect=None)
    waiter.join(60.0)
    assert seen == [True]


def test_of_two_threads_racing_on_a_version_exactly_one_wins(store: AnyStore) -> None:
    rounds = 60
    barrier = threading.Barrier(2)
    wins: list[tuple[int, bytes]] = []

    def race(body: bytes) -> None:
        expect: int | None = None
        for number in range(rounds):
            barrier.wait(60.0)
            try:
                store.put(key("a"), body, expect=expect)
                wins.append((number, body))
            except Conflict:
                pass
            barrier.wait(60.0)
            present = store.get(key("a"))
            assert present is not None
            expect = present.version

    racers = [threading.Thread(target=race, args=(body,)) for body in (b"left", b"right")]
    for racer in racers:
        racer.start()
    for racer in racers:
        racer.join(120.0)
    assert [number for number, _ in wins] == list(range(rounds))
    assert store.revision() == rounds


def test_no_increment_is_lost_between_threads(store: AnyStore) -> None:
    store.put(key("count"), b"0", expect=None)

    def count(times: int) -> None:
        while times:
            record = store.get(key("count"))
            assert record is not None
            try:
                store.put(record.key, b"%d" % (int(record.body) + 1), expect=record.version)
                times -= 1
            except Conflict:
                continue

    threads = [threading.Thread(target=count, args=(25,)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120.0)
    record = store.get(key("count"))
    assert record is not None
    assert record.body == b"100"


def write_of(name: str, body: bytes | None, expect: int | None = None) -> RecordWrite:
    return RecordWrite(key=key(name), body=body, expect=expect)


def test_writes_made_together_are_seen_in_their_order(store: AnyStore) -> None:
    first = store.put(key("a"), b"1", expect=None)
    gone = store.put(key("b"), b"1", expect=None)
    store.delete(key("b"), expect=gone.version)
    since = store.revision()
    old = store.put(key("c"), b"1", expect=None)
    store.write_all(
        [
            write_of("b", b"2"),
            write_of("a", b"2", first.version),
            write_of("c", None, old.version),
            write_of("d", b"2"),
        ]
    )
    assert store.revision() == old.version + 4
    changes = store.changes(since)
    seen = [(it.key.name, None if it.record is None else it.record.body) for it in changes]
    assert sorted(seen) == [("a", b"2"), ("b", b"2"), ("c", None), ("d", b"2")]
    revisions = [it.revision for it in changes]
    assert revisions == sorted(set(revisions))
    assert {it.version for it in store.list("endpoint")} <= set(revisions)
    store.write_all([])


@cases(
    "refused",
    case("another version", write_of("a", b"2", 999)),
    case("another version is removed", write_of("a", None, 999)),
    case("it exists", write_of("a", b"2")),
    case("it does not exist", write_of("none", b"2", 1)),
    case("it was deleted", write_of("gone", b"2", 1)),
    case("it was deleted before", write_of("gone", None, 1)),
)
@pytest.mark.parametrize("place", [0, 1, 2])
def test_of_writes_made_together_all_or_none_are_made(
    store: AnyStore, refused: RecordWrite, place: int
) -> None:
    store.put(key("a"), b"1", expect=None)
    other = store.put(key("b"), b"1", expect=None)
    leaving = store.put(key("gone"), b"1", expect=None)
    store.delete(key("gone"), expect=leaving.version)
    before, revision = store.list("endpoint"), store.revision()
    writes = [write_of("b", b"2", other.version), write_of("new", b"2")]
    writes.insert(place, refused)
    with pytest.raises(Conflict, match=refused.key.name):
        store.write_all(writes)
    assert store.list("endpoint") == before
    assert store.revision() == revision
    assert store.get(key("new")) is None
