"""The Store seam: versioned records that survive every crash, and the errors of stores."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from hostelry.base.errors import RetryableError, TerminalError
from hostelry.domain.scope import Scope


class StoreUnavailable(RetryableError):  # noqa: N818 - reads well
    """The write or read did not happen now: disk full, locked, I/O error. Nothing was changed."""


class StoreRefused(TerminalError):  # noqa: N818 - reads well
    """The store cannot be used at all: not writable, not a database, or of a newer version."""


class RevisionTooOld(RetryableError):  # noqa: N818 - reads well
    """Deletes after the revision are no longer known. List everything, then watch from now."""


SCHEMES = ("postgresql://", "postgres://")


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """A record's identity: its kind (for example ``endpoint``), owner and name."""

    kind: str
    scope: Scope
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """A stored document. `version` is the store-wide revision of its last write: it only grows."""

    key: Key
    version: int
    body: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One write seen by `changes`. After a delete there is no `record`."""

    revision: int
    key: Key
    record: Record | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordWrite:
    """A write of one record whose present version is `expect`. A `body` of None removes it."""

    key: Key
    body: bytes | None
    expect: int | None


class Store(Protocol):
    """Durable when a call returns: an acknowledged write survives the death of any process.

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
        """Write records, each of another key, in their order: all of them or none.

        Raises Conflict if one has another version than expected.
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
