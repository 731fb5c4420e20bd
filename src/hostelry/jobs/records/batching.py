"""Records put together into payloads: one each, or as many as fit."""

from collections.abc import Iterable
from dataclasses import dataclass

from hostelry.domain.transform_job import BatchStrategy
from hostelry.jobs.records.splitting import SplitRecord


@dataclass(frozen=True, slots=True)
class Payload:
    """Records that are sent at once; `first_number` is the first one's, from 1."""

    records: tuple[SplitRecord, ...]
    first_number: int
    is_framed: bool

    @property
    def body(self) -> bytes:
        """What is sent: framing and endings are kept between records of a batch."""
        if not self.is_framed:
            return self.records[0].content
        return b"".join([it.raw for it in self.records])


class Batcher:
    """Puts the records of one object together; a record alone is never too large (splitter)."""

    def __init__(self, strategy: BatchStrategy, max_payload_bytes: int) -> None:
        self._strategy = strategy
        self._max_bytes = max_payload_bytes
        self._held: list[SplitRecord] = []
        self._bytes = 0
        self._number = 1

    def add(self, records: Iterable[SplitRecord]) -> list[Payload]:
        """The payloads that are full now."""
        found = []
        for record in records:
            if self._strategy is BatchStrategy.SINGLE_RECORD:
                found.append(Payload((record,), self._number, False))
                self._number += 1
                continue
            size = len(record.raw)
            if self._held and self._bytes + size > self._max_bytes:
                found.append(self._take())
            self._held.append(record)
            self._bytes += size
        return found

    def finish(self) -> list[Payload]:
        """The last payload, where records are left."""
        return [self._take()] if self._held else []

    def _take(self) -> Payload:
        payload = Payload(tuple(self._held), self._number, True)
        self._number += len(self._held)
        self._held, self._bytes = [], 0
        return payload
