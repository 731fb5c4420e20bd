"""Grouped-query attention of a mixed batch over the page pool."""

import torch

from hostelry.engine.kernels.attention import decode_attention, prefill_attention
from hostelry.engine.layers.batch import DecodeGroup, ForwardBatch, PrefillChunk
from hostelry.engine.layers.rope import rotate

# T tokens, H query heads, K key-value heads, G = H / K, D head dimension


class PagedAttention:
    """Rotates, stores this step's keys and values, and attends to all of each request's own."""

    def __init__(self, num_heads: int, num_kv_heads: int, head_dim: int) -> None:
        self._num_heads = num_heads
        self._num_kv_heads = num_kv_heads
        self._head_dim = head_dim
        self._scale = head_dim**-0.5

    def __call__(
        self,
        qkv_TO: torch.Tensor,
        rope: tuple[torch.Tensor, torch.Tensor],
        batch: ForwardBatch,
        kv: tuple[torch.Tensor, torch.Tensor],
    ) -> torch.Tensor:
        """Attended values (T, H * D); writes the step's tokens into `kv`.

        qkv_TO: queries, keys and values side by side. rope: cosines and signed sines (T, 1, D).
        """
        heads_TND = qkv_TO.view(qkv_TO.shape[0], -1, self._head_dim)
        num_rotated = self._num_heads + self._num_kv_heads
        rotated_TND = rotate(heads_TND[:, :num_rotated], *rope)
        q_THD = rotated_TND[:, : self._num_heads]
        k_NSKD, v_NSKD = kv
        _store(k_NSKD, rotated_TND[:, self._num_heads :], batch.slots_T)
        _store(v_NSKD, heads_TND[:, num_rotated:], batch.slots_T)
        if len(batch.decode) == 1 and batch.decode[0].rows_B is None:
            return self._decode(q_THD, batch.decode[0], kv)
        out_TO = qkv_TO.new_empty(qkv_TO.shape[0], self._num_heads * self._head_dim)
        for group in batch.decode:
            assert group.rows_B is not None, "a group of all rows is alone"
            out_TO[group.rows_B] = self._decode(q_THD[group.rows_B], group, kv)
        for chunk in batch.prefill:
            rows = slice(chunk.row_start, chunk.row_end)
            out_TO[rows] = self._prefill(q_THD[rows], chunk, kv)
        return out_TO

    def _decode(
        self,
        q_BHD: torch.Tensor,
        group: DecodeGroup,
        kv: tuple[torch.Tensor, torch.Tensor],
    ) -> torch.Tensor:
        num_rows = q_BHD.shape[0]
        q_BKGD = q_BHD.view(num_rows, self._num_kv_heads, -1, self._head_dim)
        out = decode_attention(q_BKGD, *kv, group.pages_BP, group.bias_B11L, self._scale)
        return out.reshape(num_rows, -1)

    def _prefill(
        self,
        q_THD: torch.Tensor,
        chunk: PrefillChunk,
        kv: tuple[torch.Tensor, torch.Tensor],
    ) -> torch.Tensor:
        k_LKD, v_LKD = (
            part.index_select(0, chunk.pages_P).flatten(0, 1)[: chunk.length] for part in kv
        )
        out_THD = prefill_attention(q_THD, k_LKD, v_LKD, self._scale)
        return out_THD.reshape(out_THD.shape[0], -1)


def _store(pages_NSKD: torch.Tensor, x_TKD: torch.Tensor, slots_T: torch.Tensor) -> None:
    """Write each token's row into its slot."""
    pages_NSKD.flatten(0, 1).index_copy_(0, slots_T, x_TKD)
