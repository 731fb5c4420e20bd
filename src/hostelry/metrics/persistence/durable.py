"""Metric store that survives the process: queries from memory, recovery from a journal.

the disk              `record`                      `emit`
-------------------   ---------------------------   --------------------------------------------
takes writes          journal, then memory          journal, then memory
fails, within         refused (RetryableError)      memory only (`is_behind`)
RETRY_S of the last
attempt
fails, later          tries the journal again       tries the journal again
takes writes again    as before                     as before. A thread writes a snapshot, which
                                                    includes the samples in memory only
"""

import contextlib
import errno
import logging
import math
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from hostelry.base.clock import Clock
from hostelry.base.errors import RetryableError
from hostelry.domain.metric import Sample
from hostelry.domain.scope import Scope
from hostelry.metrics.persistence.journal import SEGMENT, SNAPSHOT, Segment, list_numbered
from hostelry.metrics.persistence.recovery import (
    Recovered,
    dump_series,
    recover_folder,
    write_snapshot,
)
from hostelry.metrics.series.budget import DEFAULT_MAX_BYTES
from hostelry.metrics.series.series import Series
from hostelry.metrics.series.store import DROPPED, MemoryMetrics, check_sample

LOG = logging.getLogger(__name__)
RETRY_S = 5.0
"""Pause between two attempts."""
REMEDIES: Mapping[int, str] = {
    errno.ENOSPC: "make room on its disk",
    errno.EDQUOT: "make room within its owner's quota",
    errno.EFBIG: "raise the limit on the size of files (ulimit -f)",
    errno.EMFILE: "raise the limit on open files (ulimit -n)",
    errno.ENFILE: "close files of other processes, or raise the system's limit on open files",
    errno.EACCES: "let this user read and write it",
    errno.EPERM: "let this user read and write it",
    errno.EROFS: "mount its disk for writing",
    errno.EEXIST: "move away the file that stands in its place",
    errno.ENOTDIR: "move away the file that stands in its place",
    errno.EISDIR: "move away the folder that stands in its place",
}
UNKNOWN_REMEDY = "look at its disk and at the system's log"


class Outage(msgspec.Struct, frozen=True, kw_only=True):
    """An outage. `began_at` and `tried_at`, the last attempt, are in seconds since the epoch."""

    reason: str
    remedy: str
    began_at: float
    tried_at: float

    def is_due_again(self, now: float) -> bool:
        """True if a retry is due, or if the clock was set back."""
        return is_due(self.tried_at, now)


def continue_outage(
    error: OSError, folder: Path, now: float, known: Outage | None = None
) -> Outage:
    """Begin an outage because of `error`, or continue the `known` outage."""
    reason = error.strerror or str(error)
    if error.filename not in (None, folder, str(folder)):
        reason = f"{error.filename}: {reason}"
    return Outage(
        reason=reason,
        remedy=REMEDIES.get(error.errno or 0, UNKNOWN_REMEDY),
        began_at=now if known is None else known.began_at,
        tried_at=now,
    )


def is_due(tried_at: float, now: float, after_s: float = RETRY_S) -> bool:
    """True if `after_s` have passed, or if the clock was set back."""
    return not 0.0 <= now - tried_at < after_s


# The journal is compacted when it is larger than a quarter of the last snapshot, within limits.
LEAST_JOURNAL_BYTES = 4 * 1024 * 1024
MOST_JOURNAL_BYTES = 8 * 1024 * 1024
MAX_SEGMENTS = 20  # each start begins a segment
TAKEN_OVER_AT_ONCE = 100
SNAPSHOT_RETRY_S = 300.0  # each attempt begins a segment


class JournalStats(msgspec.Struct, frozen=True, kw_only=True):
    """State of the journal.

    `is_taking` while `record` succeeds. `is_behind` while emitted samples are in memory only.
    `num_refused` counts the samples that `record` refused since the start.
    """

    is_taking: bool
    is_behind: bool
    size_bytes: int
    snapshot_bytes: int
    num_refused: int


class DurableMetrics:
    """`MetricStore` over a folder, which belongs to one process at a time.

    What `record` acknowledged survives a kill of the process. A power failure may cost the last
    seconds: the journal is written, but not flushed to the disk, before the acknowledgement.
    """

    def __init__(
        self,
        folder: Path,
        clock: Clock,
        *,
        max_bytes: int = DEFAULT_MAX_BYTES,
        least_journal_bytes: int = LEAST_JOURNAL_BYTES,
    ) -> None:
        """Recover from the folder. If it cannot be read or written, begin in an outage."""
        self._folder = folder
        self._clock = clock
        self._max_bytes = max_bytes
        self._memory = MemoryMetrics(clock, max_bytes=max_bytes)
        self._least_journal_bytes = least_journal_bytes
        self._number = 0  # of the newest segment
        self._sequence = 0
        self._journal_bytes = 0
        self._snapshot_bytes = 0
        self._compact_at = 0
        self._segment: Segment | None = None
        self._thread: threading.Thread | None = None
        self._writing_snapshot = threading.Lock()
        self._outage: Outage | None = None
        self._is_read = False
        self._is_behind = False  # something that was emitted is in memory only
        self._snapshot_failed_at = -math.inf
        self._is_closed = False
        self._num_refused = 0
        try:
            self._begin_after(self._recover(self._memory))
            self._new_segment()
        except OSError as error:
            if not self._is_read:
                # An incomplete recovery is dropped: the next attempt reads the whole folder.
                self._memory = MemoryMetrics(clock, max_bytes=max_bytes)
            self._note_refusal(error)
        memory = self._memory
        # Queries are answered from memory.
        self.datapoints, self.find, self.units = memory.datapoints, memory.find, memory.units
        self.stats, self.shares = memory.stats, memory.shares

    def record(self, scope: Scope, samples: Sequence[Sample]) -> None:
        """Record `samples`, all or none. On return they survive the process.

        Raises ValueError for values that are not finite, and RetryableError if the disk fails.
        """
        self._write(scope, samples, must_last=True)

    def emit(self, scope: Scope, samples: Sequence[Sample]) -> None:
        """Take `samples`, all or none. They are written once the disk takes writes.

        Raises ValueError for values that are not finite.
        """
        self._write(scope, samples, must_last=False)

    def journal(self) -> JournalStats:
        """State of the journal. An outage shows with the first failed write."""
        with self._memory.lock:
            return JournalStats(
                is_taking=self._is_read and self._outage is None,
                is_behind=self._is_behind,
                size_bytes=self._journal_bytes,
                snapshot_bytes=self._snapshot_bytes,
                num_refused=self._num_refused,
            )

    def compact(self) -> None:
        """Write a snapshot, and remove the files that it replaces.

        Other threads may write samples meanwhile. Raises OSError, and nothing is lost.
        """
        with self._writing_snapshot:
            with self._memory.lock:
                number = self._new_segment()
                series = self._memory.all_series()
                self._journal_bytes = 0
                self._compact_at = self._limit_bytes()
                was_behind, self._is_behind = self._is_behind, False
            path = self._folder / SNAPSHOT.format(number)
            try:
                self._snapshot_bytes = write_snapshot(path, series, self._dump)
            except OSError:
                with self._memory.lock:
                    self._is_behind |= was_behind
                raise
            self._remove_before(number)
            with self._memory.lock:
                self._compact_at = self._limit_bytes()

    def settle(self) -> None:
        """Wait until the background thread has ended."""
        thread = self._thread
        if thread is not None:
            thread.join()

    def close(self) -> None:
        """Wait for a snapshot under way, and close the files."""
        with self._memory.lock:
            self._is_closed = True
        self.settle()
        with self._memory.lock:
            if self._segment is not None:
                self._segment.file.close()
                self._segment = None

    def _write(self, scope: Scope, samples: Sequence[Sample], *, must_last: bool) -> None:
        buckets = [check_sample(sample) for sample in samples]
        if not samples:
            return
        now = self._clock.now()
        placed: list[tuple[Series, Sample]] = []
        refusal = None
        with self._memory.lock:
            is_tried = self._takes(now)
            if is_tried or not must_last:
                get = self._memory.get_series
                placed = [(get(scope, it.metric, it.unit), it) for it in samples]
            is_kept = is_tried and self._append(now, placed)
            if must_last and not is_kept:
                self._num_refused += len(samples)
                refusal = self._refusal(len(samples))
            else:
                self._is_behind |= not is_kept
                self._memory.apply(placed, buckets, now)
            has_work = self._has_work(now)
        if has_work:
            self._start_work()
        if refusal is not None:
            raise RetryableError(refusal)

    def _takes(self, now: float) -> bool:
        """True if the journal should be tried."""
        if self._is_closed or not self._is_read:
            return False
        return self._outage is None or self._outage.is_due_again(now)

    def _append(self, now: float, placed: list[tuple[Series, Sample]]) -> bool:
        """Append to the journal. On failure writes nothing and returns False. Needs the lock."""
        try:
            if self._segment is None or self._segment.file.is_broken:
                self._new_segment()
            assert self._segment is not None
            before = self._segment.file.size_bytes
            self._segment.append(self._sequence + 1, now, placed)
        except OSError as error:
            self._note_refusal(error)
            return False
        self._sequence += 1
        self._journal_bytes += self._segment.file.size_bytes - before
        if self._outage is not None:
            LOG.info("metrics are kept in %s again", self._folder)
            self._outage = None
        return True

    def _note_refusal(self, error: OSError) -> None:
        """Begin or continue an outage. The caller holds the lock."""
        is_new = self._outage is None
        self._outage = continue_outage(error, self._folder, self._clock.now(), self._outage)
        if is_new:
            LOG.warning(
                "metrics are in memory only, and PutMetricData is refused: %s: %s; what to do: %s",
                self._folder, self._outage.reason, self._outage.remedy,
            )  # fmt: skip

    def _refusal(self, num_samples: int) -> str:
        if self._outage is None or self._is_closed:
            return "The metrics are closed: this process is ending."
        return (
            f"{num_samples} samples cannot be kept in {self._folder}: {self._outage.reason}. None"
            f" of them is kept. What to do: {self._outage.remedy}, then send them again."
        )

    def _new_segment(self) -> int:
        """Switch to a new segment, and return its number. The caller holds the lock."""
        self._number += 1
        made = Segment(self._folder, self._number)
        before, self._segment = self._segment, made
        if before is not None:
            before.file.close()
            if (
                not before.file.size_bytes
            ):  # else a disk that breaks every file would collect empty files
                with contextlib.suppress(OSError):
                    before.file.path.unlink()
        return self._number

    def _limit_bytes(self) -> int:
        return compact_at_bytes(self._snapshot_bytes, self._least_journal_bytes)

    def _has_work(self, now: float) -> bool:
        """True if a recovery or a snapshot is due. The caller holds the lock."""
        if not self._is_read:
            return self._outage is None or self._outage.is_due_again(now)
        is_snapshot_due = self._is_behind and is_due(
            self._snapshot_failed_at, now, SNAPSHOT_RETRY_S
        )
        return self._outage is None and (is_snapshot_due or self._journal_bytes > self._compact_at)

    def _start_work(self) -> None:
        with self._memory.lock:
            if self._is_closed or (self._thread and self._thread.is_alive()):
                return
            self._thread = threading.Thread(target=self._work, name="metrics-disk")
            self._thread.start()

    def _work(self) -> None:
        """Recover, if that failed at the start, and then write a snapshot."""
        try:
            if not self._is_read:
                self._read_late()
            self.compact()
        except OSError as error:
            with self._memory.lock:
                if not self._is_read:
                    self._note_refusal(error)
                    return
                self._snapshot_failed_at = self._clock.now()
            LOG.warning("no snapshot of the metrics can be written now: %s", error)

    def _recover(self, memory: MemoryMetrics) -> Recovered:
        """Recover from the folder into an empty store. Raises OSError."""
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return recover_folder(self._folder, memory, self._clock.now())

    def _read_late(self) -> None:
        """Recover while samples are emitted, and then merge both. Raises OSError."""
        read = MemoryMetrics(self._clock, max_bytes=self._max_bytes)
        found = self._recover(read)
        take_over(self._memory, read)
        with self._memory.lock:
            self._begin_after(found)

    def _begin_after(self, found: Recovered) -> None:
        """Continue the numbering after a recovery."""
        self._number = found.number
        self._sequence = found.sequence
        self._journal_bytes = found.journal_bytes
        self._snapshot_bytes = found.snapshot_bytes
        self._compact_at = 0 if found.num_segments >= MAX_SEGMENTS else self._limit_bytes()
        self._is_read = True

    def _dump(self, series: Sequence[Series]) -> list[list[Any]]:
        with self._memory.lock:
            live = [it for it in series if it.position != DROPPED and not it.is_empty]
            return [dump_series(it, self._sequence) for it in live]

    def _remove_before(self, number: int) -> None:
        """Remove segments and snapshots with numbers below `number`."""
        for form in (SEGMENT, SNAPSHOT):
            for older, path in list_numbered(self._folder, form).items():
                if older < number:
                    with contextlib.suppress(OSError):
                        path.unlink()


def take_over(memory: MemoryMetrics, read: MemoryMetrics) -> None:
    """Merge the recovered store `read` into a store that is in use."""
    series = read.all_series()
    for first in range(0, len(series), TAKEN_OVER_AT_ONCE):
        with memory.lock:
            for one in series[first : first + TAKEN_OVER_AT_ONCE]:
                memory.take_over(one)


def compact_at_bytes(snapshot_bytes: int, least_bytes: int) -> int:
    """The size of a journal at which the next snapshot is due."""
    return min(max(least_bytes, snapshot_bytes // 4), max(least_bytes, MOST_JOURNAL_BYTES))
