"""A step as a value of plain arrays, which native code can take in one call.

# T rows (tokens of all sequences), B sequences, P pages, S rows with logits, M modules, R ranks
"""

from collections.abc import Sequence

import msgspec
import numpy
from numpy.typing import NDArray

Int32 = NDArray[numpy.int32]
Int64 = NDArray[numpy.int64]
Float32 = NDArray[numpy.float32]

MODULES = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
"""A layer's linear modules. Module `m` of layer `l` has the number `l * len(MODULES) + m`."""


class WideRows(msgspec.Struct, frozen=True, eq=False, kw_only=True):
    """An update over the vocabulary (embed_tokens or lm_head).

    `vocab_offsets_V` are the positions of each token's `rank` values, `hidden_offsets_R` of each
    rank's `hidden` values. Offsets count elements of the pool.
    """

    rank: int
    scale: float
    vocab_offsets_V: Int64
    hidden_offsets_R: Int64


class AdapterIndex(msgspec.Struct, frozen=True, eq=False, kw_only=True):
    """The positions of one adapter's weights in the pool.

    Module `m` has rank `ranks_M[m]` (0: not targeted) and scale `scales_M[m]`. Its rank `j` has the
    entry `i = firsts_M[m] + j`: row j of A (in-features values) starts at element
    `down_offsets_R[i]` of the pool and column j of B (out-features values) at `up_offsets_R[i]`.
    No row crosses the end of a page. Semantics, for each row x of the adapter:
    y += scales_M[m] * sum_j (A_j . x) * B_j.
    """

    ranks_M: Int32
    scales_M: Float32
    firsts_M: Int32
    down_offsets_R: Int64
    up_offsets_R: Int64
    embedding: WideRows | None = None
    lm_head: WideRows | None = None


class LoraSegment(msgspec.Struct, frozen=True, eq=False, kw_only=True):
    """Rows [row_start, row_end) of the step belong to one adapter."""

    row_start: int
    row_end: int
    index: AdapterIndex


class ForwardBatch(msgspec.Struct, frozen=True, eq=False, kw_only=True):
    """Rows of several sequences one after another, decode and prefill alike.

    Sequence b has the rows [row_starts_B1[b], row_starts_B1[b + 1]). They are the last of its
    `lengths_B[b]` tokens. Its keys and values lie, in order, in the pages `pages_BP[b]` (filled up
    with -1). The step writes the keys and values of its rows. `positions_T` are the rows' positions
    in their sequence. Logits are computed for `logit_rows_S`. Segments do not overlap and come in
    order. Rows outside segments are the base model's. Rows of one adapter are adjacent.
    """

    token_ids_T: Int32
    positions_T: Int32
    row_starts_B1: Int32
    lengths_B: Int32
    pages_BP: Int32
    logit_rows_S: Int32
    segments: Sequence[LoraSegment] = ()

    @property
    def num_rows(self) -> int:
        """Rows of the step."""
        return len(self.token_ids_T)
