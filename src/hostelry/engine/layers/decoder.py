"""A decoder in plain torch, for any device: the reference that faster decoders are tested against.

Rounding for a dtype narrower than fp32: the residual stream, norms, rotations, scores, softmax,
activations and low-rank products are fp32. The input of every product with a weight is rounded to
the dtype (adapters take the same rounded input), and so are stored keys and values. Products of
rounded numbers are exact in fp32 and are summed in it. The result of a product is not rounded. So
two implementations differ by the order of sums only.

# T rows, H hidden, I intermediate, O fused output columns, S logit rows, V vocabulary,
# N heads, D head dimension. N, I, O and V are this rank's
"""

import torch
from torch.nn import functional

from hostelry.engine.kernels.batch import ForwardBatch
from hostelry.engine.kernels.decoder import LogitsDecoder
from hostelry.engine.kernels.pool import PoolTensor
from hostelry.engine.kernels.weights import DecoderWeights, Projection
from hostelry.engine.layers.attention_paged import AttentionRows, attend, group_rows, store
from hostelry.engine.layers.parallel import Alone, Collective, SharedVocabulary
from hostelry.engine.layers.rotary import rotate
from hostelry.engine.layers.segmented_lora import SegmentedLora


class TorchDecoder(LogitsDecoder):
    """A model on one rank.

    With a `collective` the weights are this rank's shard. Reads all layers at once. See
    `kernels.decoder.Decoder`.
    """

    def __init__(self, weights: DecoderWeights, collective: Collective | None = None) -> None:
        self._weights = weights
        self._collective: Collective = collective or Alone()
        self._device = weights.embedding_VH.device
        with torch.inference_mode():
            self._layers = [weights.layer(index) for index in range(weights.num_layers)]
        self._vocabulary = SharedVocabulary(weights, self._collective)
        query = weights.num_heads * weights.head_dim
        key = weights.num_kv_heads * weights.head_dim
        self._qkv = (("q_proj", query), ("k_proj", key), ("v_proj", key))
        self._gate_up = (
            ("gate_proj", weights.intermediate_size),
            ("up_proj", weights.intermediate_size),
        )

    @torch.inference_mode()
    def forward(self, batch: ForwardBatch, pool: PoolTensor) -> torch.Tensor:
        """Logits (S, V) fp32 of `batch.logit_rows_S`. Writes the rows' keys and values."""
        lora = SegmentedLora(batch.segments, pool.elements, self._collective)
        rows = group_rows(batch, pool.layout.page_tokens, self._device)
        positions_T = torch.from_numpy(batch.positions_T).to(self._device, torch.int64)
        hidden_TH = self._embed(batch, lora)
        turns = [
            (rope.cos_PD[positions_T].unsqueeze(1), rope.sin_PD[positions_T].unsqueeze(1))
            for rope in self._weights.ropes
        ]
        for index, layer in enumerate(self._layers):
            q_TND = self._project_and_store(hidden_TH, index, turns[layer.rope], rows, lora, pool)
            scale = self._weights.attention_scale
            attended = attend(q_TND, pool, index, rows, window=layer.window, scale=scale)
            out_TH = self._project_split_input(attended, layer.o, index, "o_proj", lora)
            hidden_TH += self._normalize(out_TH, layer.attn_out_norm_H)
            gated_TI = self._gate(hidden_TH, index, lora)
            out_TH = self._project_split_input(gated_TI, layer.down, index, "down_proj", lora)
            hidden_TH += self._normalize(out_TH, layer.mlp_out_norm_H)
        return self._compute_logits(hidden_TH, batch, lora)

    def _embed(self, batch: ForwardBatch, lora: SegmentedLora) -> torch.Tensor:
        """Embeddings (T, H) fp32. Each rank has its part of the vocabulary."""
        ids_T = torch.from_numpy(batch.token_ids_T).to(self._device, torch.int64)
        hidden_TH = self._vocabulary.look_up(ids_T)
        lora.add_to_embedding(batch.token_ids_T, hidden_TH)
        return self._collective.all_reduce(hidden_TH).mul_(self._weights.embedding_scale)

    def _project_and_store(
        self,
        hidden_TH: torch.Tensor,
        index: int,
        turn: tuple[torch.Tensor, torch.Tensor],
        rows: AttentionRows,
        lora: SegmentedLora,
        pool: PoolTensor,
    ) -> torch.Tensor:
        """Compute queries (T, N, D), and store keys and values in the pool."""
        layer = self._layers[index]
        weights = self._weights
        x_TH = self._round(self._normalize(hidden_TH, layer.input_norm_H))
        qkv_TO = _multiply(x_TH, layer.qkv)
        lora.add_to_columns(x_TH.float(), qkv_TO, index, self._qkv)
        q_TND, k_TKD, v_TKD = (
            part.view(len(part), -1, weights.head_dim)
            for part in torch.split(qkv_TO, [width for _, width in self._qkv], 1)
        )
        q_TND = rotate(self._normalize(q_TND, layer.q_norm_D), *turn)
        k_TKD = rotate(self._normalize(k_TKD, layer.k_norm_D), *turn)
        store(pool, index, k_TKD, v_TKD, rows)
        return q_TND

    def _gate(self, hidden_TH: torch.Tensor, index: int, lora: SegmentedLora) -> torch.Tensor:
        """act(gate) * up, (T, I). Source: arXiv:2002.05202."""
        layer = self._layers[index]
        x_TH = self._round(self._normalize(hidden_TH, layer.mlp_norm_H))
        gate_up_TO = _multiply(x_TH, layer.gate_up)
        lora.add_to_columns(x_TH.float(), gate_up_TO, index, self._gate_up)
        gate_TI, up_TI = gate_up_TO.chunk(2, 1)
        if self._weights.activation == "gelu_tanh":
            return functional.gelu(gate_TI, approximate="tanh") * up_TI
        return functional.silu(gate_TI) * up_TI

    def _project_split_input(
        self, x_TI: torch.Tensor, projection: Projection, index: int, name: str, lora: SegmentedLora
    ) -> torch.Tensor:
        """The product of a projection with a split input, summed over ranks, (T, H)."""
        x_TI = self._round(x_TI)
        y_TH = _multiply(x_TI, projection)
        lora.add_to_partial(x_TI.float(), y_TH, index, name)
        return self._collective.all_reduce(y_TH)

    def _compute_logits(
        self, hidden_TH: torch.Tensor, batch: ForwardBatch, lora: SegmentedLora
    ) -> torch.Tensor:
        rows_S = torch.from_numpy(batch.logit_rows_S).to(self._device, torch.int64)
        x_SH = self._round(self._normalize(hidden_TH[rows_S], self._weights.final_norm_H))
        logits_SV = _multiply(x_SH, Projection(weight_OI=self._weights.lm_head_VH))
        lora.add_to_logits(batch.logit_rows_S, x_SH.float(), logits_SV)
        return self._vocabulary.gather(logits_SV)

    def _normalize(self, x: torch.Tensor, weight: torch.Tensor | None) -> torch.Tensor:
        """RMS norm over the last dimension, `x` itself without weights. Source: 1910.07467."""
        if weight is None:
            return x
        mean = x.square().mean(-1, keepdim=True)
        return x * torch.rsqrt(mean + self._weights.norm_eps) * weight

    def _round(self, x: torch.Tensor) -> torch.Tensor:
        return x.to(self._weights.dtype)


def _multiply(x_TI: torch.Tensor, projection: Projection) -> torch.Tensor:
    """The product x W^T + bias, summed and returned in fp32."""
    weight_OI = projection.weight_OI
    if weight_OI.is_cuda and weight_OI.dtype is not torch.float32:
        y_TO = torch.mm(x_TI, weight_OI.T, out_dtype=torch.float32)
    else:
        y_TO = functional.linear(x_TI.float(), weight_OI.float())
    return y_TO if projection.bias_O is None else y_TO + projection.bias_O.float()
