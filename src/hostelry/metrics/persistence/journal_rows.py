"""Interface of a journal's place beyond this host: segments and snapshots in numbered parts.

A part is some frames of one segment or snapshot. A snapshot that is being written is UNFINISHED.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol


class PartKind(StrEnum):
    """What a part belongs to."""

    SEGMENT = "segment"
    SNAPSHOT = "snapshot"
    UNFINISHED = "unfinished"


@dataclass(frozen=True, slots=True, kw_only=True)
class PartsOf:
    """The parts, from 0, of the segment or snapshot `number`."""

    kind: PartKind
    number: int
    num_parts: int
    size_bytes: int


class JournalRows(Protocol):
    """The rows; each call is one transaction.

    Every call raises HostelryError where it cannot be made now; nothing was changed then, or what
    was asked for, which may be asked for again.
    """

    @property
    def place(self) -> str:
        """Where they are, for messages."""
        ...

    def list_parts(self) -> Sequence[PartsOf]:
        """Every segment and snapshot, in ascending order of their numbers."""
        ...

    def read(self, kind: PartKind, number: int, first: int, most: int) -> Sequence[bytes]:
        """The bytes of up to `most` parts from `first` on, in their order."""
        ...

    def write(
        self, kind: PartKind, number: int, part: int, body: bytes, marks: Mapping[str, bytes]
    ) -> None:
        """Keep a part, in place of one of that number, and `marks`, each in place of its last."""
        ...

    def marks(self) -> Mapping[str, bytes]:
        """The last value of each mark."""
        ...

    def finish_snapshot(self, number: int) -> None:
        """Make the unfinished snapshot one that is read, and remove whatever is older."""
        ...

    def remove_unfinished(self) -> None:
        """Remove the parts of snapshots that were not finished."""
        ...
