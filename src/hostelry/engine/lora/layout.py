"""Layout of an adapter's rows in its pages, before and after the pages have numbers.

Rows of A (in-features values) and columns of B (out-features values) follow each other, module by
module in the order of computation, A before B. A row that does not fit into the rest of a page
starts the next page. So less than one row of each page is lost, and no rank is padded. The update
of the vocabulary (embedding, lm_head) comes last: a row of `rank` values for each token, and a row
of `hidden` values for each rank.

# M modules, R ranks of all modules, V vocabulary, P pages of the adapter, E elements of a page
"""

from collections.abc import Sequence

import msgspec
import numpy
from numpy.typing import NDArray

from hostelry.engine.kernels.batch import AdapterIndex, Int32, Int64, WideRows
from hostelry.engine.lora.errors import AdapterError
from hostelry.engine.lora.targets import TargetModule, TargetModules


class AdapterRanks(msgspec.Struct, frozen=True, kw_only=True):
    """The rank of each linear module by number, and of the two modules of the vocabulary.

    0 for a module that is not targeted.
    """

    linears: tuple[int, ...]
    embedding: int = 0
    lm_head: int = 0

    @property
    def largest(self) -> int:
        """The largest rank of any module."""
        return max(*self.linears, self.embedding, self.lm_head)


class AdapterScales(msgspec.Struct, frozen=True, kw_only=True):
    """The scale of each module's B A x, in the numbering of `AdapterRanks`."""

    linears: tuple[float, ...]
    embedding: float = 0.0
    lm_head: float = 0.0


class Run(msgspec.Struct, frozen=True):
    """`count` adjacent rows of `width` elements, from `element` of the page on.

    `row` is the number of the first row within its half of the module.
    """

    row: int
    count: int
    width: int
    page: int
    element: int


Runs = tuple[Run, ...]
"""All rows of one half of a module, in order."""


class ModuleRuns(msgspec.Struct, frozen=True):
    """Both halves of a module: A and B of a linear one, vocabulary and hidden of a wide one."""

    first: Runs
    second: Runs


class RowOffsets:
    """Positions of rows: the page's ordinal in the adapter, and the element in the page."""

    __slots__ = ("elements_R", "ordinals_R")

    def __init__(self, runs: Sequence[Run]) -> None:
        counts = numpy.array([run.count for run in runs], numpy.int64)
        starts = numpy.repeat(numpy.cumsum(counts) - counts, counts)
        steps = numpy.arange(len(starts)) - starts  # a row's number in its run
        width, page, element = (
            numpy.repeat(numpy.array(values, numpy.int64), counts)
            for values in (
                [run.width for run in runs],
                [run.page for run in runs],
                [run.element for run in runs],
            )
        )
        self.ordinals_R: Int32 = page.astype(numpy.int32)
        self.elements_R: Int32 = (element + steps * width).astype(numpy.int32)

    def compute_offsets(self, starts_P: Int64) -> Int64:
        """Each row's first element in the pool. `starts_P` are the pages' first elements."""
        offsets: Int64 = starts_P[self.ordinals_R]
        offsets += self.elements_R
        return offsets


class WideLayout(msgspec.Struct, frozen=True, eq=False):
    """An update over the vocabulary: V rows of `rank` values and `rank` rows of hidden values."""

    rank: int
    runs: ModuleRuns
    vocabulary: RowOffsets
    hidden: RowOffsets


class AdapterLayout(msgspec.Struct, frozen=True, eq=False, kw_only=True):
    """The layout of an adapter.

    Adapters of equal ranks share one. `fills_P` are the used elements of each page, from its start
    on.
    """

    ranks: AdapterRanks
    page_elements: int
    fills_P: tuple[int, ...]
    linears: tuple[ModuleRuns, ...]
    down: RowOffsets
    up: RowOffsets
    embedding: WideLayout | None
    lm_head: WideLayout | None
    ranks_M: Int32
    firsts_M: Int32

    @property
    def num_pages(self) -> int:
        """Pages of the adapter."""
        return len(self.fills_P)


def plan_layout(targets: TargetModules, ranks: AdapterRanks, page_elements: int) -> AdapterLayout:
    """The layout of an adapter of these ranks in pages of `page_elements` elements.

    Raises AdapterError if a row is longer than a page.
    """
    cursor = _Cursor(page_elements)
    linears = []
    for target, rank in zip(targets.linears, ranks.linears, strict=True):
        down = cursor.place(target.path, rank, target.in_features)
        up = cursor.place(target.path, rank, target.out_features)
        linears.append(ModuleRuns(down, up))
    vocab_size = targets.embedding.in_features
    embedding = _place_wide(cursor, targets.embedding, ranks.embedding, vocab_size)
    lm_head = _place_wide(cursor, targets.lm_head, ranks.lm_head, vocab_size)
    ranks_M = numpy.array(ranks.linears, numpy.int32)
    return AdapterLayout(
        ranks=ranks,
        page_elements=page_elements,
        fills_P=cursor.count_fills(),
        linears=tuple(linears),
        down=RowOffsets([run for module in linears for run in module.first]),
        up=RowOffsets([run for module in linears for run in module.second]),
        embedding=embedding,
        lm_head=lm_head,
        ranks_M=ranks_M,
        firsts_M=(numpy.cumsum(ranks_M) - ranks_M).astype(numpy.int32),
    )


def build_index(
    layout: AdapterLayout, scales: AdapterScales, page_numbers: Sequence[int]
) -> AdapterIndex:
    """The index of an adapter in the pages of these numbers."""
    if len(page_numbers) != layout.num_pages:
        raise ValueError(f"{len(page_numbers)} pages; the adapter has {layout.num_pages}")
    starts_P = numpy.asarray(page_numbers, numpy.int64) * layout.page_elements
    return AdapterIndex(
        ranks_M=layout.ranks_M,
        scales_M=numpy.array(scales.linears, numpy.float32),
        firsts_M=layout.firsts_M,
        down_offsets_R=layout.down.compute_offsets(starts_P),
        up_offsets_R=layout.up.compute_offsets(starts_P),
        embedding=_build_wide_rows(layout.embedding, scales.embedding, starts_P),
        lm_head=_build_wide_rows(layout.lm_head, scales.lm_head, starts_P),
    )


class _Cursor:
    """A position in the adapter's pages, which advances as rows are placed."""

    def __init__(self, page_elements: int) -> None:
        self._page_elements = page_elements
        self._page = -1
        self._element = page_elements  # the next free element. There is no page yet
        self._fills: list[int] = []

    def place(self, path: str, count: int, width: int) -> Runs:
        """Place `count` rows of `width` elements. Raises AdapterError for rows above a page."""
        if count and width > self._page_elements:
            raise AdapterError(
                f"{path} has rows of {width} numbers; a page holds {self._page_elements}; "
                "raise page_tokens"
            )
        runs = []
        row = 0
        while row < count:
            room = (self._page_elements - self._element) // width
            if not room:
                self._turn_page()
                continue
            taken = min(room, count - row)
            runs.append(Run(row, taken, width, self._page, self._element))
            row += taken
            self._element += taken * width
        return tuple(runs)

    def count_fills(self) -> tuple[int, ...]:
        """The elements in use of each page."""
        return (*self._fills, self._element) if self._page >= 0 else ()

    def _turn_page(self) -> None:
        if self._page >= 0:
            self._fills.append(self._element)
        self._page += 1
        self._element = 0


def _place_wide(
    cursor: _Cursor, target: TargetModule, rank: int, vocab_size: int
) -> WideLayout | None:
    if not rank:
        return None
    vocabulary = cursor.place(target.path, vocab_size, rank)
    hidden_size = target.in_features + target.out_features - vocab_size
    hidden = cursor.place(target.path, rank, hidden_size)
    return WideLayout(
        rank, ModuleRuns(vocabulary, hidden), RowOffsets(vocabulary), RowOffsets(hidden)
    )


def _build_wide_rows(
    layout: WideLayout | None, scale: float, starts_P: NDArray[numpy.int64]
) -> WideRows | None:
    if layout is None:
        return None
    return WideRows(
        rank=layout.rank,
        scale=scale,
        vocab_offsets_V=layout.vocabulary.compute_offsets(starts_P),
        hidden_offsets_R=layout.hidden.compute_offsets(starts_P),
    )
