"""A step on the device: one block of 32-bit words, sent in one copy, and the arrays in it.

The same block serves steps of one size (computed at once) and captured graphs, whose block has a
fixed address and is filled again before each replay. The kernels of a graph skip unused entries:
rows with sequence -1, tiles without rows.

# T rows, B sequences, P pages of a sequence, S logit rows. Tiles are neighbouring rows that one
# program takes: D of decoding rows, F of prompts' rows, L of adapters' rows
"""

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import numpy
import torch
from numpy.typing import NDArray

from hostelry.engine.kernels.batch import ForwardBatch, Int32, Int64
from hostelry.engine.kernels.triton.tables import StepAdapters

LORA_TILE_ROWS = 16
_ALIGNED_WORDS = 4  # arrays begin at 16 bytes, so that each kernel is compiled once
_LONG_SEGMENT = 8  # rows of an adapter for which tiles that read it once are faster


class StepSizes(msgspec.Struct, frozen=True, kw_only=True):
    """Capacities of a step's block."""

    num_rows: int
    num_sequences: int
    num_pages: int
    num_logits: int
    num_decode_tiles: int
    num_prefill_tiles: int = 0
    num_lora_tiles: int = 0

    def spans(self) -> dict[str, tuple[slice, tuple[int, ...]]]:
        """The words of each array of `HostStep`, and its shape.

        64-bit arrays come first. Pages come last, ordered by ordinal, so that those beyond the
        longest sequence need not be sent.
        """
        shapes: dict[str, tuple[int, ...]] = {
            "tables_T": (self.num_rows,),
            "token_ids_T": (self.num_rows,),
            "positions_T": (self.num_rows,),
            "sequences_T": (self.num_rows,),
            "decode_tiles_D3": (self.num_decode_tiles, 3),
            "prefill_tiles_F3": (self.num_prefill_tiles, 3),
            "lora_tiles_L2": (self.num_lora_tiles, 2),
            "logit_rows_S": (self.num_logits,),
            "pages_PB": (self.num_pages, self.num_sequences),
        }
        spans = {}
        start = 0
        for name, shape in shapes.items():
            length = int(numpy.prod(shape)) * (2 if name == "tables_T" else 1)
            spans[name] = (slice(start, start + length), shape)
            start += -(-length // _ALIGNED_WORDS) * _ALIGNED_WORDS
        return spans

    @property
    def num_words(self) -> int:
        """32-bit words of the block."""
        return max(int(span.stop) for span, _ in self.spans().values())


class DeviceStep(msgspec.Struct, frozen=True, eq=False, kw_only=True):
    """A step in the kernels' form: views of one block.

    A tile of `decode_tiles_D3` and `prefill_tiles_F3` is its first row, its number of rows and
    their sequence. A tile of `lora_tiles_L2` is its first row and number of rows. `max_rank` is the
    largest rank of any module of any adapter, 0 without adapters. With `is_tiled` adapters' rows
    are taken by `lora_tiles_L2`, else one by one.
    """

    tables_T: torch.Tensor
    token_ids_T: torch.Tensor
    positions_T: torch.Tensor
    sequences_T: torch.Tensor
    decode_tiles_D3: torch.Tensor
    prefill_tiles_F3: torch.Tensor
    lora_tiles_L2: torch.Tensor
    logit_rows_S: torch.Tensor
    pages_PB: torch.Tensor
    max_rank: int
    is_aligned: bool
    is_tiled: bool


class HostStep(msgspec.Struct, frozen=True, eq=False, kw_only=True):
    """The same arrays in host memory, to be filled in."""

    tables_T: Int64
    token_ids_T: Int32
    positions_T: Int32
    sequences_T: Int32
    decode_tiles_D3: Int32
    prefill_tiles_F3: Int32
    lora_tiles_L2: Int32
    logit_rows_S: Int32
    pages_PB: Int32


class StepBlock:
    """A step's words in host memory and on the device."""

    def __init__(self, sizes: StepSizes, device: torch.device) -> None:
        self.sizes = sizes
        is_cuda = device.type == "cuda"
        self._host_W = torch.zeros(sizes.num_words, dtype=torch.int32, pin_memory=is_cuda)
        self._device_W = torch.zeros(sizes.num_words, dtype=torch.int32, device=device)
        self._sent = torch.cuda.Event() if is_cuda else None
        self._host = HostStep(**_view_arrays(self._host_W.numpy(), sizes))

    def send(self, batch: ForwardBatch, adapters: StepAdapters, *, tile_rows: int) -> None:
        """Fill the block with a step and copy it to the device, on the current stream.

        `tile_rows`: the most rows of a prompt's tile.
        """
        if self._sent is not None:
            self._sent.synchronize()  # the copy before may still read these words
        fill(self._host, batch, adapters, tile_rows=tile_rows)
        unused_pages = self.sizes.num_pages - batch.pages_BP.shape[1]
        used = self.sizes.num_words - unused_pages * self.sizes.num_sequences
        self._device_W[:used].copy_(self._host_W[:used], non_blocking=True)
        if self._sent is not None:
            self._sent.record()

    def view(self, *, max_rank: int, is_aligned: bool, is_tiled: bool) -> DeviceStep:
        """The block as a step."""
        arrays: dict[str, Any] = {
            name: (
                self._device_W[span].view(torch.int64)
                if name == "tables_T"
                else self._device_W[span]
            ).view(shape)
            for name, (span, shape) in self.sizes.spans().items()
        }
        return DeviceStep(**arrays, max_rank=max_rank, is_aligned=is_aligned, is_tiled=is_tiled)


def get_step_sizes(batch: ForwardBatch, *, tile_rows: int, is_tiled: bool) -> StepSizes:
    """The sizes that this step needs."""
    counts_B = numpy.diff(batch.row_starts_B1)
    lora_tiles = _build_lora_tiles(batch) if is_tiled else []
    return StepSizes(
        num_rows=batch.num_rows,
        num_sequences=len(counts_B),
        num_pages=batch.pages_BP.shape[1],
        num_logits=len(batch.logit_rows_S),
        num_decode_tiles=int((counts_B == 1).sum()),
        num_prefill_tiles=int((-(-counts_B[counts_B > 1] // tile_rows)).sum()),
        num_lora_tiles=len(lora_tiles),
    )


def has_long_segments(batch: ForwardBatch) -> bool:
    """True if an adapter has enough rows for tiles to be faster than single rows."""
    return any(it.row_end - it.row_start >= _LONG_SEGMENT for it in batch.segments)


def is_decode(batch: ForwardBatch) -> bool:
    """Whether every sequence has one row."""
    return batch.num_rows == len(batch.lengths_B)


def fill(host: HostStep, batch: ForwardBatch, adapters: StepAdapters, *, tile_rows: int) -> None:
    """Write a step into arrays that have room for it, and clear the unused entries."""
    num_rows, num_sequences = batch.num_rows, len(batch.lengths_B)
    counts_B = numpy.diff(batch.row_starts_B1)
    for array in (host.token_ids_T, host.positions_T, host.tables_T):
        array[num_rows:] = 0
    host.token_ids_T[:num_rows] = batch.token_ids_T
    host.positions_T[:num_rows] = batch.positions_T
    host.sequences_T[:num_rows] = numpy.repeat(numpy.arange(num_sequences), counts_B)
    host.sequences_T[num_rows:] = -1
    host.pages_PB[: batch.pages_BP.shape[1], :num_sequences] = batch.pages_BP.T
    host.tables_T[:num_rows] = 0
    for segment, address in zip(batch.segments, adapters.addresses, strict=True):
        host.tables_T[segment.row_start : segment.row_end] = address
    _fill_tiles(host.decode_tiles_D3, _build_decode_tiles(batch))
    _fill_tiles(host.prefill_tiles_F3, list(_build_prefill_tiles(batch, tile_rows)))
    if len(host.lora_tiles_L2):
        _fill_tiles(host.lora_tiles_L2, _build_lora_tiles(batch))
    host.logit_rows_S[: len(batch.logit_rows_S)] = batch.logit_rows_S
    host.logit_rows_S[len(batch.logit_rows_S) :] = 0


def _view_arrays(words_W: NDArray[numpy.int32], sizes: StepSizes) -> dict[str, Any]:
    names = set(HostStep.__struct_fields__)
    spans = sizes.spans()
    assert names == set(spans), "host and device have the same arrays"
    return {
        name: (words_W[span].view(numpy.int64) if name == "tables_T" else words_W[span]).reshape(
            shape
        )
        for name, (span, shape) in spans.items()
    }


def _build_decode_tiles(batch: ForwardBatch) -> Int32:
    starts_B1 = batch.row_starts_B1
    sequences = numpy.flatnonzero(numpy.diff(starts_B1) == 1)
    ones = numpy.ones_like(sequences)
    return numpy.stack([starts_B1[sequences], ones, sequences], 1).astype(numpy.int32)


def _build_prefill_tiles(batch: ForwardBatch, tile_rows: int) -> Iterator[tuple[int, int, int]]:
    for sequence in numpy.flatnonzero(numpy.diff(batch.row_starts_B1) > 1):
        first, end = (int(it) for it in batch.row_starts_B1[sequence : sequence + 2])
        for start in range(first, end, tile_rows):
            yield start, min(tile_rows, end - start), int(sequence)


def _build_lora_tiles(batch: ForwardBatch) -> list[tuple[int, int]]:
    return [
        (start, min(LORA_TILE_ROWS, segment.row_end - start))
        for segment in batch.segments
        for start in range(segment.row_start, segment.row_end, LORA_TILE_ROWS)
    ]


def _fill_tiles(tiles: Int32, rows: Sequence[Sequence[int]] | Int32) -> None:
    tiles[len(rows) :] = 0
    if len(rows):
        tiles[: len(rows)] = rows
