"""Conversion of a plan's chunks to the arrays of a step.

# T rows, B sequences, P pages, S rows with logits
"""

from collections.abc import Sequence

import msgspec
import numpy

from hostelry.engine.kernels.batch import AdapterIndex, ForwardBatch, Int32, LoraSegment

_FIRST_CAPACITY = 8


class PageRow:
    """One sequence's page table as an array, kept up with the scheduler's list."""

    def __init__(self) -> None:
        self._pages: Int32 = numpy.empty(_FIRST_CAPACITY, numpy.int32)
        self._length = 0

    def update(self, pages: Sequence[int]) -> Int32:
        """The table as an array. Copies only the pages appended since the last call."""
        if len(pages) > len(self._pages):
            grown = numpy.empty(max(len(pages), 2 * len(self._pages)), numpy.int32)
            grown[: self._length] = self._pages[: self._length]
            self._pages = grown
        if len(pages) > self._length:
            self._pages[self._length : len(pages)] = pages[self._length :]
        self._length = len(pages)
        return self._pages[: self._length]

    @property
    def is_empty(self) -> bool:
        """Whether the sequence has had no pages since it last started."""
        return not self._length

    def clear(self) -> None:
        """Forget the table of a sequence that was preempted."""
        self._length = 0


class SequenceRows(msgspec.Struct, frozen=True, eq=False, kw_only=True):
    """One request's part of a step: its next tokens, their first position, all of its pages.

    `adapter` is its adapter's content, empty for the base model. `index` has the adapter's
    positions in the pool. With `samples` the last token gives logits, and so do the earlier tokens
    at the positions `scored` of the sequence.
    """

    request_id: str
    token_ids: Sequence[int]
    start: int
    pages: Int32
    adapter: str
    index: AdapterIndex | None
    samples: bool
    scored: range = range(0)


def order_by_adapter(rows: Sequence[SequenceRows]) -> list[SequenceRows]:
    """The order of a step: rows of the base model first, then each adapter's rows together."""
    return sorted(rows, key=lambda part: part.adapter)


def build_batch(ordered: Sequence[SequenceRows], *, has_scored: bool = False) -> ForwardBatch:
    """The step of the parts, at least one, in the order from `order_by_adapter`.

    Logits are of each part's scored rows, only with `has_scored`, and then of its last row.
    """
    lengths = [len(part.token_ids) for part in ordered]
    row_starts = numpy.zeros(len(ordered) + 1, numpy.int32)
    numpy.cumsum(lengths, out=row_starts[1:])
    starts_B = numpy.array([part.start for part in ordered], numpy.int32)
    ends_B = starts_B + numpy.array(lengths, numpy.int32)
    sampling = numpy.array([part.samples for part in ordered], numpy.bool_)
    return ForwardBatch(
        token_ids_T=_join_token_ids(ordered),
        positions_T=_compute_positions(starts_B, row_starts),
        row_starts_B1=row_starts,
        lengths_B=ends_B,
        pages_BP=_join_page_tables(ordered),
        logit_rows_S=(
            _find_logit_rows(ordered, row_starts) if has_scored else (row_starts[1:] - 1)[sampling]
        ),
        segments=_build_segments(ordered, row_starts),
    )


def _find_logit_rows(ordered: Sequence[SequenceRows], row_starts_B1: Int32) -> Int32:
    rows: list[int] = []
    for part, first, end in zip(
        ordered, row_starts_B1[:-1].tolist(), row_starts_B1[1:].tolist(), strict=True
    ):
        rows += [first + position - part.start for position in part.scored]
        if part.samples:
            rows.append(end - 1)
    return numpy.array(rows, numpy.int32)


def _join_token_ids(ordered: Sequence[SequenceRows]) -> Int32:
    return numpy.array([token for part in ordered for token in part.token_ids], numpy.int32)


def _compute_positions(starts_B: Int32, row_starts_B1: Int32) -> Int32:
    if row_starts_B1[-1] == len(starts_B):  # every sequence decodes one token
        return starts_B
    rows_each_B = numpy.diff(row_starts_B1)
    shift_T = numpy.repeat(starts_B - row_starts_B1[:-1], rows_each_B)
    return shift_T + numpy.arange(row_starts_B1[-1], dtype=numpy.int32)


def _join_page_tables(ordered: Sequence[SequenceRows]) -> Int32:
    width = max(len(part.pages) for part in ordered)
    tables_BP = numpy.full((len(ordered), width), -1, numpy.int32)
    for table, part in zip(tables_BP, ordered, strict=True):
        table[: len(part.pages)] = part.pages
    return tables_BP


def _build_segments(
    ordered: Sequence[SequenceRows], row_starts_B1: Int32
) -> tuple[LoraSegment, ...]:
    """Join neighbouring parts of one adapter. The base model's rows have no segment."""
    segments: list[LoraSegment] = []
    last = ""
    for part, row_start, row_end in zip(
        ordered, row_starts_B1[:-1].tolist(), row_starts_B1[1:].tolist(), strict=True
    ):
        if part.index is None:
            continue
        if part.adapter == last:
            segments[-1] = LoraSegment(
                row_start=segments[-1].row_start, row_end=row_end, index=part.index
            )
        else:
            segments.append(LoraSegment(row_start=row_start, row_end=row_end, index=part.index))
        last = part.adapter
    return tuple(segments)
