"""Buckets of one series at one width, oldest first, in packed arrays.

A bucket of one sample is two numbers (its index and the value), 12 bytes. Once any bucket has
several samples, all buckets of the column get a count, a minimum and a maximum.
"""

from array import array
from bisect import bisect_left
from collections.abc import Iterator
from typing import Any

from hostelry.metrics.series.bucket import Bucket

# An object with its arrays and their spare room, measured by benchmarks/metric_load.py.
COLUMN_BYTES = 330
EXTRA_BYTES = 290
SHORT_BUCKET_BYTES = 13
LONG_BUCKET_BYTES = 38
SKETCH_BYTES = 54


class Column:
    """Buckets by index: the start of a bucket is its index times `width_s`."""

    __slots__ = ("_at", "_count", "_maximum", "_minimum", "_sketches", "_sum", "width_s")

    def __init__(self, width_s: int) -> None:
        self.width_s = width_s
        self._at = array("I")
        self._sum = array("d")
        # None while every bucket has one sample, whose value is the sum.
        self._count: array[float] | None = None
        self._minimum: array[float] | None = None
        self._maximum: array[float] | None = None
        # None while no bucket has values that differ.
        self._sketches: list[bytes | None] | None = None

    def __len__(self) -> int:
        return len(self._at)

    @property
    def newest(self) -> int:
        """The last bucket's index. -1 if the column is empty."""
        return self._at[-1] if self._at else -1

    @property
    def oldest(self) -> int:
        """The first bucket's index. -1 if the column is empty."""
        return self._at[0] if self._at else -1

    def size_bytes(self) -> int:
        """Estimate the column's memory."""
        if self._count is None:
            return COLUMN_BYTES + SHORT_BUCKET_BYTES * len(self._at)
        held = sum(len(it) + SKETCH_BYTES for it in self._sketches or () if it is not None)
        return COLUMN_BYTES + EXTRA_BYTES + LONG_BUCKET_BYTES * len(self._at) + held

    def add_value(self, index: int, value: float) -> int:
        """Add one sample to a bucket, and return the bytes by which the column grew."""
        if self._count is None and (not self._at or index > self._at[-1]):
            self._at.append(index)
            self._sum.append(value)
            return SHORT_BUCKET_BYTES
        return self.add(index, Bucket(count=1.0, sum=value, minimum=value, maximum=value))

    def add(self, index: int, bucket: Bucket) -> int:
        """Merge `bucket` into the bucket at `index`, and return the bytes of growth."""
        at = bisect_left(self._at, index)
        is_new = at == len(self._at) or self._at[at] != index
        grown = 0
        whole = bucket if is_new else self._bucket(at).merge(bucket)
        if self._count is None and not (whole.count == 1.0 and whole.is_uniform):
            grown = EXTRA_BYTES + (LONG_BUCKET_BYTES - SHORT_BUCKET_BYTES) * len(self._at)
            self._lengthen()
        if is_new:
            self._insert(at, index)
            grown += SHORT_BUCKET_BYTES if self._count is None else LONG_BUCKET_BYTES
        return grown + self._write(at, whole)

    def buckets(self, first: int, last: int) -> Iterator[tuple[int, Bucket]]:
        """Yield (index, bucket) of each bucket with first <= index < last."""
        for at in range(bisect_left(self._at, first), bisect_left(self._at, last)):
            yield self._at[at], self._bucket(at)

    def sums(self, first: int, last: int, ratio: int) -> Iterator[tuple[int, Bucket]]:
        """Yield (index, bucket) of each group of `ratio` buckets in [first, last), no sketches.

        The index is the group's start. Both ends are multiples of `ratio`.
        """
        at, end = bisect_left(self._at, first), bisect_left(self._at, last)
        while at < end:
            index = self._at[at] // ratio * ratio
            following = bisect_left(self._at, index + ratio, at, end)
            yield index, self._sum_buckets(at, following)
            at = following

    def take_before(self, index: int) -> list[tuple[int, Bucket]]:
        """Remove the buckets before `index`, and return them."""
        end = bisect_left(self._at, index)
        taken = [(self._at[at], self._bucket(at)) for at in range(end)]
        self._drop(end)
        return taken

    def drop_before(self, index: int) -> None:
        """Remove the buckets before `index`."""
        self._drop(bisect_left(self._at, index))

    def drop_sketches_before(self, index: int) -> bool:
        """Remove the sketches of buckets before `index`. False without sketches."""
        if self._sketches is None:
            return False
        end = bisect_left(self._at, index)
        is_any = any(it is not None for it in self._sketches[:end])
        self._sketches[:end] = [None] * end
        return is_any

    def dump(self) -> list[Any]:
        """Convert the column to plain values, for `load`."""
        rest = (self._count, self._minimum, self._maximum)
        return [
            self._at.tobytes(),
            self._sum.tobytes(),
            *(b"" if numbers is None else numbers.tobytes() for numbers in rest),
            self._sketches,
        ]

    @classmethod
    def load(cls, width_s: int, dump: list[Any]) -> "Column":
        """Build the column from a dump. Raises ValueError if its parts differ in length."""
        column = cls(width_s)
        column._at.frombytes(dump[0])
        column._sum.frombytes(dump[1])
        if dump[2]:
            rest = [array("d", body) for body in dump[2:5]]
            column._count, column._minimum, column._maximum = rest
            column._sketches = dump[5]
            lists = [*rest, *([] if dump[5] is None else [dump[5]])]
            if {len(it) for it in lists} != {len(column._at)}:
                raise ValueError("the lists of a column differ in length")
        if len(column._sum) != len(column._at):
            raise ValueError("the lists of a column differ in length")
        return column

    def _drop(self, end: int) -> None:
        if self._sketches is not None:
            del self._sketches[:end]
        for numbers in (self._at, self._sum, self._count, self._minimum, self._maximum):
            if numbers is not None:
                del numbers[:end]

    def _bucket(self, at: int) -> Bucket:
        total = self._sum[at]
        if self._count is None or self._minimum is None or self._maximum is None:
            return Bucket(count=1.0, sum=total, minimum=total, maximum=total)
        return Bucket(
            count=self._count[at],
            sum=total,
            minimum=self._minimum[at],
            maximum=self._maximum[at],
            sketch=None if self._sketches is None else self._sketches[at],
        )

    def _sum_buckets(self, first: int, last: int) -> Bucket:
        """Merge several buckets, without sketches."""
        sums = self._sum[first:last]
        if self._count is None or self._minimum is None or self._maximum is None:
            return Bucket(
                count=float(last - first), sum=sum(sums), minimum=min(sums), maximum=max(sums)
            )
        return Bucket(
            count=sum(self._count[first:last]),
            sum=sum(sums),
            minimum=min(self._minimum[first:last]),
            maximum=max(self._maximum[first:last]),
        )

    def _insert(self, at: int, index: int) -> None:
        self._at.insert(at, index)
        for numbers in (self._sum, self._count, self._minimum, self._maximum):
            if numbers is not None:
                numbers.insert(at, 0.0)
        if self._sketches is not None:
            self._sketches.insert(at, None)

    def _write(self, at: int, bucket: Bucket) -> int:
        """Replace a bucket, and return the bytes by which its sketch grew."""
        self._sum[at] = bucket.sum
        if self._count is None or self._minimum is None or self._maximum is None:
            return 0
        self._count[at] = bucket.count
        self._minimum[at] = bucket.minimum
        self._maximum[at] = bucket.maximum
        return self._write_sketch(at, bucket.sketch)

    def _write_sketch(self, at: int, sketch: bytes | None) -> int:
        if self._sketches is None:
            if sketch is None:
                return 0
            self._sketches = [None] * len(self._at)
        before = self._sketches[at]
        self._sketches[at] = sketch
        grown = 0 if before is None else -(len(before) + SKETCH_BYTES)
        return grown if sketch is None else grown + len(sketch) + SKETCH_BYTES

    def _lengthen(self) -> None:
        self._count = array("d", [1.0]) * len(self._at)
        self._minimum = array("d", self._sum)
        self._maximum = array("d", self._sum)
