"""Lists from memory are always the store's present records, read and decoded once."""

from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hostelry.domain.scope import Scope
from hostelry.store.memory import MemoryStore
from hostelry.store.mirror import GroupedKind, Mirror, RecordGroup
from hostelry.store.protocol import Change, Key, Record, StoreUnavailable
from hostelry.store.sql import SqlStore
from hostelry.store.sqlite import SqliteFile

HERE = Scope("123456789012", "us-west-2")
THERE = Scope("210987654321", "us-west-2")
KINDS = ("model", "copy")
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["put", "put", "delete", "look", "look at one kind"]),
        st.sampled_from(KINDS),
        st.sampled_from([HERE, THERE]),
        st.sampled_from("abcd"),
    ),
    max_size=40,
)


def key(name: str, kind: str = "model", scope: Scope = HERE) -> Key:
    return Key(kind=kind, scope=scope, name=name)


class CountingStore(MemoryStore):
    """A store that counts reads, and may fail to list changes."""

    fault: Exception | None = None

    def __init__(self) -> None:
        super().__init__()
        self.num_lists = 0

    def list(self, kind: str, scope: Scope | None = None) -> Sequence[Record]:
        self.num_lists += 1
        return super().list(kind, scope)

    def changes(self, since: int) -> Sequence[Change]:
        if self.fault is not None:
            raise self.fault
        return super().changes(since)


def records(mirror: Mirror, kind: str, scope: Scope | None = None) -> list[Record]:
    return [it.record for it in mirror.entries(kind, scope)]


@settings(max_examples=200, deadline=None)
@given(steps=STEPS, tombstones=st.sampled_from([1, 1000]))
def test_a_look_shows_what_the_store_lists(
    steps: list[tuple[str, str, Scope, str]], tombstones: int
) -> None:
    store = MemoryStore(tombstones_kept=tombstones)
    mirror = Mirror(store)
    for number, (step, kind, scope, name) in enumerate(steps):
        present = store.get(key(name, kind, scope))
        if step == "put":
            version = present.version if present else None
            store.put(key(name, kind, scope), str(number).encode(), expect=version)
        elif step == "delete" and present:
            store.delete(present.key, expect=present.version)
        elif step == "look at one kind":
            assert records(mirror, kind, scope) == list(store.list(kind, scope))
        elif step == "look":
            assert [records(mirror, it) for it in KINDS] == [list(store.list(it)) for it in KINDS]
    assert [records(mirror, it) for it in KINDS] == [list(store.list(it)) for it in KINDS]


def of_parity(value: int) -> tuple[str, int]:
    return ("parity", value % 2)


def of_third(value: int) -> int:
    return value // 2 % 3


BY_PARITY = GroupedKind("model", lambda it: int(it.body), of_parity, of_third)


def places_of(value: int) -> set[object]:
    return {of_parity(value), (of_parity(value), of_third(value))}


def check_parts(group: RecordGroup) -> None:
    """Assert that the parts contain the group's values in the same order."""
    parts: dict[int, list[tuple[str, int]]] = {}
    for name, value in group.values.items():
        parts.setdefault(of_third(value), []).append((name, value))
    assert {part: list(has.items()) for part, has in group.parts.items()} == parts


@settings(max_examples=200, deadline=None)
@given(steps=STEPS, tombstones=st.sampled_from([1, 1000]))
def test_groups_and_names_are_those_of_the_records_there_are(
    steps: list[tuple[str, str, Scope, str]], tombstones: int
) -> None:
    """A record may move to another group. Unchanged groups and parts stay the same objects."""
    store = MemoryStore(tombstones_kept=tombstones)
    mirror = Mirror(store)
    seen = dict(mirror.groups([BY_PARITY])[0])
    changed: set[object] = set()  # the groups, and their parts, since the last look
    for number, (step, _, _, name) in enumerate(steps):
        present = store.get(key(name))
        if present is not None and step in ("put", "delete"):
            changed |= places_of(int(present.body))
        if step == "put":
            version = present.version if present else None
            store.put(key(name), str(number).encode(), expect=version)
            changed |= places_of(number)
        elif step == "delete" and present:
            store.delete(present.key, expect=present.version)
        else:
            before, seen = seen, dict(mirror.groups([BY_PARITY])[0])
            expected: dict[object, dict[str, tuple[int, int]]] = {}
            for record in store.list("model"):
                value = int(record.body)
                mine = expected.setdefault(of_parity(value), {})
                mine[record.key.name] = (value, record.version)
            assert {it: list(group.values.items()) for it, group in seen.items()} == {
                it: [(one, value) for one, (value, _) in sorted(group.items())]
                for it, group in expected.items()
            }
            for it, group in seen.items():
                versions = {one: version for one, (_, version) in expected[it].items()}
                assert group.versions == versions
                check_parts(group)
                if tombstones > 1 and it in before:
                    assert group is before[it] or it in changed
                    kept = [part for part in group.parts if (it, part) not in changed]
                    assert all(group.parts[part] is before[it].parts[part] for part in kept)
            changed.clear()
            for one in "abcdABCD":
                known = any(one.lower() == it.key.name for it in store.list("model"))
                assert mirror.has_name("model", HERE, one) == known


def test_a_record_that_cannot_be_read_is_reported_each_time_and_then_mended() -> None:
    store, broken = MemoryStore(), b"x"
    for name, body in (("a", b"1"), ("b", broken)):
        store.put(key(name), body, expect=None)
    mirror = Mirror(store)
    for _ in range(2):
        with pytest.raises(ValueError, match="invalid literal"):
            mirror.groups([BY_PARITY])[0]
    found = store.get(key("b"))
    assert found is not None
    store.put(key("b"), b"3", expect=found.version)
    group = mirror.group([BY_PARITY], of_parity(1))[0]
    assert group.values == {"a": 1, "b": 3}


def test_what_did_not_change_is_read_and_decoded_once() -> None:
    store = CountingStore()
    for name in ("a", "b"):
        store.put(key(name), b"1", expect=None)
    mirror, decoded = Mirror(store), list[str]()

    def decode(record: Record) -> str:
        decoded.append(record.key.name)
        return record.body.decode()

    def values() -> list[str]:
        return [it.value(decode) for it in mirror.entries("model")]

    assert values() == values() == ["1", "1"]
    first = store.get(key("b"))
    assert first is not None
    store.put(key("b"), b"2", expect=first.version)
    assert values() == ["1", "2"]
    assert (decoded, store.num_lists) == (["a", "b", "b"], 1)


def test_a_value_that_cannot_be_decoded_is_an_error_each_time_and_harms_no_other() -> None:
    store = MemoryStore()
    for name in ("bad", "good"):
        store.put(key(name), name.encode(), expect=None)
    bad, good = Mirror(store).entries("model")

    def decode(record: Record) -> str:
        if record.body == b"bad":
            raise ValueError("not a value")
        return record.body.decode()

    for _ in range(2):
        with pytest.raises(ValueError, match="not a value"):
            bad.value(decode)
    assert good.value(decode) == "good"


def test_a_store_that_failed_to_list_changes_is_read_again() -> None:
    store = CountingStore()
    store.put(key("a"), b"1", expect=None)
    mirror = Mirror(store)
    assert len(mirror.entries("model")) == 1
    store.put(key("b"), b"1", expect=None)
    store.fault = StoreUnavailable("disk full")
    with pytest.raises(StoreUnavailable):
        mirror.entries("model")
    store.fault = None
    assert len(mirror.entries("model")) == 2


def test_a_write_of_another_process_is_seen(tmp_path: Path) -> None:
    ours, theirs = (
        SqlStore(SqliteFile(tmp_path / "state.db"), tombstones_kept=1) for _ in range(2)
    )
    mirror = Mirror(ours)
    written = [theirs.put(key(name), b"1", expect=None) for name in "abc"]
    assert records(mirror, "model") == written
    for record in written[1:]:
        theirs.delete(record.key, expect=record.version)
    assert records(mirror, "model") == written[:1]
    for store in (ours, theirs):
        store.close()
