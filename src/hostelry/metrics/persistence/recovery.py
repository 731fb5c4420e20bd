"""Snapshots of all series, and recovery of series from the parts of a journal.

A snapshot keeps recovery short, and replaces older journal segments. It is written while samples
arrive. Each series is stored with the sequence number of its last journal entry, and recovery
applies only later entries.

found at a start                          result
---------------------------------------   ------------------------------------------------------
unfinished files                          removed
snapshots                                 the newest is read
segments as new as that snapshot          replayed, without entries that the snapshot contains
a damaged series, or end of a segment     left out, with a warning
an unreadable file                        OSError, because it may be readable later
"""

import contextlib
import logging
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from hostelry.base.files import sync_folder
from hostelry.metrics.persistence.journal import (
    SEGMENT,
    SNAPSHOT,
    UNFINISHED,
    FrameFile,
    JournalEntry,
    JournalPart,
    SeriesId,
    describe_series,
    parse_series_id,
    parts_in,
    read_entries,
)
from hostelry.metrics.series.series import Series
from hostelry.metrics.series.store import MemoryMetrics

LOG = logging.getLogger(__name__)

SERIES_A_FRAME = 100
_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(strict=False)

Dumped = tuple[SeriesId, float, int, list[Any]]
"""A series, the time of its last write, the last entry in it, and its columns."""


def write_snapshot(
    path: Path, series: Sequence[Series], dump: Callable[[Sequence[Series]], list[list[Any]]]
) -> int:
    """Write `series` to `path` atomically, and return its size in bytes. Raises OSError."""
    unfinished = path.with_name(path.name + UNFINISHED)
    unfinished.unlink(missing_ok=True)
    file = FrameFile(unfinished)
    try:
        for frame in snapshot_frames(series, dump):
            file.append(frame)
        file.sync()
        unfinished.rename(path)
        sync_folder(path.parent)
    except OSError:
        with contextlib.suppress(OSError):
            unfinished.unlink(missing_ok=True)
        raise
    finally:
        file.close()
    return file.size_bytes


def snapshot_frames(
    series: Sequence[Series], dump: Callable[[Sequence[Series]], list[list[Any]]]
) -> Iterator[bytes]:
    """Yield the frames of a snapshot of `series`.

    `dump` returns the plain values of a few series, consistent with each other.
    """
    num_written = 0
    for first in range(0, len(series), SERIES_A_FRAME):
        rows = dump(series[first : first + SERIES_A_FRAME])
        num_written += len(rows)
        yield _ENCODER.encode(rows)
    yield _ENCODER.encode(num_written)


def dump_series(series: Series, sequence: int) -> list[Any]:
    """Convert a series, which includes the journal's entry `sequence`, to plain values."""
    return [describe_series(series), series.written_at, sequence, series.dump()]


def read_snapshot(part: JournalPart) -> Iterator[Dumped]:
    """Yield the series of a snapshot. Logs a warning if damaged series are missing."""
    num_read, num_promised = 0, None
    for frame in part.frames():
        try:
            rows = _DECODER.decode(frame)
            if isinstance(rows, int):
                num_promised = rows
                continue
            found = [(parse_series_id(it[0]), float(it[1]), int(it[2]), it[3]) for it in rows]
        except (msgspec.DecodeError, TypeError, ValueError, IndexError) as error:
            LOG.warning("a part of the metrics' snapshot %s cannot be read: %r", part.name, error)
            continue
        num_read += len(found)
        yield from found
    if num_promised != num_read:
        LOG.warning(
            "the metrics' snapshot %s is damaged: %d series were read of %s",
            part.name, num_read, num_promised,
        )  # fmt: skip


class Recovered(msgspec.Struct, frozen=True, kw_only=True):
    """Result of a recovery: numbers of the last file and the last entry, and sizes."""

    number: int
    sequence: int
    journal_bytes: int
    snapshot_bytes: int
    num_segments: int


def recover_folder(folder: Path, memory: MemoryMetrics, now: float) -> Recovered:
    """Recover from the files of a folder, and remove unfinished files."""
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

    Raises the errors of `JournalPart.frames`. Then `memory` is incomplete and must not be used.
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
            series = self._memory.get_series(known.scope, known.metric, known.unit)
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
            for entry in read_entries(part):
                self._apply(entry)
        except ValueError as error:
            LOG.warning("the rest of a metrics segment is left out: %s", error)

    def _apply(self, entry: JournalEntry) -> None:
        placed = []
        for known, sample in entry.samples:
            series = self._memory.get_series(known.scope, known.metric, known.unit)
            if entry.sequence > series.sequence:
                placed.append((series, sample))
        self._memory.apply(placed, [None] * len(placed), entry.at)
        self.sequence = max(self.sequence, entry.sequence)
