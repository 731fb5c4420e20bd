"""In-memory mirror of the kinds of records in use, updated by the store's changes.

A read costs as much as has changed since the last one, not as much as there is: lists of thousands
of records are read and decoded once.
"""

import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any

from hostelry.domain.scope import Scope
from hostelry.store.errors import RevisionTooOld
from hostelry.store.memory import by_name
from hostelry.store.protocol import Change, Record, Store


class MirroredRecord:
    """A record and, after its first use, its decoded value, which is never modified."""

    __slots__ = ("_value", "record")

    def __init__(self, record: Record) -> None:
        self.record = record
        self._value: Any = None

    def value(self, decode: Callable[[Record], Any]) -> Any:
        """The value, decoded at most once; raises what `decode` raises, each time."""
        if self._value is None:
            self._value = decode(self.record)
        return self._value


class Mirror:
    """The current records of a store; thread-safe, with any number of writers anywhere."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._revision = 0  # that of the newest change applied; 0: none yet
        self._tables: dict[str, MirrorTable] = {}

    def entries(self, kind: str, scope: Scope | None = None) -> list[MirroredRecord]:
        """Every record of `kind` (in `scope`, or in all) there is now, ordered by name."""
        with self._lock:
            self._catch_up()
            if kind not in self._tables:
                self._tables[kind] = MirrorTable(self._store.list(kind))
            found = self._tables[kind].in_order()
            return [it for it in found if scope is None or it.record.key.scope == scope]

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
        # The revision is read before the tables: a change in between is applied twice, harmlessly.
        self._tables = {}
        self._revision = self._store.revision()
        return ()


class MirrorTable:
    """The entries of one kind."""

    def __init__(self, records: Iterable[Record]) -> None:
        self._entries = {record.key: MirroredRecord(record) for record in records}
        self._order: list[MirroredRecord] | None = None

    def apply(self, change: Change) -> None:
        """Apply one change; a record of an unchanged version keeps its decoded value."""
        known = self._entries.get(change.key)
        if change.record is None:
            self._entries.pop(change.key, None)
        elif known is None or known.record.version != change.record.version:
            self._entries[change.key] = MirroredRecord(change.record)
        else:
            return
        self._order = None

    def in_order(self) -> list[MirroredRecord]:
        """Every entry, ordered by name."""
        if self._order is None:
            self._order = sorted(self._entries.values(), key=lambda it: by_name(it.record))
        return self._order
