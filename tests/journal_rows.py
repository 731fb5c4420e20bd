"""Rows of a metrics journal in memory, which fail on request."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from hostelry.base.errors import RetryableError
from hostelry.metrics.persistence.journal import PartKind, PartsOf

Parts = dict[tuple[PartKind, int, int], bytes]


@dataclass
class MemoryRows:
    """`JournalRows` that raise `failing` in every call while it is set.

    The next `lost_answers` writes are made, but raise. `writes_left` limits writes, unless None.
    """

    parts: Parts = field(default_factory=dict)
    kept_marks: dict[str, bytes] = field(default_factory=dict)
    failing: Exception | None = None
    lost_answers: int = 0
    writes_left: int | None = None
    no_more: Exception = field(default_factory=lambda: RetryableError("no more writes"))
    num_writes: int = 0
    place: str = "memory"

    def list_parts(self) -> Sequence[PartsOf]:
        self._check()
        numbers = sorted({(number, kind) for kind, number, _ in self.parts})
        return [self._parts_of(kind, number) for number, kind in numbers]

    def read_parts(self, kind: PartKind, number: int, first: int, most: int) -> Sequence[bytes]:
        self._check()
        wanted = range(first, first + most)
        return [self.parts[kind, number, it] for it in wanted if (kind, number, it) in self.parts]

    def write(
        self, kind: PartKind, number: int, part: int, body: bytes, marks: Mapping[str, bytes]
    ) -> None:
        self._check()
        if self.writes_left == 0:
            raise self.no_more
        self.writes_left = None if self.writes_left is None else self.writes_left - 1
        self.num_writes += 1
        self.parts[kind, number, part] = body
        self.kept_marks.update(marks)
        if self.lost_answers:
            self.lost_answers -= 1
            raise RetryableError("the answer was lost")

    def marks(self) -> Mapping[str, bytes]:
        self._check()
        return dict(self.kept_marks)

    def finish_snapshot(self, number: int) -> None:
        self._check()
        kept = {key: body for key, body in self.parts.items() if key[1] >= number}
        self.parts = {
            (PartKind.SNAPSHOT if kind is PartKind.UNFINISHED else kind, of, part): body
            for (kind, of, part), body in kept.items()
        }

    def remove_unfinished(self) -> None:
        self._check()
        kept = self.parts.items()
        self.parts = {key: body for key, body in kept if key[0] is not PartKind.UNFINISHED}

    def _parts_of(self, kind: PartKind, number: int) -> PartsOf:
        mine = [body for key, body in self.parts.items() if key[:2] == (kind, number)]
        size = sum(map(len, mine))
        return PartsOf(kind=kind, number=number, num_parts=len(mine), size_bytes=size)

    def _check(self) -> None:
        if self.failing is not None:
            raise self.failing
