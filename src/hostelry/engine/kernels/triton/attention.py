"""Attention with grouped queries over the page pool, for decoding rows and for prompts.

A program takes a tile of neighbouring rows of one sequence and the query heads of one key-value
head. A decoding row's keys are divided among several programs, whose parts `merge` puts together.
The division depends on the row's own length and the model alone. Keys and values are read in place,
page by page. Keys beyond a row, or before all windows of a tile, are not read. The softmax is
computed as keys come. Twin: `layers.attention_paged`.

Sources: FlashAttention-2 (arXiv:2307.08691), Flash-Decoding (crfm.stanford.edu, 2023-10-12).

# T rows, X tiles, N query heads, K key-value heads, D head dimension, S tokens of a page, Z splits
"""

import msgspec
import torch
import triton
import triton.language as tl

from hostelry.engine.kernels.pool import PoolLayout, PoolTensor
from hostelry.engine.kernels.triton.lora import get_dot_precision
from hostelry.engine.kernels.triton.step import DeviceStep

_LEAST_DOT = 16  # rows and columns of the smallest product on tensor cores
_TILE_MEMBERS = 64  # rows times query heads of a prompt's tile
_FP32_TILE_MEMBERS = 16  # without tensor cores larger tiles take minutes to compile
_PROGRAMS_OF_A_ROW = 256  # fills a large device when one sequence decodes alone
_MOST_SPLITS = 16
_WIDE_HEAD = 128


class AttentionShape(msgspec.Struct, frozen=True, kw_only=True):
    """The shape of a model's attention, as the kernels need it."""

    num_heads: int
    layout: PoolLayout
    scale: float
    max_len: int

    @property
    def group_padded(self) -> int:
        """Query heads of one key-value head, a power of two."""
        return int(triton.next_power_of_2(self.num_heads // self.layout.num_kv_heads))

    @property
    def tile_rows(self) -> int:
        """The most rows of a prompt's tile."""
        is_fp32 = self.layout.dtype == torch.float32
        return max(1, (_FP32_TILE_MEMBERS if is_fp32 else _TILE_MEMBERS) // self.group_padded)

    @property
    def block_keys(self) -> int:
        """Keys read at once."""
        return 64 if self.layout.head_dim <= _WIDE_HEAD else 32

    @property
    def num_splits(self) -> int:
        """Programs among which a decoding row's keys are divided, in any batch."""
        most = min(_MOST_SPLITS, _PROGRAMS_OF_A_ROW // self.layout.num_kv_heads)
        return max(1, min(most, -(-self.max_len // self.block_keys)))


def attend(
    qkv_TO: torch.Tensor,
    pool: PoolTensor,
    layer: int,
    step: DeviceStep,
    shape: AttentionShape,
    window: int | None,
) -> torch.Tensor:
    """Attended values (T, N * D), rounded to the pool's dtype, of each row up to itself.

    The first N * D columns of `qkv_TO` (fp32) are the rotated queries. With a `window`, over the
    last `window` keys.
    """
    num_rows = len(qkv_TO)
    width = shape.num_heads * shape.layout.head_dim
    out_TO = torch.zeros(num_rows, width, dtype=pool.elements.dtype, device=qkv_TO.device)
    if len(step.prefill_tiles_F3):
        _launch(qkv_TO, out_TO, None, pool, layer, step, step.prefill_tiles_F3, shape, window)
    if len(step.decode_tiles_D3):
        parts_ZTN = torch.empty(
            shape.num_splits,
            num_rows,
            shape.num_heads,
            shape.layout.head_dim + 2,
            dtype=torch.float32,
            device=qkv_TO.device,
        )
        _launch(qkv_TO, out_TO, parts_ZTN, pool, layer, step, step.decode_tiles_D3, shape, window)
        merge_splits[(len(step.decode_tiles_D3), shape.num_heads)](
            parts_ZTN, out_TO, step.decode_tiles_D3, num_rows,
            HEADS=shape.num_heads, DIM=shape.layout.head_dim,
            DIM_PAD=triton.next_power_of_2(shape.layout.head_dim),
            SPLITS=shape.num_splits, SPLITS_PAD=triton.next_power_of_2(shape.num_splits),
        )  # fmt: skip
    return out_TO


def _launch(
    qkv_TO: torch.Tensor,
    out_TO: torch.Tensor,
    parts_ZTN: torch.Tensor | None,
    pool: PoolTensor,
    layer: int,
    step: DeviceStep,
    tiles_X3: torch.Tensor,
    shape: AttentionShape,
    window: int | None,
) -> None:
    layout = shape.layout
    num_splits = 1 if parts_ZTN is None else shape.num_splits
    rows = shape.tile_rows if parts_ZTN is None else 1
    attend_tiles[(len(tiles_X3), layout.num_kv_heads, num_splits)](
        qkv_TO, pool.elements, out_TO, out_TO if parts_ZTN is None else parts_ZTN,
        tiles_X3, step.positions_T, step.pages_PB, step.pages_PB.shape[1],
        2 * layer * layout.half_elements, layout.page_elements, shape.scale, len(qkv_TO),
        Q_STRIDE=qkv_TO.shape[1], WINDOW=window or 0, HEADS=shape.num_heads,
        KV_HEADS=layout.num_kv_heads, GROUP_PAD=shape.group_padded, DIM=layout.head_dim,
        DIM_PAD=max(_LEAST_DOT, triton.next_power_of_2(layout.head_dim)),
        TOKENS=layout.page_tokens, SPLITS=num_splits, IS_SPLIT=parts_ZTN is not None,
        BLOCK_M=max(_LEAST_DOT, rows * shape.group_padded), BLOCK_N=shape.block_keys,
        PRECISION=get_dot_precision(layout.dtype),
        IS_ROUNDED=parts_ZTN is None and _multiplies_halves(layout.dtype), num_stages=2,
        num_warps=8 if rows > 1 and layout.head_dim > _WIDE_HEAD else 4,
    )  # fmt: skip


def _multiplies_halves(dtype: torch.dtype) -> bool:
    """True if products of this 16-bit type can be computed."""
    if dtype == torch.bfloat16 and triton.knobs.runtime.interpret:
        return False  # the interpreter would multiply their bits
    return dtype != torch.float32


@triton.jit
def _blocks(first, last, split, SPLITS: tl.constexpr, BLOCK_N: tl.constexpr):
    """The split's share of the blocks that hold keys first to last, as start and end."""
    first_block = first // BLOCK_N
    num_blocks = last // BLOCK_N + 1 - first_block
    each = (num_blocks + SPLITS - 1) // SPLITS
    end = tl.minimum((split + 1) * each, num_blocks)
    return first_block + split * each, first_block + end


@triton.jit
def _page_starts(keys, first, last, pages_ptr, stride, page_elements, TOKENS: tl.constexpr):
    """The first element of each key's page. Page 0 replaces a missing page."""
    ordinals = keys // TOKENS
    # Masked as pages, not as keys, so that the compiler sees which keys share one.
    is_page = (ordinals >= first // TOKENS) & (ordinals <= last // TOKENS)
    pages = tl.load(pages_ptr + ordinals * stride, mask=is_page, other=0)
    return pages.to(tl.int64) * page_elements


@triton.jit
def _dot(left, right, PRECISION: tl.constexpr, IS_ROUNDED: tl.constexpr):
    """Left . right, summed in fp32. IS_ROUNDED rounds `left` to the 16 bits of `right`."""
    if IS_ROUNDED:
        result = tl.dot(left.to(right.dtype), right)
    else:
        result = tl.dot(left, right.to(tl.float32), input_precision=PRECISION)
    return result


@triton.jit(do_not_specialize=["num_rows", "num_sequences"])
def attend_tiles(
    q_ptr, elements_ptr, out_ptr, parts_ptr, tiles_ptr, positions_ptr, pages_ptr, num_sequences,
    layer_start, page_elements, scale, num_rows,
    Q_STRIDE: tl.constexpr, WINDOW: tl.constexpr, HEADS: tl.constexpr, KV_HEADS: tl.constexpr,
    GROUP_PAD: tl.constexpr, DIM: tl.constexpr, DIM_PAD: tl.constexpr, TOKENS: tl.constexpr,
    SPLITS: tl.constexpr, IS_SPLIT: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
    PRECISION: tl.constexpr, IS_ROUNDED: tl.constexpr,
):  # fmt: skip
    """out[row, n] = sum over keys l seen of softmax(scale q[row, n] . k[l]) v[l], or a part of it.

    A split's part is the weighted sum of values (D), then the largest score and the sum of weights.
    """
    tile, head, split = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    first_row = tl.load(tiles_ptr + 3 * tile)
    tile_rows = tl.load(tiles_ptr + 3 * tile + 1)
    sequence = tl.load(tiles_ptr + 3 * tile + 2).to(tl.int64)
    if tile_rows > 0:
        GROUP: tl.constexpr = HEADS // KV_HEADS
        HALF: tl.constexpr = KV_HEADS * DIM * TOKENS
        members = tl.arange(0, BLOCK_M)
        is_member = (members // GROUP_PAD < tile_rows) & (members % GROUP_PAD < GROUP)
        rows = (first_row + members // GROUP_PAD).to(tl.int64)
        heads = head * GROUP + members % GROUP_PAD
        positions = tl.load(positions_ptr + rows, mask=is_member, other=-1)
        dims = tl.arange(0, DIM_PAD)
        is_dim = dims < DIM
        is_cell = is_member[:, None] & is_dim[None, :]
        q = tl.load(
            q_ptr + rows[:, None] * Q_STRIDE + heads[:, None] * DIM + dims[None, :],
            mask=is_cell, other=0.0,
        )  # fmt: skip
        last = tl.max(positions, 0)
        first = 0
        if WINDOW > 0:
            first = tl.maximum(tl.load(positions_ptr + first_row) - WINDOW + 1, 0)
        start_block, end_block = _blocks(first, last, split, SPLITS, BLOCK_N)
        best = tl.full((BLOCK_M,), float("-inf"), tl.float32)
        total = tl.zeros((BLOCK_M,), tl.float32)
        sums = tl.zeros((BLOCK_M, DIM_PAD), tl.float32)
        for block in range(start_block, end_block):
            keys = block * BLOCK_N + tl.arange(0, BLOCK_N)
            is_key = (keys >= first) & (keys <= last)
            base = _page_starts(
                keys, first, last, pages_ptr + sequence, num_sequences, page_elements, TOKENS
            )
            base += layer_start + head * (DIM * TOKENS)
            slots = keys % TOKENS
            # Not masked by key, so that a page's keys are read as vectors: what lies beyond the
            # sequence spoils its own column of scores only, which no row sees.
            k = tl.load(
                elements_ptr + (base + slots)[None, :] + dims[:, None] * TOKENS,
                mask=is_dim[:, None], other=0.0,
            )  # fmt: skip
            scores = _dot(q, k, PRECISION, IS_ROUNDED) * scale
            is_seen = is_key[None, :] & (keys[None, :] <= positions[:, None])
            if WINDOW > 0:
                is_seen = is_seen & (keys[None, :] > positions[:, None] - WINDOW)
            scores = tl.where(is_seen, scores, float("-inf"))
            top = tl.maximum(best, tl.max(scores, 1))
            # A row that has seen nothing yet has no largest score: -inf minus itself is nan.
            anchor = tl.where(top == float("-inf"), 0.0, top)
            weights = tl.exp(scores - anchor[:, None])
            decay = tl.exp(best - anchor)
            total = total * decay + tl.sum(weights, 1)
            v = tl.load(
                elements_ptr + (base + HALF + slots * DIM)[:, None] + dims[None, :],
                mask=is_key[:, None] & is_dim[None, :], other=0.0,
            )  # fmt: skip
            sums = sums * decay[:, None] + _dot(weights, v, PRECISION, IS_ROUNDED)
            best = top
        if IS_SPLIT:
            part = parts_ptr + ((split * num_rows + rows) * HEADS + heads) * (DIM + 2)
            tl.store(part[:, None] + dims[None, :], sums, mask=is_cell)
            tl.store(part + DIM, best, mask=is_member)
            tl.store(part + DIM + 1, total, mask=is_member)
        else:
            out = out_ptr + (rows * HEADS + heads)[:, None] * DIM + dims[None, :]
            result = sums / tl.where(total > 0, total, 1.0)[:, None]
            tl.store(out, result.to(out_ptr.dtype.element_ty), mask=is_cell)


@triton.jit(do_not_specialize=["num_rows"])
def merge_splits(
    parts_ptr, out_ptr, tiles_ptr, num_rows,
    HEADS: tl.constexpr, DIM: tl.constexpr, DIM_PAD: tl.constexpr, SPLITS: tl.constexpr,
    SPLITS_PAD: tl.constexpr,
):  # fmt: skip
    """out[row, n] = the parts of the row's splits, each scaled to the largest score of all."""
    tile, head = tl.program_id(0), tl.program_id(1)
    row = tl.load(tiles_ptr + 3 * tile).to(tl.int64)
    if tl.load(tiles_ptr + 3 * tile + 1) > 0:
        splits = tl.arange(0, SPLITS_PAD)
        is_split = splits < SPLITS
        dims = tl.arange(0, DIM_PAD)
        part = parts_ptr + ((splits * num_rows + row) * HEADS + head) * (DIM + 2)
        best = tl.load(part + DIM, mask=is_split, other=float("-inf"))
        total = tl.load(part + DIM + 1, mask=is_split, other=0.0)
        weights = tl.exp(best - tl.max(best, 0))
        sums = tl.load(
            part[:, None] + dims[None, :],
            mask=is_split[:, None] & (dims < DIM)[None, :], other=0.0,
        )  # fmt: skip
        result = tl.sum(sums * weights[:, None], 0) / tl.sum(total * weights, 0)
        out = out_ptr + (row * HEADS + head) * DIM + dims
        tl.store(out, result.to(out_ptr.dtype.element_ty), mask=dims < DIM)
