"""An adapter merged into base weights: W + scale * B A, in separate tensors.

The base's tensors are never written: they may be mapped files, or shared with the base's decoder.
Sums are fp32 and rounded once to the model's dtype.

# O out-features, I in-features, R rank, V vocabulary, H hidden
"""

import numpy
import torch
from msgspec.structs import replace

from hostelry.engine.kernels.batch import MODULES
from hostelry.engine.kernels.weights import DecoderWeights, LayerWeights, Projection
from hostelry.engine.lora.errors import AdapterError
from hostelry.engine.lora.image import HostAdapter
from hostelry.engine.lora.layout import Runs

_BLOCK_ROWS = 4096  # merged at a time: the fp32 update of a whole vocabulary would be large
_GROUPS = {
    "qkv": ("q_proj", "k_proj", "v_proj"),
    "o": ("o_proj",),
    "gate_up": ("gate_proj", "up_proj"),
    "down": ("down_proj",),
}


class AdapterMerge:
    """The weights of `base` with `adapter` added.

    Layers are merged as they are read. `changed` has the numbers of the linear modules that differ
    from the base's. `num_bytes` counts the tensors made so far.
    """

    def __init__(self, base: DecoderWeights, adapter: HostAdapter) -> None:
        self._base = base
        self._adapter = adapter
        ranks = adapter.layout.ranks
        self.changed = frozenset(number for number, rank in enumerate(ranks.linears) if rank)
        self.num_bytes = 0

    @torch.inference_mode()
    def weights(self) -> DecoderWeights:
        """The merged weights. Raises AdapterError if a sum is too large for the dtype."""
        base, layout, scales = self._base, self._adapter.layout, self._adapter.scales
        embedding_VH, lm_head_VH = base.embedding_VH, base.lm_head_VH
        if layout.embedding is not None:
            runs = layout.embedding.runs
            update = (self._read_rows(runs.first), self._read_rows(runs.second), scales.embedding)
            embedding_VH = self._add_update(embedding_VH, "embed_tokens", *update)
        if layout.lm_head is not None:
            runs = layout.lm_head.runs
            update = (self._read_rows(runs.first), self._read_rows(runs.second), scales.lm_head)
            lm_head_VH = self._add_update(lm_head_VH, "lm_head", *update)
        return replace(
            base, embedding_VH=embedding_VH, lm_head_VH=lm_head_VH, layer=self._merge_layer
        )

    @torch.inference_mode()
    def _merge_layer(self, index: int) -> LayerWeights:
        layer = self._base.layer(index)
        return replace(
            layer,
            qkv=self._merge_projection(layer.qkv, index, "qkv"),
            o=self._merge_projection(layer.o, index, "o"),
            gate_up=self._merge_projection(layer.gate_up, index, "gate_up"),
            down=self._merge_projection(layer.down, index, "down"),
        )

    def _merge_projection(self, projection: Projection, layer: int, group: str) -> Projection:
        first = layer * len(MODULES)
        numbers = [first + MODULES.index(name) for name in _GROUPS[group]]
        if self.changed.isdisjoint(numbers):
            return projection
        sizes = _list_widths(self._base, group)
        parts = torch.split(projection.weight_OI, sizes)
        merged = [
            self._merge_linear(part, number) for part, number in zip(parts, numbers, strict=True)
        ]
        weight_OI = merged[0] if len(merged) == 1 else torch.cat(merged)
        return replace(projection, weight_OI=weight_OI)

    def _merge_linear(self, weight_OI: torch.Tensor, number: int) -> torch.Tensor:
        if number not in self.changed:
            self.num_bytes += weight_OI.nbytes  # copied with the other modules of its product
            return weight_OI
        runs = self._adapter.layout.linears[number]
        layer, module = divmod(number, len(MODULES))
        return self._add_update(
            weight_OI,
            f"{MODULES[module]} of layer {layer}",
            self._read_rows(runs.second).T,
            self._read_rows(runs.first),
            self._adapter.scales.linears[number],
        )

    def _read_rows(self, runs: Runs) -> torch.Tensor:
        """One half of a module, fp32."""
        rows = torch.cat(tuple(self._adapter.image.rows(runs)))
        return rows.to(self._base.embedding_VH.device, torch.float32)

    def _add_update(
        self,
        base_OI: torch.Tensor,
        name: str,
        left_OR: torch.Tensor,
        right_RI: torch.Tensor,
        scale: float,
    ) -> torch.Tensor:
        """A new tensor base + scale * left @ right."""
        merged_OI = torch.empty_like(base_OI)
        right_RI = right_RI * float(numpy.float32(scale))
        for start in range(0, len(base_OI), _BLOCK_ROWS):
            rows = slice(start, start + _BLOCK_ROWS)
            merged_OI[rows] = torch.addmm(base_OI[rows].float(), left_OR[rows], right_RI)
            if not torch.isfinite(merged_OI[rows]).all():
                raise AdapterError(f"merged into the base, {name} is too large for {base_OI.dtype}")
        self.num_bytes += merged_OI.nbytes
        return merged_OI


def _list_widths(weights: DecoderWeights, group: str) -> list[int]:
    """Columns of each module of a fused product."""
    query = weights.num_heads * weights.head_dim
    key = weights.num_kv_heads * weights.head_dim
    inner, hidden = weights.intermediate_size, weights.hidden_size
    return {"qkv": [query, key, key], "gate_up": [inner, inner]}.get(group, [hidden])
