"""Journal of samples: append-only segments of frames with checksums.

A segment describes each series once and then refers to it by a number, so a sample of one value
takes some twenty bytes. Sequence numbers of entries increase over all segments.
"""

import os
import struct
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, Protocol

import msgspec

from hostelry.domain.metric import Metric, Sample, StatisticSet
from hostelry.domain.scope import Scope
from hostelry.metrics.series.series import Series

_HEAD = struct.Struct("<II")  # length and CRC-32 of the body
MAX_FRAME_BYTES = 64 * 1024 * 1024


class FrameFile:
    """A file that one process appends frames to."""

    def __init__(self, path: Path) -> None:
        """Create the file. Raises OSError, and FileExistsError if it exists."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC
        self.path = path
        self.size_bytes = 0
        self.is_broken = False
        self._descriptor = os.open(path, flags, 0o600)

    def append(self, body: bytes) -> None:
        """Write one frame. On return it survives the process.

        Raises OSError, and nothing is written. If a partial frame cannot be cut off, `is_broken` is
        set. Then another file must be used, because a reader stops at the partial frame.
        """
        frame = build_frame(body)
        try:
            write_whole(self._descriptor, frame)
        except OSError:
            try:
                os.ftruncate(self._descriptor, self.size_bytes)
            except OSError:
                self.is_broken = True
            raise
        self.size_bytes += len(frame)

    def sync(self) -> None:
        """Flush the file to the disk."""
        os.fsync(self._descriptor)

    def close(self) -> None:
        """Close the file. Idempotent."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def write_whole(descriptor: int, body: bytes) -> None:
    """Write all of `body`, repeating short writes. Raises OSError."""
    rest = memoryview(body)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def build_frame(body: bytes) -> bytes:
    """Build a frame: the length of `body`, its checksum, and `body`."""
    return _HEAD.pack(len(body), zlib.crc32(body)) + body


def read_frames(path: Path) -> Iterator[bytes]:
    """Yield every frame before the first torn or damaged frame. Raises OSError."""
    with path.open("rb") as file:
        yield from frames_in(file)


def frames_in(file: BinaryIO) -> Iterator[bytes]:
    """Yield the frames of an open file, as `read_frames` does."""
    while len(head := file.read(_HEAD.size)) == _HEAD.size:
        length, checksum = _HEAD.unpack(head)
        if length > MAX_FRAME_BYTES:
            return
        body = file.read(length)
        if len(body) < length or zlib.crc32(body) != checksum:
            return
        yield body


SEGMENT = "segment-{:010}.log"
SNAPSHOT = "snapshot-{:010}.bin"
UNFINISHED = ".unfinished"
_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder()

Placed = Sequence[tuple[Series, Sample]]


class SeriesId(msgspec.Struct, frozen=True, kw_only=True):
    """Identity of a series. A number in a segment stands for it."""

    scope: Scope
    metric: Metric
    unit: str


class JournalEntry(msgspec.Struct, frozen=True, kw_only=True):
    """Samples that were recorded together at the instant `at`."""

    sequence: int
    at: float
    samples: Sequence[tuple[SeriesId, Sample]]


class JournalPart(msgspec.Struct, frozen=True, kw_only=True):
    """A segment or snapshot for recovery. `frames` raises OSError or RetryableError."""

    number: int
    name: str
    size_bytes: int
    frames: Callable[[], Iterator[bytes]]


class SegmentEntries:
    """Encodes the entries of a segment. Each series is described in its first entry."""

    def __init__(self, number: int) -> None:
        self.number = number
        self._num_series = 0
        self._made: list[Series] = []

    def encode(self, sequence: int, at: float, placed: Placed) -> bytes:
        """Encode one entry as the body of a frame. `keep` or `undo` follows one or more calls."""
        made: list[Series] = []
        for series, _ in placed:
            if series.segment != self.number:
                series.segment, series.number = self.number, self._num_series + len(made)
                made.append(series)
        self._num_series += len(made)
        self._made += made
        body = [
            sequence,
            at,
            [[it.number, *describe_series(it)] for it in made],
            [_plain(series.number, sample) for series, sample in placed],
        ]
        return _ENCODER.encode(body)

    def keep(self) -> None:
        """Note that the encoded entries were written."""
        self._made.clear()

    def undo(self) -> None:
        """Note that the encoded entries were not written. Their series are described again."""
        for series in self._made:
            series.segment = -1
        self._num_series -= len(self._made)
        self._made.clear()


class Segment:
    """The segment being written."""

    def __init__(self, folder: Path, number: int) -> None:
        """Create the segment. Raises OSError."""
        self.file = FrameFile(folder / SEGMENT.format(number))
        self._entries = SegmentEntries(number)

    def append(self, sequence: int, at: float, placed: Placed) -> None:
        """Write one entry. Raises OSError, and nothing is written."""
        try:
            self.file.append(self._entries.encode(sequence, at, placed))
        except OSError:
            self._entries.undo()
            raise
        self._entries.keep()


def describe_series(series: Series) -> list[Any]:
    """Convert a series' identity to plain values."""
    scope = series.scope
    dimensions = [list(it) for it in series.dimensions]
    return [scope.account, scope.region, series.namespace, series.name, dimensions, series.unit]


def parse_series_id(plain: Sequence[Any]) -> SeriesId:
    """Parse an identity from `describe_series`."""
    account, region, namespace, name, dimensions, unit = plain
    pairs = tuple((str(key), str(value)) for key, value in dimensions)
    return SeriesId(
        scope=Scope(account, region),
        metric=Metric(namespace=namespace, name=name, dimensions=pairs),
        unit=unit,
    )


def read_entries(part: JournalPart) -> Iterator[JournalEntry]:
    """Yield the entries of a segment, in order. Raises ValueError if the file is not a journal.

    Reading ends at the first torn entry. No later entry was acknowledged.
    """
    series: dict[int, SeriesId] = {}
    for frame in part.frames():
        try:
            sequence, at, made, samples = _DECODER.decode(frame)
            for number, *plain in made:
                series[number] = parse_series_id(plain)
            found = [(series[it[0]], _sample(series[it[0]], it)) for it in samples]
        except (msgspec.DecodeError, TypeError, KeyError, IndexError) as error:
            raise ValueError(f"{part.name} is not a journal of metrics: {error!r}.") from None
        yield JournalEntry(sequence=sequence, at=at, samples=found)


def parts_in(folder: Path, form: str) -> dict[int, JournalPart]:
    """List the parts with names of that form, by number in ascending order. Raises OSError."""
    return {
        number: JournalPart(
            number=number,
            name=str(path),
            size_bytes=path.stat().st_size,
            frames=partial(read_frames, path),
        )
        for number, path in list_numbered(folder, form).items()
    }


def list_numbered(folder: Path, form: str) -> dict[int, Path]:
    """List the files with names of that form, by number in ascending order. Raises OSError."""
    prefix, _, suffix = form.partition("{:010}")
    found = {}
    for name in os.listdir(folder):
        digits = name.removeprefix(prefix).removesuffix(suffix)
        if digits.isdigit() and name == f"{prefix}{digits}{suffix}":
            found[int(digits)] = folder / name
    return dict(sorted(found.items()))


def _plain(number: int, sample: Sample) -> list[Any]:
    if len(sample.values) == 1 and not sample.counts:
        return [number, sample.at, sample.resolution_s, sample.values[0]]
    known = sample.statistics
    summed = known and [known.sample_count, known.sum, known.minimum, known.maximum]
    return [number, sample.at, sample.resolution_s, sample.values, sample.counts, summed]


def _sample(known: SeriesId, plain: Sequence[Any]) -> Sample:
    _, at, resolution_s, *rest = plain
    values, counts, summed = rest if len(rest) == 3 else ((rest[0],), (), None)
    statistics = None
    if summed:
        count, total, minimum, maximum = summed
        statistics = StatisticSet(sample_count=count, sum=total, minimum=minimum, maximum=maximum)
    return Sample(
        metric=known.metric,
        at=at,
        values=tuple(values),
        counts=tuple(counts),
        statistics=statistics,
        unit=known.unit,
        resolution_s=resolution_s,
    )


class PartKind(StrEnum):
    """What a part belongs to."""

    SEGMENT = "segment"
    SNAPSHOT = "snapshot"
    UNFINISHED = "unfinished"


class PartsOf(msgspec.Struct, frozen=True, kw_only=True):
    """The parts, from 0, of the segment or snapshot `number`."""

    kind: PartKind
    number: int
    num_parts: int
    size_bytes: int


class JournalRows(Protocol):
    """A journal beyond this host: segments and snapshots in numbered parts of some frames.

    Each call is one transaction.

    Every call raises HostelryError if it cannot be made now. Then it was made whole or not at all,
    and may be repeated.
    """

    @property
    def place(self) -> str:
        """Where the rows are, for messages."""
        ...

    def list_parts(self) -> Sequence[PartsOf]:
        """Every segment and snapshot, in ascending order of their numbers."""
        ...

    def read_parts(self, kind: PartKind, number: int, first: int, most: int) -> Sequence[bytes]:
        """Read up to `most` parts from `first` on, in their order."""
        ...

    def write(
        self, kind: PartKind, number: int, part: int, body: bytes, marks: Mapping[str, bytes]
    ) -> None:
        """Write a part and `marks`, and replace the part of that number and earlier marks."""
        ...

    def marks(self) -> Mapping[str, bytes]:
        """The last value of each mark."""
        ...

    def finish_snapshot(self, number: int) -> None:
        """Turn the unfinished snapshot into a snapshot, and remove everything older."""
        ...

    def remove_unfinished(self) -> None:
        """Remove the parts of snapshots that were not finished."""
        ...
