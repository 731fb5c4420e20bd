"""Journal of samples: append-only segments of entries.

A segment describes each series once and then refers to it by a number, so a sample of one value
takes some twenty bytes. Sequence numbers of entries increase over all segments.
"""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from hostelry.domain.metric import Metric, Sample, StatisticSet
from hostelry.domain.scope import Scope
from hostelry.metrics.persistence.frames import FrameFile, read_frames
from hostelry.metrics.series.series import Series

SEGMENT = "segment-{:010}.log"
SNAPSHOT = "snapshot-{:010}.bin"
UNFINISHED = ".unfinished"
_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder()

Placed = Sequence[tuple[Series, Sample]]


@dataclass(frozen=True, slots=True, kw_only=True)
class SeriesId:
    """Identity of a series: what a number in a segment stands for."""

    scope: Scope
    metric: Metric
    unit: str


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalEntry:
    """Samples that were recorded together at the instant `at`."""

    sequence: int
    at: float
    samples: Sequence[tuple[SeriesId, Sample]]


class Segment:
    """The segment being written."""

    def __init__(self, folder: Path, number: int) -> None:
        """Create the segment; raises OSError."""
        self.number = number
        self.file = FrameFile(folder / SEGMENT.format(number))
        self._num_series = 0

    def append(self, sequence: int, at: float, placed: Placed) -> None:
        """Write one entry; raises OSError with nothing written."""
        first = self._num_series
        made: list[Series] = []
        for series, _ in placed:
            if series.segment != self.number:
                series.segment, series.number = self.number, first + len(made)
                made.append(series)
        body = [
            sequence,
            at,
            [[it.number, *described(it)] for it in made],
            [_plain(series.number, sample) for series, sample in placed],
        ]
        try:
            self.file.append(_ENCODER.encode(body))
        except OSError:
            for series in made:
                series.segment = -1
            raise
        self._num_series += len(made)


def described(series: Series) -> list[Any]:
    """A series' identity as plain values."""
    scope = series.scope
    dimensions = [list(it) for it in series.dimensions]
    return [scope.account, scope.region, series.namespace, series.name, dimensions, series.unit]


def series_id_of(plain: Sequence[Any]) -> SeriesId:
    """The identity that `described` returned."""
    account, region, namespace, name, dimensions, unit = plain
    pairs = tuple((str(key), str(value)) for key, value in dimensions)
    return SeriesId(
        scope=Scope(account, region),
        metric=Metric(namespace=namespace, name=name, dimensions=pairs),
        unit=unit,
    )


def entries_of(path: Path) -> Iterator[JournalEntry]:
    """The entries of a segment, in order; raises OSError, or ValueError for a foreign file.

    Reading ends at the first torn entry: nothing after it was acknowledged.
    """
    series: dict[int, SeriesId] = {}
    for frame in read_frames(path):
        try:
            sequence, at, made, samples = _DECODER.decode(frame)
            for number, *plain in made:
                series[number] = series_id_of(plain)
            found = [(series[it[0]], _sample(series[it[0]], it)) for it in samples]
        except (msgspec.DecodeError, TypeError, KeyError, IndexError) as error:
            raise ValueError(f"{path} is not a journal of metrics: {error!r}.") from None
        yield JournalEntry(sequence=sequence, at=at, samples=found)


def numbered(folder: Path, form: str) -> dict[int, Path]:
    """Files with names of that form, by number in ascending order; raises OSError."""
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
