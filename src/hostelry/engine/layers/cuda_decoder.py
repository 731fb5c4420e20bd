"""A decoder for CUDA: dense products by torch, everything between them by Triton's kernels.

Rounds where `layers.decoder.TorchDecoder` does, which defines the result. Two differences remain
beside the order of sums: for bf16 and fp16, products of queries with keys, of softmax weights with
values, and of an adapter's low-rank values with B for a tile of rows, hold the first factor in tf32
(11 bits), not fp32. And the order of sums in cuBLAS depends on the number of rows, so that equal
rows of different steps may differ in their last bits.

For one rank; with tensor parallelism `TorchDecoder` computes.

# T rows, H hidden, I intermediate, O fused output columns, S logit rows, V vocabulary
"""

from collections.abc import Sequence

import torch

from hostelry.engine.kernels.batch import MODULES, ForwardBatch, LoraSegment
from hostelry.engine.kernels.decoder import LogitsDecoder
from hostelry.engine.kernels.pool import PoolLayout, PoolTensor
from hostelry.engine.kernels.triton.attention import AttentionShape, attend
from hostelry.engine.kernels.triton.lora import FusedModules, add_lora
from hostelry.engine.kernels.triton.rows import HeadNorms, add_and_norm, gate, rotate_and_store
from hostelry.engine.kernels.triton.step import (
    DeviceStep,
    StepBlock,
    has_long_segments,
    step_sizes,
)
from hostelry.engine.kernels.triton.tables import AdapterTables, StepAdapters
from hostelry.engine.kernels.weights import DecoderWeights, Projection
from hostelry.engine.layers.parallel import Alone
from hostelry.engine.layers.segmented_lora import SegmentedLora


class CudaDecoder(LogitsDecoder):
    """A model on one device. See `kernels.decoder.Decoder`; reads all layers at once.

    `forward` computes any step. `runner.graphs` prepares steps with `adapters` and `tile_rows`, and
    captures `compute`.
    """

    def __init__(self, weights: DecoderWeights) -> None:
        self.device = weights.embedding_VH.device
        self._weights = weights
        with torch.inference_mode():
            self._layers = [weights.layer(index) for index in range(weights.num_layers)]
        query = weights.num_heads * weights.head_dim
        key = weights.num_kv_heads * weights.head_dim
        hidden, inner = weights.hidden_size, weights.intermediate_size
        self._qkv = _fused("q_proj", (query, key, key), hidden)
        self._o = _fused("o_proj", (hidden,), query)
        self._gate_up = _fused("gate_proj", (inner, inner), hidden)
        self._down = _fused("down_proj", (hidden,), inner)
        self._tables = AdapterTables(self.device)
        self.max_len = min(len(rope.cos_PD) for rope in weights.ropes)

    @torch.inference_mode()
    def forward(self, batch: ForwardBatch, pool: PoolTensor) -> torch.Tensor:
        """Logits (S, V) fp32 of `batch.logit_rows_S`; writes the rows' keys and values."""
        adapters = self.adapters(batch.segments)
        is_tiled = has_long_segments(batch)
        tile_rows = self.tile_rows(pool.layout)
        sizes = step_sizes(batch, tile_rows=tile_rows, is_tiled=is_tiled)
        block = StepBlock(sizes, self.device)
        block.send(batch, adapters, tile_rows=tile_rows)
        step = block.view(
            max_rank=adapters.max_rank, is_aligned=adapters.is_aligned, is_tiled=is_tiled
        )
        if not adapters.has_wide:
            return self.compute(step, pool)
        return self._with_vocabulary(batch, step, pool)

    def adapters(self, segments: Sequence[LoraSegment]) -> StepAdapters:
        """The tables of a step's adapters, sent to the device where they are not there yet."""
        return self._tables.of(segments)

    def tile_rows(self, layout: PoolLayout) -> int:
        """The most rows of a prompt's tile."""
        return self._attention(layout).tile_rows

    @torch.inference_mode()
    def compute(self, step: DeviceStep, pool: PoolTensor) -> torch.Tensor:
        """Logits (S, V) of a step without updates of the vocabulary; queues work only."""
        x_TH = self._hidden(self._embedded(step), step, pool)
        return self._logits(x_TH, step)

    def _with_vocabulary(
        self, batch: ForwardBatch, step: DeviceStep, pool: PoolTensor
    ) -> torch.Tensor:
        """As `compute`, with updates of embed_tokens and lm_head by torch; they are rare."""
        lora = SegmentedLora(batch.segments, pool.elements, Alone())
        table_VH = self._weights.embedding_VH
        hidden_TH = table_VH.index_select(0, step.token_ids_T).float()
        lora.add_to_embedding(batch.token_ids_T, hidden_TH)
        x_TH = self._hidden(hidden_TH.mul_(self._weights.embedding_scale), step, pool)
        logits_SV = self._logits(x_TH, step)
        x_SH = x_TH.index_select(0, step.logit_rows_S)
        lora.add_to_logits(batch.logit_rows_S, x_SH.float(), logits_SV)
        return logits_SV

    def _embedded(self, step: DeviceStep) -> torch.Tensor:
        rows_TH = self._weights.embedding_VH.index_select(0, step.token_ids_T)
        return rows_TH.float().mul_(self._weights.embedding_scale)

    def _hidden(self, hidden_TH: torch.Tensor, step: DeviceStep, pool: PoolTensor) -> torch.Tensor:
        """The layers' result after the final norm, rounded, (T, H); `hidden_TH` is overwritten."""
        weights = self._weights
        update_TH: torch.Tensor | None = None
        update_norm_H: torch.Tensor | None = None
        for index, layer in enumerate(self._layers):
            x_TH = self._normed(hidden_TH, update_TH, update_norm_H, layer.input_norm_H)
            out_TH = self._attended(x_TH, index, step, pool)
            x_TH = self._normed(hidden_TH, out_TH, layer.attn_out_norm_H, layer.mlp_norm_H)
            gate_up_TO = _product(x_TH, layer.gate_up)
            self._add_lora(x_TH, gate_up_TO, index, self._gate_up, step, pool)
            gated_TI = gate(gate_up_TO, weights.activation, weights.dtype)
            update_TH = _product(gated_TI, layer.down)
            self._add_lora(gated_TI, update_TH, index, self._down, step, pool)
            update_norm_H = layer.mlp_out_norm_H
        return self._normed(hidden_TH, update_TH, update_norm_H, weights.final_norm_H)

    def _attended(
        self, x_TH: torch.Tensor, index: int, step: DeviceStep, pool: PoolTensor
    ) -> torch.Tensor:
        """The output of attention and its projection, (T, H) fp32."""
        layer, weights = self._layers[index], self._weights
        qkv_TO = _product(x_TH, layer.qkv)
        self._add_lora(x_TH, qkv_TO, index, self._qkv, step, pool)
        norms = HeadNorms(query_D=layer.q_norm_D, key_D=layer.k_norm_D, eps=weights.norm_eps)
        rotate_and_store(qkv_TO, pool, index, step, weights.ropes[layer.rope], norms)
        shape = self._attention(pool.layout)
        attended_TO = attend(qkv_TO, pool, index, step, shape, layer.window)
        out_TH = _product(attended_TO, layer.o)
        self._add_lora(attended_TO, out_TH, index, self._o, step, pool)
        return out_TH

    def _add_lora(
        self,
        x_TI: torch.Tensor,
        y_TO: torch.Tensor,
        layer: int,
        modules: FusedModules,
        step: DeviceStep,
        pool: PoolTensor,
    ) -> None:
        if step.max_rank:
            first = layer * len(MODULES) + modules.first
            add_lora(x_TI, y_TO, pool.elements, step, modules, first_module=first)

    def _logits(self, x_TH: torch.Tensor, step: DeviceStep) -> torch.Tensor:
        x_SH = x_TH.index_select(0, step.logit_rows_S)
        return _product(x_SH, Projection(weight_OI=self._weights.lm_head_VH))

    def _normed(
        self,
        hidden_TH: torch.Tensor,
        update_TH: torch.Tensor | None,
        update_norm_H: torch.Tensor | None,
        norm_H: torch.Tensor,
    ) -> torch.Tensor:
        weights = self._weights
        return add_and_norm(
            hidden_TH, update_TH, update_norm_H, norm_H, eps=weights.norm_eps, dtype=weights.dtype
        )

    def _attention(self, layout: PoolLayout) -> AttentionShape:
        return AttentionShape(
            num_heads=self._weights.num_heads,
            layout=layout,
            scale=self._weights.attention_scale,
            max_len=self.max_len,
        )


def _fused(first: str, widths: tuple[int, ...], in_features: int) -> FusedModules:
    return FusedModules(first=MODULES.index(first), widths=widths, in_features=in_features)


def _product(x_TI: torch.Tensor, projection: Projection) -> torch.Tensor:
    """The product x W^T + bias, summed and returned in fp32."""
    weight_OI = projection.weight_OI
    if weight_OI.is_cuda and weight_OI.dtype is not torch.float32:
        y_TO = torch.mm(x_TI, weight_OI.T, out_dtype=torch.float32)
    else:
        y_TO = x_TI.float() @ weight_OI.float().T
    return y_TO if projection.bias_O is None else y_TO.add_(projection.bias_O)
