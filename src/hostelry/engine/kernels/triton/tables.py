"""Adapters in the kernels' form: one table of numbers each, on the device.

A table is 64-bit words. Module `m` has four: its rank, its scale (the bits of an fp32), and the
places in this table where the pool's offsets of its rows of A and of its columns of B begin. Then
all offsets. A step names a table by its address. 0 means the base model. So a captured graph serves
any adapters of any ranks: only addresses change.

# M modules, R ranks of all modules, W words
"""

from collections import OrderedDict
from collections.abc import Sequence

import msgspec
import numpy
import torch

from hostelry.engine.kernels.batch import AdapterIndex, Int64, LoraSegment

HEADER_WORDS = 4
_ALIGNED_ELEMENTS = 8  # rows that begin at multiples of it are read in vectors
_MOST_BYTES = 256 << 20


def build_adapter_table(index: AdapterIndex) -> Int64:
    """The words (W) of an adapter's table."""
    num_modules, num_ranks = len(index.ranks_M), len(index.down_offsets_R)
    firsts_M = index.firsts_M.astype(numpy.int64) + HEADER_WORDS * num_modules
    header_MW = numpy.stack(
        [
            index.ranks_M.astype(numpy.int64),
            index.scales_M.view(numpy.int32).astype(numpy.int64),
            firsts_M,
            firsts_M + num_ranks,
        ],
        1,
    )
    return numpy.concatenate([header_MW.ravel(), index.down_offsets_R, index.up_offsets_R])


class DeviceAdapterTable(msgspec.Struct, frozen=True):
    """A table on the device. `address` is 0 for an adapter of the vocabulary alone."""

    address: int
    max_rank: int
    is_aligned: bool


class StepAdapters(msgspec.Struct, frozen=True, kw_only=True):
    """The tables of a step's segments, in order, and their common properties."""

    addresses: tuple[int, ...]
    max_rank: int
    is_aligned: bool
    has_wide: bool

    @property
    def has_linear(self) -> bool:
        """Whether any segment updates a linear module."""
        return self.max_rank > 0


class AdapterTables:
    """Tables by identity of their index, whose arrays may not change.

    Each is sent once. The least recently used are evicted when all take more than `most_bytes`.
    Their memory is used again only by work that is queued later, so steps in progress still read
    the right numbers.
    """

    def __init__(self, device: torch.device, *, most_bytes: int = _MOST_BYTES) -> None:
        self._device = device
        self._most_bytes = most_bytes
        # The index is kept with its table, so that no other index has its id.
        self._known: OrderedDict[int, tuple[AdapterIndex, DeviceAdapterTable, torch.Tensor]] = (
            OrderedDict()
        )
        self.num_bytes = 0

    def get(self, segments: Sequence[LoraSegment]) -> StepAdapters:
        """The tables of a step. Missing tables are sent to the device on this stream."""
        tables = [self._table(segment.index) for segment in segments]
        self._evict({id(segment.index) for segment in segments})
        return StepAdapters(
            addresses=tuple(table.address for table in tables),
            max_rank=max((table.max_rank for table in tables), default=0),
            is_aligned=all(table.is_aligned for table in tables),
            has_wide=any(
                segment.index.embedding is not None or segment.index.lm_head is not None
                for segment in segments
            ),
        )

    def _table(self, index: AdapterIndex) -> DeviceAdapterTable:
        known = self._known.get(id(index))
        if known is not None:
            self._known.move_to_end(id(index))
            return known[1]
        words_W = torch.from_numpy(build_adapter_table(index))
        if self._device.type == "cuda":
            words_W = words_W.pin_memory()
        placed_W = words_W.to(self._device, non_blocking=True)
        max_rank = int(index.ranks_M.max(initial=0))
        offsets = (index.down_offsets_R, index.up_offsets_R)
        table = DeviceAdapterTable(
            address=placed_W.data_ptr() if max_rank else 0,
            max_rank=max_rank,
            is_aligned=not any((it[it >= 0] % _ALIGNED_ELEMENTS).any() for it in offsets),
        )
        self._known[id(index)] = (index, table, placed_W)
        self.num_bytes += placed_W.nbytes
        return table

    def _evict(self, in_use: set[int]) -> None:
        for key in list(self._known):
            if self.num_bytes <= self._most_bytes:
                return
            if key not in in_use:
                self.num_bytes -= self._known.pop(key)[2].nbytes
