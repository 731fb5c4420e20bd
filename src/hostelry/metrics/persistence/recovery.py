"""Recovery of metrics from the parts of a journal into memory.

found at a start                          result
---------------------------------------   ------------------------------------------------------
files that were not finished              removed
snapshots                                 the newest is read
segments as new as that snapshot          replayed; entries that the snapshot contains are skipped
a damaged series, or end of a segment     left out, with a warning
a file that cannot be read                OSError: it may be readable later
"""

import contextlib
import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from hostelry.metrics.persistence.journal import (
    SEGMENT,
    SNAPSHOT,
    UNFINISHED,
    JournalEntry,
    JournalPart,
    entries_of,
    parts_in,
)
from hostelry.metrics.persistence.snapshot import read_snapshot
from hostelry.metrics.series.store import MemoryMetrics

LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovered:
    """Result of a recovery: numbers of the last file and the last entry, and sizes."""

    number: int
    sequence: int
    journal_bytes: int
    snapshot_bytes: int
    num_segments: int


def recover_folder(folder: Path, memory: MemoryMetrics, now: float) -> Recovered:
    """As `recover`, from the files of a folder; those that were not finished are removed."""
    for name in os.listdir(folder):
        if name.endswith(UNFINISHED):
            with contextlib.suppress(OSError):
                (folder / name).unlink()
    return recover(parts_in(folder, SNAPSHOT), parts_in(folder, SEGMENT), memory, now)


def recover(
    snapshots: Mapping[int, JournalPart],
    segments: Mapping[int, JournalPart],
    memory: MemoryMetrics,
    now: float,
) -> Recovered:
    """Read the newest snapshot and the segments since into `memory`, which must not be shared yet.

    Raises what reading a part raises; `memory` is incomplete then, and of no use.
    """
    first = max(snapshots, default=0)
    recovery = _Recovery(memory)
    with memory.lock:
        if first:
            recovery.read_snapshot(snapshots[first])
        for number, segment in segments.items():
            if number >= first:
                recovery.read_segment(segment)
        memory.age(memory.stats().num_series, now)
    return Recovered(
        number=max(*segments, first, 0),
        sequence=recovery.sequence,
        journal_bytes=recovery.journal_bytes,
        snapshot_bytes=recovery.snapshot_bytes,
        num_segments=len(segments),
    )


class _Recovery:
    """The progress of one recovery."""

    def __init__(self, memory: MemoryMetrics) -> None:
        self.sequence = 0
        self.journal_bytes = 0
        self.snapshot_bytes = 0
        self._memory = memory

    def read_snapshot(self, part: JournalPart) -> None:
        self.snapshot_bytes = part.size_bytes
        for known, written_at, sequence, dump in read_snapshot(part):
            series = self._memory.series_of(known.scope, known.metric, known.unit)
            before = series.size_bytes
            try:
                series.load(dump)
            except (ValueError, TypeError, IndexError) as error:
                LOG.warning(
                    "%s of the snapshot %s cannot be read: %r", known.metric, part.name, error
                )
                continue
            series.written_at, series.sequence = written_at, sequence
            self.sequence = max(self.sequence, sequence)
            self._memory.restore(series, series.size_bytes - before)

    def read_segment(self, part: JournalPart) -> None:
        self.journal_bytes += part.size_bytes
        try:
            for entry in entries_of(part):
                self._apply(entry)
        except ValueError as error:
            LOG.warning("the rest of a metrics segment is left out: %s", error)

    def _apply(self, entry: JournalEntry) -> None:
        placed = []
        for known, sample in entry.samples:
            series = self._memory.series_of(known.scope, known.metric, known.unit)
            if entry.sequence > series.sequence:
                placed.append((series, sample))
        self._memory.apply(placed, [None] * len(placed), entry.at)
        self.sequence = max(self.sequence, entry.sequence)
