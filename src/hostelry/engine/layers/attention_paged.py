"""Attention over the page pool: keys and values are stored, then read back page by page.

# T rows, N pages of the pool, S tokens of a page. In a group: B sequences, R rows each, P pages,
# L = P * S keys, H query heads, K key-value heads, G = H / K, M = G * R, D head dimension
"""

from collections.abc import Sequence
from typing import Any

import msgspec
import numpy
import torch
from numpy.typing import NDArray

from hostelry.engine.kernels.batch import ForwardBatch
from hostelry.engine.kernels.pool import PoolTensor

_BLOCK_ROWS = 256  # of a long prompt at once, so that scores take little memory


class RowGroup(msgspec.Struct, frozen=True, eq=False, kw_only=True):
    """Rows attended together: one of each of several sequences, or several of one sequence."""

    rows_BR: torch.Tensor
    first_position: int
    positions_BR: torch.Tensor
    pages_BP: torch.Tensor


class AttentionRows(msgspec.Struct, frozen=True, eq=False, kw_only=True):
    """The slots and groups of a step's rows, equal for all layers."""

    pages_T: torch.Tensor
    slots_T: torch.Tensor
    groups: Sequence[RowGroup]


def group_rows(batch: ForwardBatch, page_tokens: int, device: torch.device) -> AttentionRows:
    """The rows of a step as tensors on `device`."""
    starts_B1 = batch.row_starts_B1
    counts_B = numpy.diff(starts_B1)
    sequence_T = numpy.repeat(numpy.arange(len(counts_B)), counts_B)
    ordinals_T = batch.positions_T // page_tokens
    # Sequences of one row and similar length go together, so that little is padded.
    alike: dict[int, list[int]] = {}
    groups: list[tuple[NDArray[numpy.integer[Any]], list[int]]] = []
    for sequence, count in enumerate(counts_B):
        first = int(starts_B1[sequence])
        if count == 1:
            alike.setdefault(int(ordinals_T[first]).bit_length(), []).append(sequence)
            continue
        for start in range(first, first + int(count), _BLOCK_ROWS):
            stop = min(start + _BLOCK_ROWS, first + int(count))
            groups.append((numpy.arange(start, stop)[None], [sequence]))
    groups += [(starts_B1[it][:, None], it) for it in alike.values()]

    def tensor(values: NDArray[numpy.integer[Any]]) -> torch.Tensor:
        return torch.from_numpy(values.astype(numpy.int64)).to(device)

    row_groups = []
    for rows_BR, sequences in groups:
        num_pages = int(ordinals_T[rows_BR].max()) + 1
        row_groups.append(
            RowGroup(
                rows_BR=tensor(rows_BR),
                first_position=int(batch.positions_T[rows_BR].min()),
                positions_BR=tensor(batch.positions_T[rows_BR]),
                # A sequence with fewer pages is filled with any page: its keys are not seen.
                pages_BP=tensor(batch.pages_BP[sequences, :num_pages].clip(min=0)),
            )
        )
    return AttentionRows(
        pages_T=tensor(batch.pages_BP[sequence_T, ordinals_T]),
        slots_T=tensor(batch.positions_T % page_tokens),
        groups=row_groups,
    )


def store(
    pool: PoolTensor, layer: int, k_TKD: torch.Tensor, v_TKD: torch.Tensor, rows: AttentionRows
) -> None:
    """Write the rows' keys and values, rounded to the pool's dtype, into their pages."""
    keys_NKDS, values_NKSD = pool.keys(layer), pool.values(layer)
    keys_NKDS[rows.pages_T, :, :, rows.slots_T] = k_TKD.to(keys_NKDS.dtype)
    values_NKSD[rows.pages_T, :, rows.slots_T] = v_TKD.to(values_NKSD.dtype)


def attend(
    q_THD: torch.Tensor,
    pool: PoolTensor,
    layer: int,
    rows: AttentionRows,
    *,
    window: int | None,
    scale: float,
) -> torch.Tensor:
    """Attended values (T, H * D), fp32, of every row over the keys of its sequence up to itself.

    With a `window` over the last `window` of them. Scores and their softmax are fp32.
    """
    page_tokens = pool.layout.page_tokens
    heads_K1 = torch.arange(pool.layout.num_kv_heads, device=q_THD.device)[:, None]
    out_TO = torch.empty_like(q_THD).flatten(1)
    for group in rows.groups:
        # Pages that end before the first row's window are left out.
        skipped = 0 if window is None else max(0, group.first_position - window + 1) // page_tokens
        pages_B1P = group.pages_BP[:, None, skipped:]
        out_TO[group.rows_BR] = attend_group(
            q_THD[group.rows_BR],
            pool.keys(layer)[pages_B1P, heads_K1].float(),
            pool.values(layer)[pages_B1P, heads_K1].float(),
            group.positions_BR - skipped * page_tokens,
            window=window,
            scale=scale,
        )
    return out_TO


def attend_group(
    q_BRHD: torch.Tensor,
    k_BKPDS: torch.Tensor,
    v_BKPSD: torch.Tensor,
    positions_BR: torch.Tensor,
    *,
    window: int | None,
    scale: float,
) -> torch.Tensor:
    """Attended values (B, R, H * D) of rows at these positions.

    Key l = p * S + s is at position l. Overwrites values that no row sees.
    """
    num_sequences, num_rows, _, width = q_BRHD.shape
    v_BKLD = v_BKPSD.flatten(2, 3)
    num_kv_heads, num_keys = v_BKLD.shape[1:3]
    q_BKGRD = q_BRHD.view(num_sequences, num_rows, num_kv_heads, -1, width).permute(0, 2, 3, 1, 4)
    scores_BKML = q_BKGRD.flatten(2, 3) @ k_BKPDS.transpose(2, 3).flatten(3) * scale
    scores_BKGRL = scores_BKML.view(num_sequences, num_kv_heads, -1, num_rows, num_keys)
    keys_L = torch.arange(num_keys, device=q_BRHD.device)
    seen_BRL = keys_L <= positions_BR.unsqueeze(2)
    if window is not None:
        seen_BRL &= keys_L > positions_BR.unsqueeze(2) - window
    scores_BKGRL.masked_fill_(~seen_BRL[:, None, None], -torch.inf)
    weights_BKML = scores_BKGRL.softmax(-1).flatten(2, 3)
    # An element that no row sees may be nan, and nan times a weight of 0 is nan.
    v_BKLD.masked_fill_(~seen_BRL.any(1)[:, None, :, None], 0.0)
    out_BKGRD = (weights_BKML @ v_BKLD).view(num_sequences, num_kv_heads, -1, num_rows, width)
    return out_BKGRD.permute(0, 3, 1, 2, 4).flatten(2)
