"""Store in memory, for tests and for trials of the control plane without a disk."""

import threading
from collections.abc import Sequence

from hostelry.base.errors import Conflict
from hostelry.domain.scope import Scope
from hostelry.store.protocol import Change, Key, Record, RecordWrite, RevisionTooOld

TOMBSTONES_KEPT = 10_000


class MemoryStore:
    """`Store` in a dictionary, under one lock. Lost with the process."""

    def __init__(self, *, tombstones_kept: int = TOMBSTONES_KEPT) -> None:
        self._tombstones_kept = tombstones_kept
        self._changed = threading.Condition()
        self._records: dict[Key, Record] = {}
        self._tombstones: dict[Key, int] = {}  # the oldest come first
        self._revision = 0
        self._forgotten = 0
        self._is_closed = False

    def get(self, key: Key) -> Record | None:
        """The record, or None."""
        with self._changed:
            return self._records.get(key)

    def put(self, key: Key, body: bytes, *, expect: int | None) -> Record:
        """Write if the current version is `expect`. Raises Conflict if it is not."""
        with self._changed:
            self._check(key, expect)
            self._revision += 1
            record = Record(key=key, version=self._revision, body=body)
            self._records[key] = record
            self._tombstones.pop(key, None)
            self._changed.notify_all()
            return record

    def delete(self, key: Key, *, expect: int) -> None:
        """Remove if the current version is `expect`. Raises Conflict if it is not."""
        with self._changed:
            self._check(key, expect)
            self._revision += 1
            del self._records[key]
            self._tombstones[key] = self._revision
            self._forget_oldest()
            self._changed.notify_all()

    def write_all(self, writes: Sequence[RecordWrite]) -> None:
        """Write all records or none. Raises Conflict if one has another version."""
        with self._changed:
            for write in writes:
                self._check(write.key, write.expect)
            for write in writes:
                if write.body is not None:
                    self.put(write.key, write.body, expect=write.expect)
                elif write.expect is not None:
                    self.delete(write.key, expect=write.expect)

    def list(self, kind: str, scope: Scope | None = None) -> Sequence[Record]:
        """Every record of `kind` (in `scope`, or in all), ordered by name."""
        with self._changed:
            found = [
                record
                for key, record in self._records.items()
                if key.kind == kind and scope in (None, key.scope)
            ]
        return sorted(found, key=by_name)

    def changes(self, since: int) -> Sequence[Change]:
        """Every key changed after revision `since`, once, with its present record."""
        with self._changed:
            check_watchable(since, self._forgotten)
            live = [
                Change(revision=record.version, key=key, record=record)
                for key, record in self._records.items()
                if record.version > since
            ]
            dead = [
                Change(revision=revision, key=key, record=None)
                for key, revision in self._tombstones.items()
                if revision > since
            ]
        return sorted(live + dead, key=lambda change: change.revision)

    def revision(self) -> int:
        """Revision of the newest write, or 0."""
        with self._changed:
            return self._revision

    def wait(self, since: int, timeout_s: float) -> bool:
        """Block until the revision exceeds `since`. False after `timeout_s`, or after `close`."""
        with self._changed:
            self._changed.wait_for(lambda: self._is_closed or self._revision > since, timeout_s)
            return self._revision > since

    def close(self) -> None:
        """Wake all waiting threads."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()

    def _check(self, key: Key, expect: int | None) -> None:
        record = self._records.get(key)
        check_version(key, record.version if record else None, expect)

    def _forget_oldest(self) -> None:
        while len(self._tombstones) > self._tombstones_kept:
            oldest = next(iter(self._tombstones))
            self._forgotten = self._tombstones.pop(oldest)


def check_version(key: Key, present: int | None, expect: int | None) -> None:
    """Raise Conflict, which names both versions, unless they are equal."""
    if present == expect:
        return
    states = [
        "absent" if version is None else f"version {version}" for version in (present, expect)
    ]
    raise Conflict(f"{key.kind} {key.name!r} is {states[0]}; expected {states[1]}: read it again")


def check_watchable(since: int, forgotten: int) -> None:
    """Raise RevisionTooOld if deletes after `since` have been forgotten. 0 is always allowed."""
    if 0 < since < forgotten:
        raise RevisionTooOld(
            f"revision {since} is too old to watch from: deletes up to {forgotten} are forgotten;"
            " list the records, then watch from the present revision"
        )


def by_name(record: Record) -> tuple[str, str, str]:
    """The sort key of `list`: name, then owner."""
    return record.key.name, record.key.scope.account, record.key.scope.region
