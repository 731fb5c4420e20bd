"""Metric store that survives its host: queries from memory, recovery from a journal of rows.

the database          `record`                      `emit`
-------------------   ---------------------------   --------------------------------------------
takes writes          waits for the next commit,    memory at once, and the next commit, within a
                      then memory                   second
fails                 refused (RetryableError)      memory. Waits for a commit that succeeds or,
                                                    beyond MAX_WAITING samples, for a snapshot
                                                    (`is_behind`)
(a defect here)       refused (RetryableError)      memory, then a snapshot (`is_behind`)

One thread commits. Samples that come within a second share a commit, which comes sooner if `record`
waits. The same thread writes snapshots, a part between two commits.
"""

import io
import logging
import math
import threading
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

import msgspec

from hostelry.base.clock import Clock, monotonic_s
from hostelry.base.errors import HostelryError, RetryableError
from hostelry.domain.metric import Sample
from hostelry.domain.scope import Scope
from hostelry.metrics.persistence.durable import (
    LEAST_JOURNAL_BYTES,
    MAX_SEGMENTS,
    JournalStats,
    compact_at_bytes,
    take_over,
)
from hostelry.metrics.persistence.journal import (
    JournalPart,
    JournalRows,
    PartKind,
    PartsOf,
    SegmentEntries,
    build_frame,
    frames_in,
)
from hostelry.metrics.persistence.recovery import Recovered, dump_series, recover, snapshot_frames
from hostelry.metrics.series.bucket import Bucket
from hostelry.metrics.series.budget import DEFAULT_MAX_BYTES
from hostelry.metrics.series.series import Series
from hostelry.metrics.series.store import DROPPED, MemoryMetrics, check_sample

LOG = logging.getLogger(__name__)
COMMIT_S = 1.0  # between commits
RECORD_S = 0.05  # ... while `record` waits
RETRY_S = 1.0  # after a commit that failed
SNAPSHOT_RETRY_S = 60.0
PART_BYTES = 1024 * 1024
READ_BYTES = 4 * 1024 * 1024  # about, at once
MAX_WAITING = 200_000  # samples, some 60 MB
Placed = list[tuple[Series, Sample]]


class _Entry(msgspec.Struct):
    """Samples that are in memory, and wait for their commit."""

    sequence: int
    at: float
    placed: Placed


class _Record(msgspec.Struct):
    """Samples that wait for their commit, and are in memory after it."""

    scope: Scope
    samples: Sequence[Sample]
    buckets: Sequence[Bucket | None]
    at: float
    ended: threading.Event = msgspec.field(default_factory=threading.Event)
    refusal: str | None = None


class SharedMetrics:
    """`MetricStore` over `rows`, which belong to one process at a time.

    Recorded samples survive this host. Samples that were emitted in the second before a kill, or
    while the rows could not be written, are lost.
    """

    def __init__(
        self,
        rows: JournalRows,
        clock: Clock,
        *,
        max_bytes: int = DEFAULT_MAX_BYTES,
        least_journal_bytes: int = LEAST_JOURNAL_BYTES,
        record_s: float = RECORD_S,
    ) -> None:
        """Recover from the rows. If they cannot be read, begin in an outage."""
        self._rows = rows
        self._clock = clock
        self._max_bytes = max_bytes
        self._record_s = record_s
        self._least_journal_bytes = least_journal_bytes
        self._waiting: list[_Entry] = []
        self._num_waiting = 0  # samples of them
        self._records: list[_Record] = []
        self._committing: list[_Record] = []
        self._marks: dict[str, bytes] = {}
        self._committing_marks: dict[str, bytes] = {}
        self._sequence = 0
        self._entries = SegmentEntries(0)
        self._part = 0  # the next of the segment
        self._journal_bytes = self._snapshot_bytes = self._compact_at = 0
        self._snapshot: Iterator[int] | None = None  # under way
        self._snapshot_failed_at = -math.inf
        self._is_wanted = False  # a snapshot, by `compact`
        self._outage: str | None = None
        self._tried_at = -math.inf  # the last commit
        self._is_hurried = self._is_busy = self._is_ended = self._is_closed = self._is_read = False
        self._is_behind = self._was_behind = False
        self._num_refused = 0
        memory = MemoryMetrics(clock, max_bytes=max_bytes)
        try:
            self._begin_after(self._recover(memory))
        except HostelryError as error:
            # An incomplete recovery is dropped: the next attempt reads everything.
            memory = MemoryMetrics(clock, max_bytes=max_bytes)
            self._note_outage(error)
        self._memory = memory
        # Queries are answered from memory.
        self.datapoints, self.find, self.units = memory.datapoints, memory.find, memory.units
        self.stats, self.shares = memory.stats, memory.shares
        self._turn = threading.Condition(memory.lock)
        self._thread = threading.Thread(target=self._run, name="metrics-journal", daemon=True)
        self._thread.start()

    def record(self, scope: Scope, samples: Sequence[Sample]) -> None:
        """Record `samples`, all or none. On return they survive this host.

        Raises ValueError for values that are not finite, and RetryableError if the rows cannot be
        written now.
        """
        buckets = [check_sample(sample) for sample in samples]
        if not samples:
            return
        record = _Record(scope, samples, buckets, self._clock.now())
        with self._turn:
            if self._is_closed or not self._is_read or self._outage is not None:
                self._refuse(record)
            else:
                self._records.append(record)
                self._turn.notify_all()
        record.ended.wait()
        if record.refusal is not None:
            raise RetryableError(record.refusal)

    def emit(self, scope: Scope, samples: Sequence[Sample]) -> None:
        """Take `samples`, all or none. They are written within a second, if that is possible.

        Raises ValueError for values that are not finite.
        """
        buckets = [check_sample(sample) for sample in samples]
        if not samples:
            return
        now = self._clock.now()
        with self._turn:
            placed = [(self._memory.get_series(scope, it.metric, it.unit), it) for it in samples]
            self._memory.apply(placed, buckets, now)
            if self._is_closed or not self._is_read:
                self._is_behind = True
                return
            self._sequence += 1
            self._waiting.append(_Entry(self._sequence, now, placed))
            self._num_waiting += len(placed)
            if self._num_waiting > MAX_WAITING:
                self._give_up_waiting()
            self._turn.notify_all()

    def mark(self, name: str, value: bytes) -> None:
        """Replace the value of a mark, in the commit of the samples emitted so far."""
        with self._turn:
            self._marks[name] = value
            self._turn.notify_all()

    def marks(self) -> Mapping[str, bytes]:
        """The last committed value of each mark. Raises RetryableError."""
        return self._rows.marks()

    def journal(self) -> JournalStats:
        """State of the journal. An outage shows with the first failed commit."""
        with self._turn:
            is_failing = self._outage is not None
            return JournalStats(
                is_taking=self._is_read and not is_failing,
                is_behind=self._is_behind or is_failing,
                size_bytes=self._journal_bytes,
                snapshot_bytes=self._snapshot_bytes,
                num_refused=self._num_refused,
            )

    def settle(self) -> None:
        """Wait until a commit of all samples was tried, and no snapshot is due."""
        with self._turn:
            self._is_hurried = True
            self._turn.notify_all()
            self._turn.wait_for(
                lambda: (
                    not (self._is_hurried or self._is_busy or self._is_snapshot_due())
                    or self._is_ended
                )
            )

    def compact(self) -> None:
        """Write a snapshot, and remove the parts that it replaces. If it fails, nothing is lost."""
        with self._turn:
            self._is_wanted = True
            self._turn.notify_all()
        self.settle()

    def close(self) -> None:
        """Try to commit waiting samples once, and end the thread."""
        with self._turn:
            self._is_closed = True
            self._turn.notify_all()
        self._thread.join()

    def _run(self) -> None:
        try:
            self._run_until_closed()
        finally:
            with self._turn:
                self._is_closed = self._is_ended = True
                self._refuse_all(*self._committing, *self._records)
                self._turn.notify_all()

    def _run_until_closed(self) -> None:
        is_last = False
        while not is_last:
            with self._turn:
                while (wait_s := self._due_at() - monotonic_s()) > 0:
                    self._turn.wait(min(wait_s, 3600.0))
                is_last = self._is_closed
                is_commit_due = is_last or monotonic_s() >= self._commit_at()
                self._is_busy, self._is_hurried = True, self._is_hurried and not is_commit_due
            try:
                self._work(is_commit_due=is_commit_due, is_last=is_last)
            except Exception as error:  # noqa: BLE001 - the outermost edge, see test_broad_excepts
                self._survive(error)
            with self._turn:
                self._is_busy = False
                self._turn.notify_all()

    def _work(self, *, is_commit_due: bool, is_last: bool) -> None:
        if not self._is_read:
            self._read_late()
        elif is_commit_due:
            self._commit()
        if self._is_read and self._outage is None and not is_last:
            self._continue_snapshot()

    def _survive(self, defect: Exception) -> None:
        """Continue after a defect: refuse waiting records, and leave emitted samples to a snapshot.

        The snapshot of the memory replaces everything that was written of them.
        """
        LOG.error("a defect in the journal of metrics; it continues", exc_info=defect)
        with self._turn:
            self._note_outage(RetryableError(f"a defect, see control's log: {defect!r}"))
            self._refuse_all(*self._committing)
            self._marks = {**self._committing_marks, **self._marks}
            self._give_up_waiting()
            if self._is_read:
                self._begin_segment(self._entries.number + 1)
            if self._snapshot is not None:
                self._snapshot, self._snapshot_failed_at = None, monotonic_s()

    def _due_at(self) -> float:
        """When the thread has something to do, by the monotonic clock. Needs the lock."""
        if self._is_closed or (self._outage is None and self._is_snapshot_due()):
            return -math.inf
        return self._commit_at()

    def _commit_at(self) -> float:
        if self._is_hurried:
            return -math.inf
        if self._outage is not None:
            return self._tried_at + RETRY_S
        if self._records:
            return self._tried_at + self._record_s
        return self._tried_at + COMMIT_S if self._waiting or self._marks else math.inf

    def _commit(self) -> None:
        """Write all waiting samples as one part."""
        with self._turn:
            entries, self._waiting = self._waiting, []
            self._num_waiting = 0
            records = self._committing = self._records
            self._records = []
            marks = self._committing_marks = self._marks
            self._marks = {}
            # No snapshot is dumped before these are in memory, as both are this thread's.
            asked = [self._parse_entry(it) for it in records]
        encoded = [self._entries.encode(it.sequence, it.at, it.placed) for it in (*entries, *asked)]
        body = b"".join(map(build_frame, encoded))
        try:
            if body or marks:
                self._rows.write(PartKind.SEGMENT, self._entries.number, self._part, body, marks)
            elif self._outage is not None:
                self._rows.marks()
        except HostelryError as error:
            self._entries.undo()
            with self._turn:
                self._note_outage(error)
                self._take_back(entries, marks)
                self._refuse_all(*records)
            return
        self._entries.keep()
        self._part += bool(body or marks)
        with self._turn:
            self._tried_at = monotonic_s()
            self._journal_bytes += len(body)
            for record, entry in zip(records, asked, strict=True):
                self._memory.apply(entry.placed, record.buckets, record.at)
                record.ended.set()
            if self._outage is not None:
                LOG.info("metrics are kept in %s again", self._rows.place)
                self._outage = None

    def _parse_entry(self, record: _Record) -> _Entry:
        self._sequence += 1
        memory, scope = self._memory, record.scope
        placed = [(memory.get_series(scope, it.metric, it.unit), it) for it in record.samples]
        return _Entry(self._sequence, record.at, placed)

    def _take_back(self, entries: list[_Entry], marks: Mapping[str, bytes]) -> None:
        """Keep unwritten samples and marks for the next commit. Needs the lock."""
        self._marks = {**marks, **self._marks}
        self._waiting = [*entries, *self._waiting]
        self._num_waiting += sum(len(it.placed) for it in entries)
        if self._num_waiting > MAX_WAITING:
            self._give_up_waiting()

    def _give_up_waiting(self) -> None:
        """Leave waiting samples to a snapshot. Needs the lock."""
        self._waiting, self._num_waiting, self._is_behind = [], 0, True

    def _note_outage(self, error: HostelryError) -> None:
        """Begin or continue an outage."""
        if self._outage is None:
            LOG.warning("metrics are in memory only, and PutMetricData is refused: %s", error)
        self._outage = str(error)
        self._tried_at = monotonic_s()

    def _refuse_all(self, *records: _Record) -> None:
        """Refuse the records that have not ended. Needs the lock."""
        for record in records:
            if not record.ended.is_set():
                self._refuse(record)

    def _refuse(self, record: _Record) -> None:
        """Refuse a record. Needs the lock."""
        number = len(record.samples)
        record.refusal = "The metrics are closed: this process is ending."
        if self._outage is not None and not self._is_closed:
            record.refusal = (
                f"{number} samples cannot be kept: {self._outage}. None of them is kept: send them"
                " again."
            )
        self._num_refused += number
        record.ended.set()

    def _is_snapshot_due(self) -> bool:
        """True if a snapshot is under way or due. Needs the lock."""
        if self._snapshot is not None or self._is_wanted or not self._is_read:
            return self._is_read and self._outage is None
        since_failure_s = monotonic_s() - self._snapshot_failed_at
        is_wanted = self._is_behind or self._journal_bytes > self._compact_at
        return is_wanted and self._outage is None and since_failure_s >= SNAPSHOT_RETRY_S

    def _continue_snapshot(self) -> None:
        """Write the next part of a snapshot, if a snapshot is due."""
        with self._turn:
            if not self._is_snapshot_due():
                return
            self._is_wanted = False
            if self._snapshot is None:
                self._snapshot = self._new_snapshot()
        try:
            size_bytes = next(self._snapshot, None)
        except HostelryError as error:
            with self._turn:
                self._snapshot, self._snapshot_failed_at = None, monotonic_s()
                self._is_behind |= self._was_behind
            LOG.warning("no snapshot of the metrics can be written now: %s", error)
            return
        with self._turn:
            if size_bytes is None:
                self._snapshot = None
                self._compact_at = compact_at_bytes(self._snapshot_bytes, self._least_journal_bytes)
            else:
                self._snapshot_bytes = size_bytes

    def _new_snapshot(self) -> Iterator[int]:
        """Begin a new segment, and return the steps of a snapshot. Needs the lock."""
        self._begin_segment(self._entries.number + 1)
        self._journal_bytes = 0
        self._was_behind, self._is_behind = self._is_behind, False
        frames = snapshot_frames(self._memory.all_series(), self._dump)
        return snapshot_parts(self._rows, self._entries.number, frames)

    def _dump(self, series: Sequence[Series]) -> list[list[Any]]:
        with self._turn:
            live = [it for it in series if it.position != DROPPED and not it.is_empty]
            return [dump_series(it, self._sequence) for it in live]

    def _begin_segment(self, number: int) -> None:
        self._entries, self._part = SegmentEntries(number), 0

    def _recover(self, memory: MemoryMetrics) -> Recovered:
        """Recover into an empty store. Raises HostelryError."""
        found = self._rows.list_parts()
        snapshots, segments = (
            {it.number: journal_part(self._rows, it) for it in found if it.kind is kind}
            for kind in (PartKind.SNAPSHOT, PartKind.SEGMENT)
        )
        return recover(snapshots, segments, memory, self._clock.now())

    def _read_late(self) -> None:
        """Recover while samples are emitted, and merge both."""
        read = MemoryMetrics(self._clock, max_bytes=self._max_bytes)
        try:
            found = self._recover(read)
        except HostelryError as error:
            with self._turn:
                self._note_outage(error)
            return
        take_over(self._memory, read)
        with self._turn:
            self._begin_after(found)
            self._outage = None
        LOG.info("metrics were read from %s", self._rows.place)

    def _begin_after(self, found: Recovered) -> None:
        """Continue the numbering after a recovery."""
        self._begin_segment(found.number + 1)
        self._sequence = found.sequence
        self._journal_bytes = found.journal_bytes
        self._snapshot_bytes = found.snapshot_bytes
        limit = compact_at_bytes(found.snapshot_bytes, self._least_journal_bytes)
        self._compact_at = 0 if found.num_segments >= MAX_SEGMENTS else limit
        self._is_read = True


def snapshot_parts(rows: JournalRows, number: int, frames: Iterator[bytes]) -> Iterator[int]:
    """Write the snapshot `number`, a part in each step, and yield the bytes so far."""
    rows.remove_unfinished()
    part, size_bytes, body = 0, 0, bytearray()
    for frame in chain(frames, (None,)):
        if frame is not None:
            body += build_frame(frame)
        if frame is None or len(body) >= PART_BYTES:
            rows.write(PartKind.UNFINISHED, number, part, bytes(body), {})
            part, size_bytes = part + 1, size_bytes + len(body)
            body.clear()
            yield size_bytes
    rows.finish_snapshot(number)


def journal_part(rows: JournalRows, parts: PartsOf) -> JournalPart:
    """Build a segment or snapshot for recovery, which is read from `rows` part by part."""
    mean_bytes = max(1, parts.size_bytes // parts.num_parts)
    at_once = max(1, READ_BYTES // mean_bytes)

    def frames() -> Iterator[bytes]:
        for first in range(0, parts.num_parts, at_once):
            for body in rows.read_parts(parts.kind, parts.number, first, at_once):
                yield from frames_in(io.BytesIO(body))

    return JournalPart(
        number=parts.number,
        name=f"{parts.kind} {parts.number} in {rows.place}",
        size_bytes=parts.size_bytes,
        frames=frames,
    )
