"""Updates of adapters of any ranks in two launches: shrink (low = A x), expand (y += scale B low).

All modules that read one input (q, k, v or gate, up) go together. Rows of A and columns of B are
read in place in the pool, through their offsets. Only the scratch for `low` is padded.
Two forms: a program takes one row (decoding: rows of different adapters), or a tile of neighbouring
rows of one adapter (prompts), which reads its weights once for all of them. Rows without adapter,
and ranks that an adapter lacks, cost a program that ends at once. Sums are fp32 and their order
depends on the module's width alone. Twin: `layers.segmented_lora`.

Sources: Punica (arXiv:2310.18547), S-LoRA (arXiv:2311.03285).

# T rows, I in-features, O output columns of all modules, M modules, R scratch ranks, K parts of I
"""

from collections.abc import Callable

import msgspec
import torch
import triton
import triton.language as tl

from hostelry.engine.kernels.triton.step import LORA_TILE_ROWS, DeviceStep

_BLOCK_RANKS = 16
_BLOCK_IN = 256
_BLOCK_TILE_IN = 64
_BLOCK_OUT = 128  # with one warp: several would sum their ranks through shared memory
_BLOCK_TILE_OUT = 64
_PART_IN = 1024  # in-features of one program: a few programs a row keep memory busy


class FusedModules(msgspec.Struct, frozen=True, kw_only=True):
    """Modules side by side: the first one's number in its layer, and their columns in order."""

    first: int
    widths: tuple[int, ...]
    in_features: int

    @property
    def num_parts(self) -> int:
        """Parts of the in-features that are summed apart."""
        return -(-self.in_features // _PART_IN)

    def num_blocks(self, block: int) -> int:
        """Blocks of columns, none of which has two modules."""
        return sum(-(-width // block) for width in self.widths)


def add_lora(
    x_TI: torch.Tensor,
    y_TO: torch.Tensor,
    elements: torch.Tensor,
    step: DeviceStep,
    modules: FusedModules,
    *,
    first_module: int,
    sum_low: Callable[[torch.Tensor], torch.Tensor] | None = None,
) -> None:
    """Add the adapters' updates of these modules to `y_TO` (fp32, contiguous rows), in place.

    x_TI is rounded to the pool's dtype. `first_module` is the first one's number in the model. With
    several ranks `sum_low` sums their low-rank products, in place. Negative offsets then stand for
    rows of A that other ranks have.
    """
    num_rows = len(x_TI)
    max_rank = -(-step.max_rank // _BLOCK_RANKS) * _BLOCK_RANKS
    num_modules, num_parts = len(modules.widths), modules.num_parts
    create = torch.empty if sum_low is None else torch.zeros
    low_KTMR = create(
        num_parts, num_rows, num_modules, max_rank, dtype=torch.float32, device=x_TI.device
    )
    widths = (*modules.widths, 0, 0)[:3]
    common = {
        "MODULES": num_modules,
        "RANKS": max_rank,
        "ALIGN": 8 if step.is_aligned else 1,
        "BLOCK_R": _BLOCK_RANKS,
    }
    shrink = {
        **common,
        "IN": modules.in_features,
        "PART": _PART_IN,
        "PARTS": num_parts,
        "IS_SHARED": sum_low is not None,
    }
    rank_blocks = num_modules * max_rank // _BLOCK_RANKS
    precision = get_dot_precision(elements.dtype)
    tiles, num_tiles = step.lora_tiles_L2, len(step.lora_tiles_L2)
    common_tile = {"ROWS": LORA_TILE_ROWS, "PRECISION": precision}
    if step.is_tiled:
        shrink_tiles[(num_tiles, rank_blocks, num_parts)](
            x_TI, elements, step.tables_T, tiles, low_KTMR, first_module, num_rows,
            **shrink, **common_tile, BLOCK_I=_BLOCK_TILE_IN,
        )  # fmt: skip
    else:
        shrink_rows[(num_rows, rank_blocks, num_parts)](
            x_TI, elements, step.tables_T, low_KTMR, first_module, num_rows,
            **shrink, BLOCK_I=_BLOCK_IN,
        )  # fmt: skip
    if sum_low is not None:
        low_KTMR = sum_low(low_KTMR.sum(0, keepdim=True))
    expand = {
        **common,
        "W0": widths[0],
        "W1": widths[1],
        "W2": widths[2],
        "STRIDE": y_TO.stride(0),
        "PARTS": len(low_KTMR),
    }
    if step.is_tiled:
        expand_tiles[(num_tiles, modules.num_blocks(_BLOCK_TILE_OUT))](
            y_TO, elements, step.tables_T, tiles, low_KTMR, first_module, num_rows,
            **expand, **common_tile, BLOCK_O=_BLOCK_TILE_OUT,
        )  # fmt: skip
        return
    expand_rows[(num_rows, modules.num_blocks(_BLOCK_OUT))](
        y_TO, elements, step.tables_T, low_KTMR, first_module, num_rows,
        **expand, BLOCK_O=_BLOCK_OUT, num_warps=1,
    )  # fmt: skip


def get_dot_precision(dtype: torch.dtype) -> str:
    """The precision of a tile's products: exact for fp32, else tf32 on tensor cores.

    tf32 holds bf16 and fp16 exactly, so only an fp32 factor is rounded.
    """
    return "ieee" if dtype == torch.float32 else "tf32"


@triton.jit
def _table(address):
    return address.to(tl.pointer_type(tl.int64))


@triton.jit
def _columns(block, W0: tl.constexpr, W1: tl.constexpr, W2: tl.constexpr, BLOCK_O: tl.constexpr):
    """The module of a block of columns, its width, its first column in y, and the block's in it."""
    blocks_0: tl.constexpr = (W0 + BLOCK_O - 1) // BLOCK_O
    blocks_1: tl.constexpr = (W1 + BLOCK_O - 1) // BLOCK_O
    is_1 = block >= blocks_0
    is_2 = block >= blocks_0 + blocks_1
    slot = is_1.to(tl.int32) + is_2.to(tl.int32)
    width = tl.where(is_2, W2, tl.where(is_1, W1, W0))
    base = tl.where(is_2, W0 + W1, tl.where(is_1, W0, 0))
    first_block = tl.where(is_2, blocks_0 + blocks_1, tl.where(is_1, blocks_0, 0))
    return slot, width, base, (block - first_block) * BLOCK_O


@triton.jit(do_not_specialize=["first_module", "num_rows"])
def shrink_rows(
    x_ptr, elements_ptr, tables_ptr, low_ptr, first_module, num_rows,
    IN: tl.constexpr, PART: tl.constexpr, PARTS: tl.constexpr, MODULES: tl.constexpr,
    RANKS: tl.constexpr, ALIGN: tl.constexpr, IS_SHARED: tl.constexpr, BLOCK_R: tl.constexpr,
    BLOCK_I: tl.constexpr,
):  # fmt: skip
    """low[part, row, module, j] = sum over the part's i of A[j, i] x[row, i], for ranks j."""
    row = tl.program_id(0).to(tl.int64)
    slot = tl.program_id(1) // (RANKS // BLOCK_R)
    first = (tl.program_id(1) % (RANKS // BLOCK_R)) * BLOCK_R
    part = tl.program_id(2)
    address = tl.load(tables_ptr + row)
    if address != 0:
        table = _table(address)
        header = table + 4 * (first_module + slot)
        rank = tl.load(header).to(tl.int32)
        if first < rank:
            ranks = first + tl.arange(0, BLOCK_R)
            is_rank = ranks < rank
            down = tl.load(table + tl.load(header + 2) + ranks, mask=is_rank, other=0)
            if IS_SHARED:
                is_rank = is_rank & (down >= 0)
                down = tl.maximum(down, 0)
            down = tl.multiple_of(down, ALIGN)
            sums = tl.zeros((BLOCK_R, BLOCK_I), tl.float32)
            # Unrolled, so that all of a part's reads are under way at once.
            for start in tl.static_range(0, PART, BLOCK_I):
                columns = part * PART + start + tl.arange(0, BLOCK_I)
                is_in = columns < IN
                x = tl.load(x_ptr + row * IN + columns, mask=is_in, other=0.0).to(tl.float32)
                weights = tl.load(
                    elements_ptr + down[:, None] + columns[None, :],
                    mask=is_rank[:, None] & is_in[None, :],
                    other=0.0,
                )
                sums += weights.to(tl.float32) * x[None, :]
            low = low_ptr + ((part * num_rows + row) * MODULES + slot) * RANKS + ranks
            tl.store(low, tl.sum(sums, 1), mask=is_rank)


@triton.jit(do_not_specialize=["first_module", "num_rows"])
def expand_rows(
    y_ptr, elements_ptr, tables_ptr, low_ptr, first_module, num_rows,
    W0: tl.constexpr, W1: tl.constexpr, W2: tl.constexpr, STRIDE: tl.constexpr, PARTS: tl.constexpr,
    MODULES: tl.constexpr, RANKS: tl.constexpr, ALIGN: tl.constexpr, BLOCK_R: tl.constexpr,
    BLOCK_O: tl.constexpr,
):  # fmt: skip
    """y[row, o] += scale * sum over ranks j of low[row, module, j] B[o, j]."""
    row = tl.program_id(0).to(tl.int64)
    slot, width, base, first = _columns(tl.program_id(1), W0, W1, W2, BLOCK_O)
    address = tl.load(tables_ptr + row)
    if address != 0:
        table = _table(address)
        header = table + 4 * (first_module + slot)
        rank = tl.load(header).to(tl.int32)
        if rank > 0:
            scale = tl.load(header + 1).to(tl.int32).to(tl.float32, bitcast=True)
            up_at = table + tl.load(header + 3)
            columns = first + tl.arange(0, BLOCK_O)
            is_out = columns < width
            sums = tl.zeros((BLOCK_O,), tl.float32)
            for start in range(0, rank, BLOCK_R):
                ranks = start + tl.arange(0, BLOCK_R)
                is_rank = ranks < rank
                low = tl.zeros((BLOCK_R,), tl.float32)
                for part in range(PARTS):
                    at = low_ptr + ((part * num_rows + row) * MODULES + slot) * RANKS + ranks
                    low += tl.load(at, mask=is_rank, other=0.0)
                up = tl.multiple_of(tl.load(up_at + ranks, mask=is_rank, other=0), ALIGN)
                weights = tl.load(
                    elements_ptr + up[:, None] + columns[None, :],
                    mask=is_rank[:, None] & is_out[None, :],
                    other=0.0,
                )
                sums += tl.sum(weights.to(tl.float32) * low[:, None], 0)
            y = y_ptr + row * STRIDE + base + columns
            before = tl.load(y, mask=is_out, other=0.0)
            tl.store(y, before + scale * sums, mask=is_out)


@triton.jit(do_not_specialize=["first_module", "num_rows"])
def shrink_tiles(
    x_ptr, elements_ptr, tables_ptr, tiles_ptr, low_ptr, first_module, num_rows,
    IN: tl.constexpr, PART: tl.constexpr, PARTS: tl.constexpr, MODULES: tl.constexpr,
    RANKS: tl.constexpr, ALIGN: tl.constexpr, IS_SHARED: tl.constexpr, ROWS: tl.constexpr,
    PRECISION: tl.constexpr, BLOCK_R: tl.constexpr, BLOCK_I: tl.constexpr,
):  # fmt: skip
    """As `shrink_rows`, for the rows of a tile, which share an adapter."""
    tile = tl.program_id(0)
    slot = tl.program_id(1) // (RANKS // BLOCK_R)
    first = (tl.program_id(1) % (RANKS // BLOCK_R)) * BLOCK_R
    part = tl.program_id(2)
    first_row = tl.load(tiles_ptr + 2 * tile)
    tile_rows = tl.load(tiles_ptr + 2 * tile + 1)
    address = tl.load(tables_ptr + first_row, mask=tile_rows > 0, other=0)
    if address != 0:
        table = _table(address)
        header = table + 4 * (first_module + slot)
        rank = tl.load(header).to(tl.int32)
        if first < rank:
            ranks = first + tl.arange(0, BLOCK_R)
            is_rank = ranks < rank
            rows = (first_row + tl.arange(0, ROWS)).to(tl.int64)
            is_row = tl.arange(0, ROWS) < tile_rows
            down = tl.load(table + tl.load(header + 2) + ranks, mask=is_rank, other=0)
            if IS_SHARED:
                is_rank = is_rank & (down >= 0)
                down = tl.maximum(down, 0)
            down = tl.multiple_of(down, ALIGN)
            sums = tl.zeros((ROWS, BLOCK_R), tl.float32)
            for start in range(0, PART, BLOCK_I):
                columns = part * PART + start + tl.arange(0, BLOCK_I)
                is_in = columns < IN
                x = tl.load(
                    x_ptr + rows[:, None] * IN + columns[None, :],
                    mask=is_row[:, None] & is_in[None, :],
                    other=0.0,
                )
                weights = tl.load(
                    elements_ptr + down[None, :] + columns[:, None],
                    mask=is_rank[None, :] & is_in[:, None],
                    other=0.0,
                )
                sums += tl.dot(x.to(tl.float32), weights.to(tl.float32), input_precision=PRECISION)
            low = low_ptr + ((part * num_rows + rows) * MODULES + slot)[:, None] * RANKS
            tl.store(low + ranks[None, :], sums, mask=is_row[:, None] & is_rank[None, :])


@triton.jit(do_not_specialize=["first_module", "num_rows"])
def expand_tiles(
    y_ptr, elements_ptr, tables_ptr, tiles_ptr, low_ptr, first_module, num_rows,
    W0: tl.constexpr, W1: tl.constexpr, W2: tl.constexpr, STRIDE: tl.constexpr, PARTS: tl.constexpr,
    MODULES: tl.constexpr, RANKS: tl.constexpr, ALIGN: tl.constexpr, ROWS: tl.constexpr,
    PRECISION: tl.constexpr, BLOCK_R: tl.constexpr, BLOCK_O: tl.constexpr,
):  # fmt: skip
    """As `expand_rows`, for the rows of a tile, which share an adapter."""
    tile = tl.program_id(0)
    slot, width, base, first = _columns(tl.program_id(1), W0, W1, W2, BLOCK_O)
    first_row = tl.load(tiles_ptr + 2 * tile)
    tile_rows = tl.load(tiles_ptr + 2 * tile + 1)
    address = tl.load(tables_ptr + first_row, mask=tile_rows > 0, other=0)
    if address != 0:
        table = _table(address)
        header = table + 4 * (first_module + slot)
        rank = tl.load(header).to(tl.int32)
        if rank > 0:
            scale = tl.load(header + 1).to(tl.int32).to(tl.float32, bitcast=True)
            up_at = table + tl.load(header + 3)
            rows = (first_row + tl.arange(0, ROWS)).to(tl.int64)
            is_row = tl.arange(0, ROWS) < tile_rows
            columns = first + tl.arange(0, BLOCK_O)
            is_out = columns < width
            sums = tl.zeros((ROWS, BLOCK_O), tl.float32)
            for start in range(0, rank, BLOCK_R):
                ranks = start + tl.arange(0, BLOCK_R)
                is_rank = ranks < rank
                low = tl.zeros((ROWS, BLOCK_R), tl.float32)
                for part in range(PARTS):
                    at = low_ptr + ((part * num_rows + rows) * MODULES + slot)[:, None] * RANKS
                    low += tl.load(
                        at + ranks[None, :], mask=is_row[:, None] & is_rank[None, :], other=0.0
                    )
                up = tl.multiple_of(tl.load(up_at + ranks, mask=is_rank, other=0), ALIGN)
                weights = tl.load(
                    elements_ptr + up[:, None] + columns[None, :],
                    mask=is_rank[:, None] & is_out[None, :],
                    other=0.0,
                )
                sums += tl.dot(low, weights.to(tl.float32), input_precision=PRECISION)
            y = y_ptr + rows[:, None] * STRIDE + base + columns[None, :]
            is_cell = is_row[:, None] & is_out[None, :]
            tl.store(y, tl.load(y, mask=is_cell, other=0.0) + scale * sums, mask=is_cell)
