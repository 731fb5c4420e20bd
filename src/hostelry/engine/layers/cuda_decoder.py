"""A decoder for CUDA: dense products by torch, everything between them by Triton's kernels.

Rounds at the same places as `layers.decoder.TorchDecoder`, which defines the result. Three
differences remain in addition to the order of sums. For bf16 and fp16, products of queries with
keys, of softmax weights with values, and of an adapter's low-rank values with B for a tile of rows,
hold the first factor in tf32 (11 bits), not fp32. For a prompt's rows queries and softmax weights
are rounded to the model's type. The order of sums in cuBLAS depends on the number of rows, so that
equal rows of different steps may differ in their last bits.

Several ranks divide weights as `layers.parallel` does and adapters as `layers.segmented_lora` does,
except that all low-rank products are summed over ranks: a rank has zeros for other ranks' rows of
A. So all ranks call the same collectives for any adapters.

# T rows, H hidden, I intermediate, O fused output columns, S logit rows, V vocabulary
"""

from collections.abc import Sequence

import torch

from hostelry.engine.kernels.batch import MODULES, ForwardBatch, Int32, LoraSegment
from hostelry.engine.kernels.decoder import LogitsDecoder
from hostelry.engine.kernels.pool import PoolLayout, PoolTensor
from hostelry.engine.kernels.triton.attention import AttentionShape, attend
from hostelry.engine.kernels.triton.lora import FusedModules, add_lora
from hostelry.engine.kernels.triton.rows import HeadNorms, add_and_norm, gate, rotate_and_store
from hostelry.engine.kernels.triton.step import (
    DeviceStep,
    StepBlock,
    get_step_sizes,
    has_long_segments,
)
from hostelry.engine.kernels.triton.tables import AdapterTables, StepAdapters
from hostelry.engine.kernels.weights import DecoderWeights, Projection
from hostelry.engine.layers.parallel import Alone, Collective, SharedVocabulary
from hostelry.engine.layers.segmented_lora import SegmentedLora


class CudaDecoder(LogitsDecoder):
    """A model on one device, or a rank's shard of it with a `collective`.

    Reads all layers at once. See `kernels.decoder.Decoder`. `forward` computes any step.
    `runner.graphs` prepares steps with `adapters` and `tile_rows`, and captures `compute`.
    """

    def __init__(self, weights: DecoderWeights, collective: Collective | None = None) -> None:
        self.device = weights.embedding_VH.device
        self._collective: Collective = collective or Alone()
        shard = self._collective.shard
        self._sum_low = None if shard.world_size == 1 else self._collective.all_reduce
        self._vocabulary = SharedVocabulary(weights, self._collective)
        self._weights = weights
        with torch.inference_mode():
            self._layers = [weights.layer(index) for index in range(weights.num_layers)]
        query = weights.num_heads * weights.head_dim
        key = weights.num_kv_heads * weights.head_dim
        hidden, inner = weights.hidden_size, weights.intermediate_size
        self._own = shard.span(hidden)  # the columns of updates of o_proj and down_proj
        partial = self._own.stop - self._own.start
        self._qkv = _fuse_modules("q_proj", (query, key, key), hidden)
        self._o = _fuse_modules("o_proj", (partial,), query)
        self._gate_up = _fuse_modules("gate_proj", (inner, inner), hidden)
        self._down = _fuse_modules("down_proj", (partial,), inner)
        self._tables = AdapterTables(self.device)
        self.max_len = min(len(rope.cos_PD) for rope in weights.ropes)

    @torch.inference_mode()
    def forward(self, batch: ForwardBatch, pool: PoolTensor) -> torch.Tensor:
        """Logits (S, V) fp32 of `batch.logit_rows_S`. Writes the rows' keys and values."""
        adapters = self.adapters(batch.segments)
        is_tiled = has_long_segments(batch)
        tile_rows = self.tile_rows(pool.layout)
        sizes = get_step_sizes(batch, tile_rows=tile_rows, is_tiled=is_tiled)
        block = StepBlock(sizes, self.device)
        block.send(batch, adapters, tile_rows=tile_rows)
        step = block.view(
            max_rank=adapters.max_rank, is_aligned=adapters.is_aligned, is_tiled=is_tiled
        )
        if not adapters.has_wide:
            return self.compute(step, pool)
        return self._compute_with_vocabulary(batch, step, pool)

    def adapters(self, segments: Sequence[LoraSegment]) -> StepAdapters:
        """The tables of a step's adapters. Sends missing tables to the device."""
        return self._tables.get(segments)

    def tile_rows(self, layout: PoolLayout) -> int:
        """The most rows of a prompt's tile."""
        return self._get_attention_shape(layout).tile_rows

    @torch.inference_mode()
    def compute(self, step: DeviceStep, pool: PoolTensor) -> torch.Tensor:
        """Logits (S, V) of a step without updates of the vocabulary. Only queues work."""
        x_TH = self._run_layers(self._embed(step), step, pool)
        return self._compute_logits(x_TH, step)

    def _compute_with_vocabulary(
        self, batch: ForwardBatch, step: DeviceStep, pool: PoolTensor
    ) -> torch.Tensor:
        """Compute with updates of embed_tokens and lm_head by torch. They are rare."""
        lora = SegmentedLora(batch.segments, pool.elements, self._collective)
        x_TH = self._run_layers(self._embed(step, batch.token_ids_T, lora), step, pool)
        return self._compute_logits(x_TH, step, batch.logit_rows_S, lora)

    def _embed(
        self, step: DeviceStep, ids_T: Int32 | None = None, lora: SegmentedLora | None = None
    ) -> torch.Tensor:
        hidden_TH = self._vocabulary.look_up(step.token_ids_T)
        if lora is not None and ids_T is not None:
            lora.add_to_embedding(ids_T, hidden_TH)
        return self._collective.all_reduce(hidden_TH).mul_(self._weights.embedding_scale)

    def _run_layers(
        self, hidden_TH: torch.Tensor, step: DeviceStep, pool: PoolTensor
    ) -> torch.Tensor:
        """The layers' result after the final norm, rounded, (T, H). Overwrites `hidden_TH`."""
        weights = self._weights
        update_TH: torch.Tensor | None = None
        update_norm_H: torch.Tensor | None = None
        for index, layer in enumerate(self._layers):
            x_TH = self._normalize(hidden_TH, update_TH, update_norm_H, layer.input_norm_H)
            out_TH = self._attend(x_TH, index, step, pool)
            x_TH = self._normalize(hidden_TH, out_TH, layer.attn_out_norm_H, layer.mlp_norm_H)
            gate_up_TO = _multiply(x_TH, layer.gate_up)
            self._add_lora(x_TH, gate_up_TO, index, self._gate_up, step, pool)
            gated_TI = gate(gate_up_TO, weights.activation, weights.dtype)
            update_TH = _multiply(gated_TI, layer.down)
            self._add_lora(gated_TI, update_TH[:, self._own], index, self._down, step, pool)
            self._collective.all_reduce(update_TH)
            update_norm_H = layer.mlp_out_norm_H
        return self._normalize(hidden_TH, update_TH, update_norm_H, weights.final_norm_H)

    def _attend(
        self, x_TH: torch.Tensor, index: int, step: DeviceStep, pool: PoolTensor
    ) -> torch.Tensor:
        """The output of attention and its projection, (T, H) fp32."""
        layer, weights = self._layers[index], self._weights
        qkv_TO = _multiply(x_TH, layer.qkv)
        self._add_lora(x_TH, qkv_TO, index, self._qkv, step, pool)
        norms = HeadNorms(query_D=layer.q_norm_D, key_D=layer.k_norm_D, eps=weights.norm_eps)
        rotate_and_store(qkv_TO, pool, index, step, weights.ropes[layer.rope], norms)
        shape = self._get_attention_shape(pool.layout)
        attended_TO = attend(qkv_TO, pool, index, step, shape, layer.window)
        out_TH = _multiply(attended_TO, layer.o)
        self._add_lora(attended_TO, out_TH[:, self._own], index, self._o, step, pool)
        return self._collective.all_reduce(out_TH)

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
            add_lora(
                x_TI,
                y_TO,
                pool.elements,
                step,
                modules,
                first_module=first,
                sum_low=self._sum_low,
            )

    def _compute_logits(
        self,
        x_TH: torch.Tensor,
        step: DeviceStep,
        rows_S: Int32 | None = None,
        lora: SegmentedLora | None = None,
    ) -> torch.Tensor:
        x_SH = x_TH.index_select(0, step.logit_rows_S)
        logits_SV = _multiply(x_SH, Projection(weight_OI=self._weights.lm_head_VH))
        if lora is not None and rows_S is not None:
            lora.add_to_logits(rows_S, x_SH.float(), logits_SV)
        return self._vocabulary.gather(logits_SV)

    def _normalize(
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

    def _get_attention_shape(self, layout: PoolLayout) -> AttentionShape:
        return AttentionShape(
            num_heads=self._weights.num_heads,
            layout=layout,
            scale=self._weights.attention_scale,
            max_len=self.max_len,
        )


def _fuse_modules(first: str, widths: tuple[int, ...], in_features: int) -> FusedModules:
    return FusedModules(first=MODULES.index(first), widths=widths, in_features=in_features)


def _multiply(x_TI: torch.Tensor, projection: Projection) -> torch.Tensor:
    """The product x W^T + bias, summed and returned in fp32."""
    weight_OI = projection.weight_OI
    if weight_OI.is_cuda and weight_OI.dtype is not torch.float32:
        y_TO = torch.mm(x_TI, weight_OI.T, out_dtype=torch.float32)
    else:
        y_TO = x_TI.float() @ weight_OI.float().T
    return y_TO if projection.bias_O is None else y_TO.add_(projection.bias_O)
