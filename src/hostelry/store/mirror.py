"""In-memory mirror of the used kinds of records, updated by the store's changes.

The cost of a read depends on the number of changes since the last read, not on the number of
records. Lists of thousands of records are read and decoded once.
"""

import threading
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import msgspec

from hostelry.base.parts import apply_changes, apply_to_parts
from hostelry.domain.scope import Scope
from hostelry.store.memory import by_name
from hostelry.store.protocol import Change, Key, Record, RevisionTooOld, Store


class MirroredRecord:
    """A record and, after its first use, its decoded value, which is never modified."""

    __slots__ = ("_value", "record")

    def __init__(self, record: Record) -> None:
        self.record = record
        self._value: Any = None

    def value(self, decode: Callable[[Record], Any]) -> Any:
        """The decoded value. It is decoded at most once, but an error of `decode` is repeated."""
        if self._value is None:
            self._value = decode(self.record)
        return self._value


class RecordGroup(msgspec.Struct, frozen=True, kw_only=True):
    """The values of a group's records in the order of names, and their versions by name.

    `parts` has the values by part. It is empty if the kind has no parts. The group and each part
    remain the same objects until one of their records changes.
    """

    values: Mapping[str, Any] = msgspec.field(default_factory=dict)
    versions: Mapping[str, int] = msgspec.field(default_factory=dict)
    parts: Mapping[Hashable, Mapping[str, Any]] = msgspec.field(default_factory=dict)


NO_RECORDS = RecordGroup()
Decode = Callable[[Record], Any]
GroupOf = Callable[[Any], Hashable]  # returns the group, or the part, of a decoded value


class GroupedKind(msgspec.Struct, frozen=True):
    """A kind of records, with functions that decode a record and give the group of a value.

    The group of a value never changes. `part_of` divides groups into parts, if there are parts.
    """

    kind: str
    decode: Decode
    group_of: GroupOf
    part_of: GroupOf | None = None


class Mirror:
    """The current records of a store that any number of processes write. Thread-safe."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._revision = 0  # of the newest applied change
        self._tables: dict[str, MirrorTable] = {}

    def entries(self, kind: str, scope: Scope | None = None) -> list[MirroredRecord]:
        """Every current record of `kind` (in `scope`, or in all), ordered by name."""
        with self._current(kind) as table:
            found = table.in_order()
            return [it for it in found if scope is None or it.record.key.scope == scope]

    def has_name(self, kind: str, scope: Scope, name: str) -> bool:
        """Whether a record has this name, in upper or lower case."""
        with self._current(kind) as table:
            return table.has_name(scope, name)

    def groups(self, kinds: Sequence[GroupedKind]) -> list[Mapping[Hashable, RecordGroup]]:
        """Every group of each kind, at one revision. At a first look, kinds may be newer."""
        with self._lock:
            return [dict(it) for it in self._groups(kinds)]

    def group(self, kinds: Sequence[GroupedKind], name: Hashable) -> list[RecordGroup]:
        """Return the group of that name of each kind. A group without records is empty."""
        with self._lock:
            return [it.get(name, NO_RECORDS) for it in self._groups(kinds)]

    def _groups(self, kinds: Sequence[GroupedKind]) -> list[Mapping[Hashable, RecordGroup]]:
        self._catch_up()
        return [self._table(it.kind).groups(it) for it in kinds]

    @contextmanager
    def _current(self, kind: str) -> Iterator["MirrorTable"]:
        """The table of a kind, with the store's current records."""
        with self._lock:
            self._catch_up()
            yield self._table(kind)

    def _table(self, kind: str) -> "MirrorTable":
        if kind not in self._tables:
            self._tables[kind] = MirrorTable(self._store.list(kind))
        return self._tables[kind]

    def _catch_up(self) -> None:
        for change in self._changes():
            table = self._tables.get(change.key.kind)
            if table is not None:
                table.apply(change)
            self._revision = change.revision

    def _changes(self) -> Sequence[Change]:
        if self._revision:
            with suppress(RevisionTooOld):
                return self._store.changes(self._revision)
        # The revision is read first. A change in between is applied twice, which does no harm.
        self._tables = {}
        self._revision = self._store.revision()
        return ()


class MirrorTable:
    """The entries of one kind."""

    def __init__(self, records: Iterable[Record]) -> None:
        self._entries = {record.key: MirroredRecord(record) for record in records}
        self._order: list[MirroredRecord] | None = None
        self._names: Counter[tuple[Scope, str]] | None = None
        self._groups: RecordGroups | None = None

    def apply(self, change: Change) -> None:
        """Apply one change. A record with an unchanged version keeps its decoded value."""
        known = self._entries.get(change.key)
        if change.record is None:
            self._entries.pop(change.key, None)
        elif known is None or known.record.version != change.record.version:
            self._entries[change.key] = MirroredRecord(change.record)
        else:
            return
        if (known is None) != (change.record is None):
            self._count_name(change.key, -1 if known is not None else 1)
        if self._groups is not None:
            self._groups.stale.add(change.key)
        self._order = None

    def has_name(self, scope: Scope, name: str) -> bool:
        """Whether an entry has this name, in upper or lower case."""
        if self._names is None:
            self._names = Counter((it.scope, it.name.lower()) for it in self._entries)
        return self._names[scope, name.lower()] > 0

    def groups(self, kind: GroupedKind) -> Mapping[Hashable, RecordGroup]:
        """All non-empty groups. An error of `decode` is raised each time."""
        if self._groups is None:
            self._groups = RecordGroups(self._entries)
        return self._groups.current(kind)

    def _count_name(self, key: Key, more: int) -> None:
        if self._names is not None:
            self._names[key.scope, key.name.lower()] += more

    def in_order(self) -> list[MirroredRecord]:
        """Every entry, ordered by name."""
        if self._order is None:
            self._order = sorted(self._entries.values(), key=lambda it: by_name(it.record))
        return self._order


class RecordGroups:
    """Groups of entries. The cost of a change grows with the number of names in its part.

    The cost of an addition grows with the number of names in its group, which are sorted.
    """

    def __init__(self, entries: Mapping[Key, MirroredRecord]) -> None:
        self.stale: set[Key] = set(entries)
        self._entries = entries
        self._groups: dict[Hashable, RecordGroup] = {}
        self._group_of: dict[Key, Hashable] = {}

    def current(self, kind: GroupedKind) -> Mapping[Hashable, RecordGroup]:
        """The groups, after all stale groups are updated."""
        if not self.stale:
            return self._groups
        found = {key: self._entries.get(key) for key in self.stale}
        values = {key: it.value(kind.decode) for key, it in found.items() if it is not None}
        touched: dict[Hashable, dict[str, MirroredRecord | None]] = {}
        for key in found:
            old = self._group_of.pop(key, None)
            if old is not None:
                touched.setdefault(old, {})[key.name] = None
            if key in values:
                group = self._group_of[key] = kind.group_of(values[key])
                touched.setdefault(group, {})[key.name] = found[key]
        for group, changed in touched.items():
            self._regroup(group, changed, kind)
        self.stale.clear()
        return self._groups

    def _regroup(
        self, group: Hashable, changed: Mapping[str, MirroredRecord | None], kind: GroupedKind
    ) -> None:
        known = self._groups.pop(group, NO_RECORDS)
        new = {name: it and it.value(kind.decode) for name, it in changed.items()}
        values, versions, parts = (
            apply_changes(known.values, new),
            dict(known.versions),
            known.parts,
        )
        if not values:
            return
        for name, entry in changed.items():
            if entry is None:
                del versions[name]
            else:
                versions[name] = entry.record.version
        if kind.part_of is not None:
            parts = apply_to_parts(parts, known.values, new, kind.part_of)
        self._groups[group] = RecordGroup(values=values, versions=versions, parts=parts)
