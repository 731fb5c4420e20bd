"""The interface of stores: versioned records that survive every crash, and the errors."""

from collections.abc import Sequence
from typing import Protocol

import msgspec

from hostelry.base.errors import RetryableError, TerminalError
from hostelry.domain.scope import Scope


class StoreUnavailable(RetryableError):  # noqa: N818 - reads well
    """The call failed now: disk full, locked, I/O error. Nothing was changed."""


class StoreRefused(TerminalError):  # noqa: N818 - reads well
    """The store cannot be used at all: not writable, not a database, or of a newer version."""


class RevisionTooOld(RetryableError):  # noqa: N818 - reads well
    """Deletes after the revision have been forgotten. List everything, and watch from then on."""


SCHEMES = ("postgresql://", "postgres://")


class Key(msgspec.Struct, frozen=True, kw_only=True):
    """A record's identity: its kind (for example ``endpoint``), owner and name."""

    kind: str
    scope: Scope
    name: str


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """A stored document. `version` is the store-wide revision of its last write. It only grows."""

    key: Key
    version: int
    body: bytes


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """A changed record, as `changes` shows it. After a delete, `record` is missing."""

    revision: int
    key: Key
    record: Record | None


class RecordWrite(msgspec.Struct, frozen=True, kw_only=True):
    """A write of one record with the present version `expect`. A `body` of None removes it."""

    key: Key
    body: bytes | None
    expect: int | None


class Store(Protocol):
    """A store. Calls are durable when they return, and survive the end of any process.

    Thread-safe. Calls are synchronous and take about a millisecond.
    """

    def get(self, key: Key) -> Record | None:
        """The record, or None."""
        ...

    def put(self, key: Key, body: bytes, *, expect: int | None) -> Record:
        """Write if the current version is `expect` (None: the record must not exist).

        Raises Conflict if it is not.
        """
        ...

    def delete(self, key: Key, *, expect: int) -> None:
        """Remove if the current version is `expect`. Raises Conflict if it is not."""
        ...

    def write_all(self, writes: Sequence[RecordWrite]) -> None:
        """Write records with distinct keys in the given order: all records or none.

        Raises Conflict if a record has another version than expected.
        """
        ...

    def list(self, kind: str, scope: Scope | None = None) -> Sequence[Record]:
        """Every record of `kind` (in `scope`, or in all), ordered by name."""
        ...

    def changes(self, since: int) -> Sequence[Change]:
        """Every key changed after revision `since`, once, with its current record, oldest first."""
        ...

    def revision(self) -> int:
        """Revision of the newest write, or 0."""
        ...

    def wait(self, since: int, timeout_s: float) -> bool:
        """Block until the revision exceeds `since`. False if `timeout_s` passed first."""
        ...
