"""Kernels on single rows between products: norms, rotation, storing keys, gating.

Arithmetic is fp32, as in the twins in `layers.decoder`, `layers.rotary` and
`layers.attention_paged`. The input of a product is rounded to the model's dtype.

# T rows, H hidden, I intermediate, O columns of q, k and v, D head dimension, P positions
"""

import msgspec
import torch
import triton
import triton.language as tl

from hostelry.engine.kernels.pool import PoolTensor
from hostelry.engine.kernels.triton.step import DeviceStep
from hostelry.engine.kernels.weights import Activation, RopeTables

_BLOCK_HEADS = 8
_BLOCK_GATED = 1024
_WIDE_ROW = 4096


def add_and_norm(
    hidden_TH: torch.Tensor,
    update_TH: torch.Tensor | None,
    update_norm_H: torch.Tensor | None,
    norm_H: torch.Tensor,
    *,
    eps: float,
    dtype: torch.dtype,
) -> torch.Tensor:
    """Add norm(update) to `hidden_TH`, and return the norm of the sum, (T, H) of `dtype`.

    `hidden_TH` and `update_TH` are fp32 and contiguous. Without `update_norm_H` the update is added
    as it is.
    """
    num_rows, width = hidden_TH.shape
    x_TH = torch.empty(num_rows, width, dtype=dtype, device=hidden_TH.device)
    add_norm_rows[(num_rows,)](
        hidden_TH, hidden_TH if update_TH is None else update_TH,
        norm_H if update_norm_H is None else update_norm_H, norm_H, x_TH, eps,
        WIDTH=width, WIDTH_PAD=triton.next_power_of_2(width), HAS_UPDATE=update_TH is not None,
        HAS_UPDATE_NORM=update_norm_H is not None, num_warps=8 if width > _WIDE_ROW else 4,
    )  # fmt: skip
    return x_TH


class HeadNorms(msgspec.Struct, frozen=True, kw_only=True):
    """Weights of the norms over each query and key head, if any."""

    query_D: torch.Tensor | None
    key_D: torch.Tensor | None
    eps: float


def rotate_and_store(
    qkv_TO: torch.Tensor,
    pool: PoolTensor,
    layer: int,
    step: DeviceStep,
    rope: RopeTables,
    norms: HeadNorms,
) -> None:
    """Norm and rotate queries and keys, and store keys and values in the pool.

    Queries stay in `qkv_TO`, which is fp32 and contiguous.
    """
    layout = pool.layout
    num_heads = qkv_TO.shape[1] // layout.head_dim - 2 * layout.num_kv_heads
    all_heads = num_heads + 2 * layout.num_kv_heads
    half = layout.head_dim // 2
    unused = rope.cos_PD
    store_rows[(len(qkv_TO), triton.cdiv(all_heads, _BLOCK_HEADS))](
        qkv_TO, pool.elements, step.positions_T, step.sequences_T, step.pages_PB,
        step.pages_PB.shape[1], rope.cos_PD, rope.sin_PD,
        unused if norms.query_D is None else norms.query_D,
        unused if norms.key_D is None else norms.key_D,
        2 * layer * layout.half_elements, layout.page_elements, norms.eps,
        HEADS=num_heads, KV_HEADS=layout.num_kv_heads, HALF_DIM=half,
        HALF_PAD=triton.next_power_of_2(half), TOKENS=layout.page_tokens,
        HAS_QUERY_NORM=norms.query_D is not None, HAS_KEY_NORM=norms.key_D is not None,
        BLOCK_H=_BLOCK_HEADS,
    )  # fmt: skip


def gate(gate_up_TO: torch.Tensor, activation: Activation, dtype: torch.dtype) -> torch.Tensor:
    """act(gate) * up, rounded to `dtype`, (T, I). Gate and up lie side by side, fp32."""
    num_rows, both = gate_up_TO.shape
    width = both // 2
    out_TI = torch.empty(num_rows, width, dtype=dtype, device=gate_up_TO.device)
    gate_rows[(num_rows, triton.cdiv(width, _BLOCK_GATED))](
        gate_up_TO, out_TI, WIDTH=width, IS_GELU=activation == "gelu_tanh", BLOCK=_BLOCK_GATED
    )
    return out_TI


@triton.jit
def _normalize(x, weight, eps, WIDTH: tl.constexpr):
    return x * tl.rsqrt(tl.sum(x * x, 0) / WIDTH + eps) * weight


@triton.jit
def add_norm_rows(
    hidden_ptr, update_ptr, update_norm_ptr, norm_ptr, x_ptr, eps,
    WIDTH: tl.constexpr, WIDTH_PAD: tl.constexpr, HAS_UPDATE: tl.constexpr,
    HAS_UPDATE_NORM: tl.constexpr,
):  # fmt: skip
    """hidden[row] += norm(update[row]), x[row] = norm(hidden[row]). Source: arXiv:1910.07467."""
    row = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, WIDTH_PAD)
    is_in = columns < WIDTH
    hidden = tl.load(hidden_ptr + row * WIDTH + columns, mask=is_in, other=0.0)
    if HAS_UPDATE:
        update = tl.load(update_ptr + row * WIDTH + columns, mask=is_in, other=0.0)
        if HAS_UPDATE_NORM:
            weight = tl.load(update_norm_ptr + columns, mask=is_in, other=0.0).to(tl.float32)
            update = _normalize(update, weight, eps, WIDTH)
        hidden += update
        tl.store(hidden_ptr + row * WIDTH + columns, hidden, mask=is_in)
    weight = tl.load(norm_ptr + columns, mask=is_in, other=0.0).to(tl.float32)
    x = _normalize(hidden, weight, eps, WIDTH)
    tl.store(x_ptr + row * WIDTH + columns, x.to(x_ptr.dtype.element_ty), mask=is_in)


@triton.jit(do_not_specialize=["num_sequences"])
def store_rows(
    qkv_ptr, elements_ptr, positions_ptr, sequences_ptr, pages_ptr, num_sequences,
    cos_ptr, sin_ptr, query_norm_ptr, key_norm_ptr, layer_start, page_elements, eps,
    HEADS: tl.constexpr, KV_HEADS: tl.constexpr, HALF_DIM: tl.constexpr, HALF_PAD: tl.constexpr,
    TOKENS: tl.constexpr, HAS_QUERY_NORM: tl.constexpr, HAS_KEY_NORM: tl.constexpr,
    BLOCK_H: tl.constexpr,
):  # fmt: skip
    """Rotate q and k heads (x1, x2) to (x1 cos - x2 sin, x2 cos + x1 sin). Write k and v."""
    row = tl.program_id(0).to(tl.int64)
    sequence = tl.load(sequences_ptr + row).to(tl.int64)
    if sequence >= 0:
        DIM: tl.constexpr = 2 * HALF_DIM
        heads = tl.program_id(1) * BLOCK_H + tl.arange(0, BLOCK_H)
        is_query = heads < HEADS
        is_value = heads >= HEADS + KV_HEADS
        is_key = (heads >= HEADS) & (heads < HEADS + KV_HEADS)
        dims = tl.arange(0, HALF_PAD)
        is_dim = dims < HALF_DIM
        is_cell = (heads < HEADS + 2 * KV_HEADS)[:, None] & is_dim[None, :]
        at = qkv_ptr + (row * (HEADS + 2 * KV_HEADS) + heads)[:, None] * DIM + dims[None, :]
        x1 = tl.load(at, mask=is_cell, other=0.0)
        x2 = tl.load(at + HALF_DIM, mask=is_cell, other=0.0)
        inverse = tl.rsqrt((tl.sum(x1 * x1, 1) + tl.sum(x2 * x2, 1)) / DIM + eps)[:, None]
        if HAS_QUERY_NORM:
            first = tl.load(query_norm_ptr + dims, mask=is_dim, other=0.0).to(tl.float32)
            second = tl.load(query_norm_ptr + HALF_DIM + dims, mask=is_dim, other=0.0)
            x1 = tl.where(is_query[:, None], x1 * inverse * first[None, :], x1)
            x2 = tl.where(is_query[:, None], x2 * inverse * second.to(tl.float32)[None, :], x2)
        if HAS_KEY_NORM:
            first = tl.load(key_norm_ptr + dims, mask=is_dim, other=0.0).to(tl.float32)
            second = tl.load(key_norm_ptr + HALF_DIM + dims, mask=is_dim, other=0.0)
            x1 = tl.where(is_key[:, None], x1 * inverse * first[None, :], x1)
            x2 = tl.where(is_key[:, None], x2 * inverse * second.to(tl.float32)[None, :], x2)
        position = tl.load(positions_ptr + row)
        cos = tl.load(cos_ptr + position * HALF_DIM + dims, mask=is_dim, other=0.0)[None, :]
        sin = tl.load(sin_ptr + position * HALF_DIM + dims, mask=is_dim, other=0.0)[None, :]
        y1 = tl.where(is_value[:, None], x1, x1 * cos - x2 * sin)
        y2 = tl.where(is_value[:, None], x2, x2 * cos + x1 * sin)
        is_query_cell = is_cell & is_query[:, None]
        tl.store(at, y1, mask=is_query_cell)
        tl.store(at + HALF_DIM, y2, mask=is_query_cell)
        page = tl.load(pages_ptr + (position // TOKENS) * num_sequences + sequence).to(tl.int64)
        slot = position % TOKENS
        start = elements_ptr + page * page_elements + layer_start
        key = start + ((heads - HEADS)[:, None] * DIM + dims[None, :]) * TOKENS + slot
        value_head = heads - HEADS - KV_HEADS
        value = start + KV_HEADS * DIM * TOKENS
        value += (value_head * TOKENS + slot)[:, None] * DIM + dims[None, :]
        stored = elements_ptr.dtype.element_ty
        tl.store(key, y1.to(stored), mask=is_cell & is_key[:, None])
        tl.store(key + HALF_DIM * TOKENS, y2.to(stored), mask=is_cell & is_key[:, None])
        tl.store(value, y1.to(stored), mask=is_cell & is_value[:, None])
        tl.store(value + HALF_DIM, y2.to(stored), mask=is_cell & is_value[:, None])


@triton.jit
def gate_rows(
    gate_up_ptr, out_ptr, WIDTH: tl.constexpr, IS_GELU: tl.constexpr, BLOCK: tl.constexpr
):
    """out[row, i] = act(gate[row, i]) * up[row, i]."""
    row = tl.program_id(0).to(tl.int64)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    is_in = columns < WIDTH
    x = tl.load(gate_up_ptr + row * (2 * WIDTH) + columns, mask=is_in, other=0.0)
    up = tl.load(gate_up_ptr + row * (2 * WIDTH) + WIDTH + columns, mask=is_in, other=0.0)
    if IS_GELU:
        inner = 0.7978845608028654 * (x + 0.044715 * x * x * x)
        activated = x * tl.sigmoid(2 * inner)  # (1 + tanh z) / 2 is the sigmoid of 2 z
    else:
        activated = x * tl.sigmoid(x)
    out = out_ptr + row * WIDTH + columns
    tl.store(out, (activated * up).to(out_ptr.dtype.element_ty), mask=is_in)
