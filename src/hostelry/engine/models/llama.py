"""Llama: the decoder of Llama checkpoints (SmolLM2, TinyLlama and others of that architecture).

# T tokens, H hidden, I intermediate, O fused output columns, S logit rows, V vocabulary
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch.nn import functional

from hostelry.engine.kernels.linear import DenseWeight
from hostelry.engine.layers.attention import PagedAttention
from hostelry.engine.layers.batch import ForwardBatch
from hostelry.engine.layers.kv_cache import KvCache
from hostelry.engine.layers.linear import Linear
from hostelry.engine.layers.norm import RmsNorm
from hostelry.engine.layers.rope import RopeTable, inverse_frequencies
from hostelry.engine.lora.shapes import ModuleShape, Site, TargetSpace
from hostelry.engine.models.checkpoint import Checkpoint
from hostelry.engine.models.spec import ModelSpec

# Modules fused into one projection because they read the same input: (name, folder, parts).
_PROJECTIONS = (
    ("qkv", "self_attn", ("q_proj", "k_proj", "v_proj")),
    ("o", "self_attn", ("o_proj",)),
    ("gate_up", "mlp", ("gate_proj", "up_proj")),
    ("down", "mlp", ("down_proj",)),
)


@dataclass(frozen=True, slots=True)
class _Layer:
    input_norm: RmsNorm
    qkv: Linear
    o: Linear
    post_norm: RmsNorm
    gate_up: Linear
    down: Linear


class LlamaModel:
    """Weights and the forward pass; keeps nothing of a step."""

    def __init__(
        self,
        spec: ModelSpec,
        *,
        embedding_VH: torch.Tensor,
        layers: Sequence[_Layer],
        final_norm: RmsNorm,
        lm_head_VH: torch.Tensor,
        rope: RopeTable,
    ) -> None:
        self.spec = spec
        self._embedding_VH = embedding_VH
        self._layers = layers
        self._final_norm = final_norm
        self._lm_head = DenseWeight(lm_head_VH)
        self._rope = rope
        self._attention = PagedAttention(spec.num_heads, spec.num_kv_heads, spec.head_dim)

    def forward(self, batch: ForwardBatch, cache: KvCache) -> torch.Tensor:
        """Logits (S, V) in the model's dtype; writes the batch's keys and values into `cache`."""
        hidden_TH = functional.embedding(batch.token_ids_T, self._embedding_VH)
        rope = self._rope.at(batch.positions_T)
        for index, layer in enumerate(self._layers):
            qkv_TO = layer.qkv(layer.input_norm(hidden_TH), batch.lora)
            attended = self._attention(qkv_TO, rope, batch, cache.layer(index))
            hidden_TH += layer.o(attended, batch.lora)
            gate_up_TO = layer.gate_up(layer.post_norm(hidden_TH), batch.lora)
            hidden_TH += layer.down(_gated(gate_up_TO), batch.lora)
        wanted_SH = self._final_norm(hidden_TH[batch.logit_rows_S])
        return self._lm_head(wanted_SH)


def load_llama(
    folder: Path, spec: ModelSpec, *, max_len: int, dtype: torch.dtype, device: torch.device
) -> LlamaModel:
    """The model in `folder`, computing in `dtype` on `device`, for positions up to `max_len`.

    Tensors are mapped, and converted or fused one at a time. Raises ModelError for a missing,
    unexpected or wrongly shaped tensor.
    """
    with Checkpoint(folder) as checkpoint:
        reader = _Reader(checkpoint, spec, dtype, device)
        embedding_VH = reader.tensor("model.embed_tokens.weight", spec.vocab_size, spec.hidden_size)
        layers = [reader.layer(index) for index in range(spec.num_layers)]
        final_norm = reader.norm("model.norm.weight")
        lm_head_VH = reader.lm_head(embedding_VH)
        # Older checkpoints store the frequencies, which config.json gives as well.
        checkpoint.ignore(
            f"model.layers.{index}.self_attn.rotary_emb.inv_freq"
            for index in range(spec.num_layers)
        )
        checkpoint.finish()
    rope = spec.rope
    frequencies = inverse_frequencies(
        spec.head_dim,
        rope.theta,
        kind=rope.kind,
        factor=rope.factor,
        low_freq_factor=rope.low_freq_factor,
        high_freq_factor=rope.high_freq_factor,
        original_max_len=rope.original_max_len,
    )
    return LlamaModel(
        spec,
        embedding_VH=embedding_VH,
        layers=layers,
        final_norm=final_norm,
        lm_head_VH=lm_head_VH,
        rope=RopeTable(frequencies, max_len, dtype, device),
    )


def target_space(spec: ModelSpec) -> TargetSpace:
    """The linear modules adapters may target, and where their updates are added."""
    modules = []
    for layer in range(spec.num_layers):
        for projection, folder, parts in _PROJECTIONS:
            out_start = 0
            for part in parts:
                out_features, in_features = _shape(spec, part)
                modules.append(
                    ModuleShape(
                        path=f"model.layers.{layer}.{folder}.{part}",
                        site=Site(layer, projection),
                        in_features=in_features,
                        out_features=out_features,
                        out_start=out_start,
                    )
                )
                out_start += out_features
    return TargetSpace(modules=modules, other_paths=("model.embed_tokens", "lm_head"))


class _Reader:
    """Takes tensors from a checkpoint in the dtype and on the device of the model."""

    def __init__(
        self, checkpoint: Checkpoint, spec: ModelSpec, dtype: torch.dtype, device: torch.device
    ) -> None:
        self._checkpoint = checkpoint
        self._spec = spec
        self._dtype = dtype
        self._device = device

    def tensor(self, name: str, *shape: int) -> torch.Tensor:
        """One tensor; still mapped where dtype and device are those of the file."""
        return self._checkpoint.take(name, shape).to(dtype=self._dtype, device=self._device)

    def norm(self, name: str) -> RmsNorm:
        """A norm over the hidden size."""
        return RmsNorm(self.tensor(name, self._spec.hidden_size), self._spec.rms_norm_eps)

    def lm_head(self, embedding_VH: torch.Tensor) -> torch.Tensor:
        """The output projection; the embedding itself where they are tied."""
        if self._spec.tie_embeddings:
            self._checkpoint.ignore(iter(["lm_head.weight"]))  # stored by some, equal by definition
            return embedding_VH
        return self.tensor("lm_head.weight", *embedding_VH.shape)

    def layer(self, index: int) -> _Layer:
        """One decoder layer."""
        prefix = f"model.layers.{index}"
        linears = {
            projection: self._linear(f"{prefix}.{folder}", parts, Site(index, projection))
            for projection, folder, parts in _PROJECTIONS
        }
        return _Layer(
            input_norm=self.norm(f"{prefix}.input_layernorm.weight"),
            qkv=linears["qkv"],
            o=linears["o"],
            post_norm=self.norm(f"{prefix}.post_attention_layernorm.weight"),
            gate_up=linears["gate_up"],
            down=linears["down"],
        )

    def _linear(self, prefix: str, parts: Sequence[str], site: Site) -> Linear:
        weights = []
        biases = []
        for part in parts:
            out_features, in_features = _shape(self._spec, part)
            weights.append(self.tensor(f"{prefix}.{part}.weight", out_features, in_features))
            if _has_bias(self._spec, part):
                biases.append(self.tensor(f"{prefix}.{part}.bias", out_features))
        return Linear(_fused(weights), _fused(biases) if biases else None, site)


def _shape(spec: ModelSpec, part: str) -> tuple[int, int]:
    """(out-features, in-features) of a linear module."""
    query = spec.num_heads * spec.head_dim
    key = spec.num_kv_heads * spec.head_dim
    return {
        "q_proj": (query, spec.hidden_size),
        "k_proj": (key, spec.hidden_size),
        "v_proj": (key, spec.hidden_size),
        "o_proj": (spec.hidden_size, query),
        "gate_proj": (spec.intermediate_size, spec.hidden_size),
        "up_proj": (spec.intermediate_size, spec.hidden_size),
        "down_proj": (spec.hidden_size, spec.intermediate_size),
    }[part]


def _has_bias(spec: ModelSpec, part: str) -> bool:
    is_attention = part in ("q_proj", "k_proj", "v_proj", "o_proj")
    return spec.attention_bias if is_attention else spec.mlp_bias


def _fused(parts: Sequence[torch.Tensor]) -> torch.Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(tuple(parts))


def _gated(gate_up_TO: torch.Tensor) -> torch.Tensor:
    """silu(gate) * up. Source: SwiGLU, arXiv:2002.05202."""
    gate_TI, up_TI = gate_up_TO.chunk(2, -1)
    return functional.silu(gate_TI).mul_(up_TI)
