"""Metrics that outlive the process: in memory to be asked, in a journal to be found again."""

import contextlib
import logging
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hostelry.base.clock import Clock
from hostelry.base.errors import RetryableError
from hostelry.domain.metric import Datapoint, Metric, MetricStat, Sample
from hostelry.domain.scope import Scope
from hostelry.metrics.budget import DEFAULT_MAX_BYTES
from hostelry.metrics.journal import (
    SEGMENT,
    SNAPSHOT,
    UNFINISHED,
    Entry,
    Segment,
    entries_of,
    numbered,
)
from hostelry.metrics.protocol import MetricFilter
from hostelry.metrics.series import Series
from hostelry.metrics.snapshot import dumped, read_snapshot, write_snapshot
from hostelry.metrics.store import DROPPED, MemoryMetrics, MetricStoreStats, checked

LOG = logging.getLogger(__name__)
# The journal is compacted when it is larger than a quarter of the last snapshot, within these.
LEAST_JOURNAL_BYTES = 4 * 1024 * 1024
MOST_JOURNAL_BYTES = 8 * 1024 * 1024
MAX_SEGMENTS = 20  # each start makes one


class DurableMetrics:
    """`MetricStore` over a folder, which belongs to one process at a time.

    What `record` acknowledged is there after a kill. A machine's power failure may cost the last
    seconds: the journal is written, not flushed to the disk, before the acknowledgement.
    """

    def __init__(
        self,
        folder: Path,
        clock: Clock,
        *,
        max_bytes: int = DEFAULT_MAX_BYTES,
        least_journal_bytes: int = LEAST_JOURNAL_BYTES,
    ) -> None:
        """Read what the folder keeps; raises OSError where it cannot be read or written."""
        self._folder = folder
        self._clock = clock
        self._memory = MemoryMetrics(clock, max_bytes=max_bytes)
        self._least_journal_bytes = least_journal_bytes
        self._sequence = 0
        self._journal_bytes = 0
        self._snapshot_bytes = 0
        self._compacting: threading.Thread | None = None
        self._writing_snapshot = threading.Lock()
        self._is_closed = False
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._number = self._load() + 1  # of the newest segment
        self._segment: Segment | None = Segment(folder, self._number)
        has_too_many = len(numbered(folder, SEGMENT)) > MAX_SEGMENTS
        self._compact_at = 0 if has_too_many else self._limit_bytes()

    def record(self, scope: Scope, samples: Sequence[Sample]) -> None:
        """Keep `samples`, all or none; on return they survive the death of the process.

        Raises ValueError for what is not finite, RetryableError when the disk does not take them.
        """
        buckets = [checked(sample) for sample in samples]
        if not samples:
            return
        now = self._clock.now()
        with self._memory.lock:
            placed = [(self._memory.series(scope, it), it) for it in samples]
            self._append(now, placed)
            self._memory.apply(placed, buckets, now)
            is_due = self._journal_bytes > self._compact_at
        if is_due:
            self._start_compacting()

    def datapoints(
        self, scope: Scope, stat: MetricStat, start: float, end: float
    ) -> Sequence[Datapoint]:
        """As `MemoryMetrics.datapoints`."""
        return self._memory.datapoints(scope, stat, start, end)

    def find(self, scope: Scope, wanted: MetricFilter) -> Sequence[Metric]:
        """As `MemoryMetrics.find`."""
        return self._memory.find(scope, wanted)

    def units(self, scope: Scope, metric: Metric) -> Sequence[str]:
        """As `MemoryMetrics.units`."""
        return self._memory.units(scope, metric)

    def stats(self) -> MetricStoreStats:
        """As `MemoryMetrics.stats`."""
        return self._memory.stats()

    def compact(self) -> None:
        """Write a snapshot, and remove what it replaces; raises OSError, with nothing lost.

        Samples are taken meanwhile.
        """
        with self._writing_snapshot:
            with self._memory.lock:
                number = self._new_segment()
                series = self._memory.everything()
                self._journal_bytes = 0
                self._compact_at = self._limit_bytes()
            path = self._folder / SNAPSHOT.format(number)
            self._snapshot_bytes = write_snapshot(path, series, self._dump)
            self._remove_before(number)
            with self._memory.lock:
                self._compact_at = self._limit_bytes()

    def close(self) -> None:
        """Wait for a snapshot that is being written, and give the files back."""
        self._is_closed = True
        if self._compacting is not None:
            self._compacting.join()
        with self._memory.lock:
            if self._segment is not None:
                self._segment.file.close()
                self._segment = None

    def _append(self, now: float, placed: list[tuple[Series, Sample]]) -> None:
        try:
            if self._is_closed:
                raise RetryableError("The metrics are closed: this process is ending.")
            if self._segment is None or self._segment.file.is_broken:
                self._new_segment()
            assert self._segment is not None
            before = self._segment.file.size_bytes
            self._segment.append(self._sequence + 1, now, placed)
        except OSError as error:
            raise RetryableError(
                f"{len(placed)} samples cannot be kept in {self._folder}: {error.strerror}."
            ) from None
        self._sequence += 1
        self._journal_bytes += self._segment.file.size_bytes - before

    def _new_segment(self) -> int:
        """Write to another segment from here on; its number. The caller holds the lock."""
        self._number += 1
        made = Segment(self._folder, self._number)
        if self._segment is not None:
            self._segment.file.close()
        self._segment = made
        return self._number

    def _limit_bytes(self) -> int:
        most = max(self._least_journal_bytes, MOST_JOURNAL_BYTES)
        return min(max(self._least_journal_bytes, self._snapshot_bytes // 4), most)

    def _start_compacting(self) -> None:
        with self._memory.lock:
            if self._is_closed or (self._compacting and self._compacting.is_alive()):
                return
            thread = threading.Thread(target=self._try_to_compact, name="metrics-snapshot")
            self._compacting = thread
            thread.start()

    def _try_to_compact(self) -> None:
        try:
            self.compact()
        except OSError as error:
            LOG.warning("no snapshot of the metrics can be written now: %s", error)

    def _dump(self, series: Sequence[Series]) -> list[list[Any]]:
        with self._memory.lock:
            live = [it for it in series if it.position != DROPPED and not it.is_empty]
            return [dumped(it, self._sequence) for it in live]

    def _remove_before(self, number: int) -> None:
        """Remove segments and snapshots older than the snapshot of that number."""
        for form in (SEGMENT, SNAPSHOT):
            for older, path in numbered(self._folder, form).items():
                if older < number:
                    with contextlib.suppress(OSError):
                        path.unlink()

    def _load(self) -> int:
        """Read the last snapshot and the segments since; the number of the last segment."""
        for path in self._folder.glob(f"*{UNFINISHED}"):
            path.unlink(missing_ok=True)
        snapshots = numbered(self._folder, SNAPSHOT)
        first = max(snapshots, default=0)
        with self._memory.lock:
            if first:
                self._snapshot_bytes = snapshots[first].stat().st_size
                self._load_snapshot(snapshots[first])
            segments = numbered(self._folder, SEGMENT)
            for number, path in segments.items():
                if number >= first:
                    self._replay(path)
            self._memory.age(self._memory.stats().num_series, self._clock.now())
        return max(*segments, first, 0)

    def _load_snapshot(self, path: Path) -> None:
        for known, written_at, sequence, dump in read_snapshot(path):
            series = self._memory.series_of(known.scope, known.metric, known.unit)
            before = series.size_bytes
            try:
                series.load(dump)
            except (ValueError, TypeError, IndexError) as error:
                LOG.warning("%s of the snapshot %s cannot be read: %r", known.metric, path, error)
                continue
            series.written_at, series.sequence = written_at, sequence
            self._sequence = max(self._sequence, sequence)
            self._memory.restore(series, series.size_bytes - before)

    def _replay(self, path: Path) -> None:
        self._journal_bytes += path.stat().st_size
        try:
            for entry in entries_of(path):
                self._apply(entry)
        except ValueError as error:
            LOG.warning("the rest of a segment of metrics is left out: %s", error)

    def _apply(self, entry: Entry) -> None:
        placed = []
        for known, sample in entry.samples:
            series = self._memory.series_of(known.scope, known.metric, known.unit)
            if entry.sequence > series.sequence:
                placed.append((series, sample))
        self._memory.apply(placed, [None] * len(placed), entry.at)
        self._sequence = max(self._sequence, entry.sequence)
