"""Snapshots of all series, which keep recovery short and let old journal segments be removed.

A snapshot is written while samples arrive: each series is stored with the sequence number of the
last journal entry it contains, and recovery applies only later ones.
"""

import contextlib
import logging
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from hostelry.base.private_file import sync_folder
from hostelry.metrics.persistence.frames import FrameFile
from hostelry.metrics.persistence.journal import (
    UNFINISHED,
    JournalPart,
    SeriesId,
    described,
    series_id_of,
)
from hostelry.metrics.series.series import Series

LOG = logging.getLogger(__name__)
SERIES_A_FRAME = 100
_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(strict=False)

Dumped = tuple[SeriesId, float, int, list[Any]]
"""A series, the time of its last write, the last entry in it, and its columns."""


def write_snapshot(
    path: Path, series: Sequence[Series], dump: Callable[[Sequence[Series]], list[list[Any]]]
) -> int:
    """Write `series` to `path` atomically and return its size in bytes; raises OSError."""
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
    """The frames of a snapshot of `series`.

    `dump` returns the plain values of a few series, consistent with each other.
    """
    num_written = 0
    for first in range(0, len(series), SERIES_A_FRAME):
        rows = dump(series[first : first + SERIES_A_FRAME])
        num_written += len(rows)
        yield _ENCODER.encode(rows)
    yield _ENCODER.encode(num_written)


def dumped(series: Series, sequence: int) -> list[Any]:
    """One series as plain values, including the journal's entry `sequence`."""
    return [described(series), series.written_at, sequence, series.dumped()]


def read_snapshot(part: JournalPart) -> Iterator[Dumped]:
    """The series of a snapshot; logs a warning where damaged ones are missing."""
    num_read, num_promised = 0, None
    for frame in part.frames():
        try:
            rows = _DECODER.decode(frame)
            if isinstance(rows, int):
                num_promised = rows
                continue
            found = [(series_id_of(it[0]), float(it[1]), int(it[2]), it[3]) for it in rows]
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
