"""A rank's share of an adapter, if several ranks hold a model together.

`kernels.shard.share_module` defines the share. Each rank has the same number of pages, which hold
less. Therefore rows are laid out again for the rank, one after another, none across the end of a
page.

# R ranks of the adapter, I in-features, O out-features, V vocabulary, H hidden, of this rank
"""

from collections.abc import Sequence
from pathlib import Path

import msgspec
import numpy
import torch
from msgspec.structs import replace

from hostelry.engine.kernels.batch import AdapterIndex, Int64, WideRows
from hostelry.engine.kernels.pool import PoolTensor
from hostelry.engine.kernels.shard import ModuleShare, Shard, share_module
from hostelry.engine.lora.errors import AdapterError
from hostelry.engine.lora.image import HostAdapter
from hostelry.engine.lora.layout import AdapterRanks, Runs
from hostelry.engine.lora.reader import AdapterReader
from hostelry.engine.lora.targets import TargetModule, TargetModules


class _ModuleOffsets(msgspec.Struct, frozen=True, eq=False, kw_only=True):
    """Positions of both halves of one module: elements from the start of the share.

    Negative for another rank's row. `first` and `second` as in `layout.ModuleRuns`.
    """

    first: Int64
    second: Int64


class SharePlan(msgspec.Struct, frozen=True, eq=False, kw_only=True):
    """The layout of a rank's share of an adapter of these ranks."""

    shard: Shard
    page_elements: int
    num_pages: int
    linears: tuple[_ModuleOffsets, ...]
    embedding: _ModuleOffsets
    lm_head: _ModuleOffsets


def plan_share(
    targets: TargetModules, ranks: AdapterRanks, shard: Shard, page_elements: int
) -> SharePlan:
    """The plan for pages of `page_elements` elements.

    Raises AdapterError if a row is longer than a page.
    """
    cursor = _Cursor(page_elements)
    return SharePlan(
        linears=tuple(
            _place_linear(cursor, target, rank, shard)
            for target, rank in zip(targets.linears, ranks.linears, strict=True)
        ),
        embedding=_place_embedding(cursor, targets.embedding, ranks.embedding, shard),
        lm_head=_place_lm_head(cursor, targets.lm_head, ranks.lm_head, shard),
        shard=shard,
        page_elements=page_elements,
        num_pages=cursor.num_pages,
    )


def count_share_pages(
    targets: TargetModules, ranks: AdapterRanks, world_size: int, page_elements: int
) -> int:
    """Pages of an adapter in every rank's pool: the number that the largest share needs."""
    return max(
        plan_share(targets, ranks, Shard(rank, world_size), page_elements).num_pages
        for rank in range(world_size)
    )


class AdapterShare:
    """A rank's share of `adapter`, in page form. Pages beyond its own are not written."""

    def __init__(self, adapter: HostAdapter, targets: TargetModules, plan: SharePlan) -> None:
        self._adapter = adapter
        self._targets = targets
        self._plan = plan

    def write(self, pool: PoolTensor, page_numbers: Sequence[int]) -> None:
        """Copy it into the first of these pages of the rank's pool."""
        size = self._plan.page_elements
        elements = self._lay_out()
        for ordinal in range(self._plan.num_pages):
            start = page_numbers[ordinal] * size
            part = elements[ordinal * size : (ordinal + 1) * size]
            pool.elements[start : start + size].copy_(part)

    def index(self, page_numbers: Sequence[int]) -> AdapterIndex:
        """The index of its rows once it is in those pages."""
        plan, layout, scales = self._plan, self._adapter.layout, self._adapter.scales
        starts_P = numpy.asarray(page_numbers, numpy.int64) * plan.page_elements

        def offsets(places: Int64) -> Int64:
            ordinals, elements = numpy.divmod(places.clip(min=0), plan.page_elements)
            return numpy.where(places < 0, numpy.int64(-1), starts_P[ordinals] + elements)

        def wide(rank: int, scale: float, places: _ModuleOffsets) -> WideRows | None:
            if not rank:
                return None
            return WideRows(
                rank=rank,
                scale=scale,
                vocab_offsets_V=offsets(places.first),
                hidden_offsets_R=offsets(places.second),
            )

        return AdapterIndex(
            ranks_M=layout.ranks_M,
            scales_M=numpy.array(scales.linears, numpy.float32),
            firsts_M=layout.firsts_M,
            down_offsets_R=offsets(numpy.concatenate([it.first for it in plan.linears])),
            up_offsets_R=offsets(numpy.concatenate([it.second for it in plan.linears])),
            embedding=wide(layout.ranks.embedding, scales.embedding, plan.embedding),
            lm_head=wide(layout.ranks.lm_head, scales.lm_head, plan.lm_head),
        )

    def _read_rows(self, runs: Runs) -> torch.Tensor:
        """All rows of one half of a module of the whole adapter."""
        return torch.cat(list(self._adapter.image.rows(runs)))

    def _lay_out(self) -> torch.Tensor:
        """The elements of its pages, one page after another."""
        plan, layout = self._plan, self._adapter.layout
        dtype = self._adapter.image.elements.dtype
        elements = torch.zeros(plan.num_pages * plan.page_elements, dtype=dtype)
        for target, runs, places in zip(
            self._targets.linears, layout.linears, plan.linears, strict=True
        ):
            if runs.first:
                share = _share_target(plan.shard, target, len(places.first))
                down_RI, up_RO = self._read_rows(runs.first), self._read_rows(runs.second)
                _write_rows(elements, places.first, down_RI[:, share.down_columns])
                _write_rows(elements, places.second, up_RO[:, share.up_rows])
        for wide, places in ((layout.embedding, plan.embedding), (layout.lm_head, plan.lm_head)):
            if wide is not None:
                _write_rows(elements, places.first, self._read_rows(wide.runs.first))
                _write_rows(elements, places.second, self._read_rows(wide.runs.second))
        return elements


def _write_rows(elements: torch.Tensor, places: Int64, rows: torch.Tensor) -> None:
    """Write the rows of this rank to their positions."""
    own = places >= 0
    starts = torch.from_numpy(places[own]).unsqueeze(1)
    chosen = rows[torch.from_numpy(own)]
    elements[starts + torch.arange(rows.shape[1])] = chosen


class _Cursor:
    """A position in the share's pages, which advances as rows are placed."""

    def __init__(self, page_elements: int) -> None:
        self._size = page_elements
        self._next = 0

    @property
    def num_pages(self) -> int:
        """Pages begun."""
        return -(-self._next // self._size)

    def place(self, path: str, count: int, width: int) -> Int64:
        """The first elements of `count` rows of `width` elements."""
        if not count or not width:
            return numpy.zeros(count, numpy.int64)
        if width > self._size:
            raise AdapterError(
                f"{path} has rows of {width} numbers; a page holds {self._size}; raise page_tokens"
            )
        rows = numpy.arange(count, dtype=numpy.int64)
        begun = self.num_pages * self._size
        room = (begun - self._next) // width  # rows that fit into the page already begun
        pages, ordinals = numpy.divmod(rows - room, self._size // width)
        fresh = begun + pages * self._size + ordinals * width
        places: Int64 = numpy.where(rows < room, self._next + rows * width, fresh)
        self._next = int(places[-1]) + width
        return places


def _share_target(shard: Shard, target: TargetModule, rank: int) -> ModuleShare:
    return share_module(
        shard,
        target.path.rsplit(".", 1)[-1],
        rank=rank,
        in_features=target.in_features,
        out_features=target.out_features,
    )


def _place_rows(cursor: _Cursor, target: TargetModule, count: int, own: slice, width: int) -> Int64:
    """Positions of rows `own` of `count`, -1 for the others."""
    places = numpy.full(count, -1, numpy.int64)
    places[own] = cursor.place(target.path, own.stop - own.start, width)
    return places


def _measure(columns: slice) -> int:
    return int(columns.stop - columns.start)


def _place_linear(cursor: _Cursor, target: TargetModule, rank: int, shard: Shard) -> _ModuleOffsets:
    share = _share_target(shard, target, rank)
    return _ModuleOffsets(
        first=_place_rows(cursor, target, rank, share.down_rows, _measure(share.down_columns)),
        second=_place_rows(cursor, target, rank, slice(0, rank), _measure(share.up_rows)),
    )


def _place_embedding(
    cursor: _Cursor, target: TargetModule, rank: int, shard: Shard
) -> _ModuleOffsets:
    """Rows of `rank` values by token, then rows of the whole hidden size."""
    tokens = target.in_features if rank else 0
    share = _share_target(shard, target, rank)
    own = share.down_columns if rank else slice(0, 0)
    return _ModuleOffsets(
        first=_place_rows(cursor, target, tokens, own, rank),
        second=_place_rows(cursor, target, rank, slice(0, rank), target.out_features),
    )


def _place_lm_head(
    cursor: _Cursor, target: TargetModule, rank: int, shard: Shard
) -> _ModuleOffsets:
    """Rows of `rank` values by token, then this rank's rows of the hidden size."""
    tokens = target.out_features if rank else 0
    share = _share_target(shard, target, rank)
    own = share.up_rows if rank else slice(0, 0)
    return _ModuleOffsets(
        first=_place_rows(cursor, target, tokens, own, rank),
        second=_place_rows(cursor, target, rank, share.down_rows, target.in_features),
    )


class SharedReader:
    """A FolderReader whose adapters have the number of pages that they take in every rank's pool.

    The adapters themselves are whole. Its methods raise the errors of `reader.AdapterReader`, and
    AdapterError if a row does not fit into a page.
    """

    def __init__(
        self, reader: AdapterReader, targets: TargetModules, world_size: int, page_elements: int
    ) -> None:
        self._reader = reader
        self._targets = targets
        self._world_size = world_size
        self._page_elements = page_elements
        self._num_pages: dict[AdapterRanks, int] = {}

    @property
    def max_folder_bytes(self) -> int:
        """The most bytes that the files of an acceptable adapter can have."""
        return self._reader.max_folder_bytes

    @property
    def form_name(self) -> str:
        """The name of the form that adapters are read into."""
        return self._reader.form_name

    def read(self, folder: Path) -> HostAdapter:
        """The checked adapter in `folder`."""
        return self._replace_num_pages(self._reader.read(folder))

    def save(self, adapter: HostAdapter, folder: Path) -> int:
        """Write the adapter in its form into `folder`. Returns the bytes written."""
        return self._reader.save(adapter, folder)

    def restore(self, folder: Path, content_id: str) -> HostAdapter:
        """The adapter that `save` wrote there."""
        return self._replace_num_pages(self._reader.restore(folder, content_id))

    def num_pages(self, ranks: AdapterRanks) -> int:
        """Pages of an adapter of these ranks in every pool."""
        num_pages = self._num_pages.get(ranks)
        if num_pages is None:
            num_pages = count_share_pages(
                self._targets, ranks, self._world_size, self._page_elements
            )
            if len(self._num_pages) >= 256:
                self._num_pages.clear()
            self._num_pages[ranks] = num_pages
        return num_pages

    def _replace_num_pages(self, adapter: HostAdapter) -> HostAdapter:
        num_pages = self.num_pages(adapter.layout.ranks)
        return replace(adapter, summary=replace(adapter.summary, num_pages=num_pages))
