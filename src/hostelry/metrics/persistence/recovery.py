"""What a folder of metrics keeps, read into memory at a start."""

import contextlib
import logging
import os
from dataclasses import dataclass
from pathlib import Path

from hostelry.metrics.persistence.journal import (
    SEGMENT,
    SNAPSHOT,
    UNFINISHED,
    Entry,
    entries_of,
    numbered,
)
from hostelry.metrics.persistence.snapshot import read_snapshot
from hostelry.metrics.series.store import MemoryMetrics

LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What was read: the number of the last file, the last entry's, and how much there is."""

    number: int
    sequence: int
    journal_bytes: int
    snapshot_bytes: int
    num_segments: int


def recover(folder: Path, memory: MemoryMetrics, now: float) -> Found:
    """Read the last snapshot and the segments since into `memory`, which nobody else uses yet.

    Damaged parts are left out, with a warning. Raises OSError where something cannot be read, as it
    may be read later: `memory` is of no use then.
    """
    for name in os.listdir(folder):
        if name.endswith(UNFINISHED):
            with contextlib.suppress(OSError):
                (folder / name).unlink()
    snapshots, segments = numbered(folder, SNAPSHOT), numbered(folder, SEGMENT)
    first = max(snapshots, default=0)
    recovery = _Recovery(memory)
    with memory.lock:
        if first:
            recovery.read_snapshot(snapshots[first])
        for number, path in segments.items():
            if number >= first:
                recovery.read_segment(path)
        memory.age(memory.stats().num_series, now)
    return Found(
        number=max(*segments, first, 0),
        sequence=recovery.sequence,
        journal_bytes=recovery.journal_bytes,
        snapshot_bytes=recovery.snapshot_bytes,
        num_segments=len(segments),
    )


class _Recovery:
    """What one start has read so far."""

    def __init__(self, memory: MemoryMetrics) -> None:
        self.sequence = 0
        self.journal_bytes = 0
        self.snapshot_bytes = 0
        self._memory = memory

    def read_snapshot(self, path: Path) -> None:
        self.snapshot_bytes = path.stat().st_size
        for known, written_at, sequence, dump in read_snapshot(path):
            series = self._memory.series_of(known.scope, known.metric, known.unit)
            before = series.size_bytes
            try:
                series.load(dump)
            except (ValueError, TypeError, IndexError) as error:
                LOG.warning("%s of the snapshot %s cannot be read: %r", known.metric, path, error)
                continue
            series.written_at, series.sequence = written_at, sequence
            self.sequence = max(self.sequence, sequence)
            self._memory.restore(series, series.size_bytes - before)

    def read_segment(self, path: Path) -> None:
        self.journal_bytes += path.stat().st_size
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
        self.sequence = max(self.sequence, entry.sequence)
